//! What `functools.lru_cache` keeps: results by their calls' arguments, read without calling anything. Where its objects hold
//! them is found out by looking into one that was made for that (CPython's `Modules/_functoolsmodule.c`).

use crate::python::consts;
use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use flambeau_ir::source::{CallKey, KeyPart};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::cell::Cell;
use std::ptr::null_mut;

/// A cache with more results is not looked into.
const MOST_RESULTS: isize = 2048;

/// Arguments of a call, to find its result by.
pub struct Call {
    args: Box<[Part]>,
    keywords: Box<[(Py<PyAny>, Part)]>,
    /// Where in its dict the result was found last.
    place: Cell<ffi::Py_ssize_t>,
}

/// One argument, or an item of one.
enum Part {
    /// A number, str, ...
    Const(Py<PyAny>),
    /// A tuple, or `torch.Size`.
    Tuple(Box<[Part]>),
    /// One of the objects that are given, by its number.
    Object(usize),
}

impl Call {
    /// From the arguments of a call, and the objects among them in order.
    pub fn new<T: Copy>(py: Python<'_>, key: &CallKey<T>) -> PyResult<(Call, Vec<T>)> {
        let mut objects = Vec::new();
        let args = key.args.iter().map(|arg| part(py, arg, &mut objects)).collect::<PyResult<_>>()?;
        let word = |word: &str| PyString::intern(py, word).into_any().unbind();
        let keywords = key
            .keywords
            .iter()
            .map(|(name, arg)| Ok((word(name), part(py, arg, &mut objects)?)))
            .collect::<PyResult<_>>()?;
        Ok((Call { args, keywords, place: Cell::new(0) }, objects))
    }

    /// Whether a cache knows the call by this key (`lru_cache_make_key`).
    ///
    /// # Safety
    /// Live objects, GIL held.
    unsafe fn has_key(&self, key: Raw, mark: Raw, objects: &[Raw]) -> bool {
        // SAFETY: the type tests say what is read.
        unsafe {
            if let ([Part::Const(only)], []) = (&*self.args, &*self.keywords) {
                let class = ffi::Py_TYPE(only.as_ptr());
                if class == &raw mut ffi::PyUnicode_Type || class == &raw mut ffi::PyLong_Type {
                    return same(key, only.as_ptr());
                }
            }
            let words = if self.keywords.is_empty() { 0 } else { 1 + 2 * self.keywords.len() };
            if ffi::PyTuple_CheckExact(key) == 0 || ffi::PyTuple_GET_SIZE(key) as usize != self.args.len() + words {
                return false;
            }
            let item = |i: usize| ffi::PyTuple_GET_ITEM(key, i as ffi::Py_ssize_t);
            self.args.iter().enumerate().all(|(i, part)| part.is(item(i), objects))
                && (words == 0 || item(self.args.len()) == mark)
                && self.keywords.iter().enumerate().all(|(i, (word, part))| {
                    let at = self.args.len() + 1 + 2 * i;
                    same(item(at), word.as_ptr()) && part.is(item(at + 1), objects)
                })
        }
    }
}

fn part<T: Copy>(py: Python<'_>, part: &KeyPart<T>, objects: &mut Vec<T>) -> PyResult<Part> {
    Ok(match part {
        KeyPart::Const(value) => Part::Const(consts::to_object(py, value)?.unbind()),
        KeyPart::Tuple(parts) => {
            Part::Tuple(parts.iter().map(|item| self::part(py, item, objects)).collect::<PyResult<_>>()?)
        }
        KeyPart::Object(object) => {
            objects.push(*object);
            Part::Object(objects.len() - 1)
        }
    })
}

impl Part {
    /// # Safety
    /// As [`same`].
    unsafe fn is(&self, known: Raw, objects: &[Raw]) -> bool {
        // SAFETY: the caller's promise; a tuple or a size has the layout of a tuple.
        unsafe {
            match self {
                Part::Const(value) => same(known, value.as_ptr()),
                Part::Object(i) => objects.get(*i) == Some(&known),
                Part::Tuple(parts) => {
                    let is_tuple = ffi::PyTuple_CheckExact(known) != 0
                        || ffi::PyTuple_Check(known) != 0 && raw::tp_name(raw::class_of(known)) == "torch.Size";
                    is_tuple
                        && ffi::PyTuple_GET_SIZE(known) as usize == parts.len()
                        && parts
                            .iter()
                            .enumerate()
                            .all(|(i, part)| part.is(ffi::PyTuple_GET_ITEM(known, i as ffi::Py_ssize_t), objects))
                }
            }
        }
    }
}

