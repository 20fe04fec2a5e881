//! Replaying one change.

use super::build::{del_item, instance_dict, raised, set_item};
use crate::process::region::Region;
use crate::python::layout::{cached, deque, iterators};
use crate::python::{consts, raw};
use flambeau_ir::code::Const;
use flambeau_ir::exit::{BuildId, Effect};
use flambeau_ir::kernel::DType;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyString, PyTuple};
use std::ptr::null_mut;
use std::sync::Arc;

/// Regions of autocast that were entered, whether what is kept is forgotten, and kept from now on; the switches of kinds of
/// devices.
type Left = ((i16, bool, Option<bool>), Vec<(Arc<str>, bool, DType)>);

/// An [`Effect`] with its names made into objects; numbers are indices of builds.
pub enum Change {
    /// Instance dict store.
    SetAttr(usize, Py<PyAny>, usize),
    /// Instance dict delete.
    DelAttr(usize, Py<PyAny>),
    /// `tensor.grad = None`
    DropGrad(usize),
    /// Store through a descriptor of the type: slots and C-level setters.
    SetDescriptor(usize, Py<PyAny>, usize),
    /// Empties a slot.
    DelSlot(usize, Py<PyAny>),
    /// Dict store.
    SetItem(usize, usize, usize),
    /// Dict delete.
    DelItem(usize, usize),
    /// List contents: from where on, and by what, they are replaced.
    SetList(usize, isize, Vec<usize>),
    /// Deque contents, and whether its iterators are to see that it was changed.
    SetDeque(usize, Vec<usize>, bool),
    /// A method of a set.
    CallOfSet(usize, Py<PyString>, Vec<usize>),
    /// Dict contents.
    SetDict(usize, Vec<(usize, usize)>),
    /// Cell contents.
    SetCell(usize, Option<usize>),
    /// Grad mode.
    SetGradMode(bool),
    /// What is left of autocast.
    Autocast(Left),
    /// How graph breaks are taken.
    SetBreaks(Region),
    /// Items drawn from an iterator.
    Advance(usize, u32),
    /// A call whose result is kept, already or from now on.
    Recall { function: usize, args: Vec<usize>, keywords: Vec<(Py<PyString>, usize)>, found: Option<usize> },
}

impl Change {
    /// Makes an effect ready.
    pub fn new(py: Python<'_>, effect: &Effect) -> Change {
        let at = |id: &BuildId| id.0 as usize;
        let name = |s: &str| pyo3::types::PyString::intern(py, s).into_any().unbind();
        match effect {
            Effect::SetAttr(object, key, value) => Change::SetAttr(at(object), name(key), at(value)),
            Effect::DelAttr(object, key) => Change::DelAttr(at(object), name(key)),
            Effect::SetSlot(object, key, value) | Effect::SetDescriptor(object, key, value) => {
                Change::SetDescriptor(at(object), name(key), at(value))
            }
            Effect::DropGrad(tensor) => Change::DropGrad(at(tensor)),
            Effect::DelSlot(object, key) => Change::DelSlot(at(object), name(key)),
            Effect::SetItem(dict, key, value) => Change::SetItem(at(dict), at(key), at(value)),
            Effect::DelItem(dict, key) => Change::DelItem(at(dict), at(key)),
            Effect::SetList(list, items) => Change::SetList(at(list), 0, items.iter().map(at).collect()),
            Effect::SetDeque(deque, items, moved) => {
                Change::SetDeque(at(deque), items.iter().map(at).collect(), *moved)
            }
            Effect::ExtendList(list, items) => {
                Change::SetList(at(list), ffi::Py_ssize_t::MAX, items.iter().map(at).collect())
            }
            Effect::ChangeSet(set, method, args) => {
                Change::CallOfSet(at(set), PyString::intern(py, method).unbind(), args.iter().map(at).collect())
            }
            Effect::SetDict(dict, items) => {
                Change::SetDict(at(dict), items.iter().map(|(k, v)| (at(k), at(v))).collect())
            }
            Effect::SetCell(cell, value) => Change::SetCell(at(cell), value.as_ref().map(at)),
            Effect::Advance(iterator, count) => Change::Advance(at(iterator), *count),
            Effect::Recall { function, args, keywords, found } => {
                let keywords = keywords.iter().map(|(word, value)| (PyString::intern(py, word).unbind(), at(value)));
                Change::Recall {
                    function: at(function),
                    args: args.iter().map(at).collect(),
                    keywords: keywords.collect(),
                    found: found.as_ref().map(at),
                }
            }
            Effect::SetGradMode(on) => Change::SetGradMode(*on),
            Effect::Autocast { entered, clears, keeps, switched } => {
                Change::Autocast(((*entered, *clears, *keeps), switched.clone()))
            }
            Effect::SetBreaks { nested, error } => Change::SetBreaks(Region { nested: *nested, error: *error }),
        }
    }

