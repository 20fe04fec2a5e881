//! Making one object of an exit.

use super::codes::Codes;
use super::{Given, function, int};
use crate::guard::Expr;
use crate::python::consts;
use crate::python::gil::GilOnce;
use crate::python::paths;
use crate::python::raw::{self, Raw};
use crate::python::thread_local;
use flambeau_ir::code::Const;
use flambeau_ir::exit::{Build, BuildId};
use flambeau_ir::source::SourceId;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple, PyType};
use std::ptr::null_mut;
use std::sync::Arc;

/// A [`Build`] ready to run; numbers are indices of earlier builds.
pub enum Make {
    /// A graph output.
    Output(usize),
    /// The value in a slot.
    Value(usize),
    /// An object that is made once.
    Object(Py<PyAny>),
    /// A symbolic int.
    Dim(Expr),
    /// A tuple, of a class if given.
    Tuple(Vec<usize>, Option<usize>),
    /// A list.
    List(Vec<usize>),
    /// A dict, of a class if given.
    Dict(Vec<(usize, usize)>, Option<usize>),
    /// A set.
    Set(Vec<usize>),
    /// A frozenset.
    FrozenSet(Vec<usize>),
    /// An instance with its dict.
    Instance(usize, Vec<(Py<PyAny>, usize)>),
    /// What a built-in gives.
    Call(Py<PyAny>, Vec<usize>),
    /// An iterator, advanced.
    Iter(usize, u64),
    /// A generator in the middle.
    Generator(usize, usize, bool),
    /// A generator not begun: a function, positional arguments, keyword arguments.
    NewGenerator(usize, Vec<usize>, Vec<(String, usize)>),
    /// A bound method.
    Method(usize, usize),
    /// A new cell.
    Cell,
    /// A function.
    Function(Box<function::NewFunction>),
}

fn ids(ids: &[BuildId]) -> Vec<usize> {
    ids.iter().map(|id| id.0 as usize).collect()
}

impl Make {
    /// Resolves what can be resolved before a run.
    pub fn new(
        py: Python<'_>,
        build: &Build,
        function: &Bound<'_, PyAny>,
        codes: &Codes,
        slot: &dyn Fn(SourceId) -> usize,
    ) -> PyResult<Make> {
        Ok(match build {
            Build::Output(i) => Make::Output(*i as usize),
            Build::Source(source) => Make::Value(slot(*source)),
            Build::Const(Const::Code(code)) => Make::Object(codes.object(py, code, function)?),
            Build::Const(value) => Make::Object(consts::to_object(py, value)?.unbind()),
            Build::Dim(dim) => Make::Dim(dim.into()),
            Build::Path(path) => Make::Object(paths::resolve(py, path)?.unbind()),
            Build::Tuple(items, class) => Make::Tuple(ids(items), class.map(|c| c.0 as usize)),
            Build::List(items) => Make::List(ids(items)),
            Build::Dict(items, class) => Make::Dict(
                items.iter().map(|(k, v)| (k.0 as usize, v.0 as usize)).collect(),
                class.map(|c| c.0 as usize),
            ),
            Build::Set(items) => Make::Set(ids(items)),
            Build::FrozenSet(items) => Make::FrozenSet(ids(items)),
            Build::Instance { class, dict } => Make::Instance(
                class.0 as usize,
                dict.iter()
                    .map(|(name, value)| {
                        (pyo3::types::PyString::intern(py, name).into_any().unbind(), value.0 as usize)
                    })
                    .collect(),
            ),
            Build::Call(path, args) => Make::Call(paths::resolve(py, path)?.unbind(), ids(args)),
            Build::Iter(of, skip) => Make::Iter(of.0 as usize, *skip),
            Build::Generator { function, state, started } => {
                Make::Generator(function.0 as usize, state.0 as usize, *started)
            }
            Build::NewGenerator { function, args, keywords } => {
                let named = |(name, id): &(Arc<str>, BuildId)| (name.to_string(), id.0 as usize);
                let keywords = keywords.iter().map(named).collect();
                Make::NewGenerator(function.0 as usize, ids(args), keywords)
            }
            Build::Method(func, receiver) => Make::Method(func.0 as usize, receiver.0 as usize),
            Build::Cell => Make::Cell,
            Build::Function { code, globals, qualname, defaults, kwdefaults, closure } => {
                let Const::Code(code) = code else {
                    return Err(PyTypeError::new_err("a function's code is no code constant"));
                };
                Make::Function(Box::new(function::NewFunction {
                    code: codes.object(py, code, function)?,
                    globals: slot(*globals),
                    qualname: pyo3::types::PyString::new(py, qualname).into_any().unbind(),
                    defaults: defaults.map(|id| id.0 as usize),
                    kwdefaults: kwdefaults.map(|id| id.0 as usize),
                    closure: ids(closure),
                }))
            }
        })
    }