/// Where the objects hold what.
struct Layout {
    /// The type of functions with a cache.
    wrapper: Py<PyAny>,
    /// Where such a function has the dict of its results.
    results: usize,
    /// The type of the entries of a cache that is bounded; others hold the results themselves.
    entry: Py<PyAny>,
    /// Where an entry has its result.
    result: usize,
    /// What stands before the keywords in a key.
    mark: Py<PyAny>,
}

fn layout(py: Python<'_>) -> Option<&'static Layout> {
    static LAYOUT: GilOnce<Option<Layout>> = GilOnce::new();
    LAYOUT.get_or_init(py, || Layout::find(py).ok().flatten()).as_ref()
}

impl Layout {
    fn find(py: Python<'_>) -> PyResult<Option<Layout>> {
        let function = py.get_type::<PyDict>();
        let made = py.import("functools")?.call_method1("lru_cache", (2,))?.call1((function,))?;
        let word = PyDict::new(py);
        word.set_item("word", 1)?;
        let result = made.call((), Some(&word))?;
        for held in py.import("gc")?.call_method1("get_referents", (&made,))?.try_iter()? {
            let held = held?;
            let Ok(results) = held.cast_exact::<PyDict>() else { continue };
            let Some((key, entry)) = results.iter().next().filter(|_| results.len() == 1) else { continue };
            if let (Some(at), Some(inner)) = (place(&made, &held), place(&entry, &result)) {
                let (wrapper, entry) = (made.get_type().into_any().unbind(), entry.get_type().into_any().unbind());
                let mark = key.get_item(0)?.unbind();
                return Ok(Some(Layout { wrapper, results: at, entry, result: inner, mark }));
            }
        }
        Ok(None)
    }
}

/// The offset of the field that holds `value`.
fn place(object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Option<usize> {
    let size = object.get_type().getattr("__basicsize__").ok()?.extract::<usize>().ok()?;
    let word = size_of::<usize>();
    // SAFETY: all words lie within the object.
    (size_of::<ffi::PyObject>()..=size - word)
        .step_by(word)
        .find(|at| unsafe { *object.as_ptr().byte_add(*at).cast::<Raw>() } == value.as_ptr())
}

/// Whether it is a function with a cache.
pub fn is_cached(py: Python<'_>, function: Raw) -> bool {
    // SAFETY: a live object.
    layout(py).is_some_and(|layout| unsafe { ffi::Py_TYPE(function).cast() } == layout.wrapper.as_ptr())
}

/// The result that `function` keeps for a call, borrowed; null if it keeps none, or has too many to look.
///
/// # Safety
/// Live objects, GIL held; `objects` are those among the call's arguments.
pub unsafe fn result(py: Python<'_>, function: Raw, call: &Call, objects: &[Raw]) -> Raw {
    let Some(layout) = layout(py).filter(|_| is_cached(py, function)) else { return null_mut() };
    // SAFETY: the type says where the dict is; nothing runs while it is walked through.
    unsafe {
        let results = *function.byte_add(layout.results).cast::<Raw>();
        if results.is_null() || ffi::PyDict_CheckExact(results) == 0 || ffi::PyDict_Size(results) > MOST_RESULTS {
            return null_mut();
        }
        let (mut key, mut value) = (null_mut(), null_mut());
        for start in [call.place.get(), 0] {
            let mut next = start;
            loop {
                let at = next;
                if ffi::PyDict_Next(results, &raw mut next, &raw mut key, &raw mut value) == 0 {
                    break;
                }
                if call.has_key(key, layout.mark.as_ptr(), objects) {
                    call.place.set(at);
                    let is_entry = ffi::Py_TYPE(value).cast() == layout.entry.as_ptr();
                    return if is_entry { *value.byte_add(layout.result).cast::<Raw>() } else { value };
                }
            }
            if start == 0 {
                break;
            }
        }
        null_mut()
    }
}

/// Whether these are equal constants of the same types. Compares nothing that runs code of users.
///
/// # Safety
/// Live objects, GIL held.
unsafe fn same(a: Raw, b: Raw) -> bool {
    // SAFETY: the caller's promise; the type tests say what each look reads.
    unsafe {
        let class = ffi::Py_TYPE(a);
        if a == b || class != ffi::Py_TYPE(b) {
            return a == b;
        }
        let plain = class == &raw mut ffi::PyUnicode_Type
            || class == &raw mut ffi::PyLong_Type
            || class == &raw mut ffi::PyFloat_Type
            || class == &raw mut ffi::PyBytes_Type;
        plain && ffi::PyObject_RichCompareBool(a, b, ffi::Py_EQ) == 1
    }
}