    /// Applies it.
    pub fn run(&self, py: Python<'_>, made: &[Py<PyAny>]) -> PyResult<()> {
        match self {
            Change::SetAttr(..) if flambeau_ir::mutated!("attribute_not_written") => Ok(()),
            Change::SetAttr(object, name, value) => {
                store_attr(py, made[*object].bind(py), name.bind(py), Some(made[*value].bind(py)))
            }
            Change::DelAttr(object, name) => store_attr(py, made[*object].bind(py), name.bind(py), None),
            Change::SetDescriptor(object, name, value) => {
                store_descriptor(py, made[*object].bind(py), name.bind(py), Some(made[*value].bind(py)))
            }
            Change::DropGrad(tensor) => made[*tensor].bind(py).setattr("grad", py.None()),
            Change::DelSlot(object, name) => {
                let emptied = store_descriptor(py, made[*object].bind(py), name.bind(py), None);
                emptied.or_else(|e| if e.is_instance_of::<PyAttributeError>(py) { Ok(()) } else { Err(e) })
            }
            Change::SetItem(dict, key, value) => {
                set_item(py, made[*dict].as_ptr(), made[*key].as_ptr(), made[*value].as_ptr())
            }
            Change::DelItem(dict, key) => del_item(py, made[*dict].as_ptr(), made[*key].as_ptr()),
            Change::SetList(list, from, items) => {
                let items = PyList::new(py, items.iter().map(|i| made[*i].bind(py)))?;
                // SAFETY: a live object.
                if unsafe { deque::is_deque(made[*list].as_ptr()) } {
                    return deque::extend(made[*list].bind(py), &items);
                }
                // SAFETY: a live list, whose end may be anywhere.
                raised(py, unsafe {
                    ffi::PyList_SetSlice(made[*list].as_ptr(), *from, ffi::Py_ssize_t::MAX, items.as_ptr())
                })
            }
            Change::SetDeque(deque, items, moved) => {
                let items = PyList::new(py, items.iter().map(|i| made[*i].bind(py)))?;
                deque::set(made[*deque].bind(py), &items, *moved)
            }
            Change::CallOfSet(set, method, args) => {
                let set = made[*set].bind(py).cast::<PySet>()?;
                set.call_method1(method.bind(py), PyTuple::new(py, args.iter().map(|i| made[*i].bind(py)))?).map(|_| ())
            }
            Change::SetDict(dict, items) => {
                clear(py, made[*dict].bind(py))?;
                items
                    .iter()
                    .try_for_each(|(k, v)| set_item(py, made[*dict].as_ptr(), made[*k].as_ptr(), made[*v].as_ptr()))
            }
            Change::SetCell(cell, value) => {
                let value = value.map_or(null_mut(), |i| made[i].as_ptr());
                // SAFETY: a live cell takes its own reference.
                raised(py, unsafe { PyCell_Set(made[*cell].as_ptr(), value) })
            }
            Change::Advance(..) if flambeau_ir::mutated!("iterator_not_advanced") => Ok(()),
            Change::Advance(iterator, count) => iterators::advance(made[*iterator].bind(py), *count),
            Change::Recall { function, args, keywords, found } => {
                let args = PyTuple::new(py, args.iter().map(|i| made[*i].bind(py)))?;
                let words = PyDict::new(py);
                for (word, value) in keywords {
                    words.set_item(word.bind(py), made[*value].bind(py))?;
                }
                recall(made[*function].bind(py), args, &words, found.map(|i| made[i].bind(py)))
            }
            Change::SetBreaks(region) => {
                region.enter();
                Ok(())
            }
            Change::Autocast(left) => {
                let leave = crate::python::paths::resolve(py, "flambeau._autocast.leave")?;
                leave.call1(left_of_autocast(py, left)?).map(drop)
            }
            Change::SetGradMode(on) => {
                crate::python::paths::resolve(py, "torch._C._set_grad_enabled")?.call1((*on,)).map(|_| ())
            }
        }
    }
}

