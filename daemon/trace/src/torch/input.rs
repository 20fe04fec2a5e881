//! Tensors and sizes that come from outside: placeholders, symbols, and their guards.

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Origin, TensorValue, Value};
use flambeau_core::trace::Trace;
use flambeau_ir::code::Const;
use flambeau_ir::dim::{Dim, SymId};
use flambeau_ir::frame::{DynamicDim, DynamicOf};
use flambeau_ir::graph::ValueMeta;
use flambeau_ir::guard::{ClassRef, GuardKind, Relation, TensorGuard};
use flambeau_ir::object::{ObjId, Object, ObjectData};
use flambeau_ir::plan::{Symbol, SymbolOf};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::{SourceId, SourceTable, Step};
use flambeau_ir::tensor::{TensorDesc, TensorMeta};
use flambeau_ops::OpArg;
use std::collections::HashSet;
use std::sync::Arc;

impl Tracer<'_> {
    pub(crate) fn wrap_tensor(&mut self, object: &Object, desc: &TensorDesc, origin: Origin) -> Flow<Value> {
        if let Some(what) = &desc.unusual {
            return stop(ReasonCode::UnusualTensor, what.clone());
        }
        if desc.is_inference && !self.ambient.inference_mode {
            return stop(ReasonCode::UnusualTensor, "a tensor made under inference mode");
        }
        if self.regraded.contains(&desc.storage) {
            return stop(ReasonCode::SideEffect, "a view of what began or ceased to require grad");
        }
        if desc.meta.requires_grad && self.written.contains(&desc.storage) {
            return stop(ReasonCode::SideEffect, "a view of what was written to");
        }
        let described = self.describe(object.class)?;
        let ObjectData::Class(class_desc) = &described.data else {
            return stop(ReasonCode::Internal, "a tensor's type that was not described as one");
        };
        let known = ["torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"];
        let Some(path) = described.path.clone().filter(|p| known.contains(&&**p)) else {
            return stop(ReasonCode::UnusualTensor, format!("a tensor of class {}", class_desc.qualname));
        };
        let name = ClassRef { module: class_desc.module.clone(), qualname: class_desc.qualname.clone() };
        let meta = self.symbolic_meta(object.id, desc, origin.source);
        self.guard(
            origin.source,
            GuardKind::Tensor(TensorGuard {
                class: name,
                dtype: meta.dtype,
                device: meta.device,
                sizes: meta.sizes.clone(),
                strides: meta.strides.clone(),
                requires_grad: meta.requires_grad,
                is_leaf_or_view: None,
                dispatch_keys: desc.dispatch_keys,
            }),
        );
        let class = match &*path {
            "torch.Tensor" => None,
            _ => Some(self.guard_type(object.class, origin.source)?),
        };
        let attrs = self.attrs_of(object, origin.source);
        let label = self.input_name(origin.source);
        let node = self.graph.placeholder(origin.source, &label, ValueMeta::Tensor(meta.clone()));
        self.inputs.push((origin, desc.storage));
        let (origin, is_leaf) = (Some(origin), desc.is_leaf_or_view);
        let tensor = TensorValue {
            node,
            meta,
            class,
            origin,
            attrs,
            is_leaf,
            base: None,
            grad: None,
            severed: false,
            chosen: None,
        };
        Ok(Value::Tensor(self.arenas.tensors.push(tensor)))
    }

    /// A tensor's metadata with the sizes that are to be symbolic as symbols.
    fn symbolic_meta(&mut self, object: ObjId, desc: &TensorDesc, source: SourceId) -> TensorMeta {
        let mut meta = desc.meta.clone();
        let all = self.frame.options.dynamic == Some(true);
        let mut symbolic = false;
        for i in 0..meta.sizes.len() {
            let size = DynamicOf::Size(object, i as u32);
            let wanted = self.frame.options.dynamic_dims.iter().position(|d| d.of == size);
            let (min, max) = match wanted.map(|at| &self.frame.options.dynamic_dims[at]) {
                _ if wanted.is_some_and(|at| self.fixed.contains(&at)) => continue,
                Some(d) => (d.min.max(2), d.max),
                None if all => (2, i64::MAX),
                None => continue,
            };
            let Some(hint) = meta.sizes[i].as_const().filter(|s| (min..=max).contains(s)) else { continue };
            meta.sizes[i] = self.new_symbol(source, SymbolOf::Size(i as u32), hint, min, max, wanted);
            symbolic = true;
        }
        if symbolic {
            self.symbolic_strides(&mut meta, desc, source);
        }
        meta
    }

    /// Strides of a dense tensor as products of the sizes inside them; others stay fixed. Each expression is also a guard.
    fn symbolic_strides(&mut self, meta: &mut TensorMeta, desc: &TensorDesc, source: SourceId) {
        let fixed: Vec<i64> = desc.meta.strides.iter().map(|s| s.as_const().unwrap_or(0)).collect();
        let sizes: Vec<i64> = desc.meta.sizes.iter().map(|s| s.as_const().unwrap_or(0)).collect();
        let mut order: Vec<usize> = (0..fixed.len()).collect();
        order.sort_by_key(|i| (fixed[*i], sizes[*i] == 1, std::cmp::Reverse(*i)));
        let (mut expected, mut expression) = (1_i64, Dim::Const(1));
        for i in order {
            if fixed[i] == expected {
                if expression.as_const().is_none() {
                    let symbol = self.new_symbol(source, SymbolOf::Stride(i as u32), fixed[i], 0, i64::MAX, None);
                    let at = self.function_source();
                    self.guard(at, GuardKind::Relation(Relation::Eq, symbol, expression.clone()));
                }
                meta.strides[i] = expression.clone();
            } else {
                expected = fixed[i];
                expression = Dim::Const(fixed[i]);
            }
            expected = expected.wrapping_mul(sizes[i]);
            expression = expression.mul(&meta.sizes[i]);
        }
    }

    /// A symbol; `option` is the options' dynamic dim that it stands for.
    fn new_symbol(
        &mut self,
        source: SourceId,
        of: SymbolOf,
        hint: i64,
        min: i64,
        max: i64,
        option: Option<usize>,
    ) -> Dim {
        let id = SymId(self.symbols.len() as u32);
        self.varying.extend(option.map(|at| (id, at)));
        self.symbols.push(Symbol { id, source, of, hint, min, max });
        Dim::sym(id)
    }

    /// An int that is to be symbolic.
    pub(crate) fn symbolic_int(&mut self, c: &Const, source: SourceId) -> Option<Value> {
        let Const::Int(hint) = c else { return None };
        let (at, wanted) = dynamic_int(&self.frame.options.dynamic_dims, &self.sources, source)?;
        if self.fixed.contains(&at) {
            return None;
        }
        // Zero is where floor division, ranges and indices begin to differ.
        let (min, max) = (wanted.min.max(if self.sized.contains(&at) { 2 } else { 0 }), wanted.max);
        if !(min..=max).contains(hint) {
            return None;
        }
        self.guard(source, GuardKind::Type(ClassRef { module: "builtins".into(), qualname: "int".into() }));
        Some(Value::Int(self.new_symbol(source, SymbolOf::Int, *hint, min, max, Some(at))))
    }

    /// A number that a hook was given, as a symbolic int.
    pub(crate) fn number(&mut self, number: i64, source: SourceId) -> Value {
        if let Some(known) = self.symbols.iter().find(|s| s.source == source) {
            return Value::Int(Dim::sym(known.id));
        }
        self.guard(source, GuardKind::Type(ClassRef { module: "builtins".into(), qualname: "int".into() }));
        Value::Int(self.new_symbol(source, SymbolOf::Int, number, 0, i64::MAX, None))
    }

    /// Symbolic sizes are two at least, as zero and one broadcast in another way. Ints may be less: those that sizes of the
    /// graph were computed from get the bound now. True if one is below it: the frame is to be traced again with it fixed.
    pub(crate) fn bound_sizes(&mut self, trace: &mut Trace) -> bool {
        let mut used = HashSet::new();
        for node in &trace.graph.nodes {
            each_size(&node.meta, &mut |size| size.symbols(&mut |id| _ = used.insert(id)));
        }
        let mut again = false;
        for symbol in trace.symbols.iter_mut().filter(|s| s.of == SymbolOf::Int && used.contains(&s.id)) {
            symbol.min = symbol.min.max(2);
            if symbol.hint < 2 {
                again = true;
                let found = dynamic_int(&self.frame.options.dynamic_dims, &trace.sources, symbol.source);
                self.sized.extend(found.map(|(at, _)| at));
            }
        }
        again
    }

    /// Has the frame traced again with constants for the sizes in these arguments of an op that has no rule for others.
    /// Sizes that were marked stay symbolic, and all do once the function was compiled for half of its limit: a break at
    /// the op costs less than a compile for each size.
    pub(crate) fn fix_sizes(&mut self, args: &[OpArg], kwargs: &[(Arc<str>, OpArg)]) {
        if self.frame.options.cautious && !self.frame.options.fullgraph {
            return;
        }
        let mut symbols = HashSet::new();
        for of_tensors in [false, true] {
            // An argument that is an int may be all that the rule does not know.
            if symbols.is_empty() {
                let visit = &mut |dim: &Dim| dim.symbols(&mut |symbol| _ = symbols.insert(symbol));
                args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| each_dim(arg, of_tensors, visit));
            }
        }
        let options = &self.frame.options.dynamic_dims;
        let fixed: Option<HashSet<usize>> = symbols.iter().map(|symbol| self.varying.get(symbol).copied()).collect();
        let Some(fixed) = fixed.filter(|fixed| !fixed.is_empty() && !fixed.iter().any(|at| options[*at].marked)) else {
            return;
        };
        // The second time, all at once: each time costs a trace.
        let again = !self.fixed.is_empty();
        self.fixed.extend(fixed.into_iter().chain((0..options.len()).filter(|at| again && !options[*at].marked)));
        self.has_learnt = true;
    }

    /// A readable name for an input, from its source.
    pub(super) fn input_name(&self, source: SourceId) -> String {
        let mut parts = Vec::new();
        let mut at = Some(source);
        while let Some(id) = at {
            let node = self.sources.get(id);
            match &node.step {
                Step::Item(Const::Str(s)) if !matches!(&**s, "_parameters" | "_buffers" | "_modules") => {
                    parts.push(s.to_string());
                }
                Step::Item(Const::Int(i)) => parts.push(i.to_string()),
                Step::Index(i) => parts.push(i.to_string()),
                Step::Arg(i) => {
                    let code = &self.root_names;
                    parts.push(code.get(*i as usize).cloned().unwrap_or_else(|| format!("arg{i}")));
                }
                _ => {}
            }
            at = node.base;
        }
        parts.reverse();
        let joined = parts.join("_");
        let clean: String = joined.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if clean.starts_with(|c: char| c.is_ascii_digit()) || clean.is_empty() { format!("x_{clean}") } else { clean }
    }
}

