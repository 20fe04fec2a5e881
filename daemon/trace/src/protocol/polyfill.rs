//! Callables of C that Python functions of the same behaviour stand for (`shim/python/flambeau/polyfills`): these are traced
//! in their place. No break resumes within one: the call of the C function is what breaks.

use crate::state::tracer::Tracer;
use crate::torch::FUNCTION_BASE;
use crate::torch::checkpoint::CHECKPOINT;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Args, Builtin, Class, Descriptor, Payload, Polyfill, Value};
use flambeau_ir::reason::{Reason, ReasonCode};
use std::rc::Rc;

/// The detail of a break at a call whose arguments a polyfill leaves to C.
pub(crate) const REFUSED: &str = "these arguments";

/// Beginnings of the paths of torch's functions that have some.
const OF_TORCH: [&str; 6] = [
    CHECKPOINT,
    FUNCTION_BASE,
    "torch._foreach_",
    "torch.Tensor.backward",
    "torch.autograd.grad",
    "torch._C._group_tensors_by_device_and_dtype",
];

/// Items of one iterator; C takes no time for more.
const MOST_ITEMS: usize = 2000;

impl Tracer<'_> {
    /// The function that stands for the callable of C at this path. It reads what the callable goes through: where that is
    /// another at each call, plain Python does.
    pub(crate) fn polyfill(&mut self, path: &str) -> Flow<Option<Value>> {
        let of_torch = OF_TORCH.iter().any(|known| path.starts_with(known));
        let others = path.starts_with("torch.") && !of_torch || path.starts_with("flambeau.");
        if self.frame.options.cautious || others {
            return Ok(None);
        }
        let module = self.sys_module("flambeau.polyfills")?;
        match self.get_attr(&module, "TABLE")? {
            Value::Dict(table) => self.dict_get_str(table, path),
            _ => Ok(None),
        }
    }

    pub(crate) fn call_polyfill(&mut self, path: &str, polyfill: &Value, args: Args) -> Flow<Value> {
        let Value::Function(function) = polyfill else { return self.call(polyfill, args) };
        let refused = || stop(ReasonCode::UnsupportedCall, format!("{path} with these arguments"));
        self.prefetch_code(function, None)?;
        let locals = match self.bind(function, args) {
            // C says it in other words.
            Err(Stop::Raise(_)) => return refused(),
            bound => bound?,
        };
        let frame = self.new_frame(function.clone(), locals)?;
        self.direct = false;
        let mut result = self.run_call(frame);
        if let Err(Stop::Break(reason)) = &mut result {
            self.at_the_call(path, reason);
        }
        result
    }

    /// What polyfills keep of an object that they stand for.
    pub(crate) fn polyfill_state(&self, value: &Value) -> Option<Value> {
        let Value::Instance(id) = value else { return None };
        match &self.arenas.instances[*id].payload {
            Payload::Polyfill { state, .. } => Some(state.clone()),
            _ => None,
        }
    }

    /// Whether lists in this state are from outside and changed.
    pub(crate) fn is_change_of_outside(&self, state: &Value) -> bool {
        let Value::List(state) = state else { return false };
        let lists = self.arenas.lists[*state].items.iter();
        lists
            .filter_map(|item| if let Value::List(list) = item { Some(&self.arenas.lists[*list]) } else { None })
            .any(|list| list.origin.is_some() && list.dirty)
    }

    /// Whether a slot of C, found on the type of this value, is one that polyfills stand for.
    pub(crate) fn is_slot_of_polyfill(&self, value: &Value, slot: &Builtin) -> bool {
        self.polyfill_state(value).is_some() && !slot.path.starts_with("builtins.object.")
    }

    /// What a data descriptor of C gives for such an object.
    pub(crate) fn polyfill_attr(&mut self, value: &Value, class: &Rc<Class>, name: &str) -> Flow<Option<Value>> {
        let Some((_, Value::Descriptor(found))) = self.type_lookup(class, name)? else { return Ok(None) };
        let Descriptor::Data { owner: Some(owner), name, .. } = &*found else { return Ok(None) };
        self.call_in_table(&format!("{owner}.{name}"), vec![value.clone()])
    }

    /// Whether a data descriptor of C was given what is set for such an object.
    pub(crate) fn set_polyfill_attr(&mut self, target: &Value, set: &Descriptor, value: Value) -> Flow<bool> {
        let Descriptor::Data { owner: Some(owner), name, .. } = set else { return Ok(false) };
        let done = self.call_in_table(&format!("{owner}.{name}.__set__"), vec![target.clone(), value])?;
        Ok(done.is_some())
    }

    fn call_in_table(&mut self, path: &str, args: Vec<Value>) -> Flow<Option<Value>> {
        match self.polyfill(path)? {
            Some(polyfill) => self.call_polyfill(path, &polyfill, Args::new(args)).map(Some),
            None => Ok(None),
        }
    }

    /// The reason of a break within a polyfill, in words of the call that it stands for.
    fn at_the_call(&self, path: &str, reason: &mut Reason) {
        if reason.detail == REFUSED {
            reason.detail = format!("{path} with these arguments");
        }
        reason.stack.truncate(self.stack.len());
    }

    /// The next item of an iterator of C that a polyfill stands for.
    pub(crate) fn advance_polyfill(&mut self, polyfill: &mut Polyfill) -> Flow<Option<Value>> {
        polyfill.given += 1;
        if polyfill.given > MOST_ITEMS {
            return stop(ReasonCode::LiveIterator, polyfill.class.name.qualname.to_string());
        }
        let step = self.get_attr(&polyfill.kind, "step")?;
        self.direct = false;
        let mut item = self.call(&step, Args::new(vec![polyfill.state.clone()]));
        if let Err(Stop::Break(reason)) = &mut item {
            self.at_the_call(&polyfill.class.name.qualname, reason);
        }
        self.catch(item, "StopIteration")
    }
}
