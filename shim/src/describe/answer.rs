//! Answers to the daemon's questions about objects. Reads raw state only; what would need user code is refused by name.

use crate::describe::evaluate;
use crate::describe::snapshot::describe::Describer;
use crate::guard;
use crate::python::consts;
use crate::python::layout::cached::{self, Kept};
use crate::python::paths::import_helper;
use crate::python::raw::{self, Raw};
use flambeau_ir::code::Const;
use flambeau_ir::object::ObjId;
use flambeau_ir::oracle::{Answer, AnswerValue, Question};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::CallKey;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Answers in the order asked.
pub fn answer(describer: &mut Describer<'_>, questions: &[Question]) -> Vec<Answer> {
    questions
        .iter()
        .map(|question| {
            let value =
                one(describer, question).unwrap_or_else(|(code, why)| AnswerValue::Refused(Reason::new(code, why)));
            describer.drain();
            Answer { value, described: describer.take() }
        })
        .collect()
}

/// Why there is no answer.
pub type Refusal = (ReasonCode, String);

/// How deep objects that questions bring up are described.
const DEPTH: u8 = 3;

fn one(describer: &mut Describer<'_>, question: &Question) -> Result<AnswerValue, Refusal> {
    let py = describer.py();
    match question {
        Question::Describe(ids) => {
            for id in ids {
                let object = live(describer, *id)?;
                describer.reach(object, DEPTH);
            }
            Ok(AnswerValue::Described)
        }
        Question::DictItem { dict, key } => dict_item(describer, *dict, key),
        Question::TypeLookup { class, name } => type_lookup(describer, *class, name),
        Question::Slot { object, name } => {
            let object = live(describer, *object)?;
            let name = PyString::new(py, name);
            // SAFETY: a live object; a new reference, given up after the describer took its own.
            let value = unsafe { Bound::from_owned_ptr_or_opt(py, raw::slot(object, name.as_ptr())) };
            Ok(AnswerValue::Object(value.map(|v| describer.reach(v.as_ptr(), DEPTH))))
        }
        Question::Cached { function, key } => cached_result(describer, *function, key),
        Question::Registered(class) => {
            let class = live(describer, *class)?;
            // SAFETY: a live object.
            let class = unsafe { Bound::from_borrowed_ptr(py, class) };
            let any = guard::any_registered(&class).map_err(|e| (ReasonCode::UnguardableObject, e.to_string()))?;
            Ok(AnswerValue::Const(Const::Bool(any)))
        }
        Question::RegisteredWith { class, path } => {
            is_registered(describer, *class, crate::python::paths::object_at(py, path))
        }
        Question::RegisteredWithOwn { class, with } => {
            let with = live(describer, *with)?;
            // SAFETY: a live object.
            is_registered(describer, *class, Ok(unsafe { Bound::from_borrowed_ptr(py, with) }))
        }
        Question::ContextValue { variable, own_default } => {
            let variable = live(describer, *variable)?;
            // SAFETY: a live object.
            let value = unsafe { raw::context_value(py, variable, *own_default) };
            Ok(AnswerValue::Object(value.map(|value| describer.reach(value.as_ptr(), DEPTH))))
        }
        Question::CodeConst { function, index } => {
            let function = live(describer, *function)?;
            // SAFETY: a live object.
            let function = unsafe { Bound::from_borrowed_ptr(py, function) };
            let constant = crate::python::code::constant(&function, *index as usize);
            let constant = constant.map_err(|e| (ReasonCode::Internal, e.to_string()))?;
            Ok(AnswerValue::Object(Some(describer.reach(constant.as_ptr(), DEPTH))))
        }
        Question::SetOrder { made, sets } => {
            let sets = sets.iter().map(|set| live(describer, *set)).collect::<Result<Vec<_>, _>>()?;
            evaluate::set_order(py, made, &sets)
        }
        Question::Collection(class) => {
            // SAFETY: a live object.
            let collection = unsafe { raw::collection(live(describer, *class)?) };
            collection.map(AnswerValue::Collection).ok_or((ReasonCode::Internal, "patterns of what is no class".into()))
        }
        Question::WeakReferences(object) => {
            // SAFETY: a live object.
            let any = unsafe { raw::has_weak_references(live(describer, *object)?) };
            Ok(AnswerValue::Const(Const::Bool(any)))
        }
        Question::Grad(tensor) => grad(describer, *tensor),
        Question::Hooked(tensors) => {
            let tensors = tensors.iter().map(|tensor| live(describer, *tensor)).collect::<Result<Vec<_>, _>>()?;
            are_hooked(py, &tensors)
        }
        Question::SysModule(name) => sys_module(describer, name),
        Question::Eval { path, args, names } => evaluate::evaluate(py, path, args, names),
        Question::TorchCall { target, args, kwargs, ambient } => {
            crate::torch::fake::call(py, target, args, kwargs, ambient)
        }
    }
}

