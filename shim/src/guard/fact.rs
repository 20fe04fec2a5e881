//! One fact about one value.

use super::Slot;
use super::ambient::AmbientFact;
use super::class::ClassFact;
use super::constant::{self, Constant};
use super::order;
use super::registry::{NoRegistered, NotRegistered};
use super::source::{Cached, Hooks, Key, Values, is_cell, is_function};
use super::symbols::Expr;
use super::tensor::TensorFact;
use crate::python::layout::deque;
use crate::python::pure::Made;
use crate::python::raw::{self, Raw};
use crate::torch::Torch;
use flambeau_ir::code::CodeHash;
use flambeau_ir::guard::{Collection, GuardKind, KeyObject, Relation, TensorGuard};
use flambeau_ir::source::SourceId;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

/// A guard's fact with its constants made into objects.
pub enum Fact {
    /// Names of the value's type.
    Type(ClassFact),
    /// Names of the value, a type.
    IsClass(ClassFact),
    /// Exactly this constant.
    Equals(Constant),
    /// Base value of a subclass instance.
    BaseEquals(flambeau_ir::code::Const),
    /// Equal to what a function makes.
    Made(Made),
    /// This very object.
    Is(Py<PyAny>),
    /// A function with this code, which a call of it runs.
    Function(CodeFact),
    /// A tensor.
    Tensor(Rc<TensorFact>),
    /// Raw length.
    Len(usize),
    /// Raw length, or more.
    AtLeast(usize),
    /// A deque's.
    Longest(Option<usize>),
    /// Keys in order.
    Keys(Vec<Constant>),
    /// Set elements.
    Elements(Vec<flambeau_ir::code::Const>),
    /// Set elements in order.
    InOrder(Vec<flambeau_ir::code::Const>),
    /// Missing dict key.
    NoItem(Key),
    /// An object that is none of a dict's keys.
    NoKey(Py<PyAny>, PythonCompares),
    /// As the above, for the value in a slot.
    NoKeyIn(usize, PythonCompares),
    /// A bound method with this definition.
    MethodOf(*mut ffi::PyMethodDef),
    /// What a function of the process's state gives.
    Gives(Py<PyAny>, Constant),
    /// Missing type attribute.
    NoTypeAttr(Py<PyAny>),
    /// No virtual subclass.
    NoRegistered(NoRegistered),
    /// Not registered with an abstract class.
    NotRegistered(Py<PyAny>, NotRegistered),
    /// The same of an abstract class in another slot.
    NotRegisteredIn(usize, NotRegistered),
    /// What patterns take a class's instances for.
    Collection(Collection),
    /// No instance dict, or an empty one.
    NoAttributes,
    NoWeakReferences,
    NoHooks(Hooks),
    EndsUnseen,
    /// Empty slot.
    NoSlot(Py<PyAny>),
    /// No value, nor a default.
    NoContextValue(bool),
    /// No result kept.
    NotCached(Cached, Option<u32>),
    /// Module not imported.
    NoSysModule(Key),
    /// Empty cell.
    EmptyCell,
    /// What named tuples read a field with: the item.
    TupleField(u32),
    /// Same object as another value.
    Same(Other),
    /// Another object than another value.
    NotSame(Other),
    /// The values in slots are pairwise different objects.
    Distinct(Box<[usize]>),
    /// Pairwise disjoint storages of the values in slots.
    Disjoint(Disjoint),
    /// The thread's state.
    Ambient(Box<AmbientFact>),
    /// A relation of sizes.
    Relation(Relation, Expr, Expr),
}

/// The value that one is compared with.
#[derive(Clone, Copy)]
pub enum Other {
    /// Of a source below the same root.
    Source(u32),
    /// In a slot.
    Slot(usize),
}

