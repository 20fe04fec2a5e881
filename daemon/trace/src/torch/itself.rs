//! What a program asks of a tensor beyond its metadata: torch answers, on tensors that its own calls made. And what a call
//! does to the tensor itself: `requires_grad_`, leaves that a call makes.

use super::{is, target_name};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, stop};
use crate::value::{TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Target, ValueMeta};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::tensor::contiguous_strides;
use flambeau_ops::Mark;

/// The constant that a call gives, or no single one (`Some(None)`), where it gives no tensor at all.
#[expect(clippy::option_option, reason = "no tensor, and no single constant, are two answers")]
pub(super) fn no_tensor(meta: &ValueMeta) -> Option<Option<Const>> {
    match meta {
        ValueMeta::Tensor(_) | ValueMeta::Object => None,
        ValueMeta::Const(c) => Some(Some(c.clone())),
        ValueMeta::Int(_) => Some(None),
        ValueMeta::Tuple(items) => {
            let consts: Option<Vec<Option<Const>>> = items.iter().map(no_tensor).collect();
            // An empty tuple has no tensor either, but says nothing of one.
            consts
                .filter(|c| !c.is_empty())
                .map(|consts| Some(Const::Tuple(consts.into_iter().collect::<Option<_>>()?)))
        }
    }
}

/// Whether a call that makes a tensor makes a leaf that requires grad.
pub(super) fn makes_leaf(args: &Args) -> bool {
    let off = |value: &Value| matches!(value, Value::Const(Const::Bool(false) | Const::None));
    args.kw.iter().any(|(name, value)| &**name == "requires_grad" && !off(value))
}

/// What `requires_grad_(mode)` is asked for; `None`: no bool.
fn wanted_grad(args: &Args) -> Option<bool> {
    let mode = args.pos.get(1).or_else(|| args.kw.iter().find(|(n, _)| &**n == "requires_grad").map(|(_, v)| v));
    match mode {
        None => Some(true),
        Some(Value::Const(Const::Bool(mode))) => Some(*mode),
        Some(_) => None,
    }
}