/// The option that asks for the int at a source to be symbolic.
fn dynamic_int<'a>(
    options: &'a [DynamicDim],
    sources: &SourceTable,
    source: SourceId,
) -> Option<(usize, &'a DynamicDim)> {
    let asks = |d: &DynamicDim| matches!(&d.of, DynamicOf::Int(steps) if sources.is_at(source, steps));
    options.iter().enumerate().find(|(_, d)| asks(d))
}

/// Calls `visit` with the sizes of the tensors in an argument, or with the ints.
fn each_dim(arg: &OpArg, of_tensors: bool, visit: &mut impl FnMut(&Dim)) {
    match arg {
        OpArg::Tensor(meta) if of_tensors => meta.sizes.iter().chain(&meta.strides).for_each(visit),
        OpArg::Dim(dim) if !of_tensors => visit(dim),
        OpArg::Tuple(items) | OpArg::List(items) => items.iter().for_each(|item| each_dim(item, of_tensors, visit)),
        OpArg::Slice(parts) => parts.iter().for_each(|item| each_dim(item, of_tensors, visit)),
        OpArg::Tensor(_) | OpArg::Dim(_) | OpArg::Const(_) => {}
    }
}

/// Calls `visit` with each size and stride of the tensors in a value.
fn each_size(meta: &ValueMeta, visit: &mut impl FnMut(&Dim)) {
    match meta {
        ValueMeta::Tensor(t) => t.sizes.iter().chain(&t.strides).for_each(visit),
        ValueMeta::Tuple(parts) => parts.iter().for_each(|part| each_size(part, visit)),
        ValueMeta::Int(_) | ValueMeta::Const(_) | ValueMeta::Object => {}
    }
}