    /// The object; `made` are the earlier builds.
    pub fn run(&self, py: Python<'_>, given: &Given<'_>, made: &[Py<PyAny>]) -> PyResult<Py<PyAny>> {
        let all = |ids: &[usize]| ids.iter().map(|i| made[*i].bind(py)).collect::<Vec<_>>();
        Ok(match self {
            Make::Output(i) => given.outputs[*i].clone_ref(py),
            Make::Value(slot) => value(py, given, *slot)?,
            Make::Object(object) => object.clone_ref(py),
            Make::Dim(dim) => int(py, dim, given.symbols)?,
            Make::Tuple(items, None) => PyTuple::new(py, all(items))?.into_any().unbind(),
            Make::Tuple(items, Some(class)) => {
                let items = PyTuple::new(py, all(items))?;
                tuple_of(py, &items, made[*class].bind(py))?
            }
            Make::List(items) => PyList::new(py, all(items))?.into_any().unbind(),
            Make::Dict(items, class) => {
                let dict = new_dict(py, class.map(|c| made[c].bind(py)))?;
                for (key, value) in items {
                    set_item(py, dict.as_ptr(), made[*key].as_ptr(), made[*value].as_ptr())?;
                }
                dict
            }
            Make::Set(items) => PySet::new(py, all(items))?.into_any().unbind(),
            Make::FrozenSet(items) => PyFrozenSet::new(py, all(items))?.into_any().unbind(),
            Make::Instance(class, dict) => instance(py, made[*class].bind(py), dict, made)?,
            Make::Call(function, args) => function.bind(py).call1(PyTuple::new(py, all(args))?)?.unbind(),
            Make::Iter(of, skip) => {
                let mut iter = made[*of].bind(py).try_iter()?;
                let of = made[*of].bind(py);
                if of.get_type().is(&reversed_type(py)?) {
                    // SAFETY: a reversed iterator of a list has the same fields; below 0 is its end.
                    unsafe { (*iter.as_ptr().cast::<ListIterator>()).index = *skip as ffi::Py_ssize_t - 1 };
                } else if of.is_exact_instance_of::<PyList>() {
                    // The list may get the items that were passed only by an effect: `__setstate__` would stop at its end.
                    // SAFETY: the iterator of an exact list is a `ListIterator`; any position that is not negative is one.
                    unsafe { (*iter.as_ptr().cast::<ListIterator>()).index = *skip as ffi::Py_ssize_t };
                } else {
                    (0..*skip).try_for_each(|_| iter.next().transpose().map(|_| ()))?;
                }
                iter.into_any().unbind()
            }
            Make::Generator(function, state, started) => {
                let generator = made[*function].bind(py).call1((made[*state].bind(py), py.None()))?;
                if *started {
                    generator.try_iter()?.next().transpose()?;
                }
                generator.unbind()
            }
            Make::NewGenerator(function, args, keywords) => {
                let named = PyDict::new(py);
                for (name, value) in keywords {
                    named.set_item(name, made[*value].bind(py))?;
                }
                made[*function].bind(py).call(PyTuple::new(py, all(args))?, Some(&named))?.unbind()
            }
            // SAFETY: both are live objects; a new reference or an exception comes back.
            Make::Method(func, receiver) => unsafe {
                Py::from_owned_ptr_or_err(py, PyMethod_New(made[*func].as_ptr(), made[*receiver].as_ptr()))?
            },
            // SAFETY: a null content makes an empty cell.
            Make::Cell => unsafe { Py::from_owned_ptr_or_err(py, PyCell_New(null_mut()))? },
            Make::Function(function) => function.make(py, given, made)?,
        })
    }
}

/// `list_reverseiterator`, which has no name to be imported by.
fn reversed_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    static TYPE: GilOnce<Py<PyType>> = GilOnce::new();
    let make = || Ok::<_, PyErr>(PyList::empty(py).call_method0("__reversed__")?.get_type().unbind());
    Ok(TYPE.get_or_try_init(py, make)?.bind(py).clone())
}

/// `listiterobject` of CPython's `Objects/listobject.c`, equal in all versions.
#[repr(C)]
struct ListIterator {
    _head: ffi::PyObject,
    index: ffi::Py_ssize_t,
    _list: Raw,
}