impl Tracer<'_> {
    /// For each item of what a call gives, the argument that torch gives as it is; empty where it gives none so.
    pub(super) fn passed(&mut self, target: &Target, args: &Args, meta: &ValueMeta) -> Flow<Vec<Option<Value>>> {
        let ValueMeta::Tuple(items) = meta else { return Ok(vec![]) };
        if !is(target_name(target), Mark::PassesEqual) {
            return Ok(vec![]);
        }
        let mut given = Vec::new();
        for value in &args.pos {
            match value {
                Value::Tensor(_) => given.push(value.clone()),
                several => given.extend(self.collect(several)?),
            }
        }
        let is_equal = |item: &ValueMeta, value: &Value| match (item, value) {
            (ValueMeta::Tensor(item), Value::Tensor(id)) => item.sizes == self.arenas.tensors[*id].meta.sizes,
            _ => false,
        };
        let pairs = items.iter().zip(given);
        Ok(pairs.map(|(item, value)| Some(value).filter(|value| is_equal(item, value))).collect())
    }

    /// Breaks at a question to a tensor. If the trace made it, what torch's calls leave in it has to be there: the graph
    /// before the break runs op by op.
    pub(crate) fn ask_itself<T>(&mut self, what: &str) -> Flow<T> {
        self.exact = true;
        stop(ReasonCode::UnsupportedObject, format!("{what} asks a tensor about itself"))
    }

    /// A scalar of numpy's that derives from a number of Python's has its own type as data of a tensor.
    pub(super) fn check_data(&mut self, target: &Target, args: &Args) -> Flow<()> {
        let name = target_name(target);
        let mut values = args.pos.iter().chain(args.kw.iter().map(|(_, value)| value));
        if is(name, Mark::TakesData) && values.any(|value| self.holds_numpy(value)) {
            return stop(ReasonCode::UnsupportedObject, format!("{name} of a scalar of numpy's"));
        }
        Ok(())
    }

    /// A back end that takes FX reads the numbers of a call while it traces the graph, and tensors have none then.
    pub(super) fn check_numbers(&mut self, target: &Target, args: &Args) -> Flow<()> {
        let name = target_name(target);
        let of_fractions = ["addcdiv", "addcmul"].iter().any(|op| name.trim_end_matches('_').ends_with(op));
        let reads = |word: &str| word == "alpha" || word == "value" && of_fractions;
        let mut words = args.kw.iter();
        if self.frame.options.backend == BackendKind::Fx
            && words.any(|(word, value)| reads(word) && matches!(value, Value::Tensor(_)))
        {
            return stop(ReasonCode::DataDependentValue, format!("{name} of a number that a tensor holds"));
        }
        Ok(())
    }

    fn holds_numpy(&self, value: &Value) -> bool {
        match value {
            Value::Instance(id) => &*self.arenas.instances[*id].class.name.module == "numpy",
            Value::Parts(parts) => parts.of.starts_with("numpy."),
            Value::Tuple(tuple) => tuple.items.iter().any(|item| self.holds_numpy(item)),
            Value::List(id) => self.arenas.lists[*id].items.iter().any(|item| self.holds_numpy(item)),
            _ => false,
        }
    }

    /// A back end that takes FX may trace the graph again, which loses leaves that a call makes: plain Python makes them.
    pub(super) fn check_leaf_made(&mut self, target: &Target, args: &Args) -> Flow<()> {
        if self.frame.options.backend != BackendKind::Fx {
            return Ok(());
        }
        let name = target_name(target);
        let switches = match args.pos.first() {
            // What already is as wanted stays a leaf or none.
            Some(Value::Tensor(id)) if is(name, Mark::SetsGrad) => {
                let now = self.arenas.tensors[*id].meta.requires_grad;
                !matches!(wanted_grad(args), Some(mode) if mode == now)
            }
            _ => makes_leaf(args),
        };
        if switches {
            return stop(
                ReasonCode::SideEffect,
                format!("{name} makes a leaf, which the graph of this back end may lose"),
            );
        }
        Ok(())
    }

    /// A back end that takes FX may make calls with `out=` into functional ones, which neither resize a tensor as torch
    /// does nor keep the strides that it has: plain Python calls those where that shows.
    pub(super) fn check_out(&mut self, target: &Target, args: &Args, result: &ValueMeta) -> Flow<()> {
        let out = args.kw.iter().find(|(name, _)| &**name == "out").map(|(_, value)| value);
        let (BackendKind::Fx, Some(Value::Tensor(id)), ValueMeta::Tensor(result)) =
            (&self.frame.options.backend, out, result)
        else {
            return Ok(());
        };
        let meta = &self.arenas.tensors[*id].meta;
        if meta.sizes == result.sizes && meta.dtype == result.dtype && meta.strides == contiguous_strides(&meta.sizes) {
            return Ok(());
        }
        stop(ReasonCode::SideEffect, format!("{} into a tensor of another layout", target_name(target)))
    }

    /// After `detach_()`, which refuses views.
    pub(super) fn detached(&mut self, id: TensorId) -> Flow<()> {
        let root = self.root(id, false);
        let shared = self.arenas.tensors.iter().any(|(other, _)| other != id && self.root(other, false) == root);
        if shared || self.arenas.tensors[id].origin.is_some() {
            return stop(ReasonCode::SideEffect, "detach_ of an input, or of what shares memory with another tensor");
        }
        let tensor = &mut self.arenas.tensors[id];
        tensor.meta.requires_grad = false;
        tensor.is_leaf = true;
        Ok(())
    }

    /// What `requires_grad_(mode)` gives where it changes nothing.
    pub(super) fn keeps_grad(&self, target: &Target, args: &Args) -> Option<Value> {
        let Some(value @ Value::Tensor(id)) = args.pos.first() else { return None };
        let mode = wanted_grad(args).filter(|_| is(target_name(target), Mark::SetsGrad))?;
        (self.arenas.tensors[*id].meta.requires_grad == mode).then(|| value.clone())
    }

    /// After `requires_grad_(mode)`, which raises if it may not change a tensor.
    pub(super) fn grad_switched(&mut self, id: TensorId, args: &Args) -> Flow<()> {
        let Some(mode) = wanted_grad(args) else {
            return stop(ReasonCode::UnsupportedCall, "requires_grad_ with what is no bool");
        };
        // Views ask what they are views of. What was detached is none.
        let severed = self.arenas.tensors[id].severed;
        let root = self.root(id, severed);
        let shared = self.arenas.tensors.iter().any(|(other, _)| other != id && self.root(other, severed) == root);
        let storage = self.storage(root);
        let seen = storage.is_some_and(|s| self.inputs.iter().filter(|(_, other)| *other == s).count() > 1);
        if shared || seen {
            return stop(ReasonCode::SideEffect, "requires_grad_ on a tensor that shares memory with another");
        }
        self.regraded.extend(storage);
        let tensor = &mut self.arenas.tensors[id];
        tensor.meta.requires_grad = mode;
        tensor.is_leaf = true;
        Ok(())
    }
}
