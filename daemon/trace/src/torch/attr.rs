//! Attributes of tensors: metadata is folded, the rest are methods.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{DictId, Gradient, Origin, TensorId, Tuple, Value};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::dim::Dim;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, Target, ValueMeta};
use flambeau_ir::oracle::{AnswerValue, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use std::rc::Rc;

impl Tracer<'_> {
    /// `torch.Size(dims)`.
    pub fn size_of(&mut self, dims: &[Dim]) -> Value {
        let hint =
            |d: &Dim| if flambeau_ir::mutated!("size_as_constant") { Dim::Const(self.hint(d)) } else { d.clone() };
        let items = dims.iter().map(|d| Value::dim(hint(d))).collect();
        let class = Some(self.builtin_class("torch.Size"));
        Value::Tuple(Rc::new(Tuple { items, class, attrs: None, origin: None }))
    }

    /// `tensor.name`; `None`: no such attribute.
    pub(crate) fn tensor_attr(&mut self, id: TensorId, name: &str) -> Flow<Option<Value>> {
        if let Some(value) = self.tensor_metadata(id, name)? {
            return Ok(Some(value));
        }
        let value = Value::Tensor(id);
        let class = self.class_of(&value)?;
        if name == "__dict__" {
            let attrs = self.arenas.tensors[id].attrs.unwrap_or_else(|| self.first_attrs(id));
            return Ok(Some(Value::Dict(attrs)));
        }
        // What is left are no data descriptors: an attribute of the tensor's own comes first.
        if let Some(attrs) = self.arenas.tensors[id].attrs
            && let Some(own) = self.dict_get_str(attrs, name)?
        {
            return Ok(Some(own));
        }
        match self.type_lookup(&class, name)? {
            Some((_, Value::Function(f)))
                if !f.module.as_deref().is_some_and(|m| m == "torch" || m.starts_with("torch.")) =>
            {
                Ok(Some(crate::value::function::bound(Value::Function(f), value)))
            }
            Some((_, Value::Function(_) | Value::Builtin(_))) => {
                Ok(Some(Value::bound_builtin(&format!("torch.Tensor.{name}"), value)))
            }
            Some(_) => stop(ReasonCode::UnsupportedObject, format!("Tensor.{name}")),
            None => {
                if self.arenas.tensors[id].attrs.is_none() {
                    self.has_no_attributes(&value);
                }
                Ok(None)
            }
        }
    }

    fn tensor_metadata(&mut self, id: TensorId, name: &str) -> Flow<Option<Value>> {
        let tensor = &self.arenas.tensors[id];
        let meta = &tensor.meta;
        let ndim = meta.ndim();
        let no = Value::bool(false);
        Ok(Some(match name {
            "shape" => {
                let sizes = meta.sizes.clone();
                self.size_of(&sizes)
            }
            "dtype" => Value::Const(Const::Dtype(meta.dtype)),
            "device" => Value::Const(Const::Device(meta.device)),
            "ndim" => Value::int(ndim as i64),
            "requires_grad" => Value::bool(meta.requires_grad),
            "is_leaf" => match (tensor.origin, tensor.meta.requires_grad) {
                (_, false) => Value::bool(true),
                (None, true) => Value::bool(tensor.is_leaf),
                (Some(_), true) if !self.regraded_leaf(id) => {
                    return stop(ReasonCode::UnsupportedObject, "is_leaf of an input");
                }
                (Some(_), true) => Value::bool(true),
            },
            "layout" => Value::Const(Const::Layout("strided".into())),
            "is_sparse" | "is_quantized" | "is_nested" | "is_sparse_csr" | "is_hpu" | "is_ort" => no,
            // The one kind that torch has no such attribute for.
            "is_privateuseone" => return Ok(None),
            _ if name.strip_prefix("is_").and_then(DeviceKind::named).is_some() => {
                Value::bool(meta.device.known().map(|kind| kind.name) == name.strip_prefix("is_"))
            }
            "itemsize" => Value::int(meta.dtype.size() as i64),
            "nbytes" => Value::dim(meta.numel().mul(&Dim::Const(meta.dtype.size() as i64))),
            "grad_fn" if !meta.requires_grad => Value::NONE,
            "grad" if let Some(origin) = tensor.origin => return self.grad(id, origin).map(Some),
            "grad" if tensor.is_leaf => tensor.grad.as_ref().map_or(Value::NONE, |grad| grad.value.clone()),
            "grad_fn"
            | "grad"
            | "_version"
            | "_base"
            | "_grad"
            | "output_nr"
            | "retains_grad"
            | "_cdata"
            | "cdata"
            | "_backward_hooks"
            | "_post_accumulate_grad_hooks" => return self.ask_itself(&format!("Tensor.{name}")),
            "name" | "names" => return stop(ReasonCode::UnsupportedObject, format!("Tensor.{name}")),
            "data" => self.data_of(id)?,
            "T" if ndim == 2 => self.method(id, "t", vec![])?,
            "mT" if ndim >= 2 => self.method(id, "transpose", vec![Value::int(-2), Value::int(-1)])?,
            "T" => {
                let dims = (0..ndim as i64).rev().map(Value::int).collect();
                self.method(id, "permute", vec![Value::tuple(dims)])?
            }
            "H" | "mH" if ndim >= 2 && !meta.dtype.is_complex() && (name == "mH" || ndim == 2) => {
                self.method(id, "transpose", vec![Value::int(-2), Value::int(-1)])?
            }
            "real" if !meta.dtype.is_complex() => Value::Tensor(id),
            "real" | "imag" if meta.dtype.is_complex() => {
                let target = Target::Function(format!("torch.{name}").into());
                self.torch_call(target, Args::new(vec![Value::Tensor(id)]))?
            }
            _ => return Ok(None),
        }))
    }

    /// Whether a tensor is an input of which this trace changed whether it requires grad.
    pub(super) fn regraded_leaf(&self, id: TensorId) -> bool {
        self.storage(id).is_some_and(|storage| self.regraded.contains(&storage))
    }

    /// Whether it is an input of the frame that this trace let require grad.
    pub(crate) fn is_leaf_from_outside(&self, id: TensorId) -> bool {
        let is_on = self.arenas.tensors[id].meta.requires_grad;
        is_on && self.regraded_leaf(id) && matches!(self.frame.options.backend, BackendKind::Native(_))
    }

    /// What a leaf from outside has as its gradient.
    fn grad(&mut self, id: TensorId, of: Origin) -> Flow<Value> {
        if let Some(known) = &self.arenas.tensors[id].grad {
            return Ok(known.value.clone());
        }
        if self.frame.options.backend == BackendKind::Fx {
            // Such a back end may run a graph's derivative while it traces it.
            return self.ask_itself("Tensor.grad");
        }
        let AnswerValue::Object(Some(object)) = self.ask_one(Question::Grad(of.object))? else {
            return self.ask_itself("Tensor.grad");
        };
        let source = self.step(of.source, Step::Grad);
        let value = self.wrap(object, source)?;
        self.arenas.tensors.note(id).grad = Some(Gradient { value: value.clone(), written: false, dropped: false });
        Ok(value)
    }

    /// `tensor.grad = value`, where torch takes it.
    fn set_grad(&mut self, id: TensorId, value: Value) -> Flow<()> {
        let meta = |id: TensorId| {
            let meta = &self.arenas.tensors[id].meta;
            (&meta.sizes, meta.dtype, meta.device)
        };
        let fits = match &value {
            Value::Tensor(grad) => *grad != id && meta(*grad) == meta(id),
            value => value.is_none(),
        };
        let is_fx = self.frame.options.backend == BackendKind::Fx;
        let tensor = &self.arenas.tensors[id];
        if is_fx || !fits || tensor.origin.is_none() && (!tensor.is_leaf || self.leaves_backward.is_some()) {
            return stop(ReasonCode::SideEffect, "setting Tensor.grad");
        }
        let known = &mut self.arenas.tensors[id].grad;
        let dropped = value.is_none() && self.graph.is_idle() || known.as_ref().is_some_and(|grad| grad.dropped);
        *known = Some(Gradient { value, written: true, dropped });
        Ok(())
    }

    /// `tensor.data`: unlike `detach()` it has a version counter of its own, so writes to it go unnoticed by autograd.
    fn data_of(&mut self, id: TensorId) -> Flow<Value> {
        let (node, mut meta) = (self.arenas.tensors[id].node, self.arenas.tensors[id].meta.clone());
        meta.requires_grad = false;
        let args = vec![Arg::Node(node), Arg::Const(Const::Str("data".into()))];
        let target = Target::Function("builtins.getattr".into());
        let node = self.graph_call(&target, args, vec![], ValueMeta::Tensor(meta.clone()))?;
        Ok(self.severed_tensor(node, meta, id))
    }

    fn method(&mut self, id: TensorId, name: &str, args: Vec<Value>) -> Flow<Value> {
        let mut pos = vec![Value::Tensor(id)];
        pos.extend(args);
        self.torch_call(Target::Method(name.into()), Args::new(pos))
    }

    /// `tensor.name = value`.
    pub(crate) fn set_tensor_attr(&mut self, id: TensorId, name: &str, value: Value) -> Flow<()> {
        if name == "grad" {
            return self.set_grad(id, value);
        }
        if name == "requires_grad" && matches!(value, Value::Const(Const::Bool(_))) {
            return self.method(id, "requires_grad_", vec![value]).map(drop);
        }
        if name == "data" && self.is_data_of(&value, id) {
            return Ok(());
        }
        let class = self.class_of(&Value::Tensor(id))?;
        if self.type_lookup(&class, name)?.is_some() {
            return stop(ReasonCode::SideEffect, format!("setting Tensor.{name}"));
        }
        let attrs = self.arenas.tensors[id].attrs.unwrap_or_else(|| self.first_attrs(id));
        self.dict_set(attrs, Value::str(name), value)
    }

    /// Whether a value is the `data` of a tensor, as it is after `tensor.data += 1`.
    fn is_data_of(&self, value: &Value, of: TensorId) -> bool {
        let Value::Tensor(id) = value else { return false };
        let (data, of_meta) = (&self.arenas.tensors[*id], &self.arenas.tensors[of].meta);
        let is_alike = (&data.meta.sizes, &data.meta.strides, data.meta.dtype)
            == (&of_meta.sizes, &of_meta.strides, of_meta.dtype);
        data.severed && data.base == Some(of) && is_alike && !data.meta.requires_grad
    }

    /// The instance dict of a tensor that has none so far.
    fn first_attrs(&mut self, id: TensorId) -> DictId {
        let attrs = self.fresh_attrs();
        if let Some(origin) = self.arenas.tensors[id].origin {
            self.has_no_attributes(&Value::Tensor(id));
            self.arenas.dicts[attrs].belongs_to(origin);
        }
        self.arenas.tensors[id].attrs = Some(attrs);
        attrs
    }
}