unsafe extern "C" {
    fn PyCell_Set(cell: raw::Raw, value: raw::Raw) -> i32;
}

/// A call of a function with a cache, which keeps its result, or keeps what was found from now on.
fn recall<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    words: &Bound<'py, PyDict>,
    found: Option<&Bound<'py, PyAny>>,
) -> PyResult<()> {
    if !cached::is_cached(function.py(), function.as_ptr()) {
        return Err(PyTypeError::new_err("a function of the exit has no cache"));
    }
    let words = (!words.is_empty()).then_some(words);
    match found {
        None => function.call(args, words).map(drop),
        Some(found) => cached::keep(function, args, words, found),
    }
}

/// Arguments of `flambeau._autocast.leave`.
fn left_of_autocast<'py>(
    py: Python<'py>,
    ((entered, clears, keeps), switched): &Left,
) -> PyResult<Bound<'py, PyTuple>> {
    let one = |(kind, on, dtype): &(Arc<str>, bool, DType)| {
        (&**kind, *on, consts::to_object(py, &Const::Dtype(*dtype))?).into_pyobject(py)
    };
    let switched = switched.iter().map(one).collect::<PyResult<Vec<_>>>()?;
    (*entered, *clears, *keeps, switched).into_pyobject(py)
}

/// A store into (or delete from) the instance dict; on a type, through `type` itself so that its caches are told.
fn store_attr(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    // SAFETY: live objects; a null value deletes.
    unsafe {
        if ffi::PyType_Check(object.as_ptr()) != 0 {
            let set = ffi::PyType_Type.tp_setattro;
            let set = set.ok_or_else(|| PyAttributeError::new_err("type has no setter"))?;
            return raised(py, set(object.as_ptr(), name.as_ptr(), value.map_or(null_mut(), Bound::as_ptr)));
        }
    }
    let dict = instance_dict(py, object.as_ptr())?;
    match value {
        Some(value) => set_item(py, dict.as_ptr(), name.as_ptr(), value.as_ptr()),
        None => del_item(py, dict.as_ptr(), name.as_ptr()),
    }
}

fn store_descriptor(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    // SAFETY: the descriptor is found on the object's own type and called with live objects; a null value deletes.
    unsafe {
        let descriptor = raw::type_lookup(raw::class_of(object.as_ptr()), name.as_ptr());
        let set = if descriptor.is_null() { None } else { (*ffi::Py_TYPE(descriptor)).tp_descr_set };
        let set = set.ok_or_else(|| PyAttributeError::new_err(format!("{name} cannot be set")))?;
        raised(py, set(descriptor, object.as_ptr(), value.map_or(null_mut(), Bound::as_ptr)))
    }
}

/// `dict.clear` of the C class, never of a subclass.
fn clear(py: Python<'_>, dict: &Bound<'_, PyAny>) -> PyResult<()> {
    let ordered = py.import("collections")?.getattr("OrderedDict")?;
    if dict.is_instance(&ordered)? {
        return ordered.call_method1("clear", (dict,)).map(|_| ());
    }
    // SAFETY: a live dict.
    unsafe { ffi::PyDict_Clear(dict.as_ptr()) };
    Ok(())
}
