//! What `functools.lru_cache` keeps: results by their calls' arguments, read without calling anything. Where its objects hold
//! them is found out by looking into one that was made for that (CPython's `Modules/_functoolsmodule.c`).

use crate::python::consts;
use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use flambeau_ir::source::{CallKey, KeyPart, Likeness};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyInt, PyString, PyTuple};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;

/// A cache with more results is not looked into.
const MOST_RESULTS: isize = 2048;

/// Arguments of a call, to find its result by.
pub struct Call {
    key: Part,
    /// Where in its dict the result was found last.
    place: Cell<ffi::Py_ssize_t>,
}

/// A key, or an item of one.
enum Part {
    /// A number, str, ...
    Const(Py<PyAny>),
    /// A tuple, or `torch.Size`.
    Tuple(Box<[Part]>),
    /// One of the objects that are given, by its number.
    Object(usize),
}

impl Call {
    /// From the arguments of a call, and the objects among them in order. As `lru_cache_make_key` has it: a str or an int
    /// that is the only argument is the key; else a tuple of the arguments, and a mark before those with names.
    pub fn new<T: Copy>(py: Python<'_>, key: &CallKey<T>) -> PyResult<(Call, Vec<T>)> {
        let mut objects = Vec::new();
        let mut parts = key.args.iter().map(|arg| part(py, arg, &mut objects)).collect::<PyResult<Vec<Part>>>()?;
        if !key.keywords.is_empty() {
            // Where nothing is known no object has a cache.
            parts.push(Part::Const(layout(py).map_or_else(|| py.None(), |layout| layout.mark.clone_ref(py))));
        }
        for (word, arg) in &key.keywords {
            parts.push(Part::Const(PyString::intern(py, word).into_any().unbind()));
            parts.push(part(py, arg, &mut objects)?);
        }
        let key = match &*parts {
            [Part::Const(only)] if is_key_alone(only.bind(py)) => Part::Const(only.clone_ref(py)),
            _ => Part::Tuple(parts.into()),
        };
        Ok((Call { key, place: Cell::new(0) }, objects))
    }

    /// The arguments themselves, of a call that names none.
    ///
    /// # Safety
    /// `objects` are live, and those among the arguments.
    pub unsafe fn arguments<'py>(&self, py: Python<'py>, objects: &[Raw]) -> PyResult<Bound<'py, PyTuple>> {
        // SAFETY: the caller's promise.
        let object = |part: &Part| unsafe { part.object(py, objects) };
        match &self.key {
            Part::Tuple(parts) => PyTuple::new(py, parts.iter().map(object).collect::<PyResult<Vec<_>>>()?),
            only => PyTuple::new(py, [object(only)?]),
        }
    }
}

fn is_key_alone(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>() || value.is_exact_instance_of::<PyInt>()
}

/// What a cache keeps for a call.
pub enum Kept {
    /// This, borrowed.
    Result(Raw),
    /// Nothing, and so many results more fit in.
    Nothing(u32),
    /// Not to be told without running user code, or there are too many results to look.
    Unclear,
}