impl Fact {
    /// From its guard. `tensors` are the program's facts about tensors so far: most are about several. `slot` gives the
    /// place of another source's value.
    pub fn new(
        py: Python<'_>,
        torch: &Torch,
        kind: &GuardKind,
        tensors: &mut Vec<(TensorGuard, Rc<TensorFact>)>,
        slot: &mut dyn FnMut(SourceId) -> usize,
    ) -> PyResult<Fact> {
        let name = |s: &str| pyo3::types::PyString::intern(py, s).into_any().unbind();
        Ok(match kind {
            GuardKind::Type(class) => Fact::Type(ClassFact::new(class)),
            GuardKind::IsClass(class) => Fact::IsClass(ClassFact::new(class)),
            GuardKind::Equals(value) => Fact::Equals(Constant::new(py, value)),
            GuardKind::BaseEquals(value) => Fact::BaseEquals(value.clone()),
            GuardKind::Made(maker, args) => Fact::Made(Made::new(maker, args)),
            GuardKind::IsPath(path) => Fact::Is(crate::python::paths::object_at(py, path)?.unbind()),
            GuardKind::Function { code } => Fact::Function(CodeFact::new(*code)),
            GuardKind::Tensor(guard) => {
                let known = tensors.iter().find(|(known, _)| known == guard).map(|(_, fact)| fact.clone());
                Fact::Tensor(known.unwrap_or_else(|| {
                    let fact = Rc::new(TensorFact::new(torch, guard));
                    tensors.push((guard.clone(), fact.clone()));
                    fact
                }))
            }
            GuardKind::Len(n) => Fact::Len(*n),
            GuardKind::AtLeast(n) => Fact::AtLeast(*n),
            GuardKind::Longest(n) => Fact::Longest(*n),
            GuardKind::Keys(keys) => Fact::Keys(keys.iter().map(|k| Constant::new(py, k)).collect()),
            GuardKind::Elements(elements) => Fact::Elements(elements.clone()),
            GuardKind::InOrder(elements) => Fact::InOrder(elements.clone()),
            GuardKind::NoItem(key) => Fact::NoItem(Key::new(py, key)?),
            GuardKind::NoKey(KeyObject::Path(path)) => {
                Fact::NoKey(crate::python::paths::object_at(py, path)?.unbind(), PythonCompares::find(py)?)
            }
            GuardKind::NoKey(KeyObject::Source(key)) => Fact::NoKeyIn(slot(*key), PythonCompares::find(py)?),
            GuardKind::NoTypeAttr(s) => Fact::NoTypeAttr(name(s)),
            GuardKind::NoRegistered => Fact::NoRegistered(NoRegistered::default()),
            GuardKind::NotRegistered(KeyObject::Path(path)) => {
                let with = crate::python::paths::object_at(py, path)?.unbind();
                Fact::NotRegistered(with, NotRegistered::default())
            }
            GuardKind::NotRegistered(KeyObject::Source(with)) => {
                Fact::NotRegisteredIn(slot(*with), NotRegistered::default())
            }
            GuardKind::Collection(collection) => Fact::Collection(*collection),
            GuardKind::NoAttributes => Fact::NoAttributes,
            GuardKind::NoWeakReferences => Fact::NoWeakReferences,
            GuardKind::NoHooks => Fact::NoHooks(Hooks::new(py)?),
            GuardKind::EndsUnseen => Fact::EndsUnseen,
            GuardKind::NoSlot(s) => Fact::NoSlot(name(s)),
            GuardKind::NoContextValue { own_default } => Fact::NoContextValue(*own_default),
            GuardKind::NotCached { key, room } => Fact::NotCached(Cached::new(py, key)?, *room),
            GuardKind::NoSysModule(s) => Fact::NoSysModule(Key::new(py, &flambeau_ir::code::Const::Str(s.clone()))?),
            GuardKind::EmptyCell => Fact::EmptyCell,
            GuardKind::MethodOf(path) => {
                Fact::MethodOf(method_definition(&crate::python::paths::object_at(py, path)?)?)
            }
            GuardKind::Gives(path, value) => {
                Fact::Gives(crate::python::paths::object_at(py, path)?.unbind(), Constant::new(py, value))
            }
            GuardKind::TupleField(item) => Fact::TupleField(*item),
            GuardKind::Same(other) => Fact::Same(Other::Source(other.0)),
            GuardKind::NotSame(other) => Fact::NotSame(Other::Source(other.0)),
            GuardKind::Distinct(sources) => Fact::Distinct(sources.iter().map(|s| slot(*s)).collect()),
            GuardKind::DisjointStorage(sources) => {
                Fact::Disjoint(Disjoint { slots: sources.iter().map(|s| slot(*s)).collect(), seen: RefCell::default() })
            }
            GuardKind::Ambient(ambient) => Fact::Ambient(Box::new(AmbientFact::new(ambient))),
            GuardKind::Relation(relation, a, b) => Fact::Relation(*relation, a.into(), b.into()),
        })
    }

    /// Whether it is about more than one value, or about the thread: checked last, with [`Fact::holds_across`].
    pub fn is_across(&self) -> bool {
        matches!(
            self,
            Fact::Same(Other::Slot(_))
                | Fact::NotSame(Other::Slot(_))
                | Fact::NoKeyIn(..)
                | Fact::NotRegisteredIn(..)
                | Fact::Distinct(_)
                | Fact::Disjoint(_)
                | Fact::Ambient(_)
                | Fact::Relation(..)
        )
    }