fn grad(describer: &mut Describer<'_>, tensor: ObjId) -> Result<AnswerValue, Refusal> {
    let (py, tensor) = (describer.py(), live(describer, tensor)?);
    // SAFETY: a live object.
    let found = unsafe { guard::Grad::new(py).map(|getters| getters.of(py, tensor)) };
    let found = found.map_err(|e| (ReasonCode::Internal, e.to_string()))?;
    Ok(found.map_or(AnswerValue::Missing, |grad| AnswerValue::Object(Some(describer.reach(grad.as_ptr(), DEPTH)))))
}

/// Whether there are hooks on the gradient of any of these.
fn are_hooked(py: Python<'_>, tensors: &[Raw]) -> Result<AnswerValue, Refusal> {
    let hooks = guard::Hooks::new(py).map_err(|e| (ReasonCode::Internal, e.to_string()))?;
    // SAFETY: live objects.
    let is_hooked = |tensor: &Raw| unsafe { hooks.any(py, *tensor) } != Some(false);
    Ok(AnswerValue::Const(Const::Bool(tensors.iter().any(is_hooked))))
}

fn dict_item(describer: &mut Describer<'_>, dict: ObjId, key: &Const) -> Result<AnswerValue, Refusal> {
    let dict = live(describer, dict)?;
    // SAFETY: a live object.
    if unsafe { ffi::PyDict_Check(dict) } == 0 {
        return Err((ReasonCode::Internal, "an item of what is no dict was asked for".into()));
    }
    let key = consts::to_object(describer.py(), key).map_err(|e| (ReasonCode::UnguardableObject, e.to_string()))?;
    // SAFETY: `dict` is a dict; a key whose look-up could run user code was refused.
    let value = unsafe {
        if !raw::plain_keys(dict, key.as_ptr()) {
            return Err((ReasonCode::UnguardableObject, "a dict has keys with their own __eq__".into()));
        }
        raw::dict_get(dict, key.as_ptr())
    };
    Ok(AnswerValue::Object((!value.is_null()).then(|| describer.reach(value, DEPTH))))
}

fn type_lookup(describer: &mut Describer<'_>, class: ObjId, name: &str) -> Result<AnswerValue, Refusal> {
    let class = live(describer, class)?;
    let name = PyString::new(describer.py(), name);
    // SAFETY: a live object that is a type.
    let (owner, value) = unsafe {
        if ffi::PyType_Check(class) == 0 {
            return Err((ReasonCode::Internal, "a type look-up on what is no type was asked for".into()));
        }
        if !raw::has_plain_names(class) {
            return Err((ReasonCode::UnguardableObject, "a class has names with their own __eq__".into()));
        }
        raw::type_lookup_where(class, name.as_ptr())
    };
    if owner.is_null() {
        return Ok(AnswerValue::Missing);
    }
    Ok(AnswerValue::Found(describer.reach(owner, 0), describer.reach(value, DEPTH)))
}