impl Kept {
    /// The result, or null.
    pub fn result(&self) -> Raw {
        if let Kept::Result(result) = self { *result } else { null_mut() }
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
    /// As [`Call::arguments`].
    unsafe fn object<'py>(&self, py: Python<'py>, objects: &[Raw]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Part::Const(value) => Ok(value.bind(py).clone()),
            // SAFETY: the caller's promise.
            Part::Object(at) => Ok(unsafe { Bound::from_borrowed_ptr(py, objects[*at]) }),
            Part::Tuple(parts) => {
                // SAFETY: the caller's promise.
                let items = parts.iter().map(|part| unsafe { part.object(py, objects) });
                Ok(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }

    /// # Safety
    /// As [`compare`].
    unsafe fn compare(&self, known: Raw, objects: &[Raw]) -> Likeness {
        // SAFETY: the caller's promise; a tuple or a size has the layout of a tuple.
        unsafe {
            match self {
                Part::Const(value) => compare(value.as_ptr(), known),
                Part::Object(i) => objects.get(*i).map_or(Likeness::Unclear, |object| compare(*object, known)),
                Part::Tuple(parts) => {
                    let is_tuple = ffi::PyTuple_CheckExact(known) != 0
                        || ffi::PyTuple_Check(known) != 0 && raw::tp_name(raw::class_of(known)) == "torch.Size";
                    if !is_tuple {
                        return if equals_only_itself(known) { Likeness::Other } else { Likeness::Unclear };
                    }
                    if ffi::PyTuple_GET_SIZE(known) as usize != parts.len() {
                        return Likeness::Other;
                    }
                    let item = |i: usize| ffi::PyTuple_GET_ITEM(known, i as ffi::Py_ssize_t);
                    let items = parts.iter().enumerate().map(|(i, part)| part.compare(item(i), objects));
                    items.fold(Likeness::Same, Likeness::and)
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
    /// Where it has the function that it calls.
    function: usize,
    /// Where it has the number of results that it keeps at most, less than none for any.
    most: usize,
    /// Where it has whether keys hold the types of the arguments: an int.
    typed: usize,
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
        /// Two sizes that no other field has.
        const SIZES: [usize; 2] = [1_021, 2_039];
        let function = py.get_type::<PyDict>();
        let caches = py.import("functools")?.getattr("lru_cache")?;
        let make = |size: usize, typed: bool| caches.call1((size, typed))?.call1((function.clone(),));
        let [made, other, typed] = [make(SIZES[0], false)?, make(SIZES[1], false)?, make(SIZES[1], true)?];
        let word = PyDict::new(py);
        word.set_item("word", 1)?;
        let result = made.call((), Some(&word))?;
        // SAFETY: words of live objects.
        let most = fields(&made)?.find(|at| unsafe { [read(&made, *at), read(&other, *at)] == SIZES });
        let called = place(&made, function.as_any());
        for held in py.import("gc")?.call_method1("get_referents", (&made,))?.try_iter()? {
            let held = held?;
            let Ok(results) = held.cast_exact::<PyDict>() else { continue };
            let Some((key, entry)) = results.iter().next().filter(|_| results.len() == 1) else { continue };
            let (Some(results), Some(inner)) = (place(&made, &held), place(&entry, &result)) else { continue };
            let (Some(function), Some(most)) = (called, most) else { continue };
            // The word before, of which the upper half is no part of the field.
            let at = results - size_of::<usize>();
            // SAFETY: words of live objects.
            if unsafe { [&made, &other, &typed].map(|of| read(of, at) as u32) } != [0, 0, 1] {
                continue;
            }
            return Ok(Some(Layout {
                wrapper: made.get_type().into_any().unbind(),
                results,
                function,
                most,
                typed: at,
                entry: entry.get_type().into_any().unbind(),
                result: inner,
                mark: key.get_item(0)?.unbind(),
            }));
        }
        Ok(None)
    }
}

/// The offsets of an object's words, but for its head.
fn fields(object: &Bound<'_, PyAny>) -> PyResult<impl Iterator<Item = usize> + use<>> {
    let size = object.get_type().getattr("__basicsize__")?.extract::<usize>()?;
    let word = size_of::<usize>();
    Ok((size_of::<ffi::PyObject>()..=size - word).step_by(word))
}

/// # Safety
/// A word of the object.
unsafe fn read(object: &Bound<'_, PyAny>, at: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { *object.as_ptr().byte_add(at).cast::<usize>() }
}

/// The offset of the field that holds `value`.
fn place(object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Option<usize> {
    // SAFETY: all words lie within the object.
    fields(object).ok()?.find(|at| unsafe { read(object, *at) } == value.as_ptr() as usize)
}

/// Whether it is a function with a cache.
pub fn is_cached(py: Python<'_>, function: Raw) -> bool {
    // SAFETY: a live object.
    layout(py).is_some_and(|layout| unsafe { ffi::Py_TYPE(function).cast() } == layout.wrapper.as_ptr())
}

/// As [`is_cached`], with the GIL held.
pub fn has_cache(function: Raw) -> bool {
    // SAFETY: the GIL is held. `Python::attach` would drop what other threads left behind.
    is_cached(unsafe { Python::assume_attached() }, function)
}

/// Where a function with a cache has the one that it calls.
pub fn function(py: Python<'_>) -> usize {
    // Where nothing is known no object has a cache.
    layout(py).map_or(0, |layout| layout.function)
}

/// What `function` keeps for a call.
///
/// # Safety
/// Live objects, GIL held; `objects` are those among the call's arguments, null where a path leads nowhere.
pub unsafe fn look_up(py: Python<'_>, function: Raw, call: &Call, objects: &[Raw]) -> Kept {
    let known = !objects.iter().any(|object| object.is_null()) && is_cached(py, function);
    let Some(layout) = layout(py).filter(|_| known) else { return Kept::Unclear };
    // SAFETY: the type says where the dict is; nothing runs while it is walked through.
    unsafe {
        let results = *function.byte_add(layout.results).cast::<Raw>();
        if results.is_null() || ffi::PyDict_CheckExact(results) == 0 || ffi::PyDict_Size(results) > MOST_RESULTS {
            return Kept::Unclear;
        }
        let mut unclear = *function.byte_add(layout.typed).cast::<i32>() != 0;
        let (mut key, mut value) = (null_mut(), null_mut());
        for start in [call.place.get(), 0] {
            let mut next = start;
            loop {
                let at = next;
                if ffi::PyDict_Next(results, &raw mut next, &raw mut key, &raw mut value) == 0 {
                    break;
                }
                match call.key.compare(key, objects) {
                    Likeness::Same => {
                        call.place.set(at);
                        let is_entry = ffi::Py_TYPE(value).cast() == layout.entry.as_ptr();
                        return Kept::Result(if is_entry {
                            *value.byte_add(layout.result).cast::<Raw>()
                        } else {
                            value
                        });
                    }
                    Likeness::Unclear => unclear = true,
                    Likeness::Other => {}
                }
            }
            if start == 0 {
                break;
            }
        }
        let most = *function.byte_add(layout.most).cast::<ffi::Py_ssize_t>();
        let room = if most < 0 { ffi::Py_ssize_t::MAX } else { most - ffi::PyDict_Size(results) };
        if unclear || room < 1 { Kept::Unclear } else { Kept::Nothing(u32::try_from(room).unwrap_or(u32::MAX)) }
    }
}

/// Has the cache of a function keep a result for a call that it keeps none for, as if the function had been called and
/// had given it: the cache's own code counts and orders.
///
/// # Errors
/// What the cache raises.
pub fn keep<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    words: Option<&Bound<'py, PyDict>>,
    result: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = function.py();
    let result = result.clone().unbind();
    let giver = PyCFunction::new_closure(py, None, None, move |args, _| result.clone_ref(args.py()))?;
    // SAFETY: it has a cache, so that the field holds what it calls. All that runs meanwhile is the cache's code: its keys are
    // numbers, strs and what is compared by identity, it has room, and the collector of garbage is off.
    unsafe {
        let field = function.as_ptr().byte_add(self::function(py)).cast::<Raw>();
        let collects = PyGC_Disable() != 0;
        let original = std::mem::replace(&mut *field, giver.as_ptr());
        let called = function.call(args, words);
        *field = original;
        if collects {
            PyGC_Enable();
        }
        called.map(drop)
    }
}

unsafe extern "C" {
    fn PyGC_Disable() -> c_int;
    fn PyGC_Enable() -> c_int;
}

/// How an argument is to what stands in its place in a key. Compares nothing that runs code of users.
///
/// # Safety
/// Live objects, GIL held; the first is a constant, or compared by identity.
unsafe fn compare(value: Raw, known: Raw) -> Likeness {
    // SAFETY: the caller's promise; the type tests say what each look reads.
    unsafe {
        if value == known {
            return Likeness::Same;
        }
        if is_plain(value) && is_plain(known) {
            return match ffi::PyObject_RichCompareBool(value, known, ffi::Py_EQ) {
                0 => Likeness::Other,
                1 if ffi::Py_TYPE(value) == ffi::Py_TYPE(known) => Likeness::Same,
                _ => Likeness::Unclear,
            };
        }
        if equals_only_itself(known) || ffi::PyTuple_CheckExact(known) != 0 {
            Likeness::Other
        } else {
            Likeness::Unclear
        }
    }
}

/// Whether it is of a type of numbers or texts.
unsafe fn is_plain(object: Raw) -> bool {
    // SAFETY: a live object.
    let class = unsafe { ffi::Py_TYPE(object) };
    class == &raw mut ffi::PyUnicode_Type
        || class == &raw mut ffi::PyLong_Type
        || class == &raw mut ffi::PyFloat_Type
        || class == &raw mut ffi::PyBytes_Type
        || class == &raw mut ffi::PyBool_Type
}

/// Whether it is equal to no object but itself, numbers and texts apart: its type compares by identity.
unsafe fn equals_only_itself(object: Raw) -> bool {
    // SAFETY: a live object and its type.
    unsafe {
        let compares = |class: *const ffi::PyTypeObject| (*class).tp_richcompare.map(|compare| compare as usize);
        is_plain(object) || compares(ffi::Py_TYPE(object)) == compares(&raw const ffi::PyBaseObject_Type)
    }
}