    /// Whether a fact across values holds; `value` is the one that its source has, `slots` the others.
    pub fn holds_across(&self, py: Python<'_>, torch: &Torch, value: Raw, slots: &[Slot], symbols: &[i64]) -> bool {
        match self {
            Fact::Same(Other::Slot(other)) => !value.is_null() && slots[*other].object == value,
            Fact::NotSame(Other::Slot(other)) => !value.is_null() && slots[*other].object != value,
            Fact::NoKeyIn(slot, compares) => {
                let key = slots[*slot].object;
                // SAFETY: live objects or null, GIL held.
                !value.is_null() && !key.is_null() && unsafe { compares.none_is(py, value, key) }
            }
            Fact::NotRegisteredIn(slot, registry) => {
                let with = slots[*slot].object;
                let is_class = |object: Raw| {
                    // SAFETY: a live object or null, GIL held.
                    !object.is_null() && unsafe { ffi::PyType_Check(object) != 0 }
                };
                is_class(value) && is_class(with) && registry.holds(py, value, with)
            }
            Fact::Distinct(others) => distinct(others.iter().map(|slot| slots[*slot].object)),
            Fact::Disjoint(disjoint) => disjoint.holds(torch, slots, symbols),
            Fact::Ambient(expected) => expected.holds(py, torch),
            Fact::Relation(relation, a, b) => relates(*relation, a, b, symbols),
            _ => false,
        }
    }

    /// Whether it is seen to fail of the source's value before the facts on the way there were looked at. False as well
    /// where that cannot be said: it takes other values.
    pub fn fails_alone(&self, py: Python<'_>, torch: &Torch, source: u32, values: &mut Values<'_>) -> bool {
        let takes_others = matches!(self, Fact::Same(_) | Fact::NotSame(_));
        if self.is_across() || takes_others || !values.stands_alone(source) {
            return false;
        }
        let value = values.once(py, source);
        !self.holds(py, torch, value, values)
    }

    /// Whether a fact about one value holds of `value`, which is live or null.
    pub fn holds(&self, py: Python<'_>, torch: &Torch, value: Raw, values: &mut Values<'_>) -> bool {
        if value.is_null() {
            return false;
        }
        // SAFETY: live objects, GIL held; each arm checks the kind of object that it reads.
        unsafe {
            match self {
                Fact::Type(class) => class.holds(raw::class_of(value)),
                Fact::IsClass(class) => ffi::PyType_Check(value) != 0 && class.holds(value),
                Fact::Equals(expected) => expected.is(py, value),
                Fact::Made(made) => made.holds(py, value),
                Fact::BaseEquals(expected) => constant::base_equals(py, value, expected),
                Fact::Is(object) => object.as_ptr() == value,
                Fact::Function(code) => {
                    is_function(value)
                        && raw::runs_its_code(py, value)
                        && (flambeau_ir::mutated!("any_code_passes")
                            || code.holds(py, (*value.cast::<ffi::PyFunctionObject>()).func_code))
                }
                Fact::Tensor(fact) => fact.read(py, torch, value).is_some(),
                Fact::Len(n) => length(value) == Some(*n),
                Fact::AtLeast(least) => length(value).is_some_and(|n| n >= *least),
                Fact::Longest(longest) => deque::is_bounded(py, value, *longest),
                Fact::Keys(keys) => ffi::PyDict_Check(value) != 0 && has_keys(py, value, keys),
                Fact::Elements(elements) => ffi::PyAnySet_Check(value) != 0 && constant::elements(py, value, elements),
                Fact::InOrder(elements) => ffi::PyAnySet_Check(value) != 0 && constant::in_order(py, value, elements),
                Fact::NoItem(key) => ffi::PyDict_Check(value) != 0 && key.get(value).is_null(),
                Fact::NoKey(key, compares) => compares.none_is(py, value, key.as_ptr()),
                Fact::NoTypeAttr(name) => {
                    ffi::PyType_Check(value) != 0
                        && raw::has_plain_names(value)
                        && raw::type_lookup(value, name.as_ptr()).is_null()
                }
                Fact::NoRegistered(registry) => ffi::PyType_Check(value) != 0 && registry.holds(py, value),
                Fact::NotRegistered(with, known) => {
                    ffi::PyType_Check(value) != 0 && known.holds(py, value, with.as_ptr())
                }
                Fact::Collection(collection) => raw::collection(value) == Some(*collection),
                Fact::NoAttributes => {
                    let dict = raw::instance_dict(value);
                    dict.is_null() || ffi::PyDict_Size(dict) == 0
                }
                Fact::NoWeakReferences => !raw::has_weak_references(value),
                Fact::NoHooks(hooks) => hooks.any(py, value) == Some(false),
                Fact::EndsUnseen => raw::is_plain_value(value) || torch.is_plain_tensor(value),
                Fact::NoSlot(name) => Py::<PyAny>::from_owned_ptr_or_opt(py, raw::slot(value, name.as_ptr())).is_none(),
                Fact::NoContextValue(own_default) => {
                    raw::is_context_variable(value) && raw::context_value(py, value, *own_default).is_none()
                }
                Fact::NotCached(call, room) => call.is_missing(py, values, value, *room),
                Fact::NoSysModule(name) => {
                    let modules = ffi::PyImport_GetModuleDict();
                    ffi::PyDict_Check(modules) != 0 && name.get(modules).is_null()
                }
                Fact::TupleField(item) => {
                    crate::python::consts::tuple_field(&Bound::from_borrowed_ptr(py, value)) == Some(*item)
                }
                Fact::MethodOf(definition) => {
                    ffi::PyCFunction_CheckExact(value) != 0
                        && (*value.cast::<ffi::PyCFunctionObject>()).m_ml == *definition
                }
                Fact::Gives(function, expected) => {
                    let given = Bound::from_owned_ptr_or_err(py, ffi::PyObject_CallNoArgs(function.as_ptr()));
                    given.is_ok_and(|given| expected.is(py, given.as_ptr()))
                }
                Fact::EmptyCell => is_cell(value) && super::source::cell_contents(value).is_null(),
                Fact::Same(Other::Source(other)) => values.get(py, *other) == value,
                Fact::NotSame(Other::Source(other)) => values.get(py, *other) != value,
                Fact::Same(Other::Slot(_))
                | Fact::NotSame(Other::Slot(_))
                | Fact::NoKeyIn(..)
                | Fact::NotRegisteredIn(..)
                | Fact::Distinct(_)
                | Fact::Disjoint(_)
                | Fact::Ambient(_)
                | Fact::Relation(..) => false,
            }
        }
    }
}