fn sys_module(describer: &mut Describer<'_>, name: &str) -> Result<AnswerValue, Refusal> {
    let py = describer.py();
    import_helper(py, name);
    let modules = py.import("sys").and_then(|sys| sys.getattr("modules"));
    let modules = modules.map_err(|e| (ReasonCode::Internal, e.to_string()))?;
    let name = PyString::new(py, name);
    // SAFETY: `sys.modules` is a dict of strs; one that is not gives no item.
    let value = unsafe {
        if ffi::PyDict_Check(modules.as_ptr()) == 0 {
            return Err((ReasonCode::UnguardableObject, "sys.modules is no dict".into()));
        }
        raw::dict_get(modules.as_ptr(), name.as_ptr())
    };
    Ok(AnswerValue::Object((!value.is_null()).then(|| describer.reach(value, 0))))
}

/// Whether a class is registered with an abstract class.
fn is_registered(
    describer: &Describer<'_>,
    class: ObjId,
    with: PyResult<Bound<'_, PyAny>>,
) -> Result<AnswerValue, Refusal> {
    let class = live(describer, class)?;
    // SAFETY: a live object.
    let class = unsafe { Bound::from_borrowed_ptr(describer.py(), class) };
    let found = with.and_then(|with| guard::registered_with(&class, &with));
    let found = found.map_err(|e| (ReasonCode::UnguardableObject, e.to_string()))?;
    Ok(AnswerValue::Const(Const::Bool(found)))
}

fn live(describer: &Describer<'_>, id: ObjId) -> Result<Raw, Refusal> {
    describer.object(id).ok_or_else(|| (ReasonCode::Internal, format!("object {} was never named", id.0)))
}

/// Whether a function with an `lru_cache` is one of `typing`, which makes types of types (`List[int]`) and runs no code of
/// users: whether it was called before makes no difference that anyone sees.
fn is_of_typing(py: Python<'_>, function: Raw) -> bool {
    let Ok(typing) = py.import("typing") else { return false };
    // SAFETY: it has a cache, and so the function that it calls; a function has globals.
    unsafe {
        let called = *function.byte_add(cached::function(py)).cast::<Raw>();
        ffi::PyFunction_Check(called) != 0 && ffi::PyFunction_GetGlobals(called) == typing.dict().as_ptr()
    }
}

/// What a function with an `lru_cache` keeps for a call, or what it would call. What `typing` makes is made now: else the
/// first frame that asks for `List[int]` would break off there.
fn cached_result(describer: &mut Describer<'_>, function: ObjId, key: &CallKey<ObjId>) -> Result<AnswerValue, Refusal> {
    let py = describer.py();
    let function = live(describer, function)?;
    let (call, objects) = cached::Call::new(py, key).map_err(|e| (ReasonCode::UnguardableObject, e.to_string()))?;
    let objects = objects.into_iter().map(|object| live(describer, object)).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: live objects; the result is alive as long as the cache keeps it, and nothing runs until it is named.
    let look_up = || unsafe { cached::look_up(py, function, &call, &objects) };
    let mut kept = look_up();
    if let Kept::Nothing(_) = kept
        && key.keywords.is_empty()
        && is_of_typing(py, function)
    {
        // SAFETY: live objects.
        let (function, args) = unsafe { (Bound::from_borrowed_ptr(py, function), call.arguments(py, &objects)) };
        if args.and_then(|args| function.call1(args)).is_ok() {
            kept = look_up();
        }
    }
    Ok(match kept {
        Kept::Result(result) => AnswerValue::Object(Some(describer.reach(result, DEPTH))),
        Kept::Nothing(room) => {
            // SAFETY: it has a cache, and so the function that it calls.
            let called = unsafe { *function.byte_add(cached::function(py)).cast::<Raw>() };
            AnswerValue::NotCached(describer.reach(called, DEPTH), room)
        }
        Kept::Unclear => AnswerValue::Missing,
    })
}