unsafe extern "C" {
    fn PyCell_New(contents: Raw) -> Raw;
    fn PyMethod_New(function: Raw, receiver: Raw) -> Raw;
    static mut PyODict_Type: ffi::PyTypeObject;
    fn PyODict_SetItem(dict: Raw, key: Raw, value: Raw) -> i32;
    fn PyODict_DelItem(dict: Raw, key: Raw) -> i32;
}

/// The value in a slot; an empty slot is a bug of the trace and an error here.
pub fn value(py: Python<'_>, given: &Given<'_>, slot: usize) -> PyResult<Py<PyAny>> {
    let value = given.values.get(slot).and_then(Option::as_ref);
    value.map(|v| v.clone_ref(py)).ok_or_else(|| PyRuntimeError::new_err("a value of the frame's exit is missing"))
}

/// `PyErr` for a C call that failed.
pub fn raised(py: Python<'_>, status: i32) -> PyResult<()> {
    if status < 0 { Err(PyErr::fetch(py)) } else { Ok(()) }
}

fn is_ordered(dict: Raw) -> bool {
    // SAFETY: a live object.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(dict), &raw mut PyODict_Type) != 0 }
}

/// A raw store: no `__setitem__` of a subclass runs.
pub fn set_item(py: Python<'_>, dict: Raw, key: Raw, value: Raw) -> PyResult<()> {
    // SAFETY: live objects; `dict` is a dict, which its kind of store is chosen for.
    raised(py, unsafe {
        if is_ordered(dict) { PyODict_SetItem(dict, key, value) } else { ffi::PyDict_SetItem(dict, key, value) }
    })
}

/// A raw delete.
pub fn del_item(py: Python<'_>, dict: Raw, key: Raw) -> PyResult<()> {
    // SAFETY: as `set_item`.
    raised(py, unsafe { if is_ordered(dict) { PyODict_DelItem(dict, key) } else { ffi::PyDict_DelItem(dict, key) } })
}

/// The allocator that C gave to the class or to its nearest base without a Python `__new__`.
fn native_new(class: &Bound<'_, PyAny>) -> Option<ffi::newfunc> {
    let mut class: *mut ffi::PyTypeObject = class.as_ptr().cast();
    let name = crate::python::gil::interned!(unsafe { Python::assume_attached() }, "__new__").as_ptr();
    // SAFETY: walks the bases of a live type; a type whose `__new__` is a C function has that function as `tp_new`.
    unsafe {
        while !class.is_null() {
            let found = raw::type_lookup(class.cast(), name);
            if found.is_null() || ffi::PyCFunction_Check(found) != 0 {
                return (*class).tp_new;
            }
            class = (*class).tp_base;
        }
    }
    None
}

fn call_new(py: Python<'_>, class: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    if !class.is_instance_of::<PyType>() {
        return Err(PyTypeError::new_err("a class of the exit is none"));
    }
    let new = native_new(class).ok_or_else(|| PyTypeError::new_err("a class of the exit cannot be instantiated"))?;
    // SAFETY: `tp_new` of the class or of a base, with a tuple of arguments and no keywords.
    unsafe { Py::from_owned_ptr_or_err(py, new(class.as_ptr().cast(), args.as_ptr(), null_mut())) }
}

fn tuple_of(py: Python<'_>, items: &Bound<'_, PyTuple>, class: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    call_new(py, class, &PyTuple::new(py, [items])?)
}

fn new_dict(py: Python<'_>, class: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
    match class {
        None => Ok(pyo3::types::PyDict::new(py).into_any().unbind()),
        Some(class) => call_new(py, class, &PyTuple::empty(py)),
    }
}

fn instance(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    items: &[(Py<PyAny>, usize)],
    made: &[Py<PyAny>],
) -> PyResult<Py<PyAny>> {
    let object = call_new(py, class, &PyTuple::empty(py))?;
    if !items.is_empty() {
        let dict = instance_dict(py, object.as_ptr())?;
        for (name, value) in items {
            set_item(py, dict.as_ptr(), name.as_ptr(), made[*value].as_ptr())?;
        }
    }
    Ok(object)
}

/// The instance dict, made if it is not there yet.
pub fn instance_dict(py: Python<'_>, object: Raw) -> PyResult<Py<PyAny>> {
    // SAFETY: a live object; a new reference or an exception comes back.
    unsafe {
        if thread_local::is_one(object) {
            let dict = Py::from_borrowed_ptr_or_opt(py, thread_local::dict(object));
            return dict.ok_or_else(|| PyRuntimeError::new_err("a thread has no dict of its own"));
        }
        Py::from_owned_ptr_or_err(py, ffi::PyObject_GenericGetDict(object, null_mut()))
    }
}