/// What a method descriptor of a built-in type binds.
fn method_definition(descriptor: &Bound<'_, PyAny>) -> PyResult<*mut ffi::PyMethodDef> {
    // SAFETY: a live object, of the type that the layout is of.
    unsafe {
        let of_method = ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyMethodDescr_Type;
        if !of_method {
            return Err(pyo3::exceptions::PyTypeError::new_err("it is no method of a built-in type"));
        }
        Ok((*descriptor.as_ptr().cast::<ffi::PyMethodDescrObject>()).d_method)
    }
}

/// That code is a certain one.
pub struct CodeFact {
    hash: CodeHash,
    /// Code that was found to be it.
    seen: RefCell<Option<Py<PyAny>>>,
}

impl CodeFact {
    fn new(hash: CodeHash) -> CodeFact {
        CodeFact { hash, seen: RefCell::new(None) }
    }

    /// # Safety
    /// A live code object.
    unsafe fn holds(&self, py: Python<'_>, code: Raw) -> bool {
        if self.seen.borrow().as_ref().is_some_and(|seen| seen.as_ptr() == code) {
            return true;
        }
        // SAFETY: the caller's promise.
        let (same, code) =
            unsafe { (crate::python::code::hash(py, code) == Some(self.hash), Py::from_borrowed_ptr(py, code)) };
        let old = if same { self.seen.replace(Some(code)) } else { None };
        // May run finalizers, so not under the borrow.
        drop(old);
        same
    }
}

fn relates(relation: Relation, a: &Expr, b: &Expr, symbols: &[i64]) -> bool {
    let (Some(a), Some(b)) = (a.eval(symbols), b.eval(symbols)) else { return false };
    relation.holds(a, b) || flambeau_ir::mutated!("any_sizes_pass")
}

/// Length of a list, tuple, dict or set, or of a subclass instance, read raw.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn length(object: Raw) -> Option<usize> {
    // SAFETY: each read is of an object of its kind.
    let size = unsafe {
        if ffi::PyTuple_Check(object) != 0 || ffi::PyList_Check(object) != 0 {
            ffi::Py_SIZE(object)
        } else if ffi::PyDict_Check(object) != 0 {
            ffi::PyDict_Size(object)
        } else if ffi::PyAnySet_Check(object) != 0 {
            ffi::PySet_Size(object)
        } else if deque::is_deque(object) {
            ffi::Py_SIZE(object)
        } else {
            return None;
        }
    };
    usize::try_from(size).ok()
}

unsafe fn has_keys(py: Python<'_>, dict: Raw, keys: &[Constant]) -> bool {
    let mut at = 0;
    // SAFETY: a live dict, GIL held; comparing runs no user code.
    unsafe {
        if ffi::PyDict_Size(dict) as usize != keys.len() {
            return false;
        }
        order::each_key(dict, |key| {
            let same = keys.get(at).is_some_and(|e| e.is(py, key) || flambeau_ir::mutated!("any_keys_pass"));
            at += usize::from(same);
            same
        });
    }
    at == keys.len()
}

/// Addresses that tell which keys are compared by Python code.
#[derive(Clone, Copy)]
pub struct PythonCompares {
    /// What types whose `__eq__` is Python code are compared with.
    compare: usize,
    /// `torch.Tensor.__hash__`, which is Python code, but by identity.
    of_tensors: usize,
}

impl PythonCompares {
    /// Found on classes that have such methods, when a fact is made: no import runs while facts are checked.
    fn find(py: Python<'_>) -> PyResult<PythonCompares> {
        let (class, tensor) =
            (py.import("_collections_abc")?.getattr("Mapping")?, py.import("torch")?.getattr("Tensor")?);
        let name = crate::python::gil::interned!(py, "__hash__");
        // SAFETY: live classes.
        let (compare, of_tensors) = unsafe {
            let compare = (*class.as_ptr().cast::<ffi::PyTypeObject>()).tp_richcompare;
            (compare, raw::type_lookup(tensor.as_ptr(), name.as_ptr()) as usize)
        };
        let missing = || pyo3::exceptions::PyLookupError::new_err("collections.abc.Mapping has no __eq__");
        compare.map(|f| PythonCompares { compare: f as usize, of_tensors }).ok_or_else(missing)
    }

    /// Whether a dict may compare the key with another object that has a hash by identity.
    ///
    /// # Safety
    /// A live object, GIL held.
    unsafe fn compares(self, py: Python<'_>, key: Raw) -> bool {
        let name = crate::python::gil::interned!(py, "__hash__");
        // SAFETY: the caller's promise.
        unsafe {
            let class = ffi::Py_TYPE(key);
            (*class).tp_richcompare.map(|f| f as usize) == Some(self.compare)
                // The hash of a tensor is its address, so that no other has it.
                && raw::type_lookup(class.cast(), name.as_ptr()) as usize != self.of_tensors
        }
    }

    /// Whether `dict` is one, and this very object none of its keys. No key is compared otherwise, so no code of the user's
    /// runs; a key that such code would compare may be equal to it.
    ///
    /// # Safety
    /// Live objects, GIL held.
    unsafe fn none_is(self, py: Python<'_>, dict: Raw, object: Raw) -> bool {
        let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the caller's promise; nothing runs between two steps.
        unsafe {
            if ffi::PyDict_Check(dict) == 0 {
                return false;
            }
            while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
                if key == object || self.compares(py, key) {
                    return false;
                }
            }
        }
        true
    }
}

/// Whether all are objects, and no two the same.
fn distinct(objects: impl Iterator<Item = Raw>) -> bool {
    let mut seen: Vec<Raw> = objects.collect();
    seen.sort_unstable();
    !seen[0].is_null() && seen.windows(2).all(|pair| pair[0] != pair[1])
}

/// That no two tensors share memory.
pub struct Disjoint {
    slots: Vec<usize>,
    /// Where the tensors began in a call in which they did not.
    seen: RefCell<Vec<*mut c_void>>,
}

impl Disjoint {
    /// Tensors with the sizes and strides that their guards ask for, where the same ones began, share no element.
    fn holds(&self, torch: &Torch, slots: &[Slot], symbols: &[i64]) -> bool {
        let starts = self.slots.iter().map(|slot| slots[*slot].data);
        if symbols.is_empty() && starts.clone().eq(self.seen.borrow().iter().copied()) {
            return true;
        }
        let disjoint = disjoint(torch, self.slots.iter().map(|slot| slots[*slot].object));
        if disjoint && symbols.is_empty() && starts.clone().all(|start| !start.is_null()) {
            *self.seen.borrow_mut() = starts.collect();
        }
        disjoint
    }
}

/// Whether all are tensors with memory that no two share.
fn disjoint(torch: &Torch, tensors: impl Iterator<Item = Raw>) -> bool {
    let mut ranges = Vec::new();
    for tensor in tensors {
        // SAFETY: live objects or null; only strided tensors get here, their guards come first.
        unsafe {
            if tensor.is_null() || !torch.is_tensor(tensor) {
                return false;
            }
            let (start, size) = torch.storage(torch.handle(tensor));
            if size > 0 {
                ranges.push((start, size));
            }
        }
    }
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
}
