//! Built-in iterators whose next items can be told without advancing them: a copy is advanced. Their `__reduce__` says what they
//! are made of and how far they got; it is C code that runs nothing of the user's.

use crate::python::raw::Raw;
use flambeau_ir::object::MOST_AHEAD;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// How `__reduce__` describes an iterator of a type.
enum How {
    /// By the sequence that it is over, of one of these types, and an index.
    Sequence(&'static [&'static str]),
    /// By a list of the items left, which takes time for each; the first field of the object is the dict.
    Items,
    /// By iterators that nothing else holds, and other arguments of its type.
    Iterators,
}

/// A line for each type. Sets are left out: another process has another order.
const TYPES: &[(&str, How)] = &[
    ("list_iterator", How::Sequence(&["list"])),
    ("list_reverseiterator", How::Sequence(&["list"])),
    ("tuple_iterator", How::Sequence(&["tuple"])),
    ("range_iterator", How::Sequence(&["range"])),
    ("longrange_iterator", How::Sequence(&["range"])),
    ("str_iterator", How::Sequence(&["str"])),
    ("str_ascii_iterator", How::Sequence(&["str"])),
    ("bytes_iterator", How::Sequence(&["bytes"])),
    ("dict_keyiterator", How::Items),
    ("dict_valueiterator", How::Items),
    ("dict_itemiterator", How::Items),
    ("enumerate", How::Iterators),
    ("zip", How::Iterators),
];

/// Most items of a dict: all that are left are copied each time.
const MOST_ITEMS: isize = 256;
/// Iterators within iterators.
const DEEPEST: usize = 4;

/// The name of an object's type if that is one of the interpreter's own.
fn own_type(object: Raw) -> Option<&'static str> {
    // SAFETY: a live object, whose type is alive with it; types of the interpreter are for ever.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let heap = ffi::PyType_GetFlags(class) & ffi::Py_TPFLAGS_HEAPTYPE != 0;
        (!heap).then(|| crate::python::raw::tp_name(class.cast()))
    }
}

fn how(iterator: Raw) -> Option<&'static How> {
    let name = own_type(iterator)?;
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, how)| how)
}

/// Whether its next items can be told, as far as its type says.
pub fn is_known(iterator: Raw) -> bool {
    how(iterator).is_some()
}

/// A tuple of the next items, at most so many, and one more than [`MOST_AHEAD`]; an error where they cannot be told.
pub fn ahead(iterator: &Bound<'_, PyAny>, most: usize) -> PyResult<Py<PyTuple>> {
    let items = copied(iterator, 0)?.try_iter()?.take(most.min(MOST_AHEAD + 1));
    Ok(PyTuple::new(iterator.py(), items.collect::<PyResult<Vec<_>>>()?)?.unbind())
}

/// Advances an iterator of a type of the table, to its end if that is nearer.
pub fn advance(iterator: &Bound<'_, PyAny>, count: u32) -> PyResult<()> {
    if !is_known(iterator.as_ptr()) || count as usize > MOST_AHEAD + 1 {
        return unknown();
    }
    iterator.try_iter()?.take(count as usize).try_for_each(|item| item.map(drop))
}

/// The lists and dicts that it draws from.
pub fn drawn_from(iterator: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
    let mut found = Vec::new();
    collect(iterator, 0, &mut found)?;
    Ok(found)
}

fn unknown<T>() -> PyResult<T> {
    Err(PyValueError::new_err("an iterator whose next items cannot be told"))
}

/// The arguments and the state in what `__reduce__` gives.
fn reduced<'py>(iterator: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyTuple>, Option<Bound<'py, PyAny>>)> {
    let reduced = iterator.call_method0(crate::python::gil::interned!(iterator.py(), "__reduce__"))?;
    let reduced = reduced.cast_into::<PyTuple>()?;
    let args = reduced.get_item(1)?.cast_into::<PyTuple>()?;
    let state = reduced.get_item(2).ok().filter(|state| !state.is_none());
    Ok((args, state))
}

/// The dict behind an iterator over one, if it is not at its end.
fn container<'py>(iterator: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: iterators over dicts are a head and then the dict, or null.
    unsafe {
        let field = iterator.as_ptr().byte_add(std::mem::size_of::<ffi::PyObject>()).cast::<Raw>();
        Bound::from_borrowed_ptr_or_opt(iterator.py(), *field)
    }
}

fn copied<'py>(iterator: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = iterator.py();
    let Some(how) = how(iterator.as_ptr()).filter(|_| depth < DEEPEST) else { return unknown() };
    if let How::Items = how {
        // SAFETY: a live dict.
        let large = container(iterator).is_some_and(|of| unsafe { ffi::PyDict_Size(of.as_ptr()) } > MOST_ITEMS);
        if large {
            return unknown();
        }
    }
    let (args, state) = reduced(iterator)?;
    match how {
        How::Sequence(types) => {
            let over = args.get_item(0)?;
            let Some(name) = own_type(over.as_ptr()) else { return unknown() };
            // An iterator at its end says that it is over nothing, which may be of another type.
            let is_end = state.is_none() && ["list", "tuple", "str"].contains(&name) && over.is_empty()?;
            if !types.contains(&name) && !is_end {
                return unknown();
            }
            let is_reversed = own_type(iterator.as_ptr()) == Some("list_reverseiterator");
            let copy = if is_reversed && !is_end {
                crate::python::paths::resolve(py, "builtins.reversed")?.call1((&over,))?
            } else {
                over.try_iter()?.into_any()
            };
            if let Some(state) = state {
                // A list that lost items ends it, where a copy would begin at the new end.
                if is_reversed && state.extract::<isize>()? >= over.len()? as isize {
                    return unknown();
                }
                copy.call_method1(crate::python::gil::interned!(py, "__setstate__"), (state,))?;
            }
            Ok(copy)
        }
        How::Items => Ok(args.get_item(0)?.cast_into::<PyList>()?.try_iter()?.into_any()),
        How::Iterators => {
            // `zip` hands out its own tuple, `enumerate` makes one.
            let is_zip = own_type(iterator.as_ptr()) == Some("zip");
            let holders = if is_zip { 1 } else { 2 };
            let mut copies = Vec::with_capacity(args.len());
            for arg in args.iter_borrowed() {
                if is_known(arg.as_ptr()) {
                    // SAFETY: a live object. If anybody else holds it, it may be advanced by others.
                    if unsafe { ffi::Py_REFCNT(arg.as_ptr()) } != holders {
                        return unknown();
                    }
                    copies.push(copied(&arg, depth + 1)?);
                } else if is_zip || copies.is_empty() {
                    return unknown();
                } else {
                    copies.push(arg.to_owned());
                }
            }
            let keywords = PyDict::new(py);
            if let Some(strict) = state {
                keywords.set_item("strict", strict)?;
            }
            iterator.get_type().call(PyTuple::new(py, copies)?, Some(&keywords))
        }
    }
}

fn collect(iterator: &Bound<'_, PyAny>, depth: usize, found: &mut Vec<Py<PyAny>>) -> PyResult<()> {
    let Some(how) = how(iterator.as_ptr()).filter(|_| depth < DEEPEST) else { return Ok(()) };
    match how {
        How::Sequence(_) => {
            let over = reduced(iterator)?.0.get_item(0)?;
            if over.is_instance_of::<PyList>() {
                found.push(over.unbind());
            }
        }
        How::Items => found.extend(container(iterator).map(Bound::unbind)),
        How::Iterators => {
            for arg in reduced(iterator)?.0.iter_borrowed() {
                collect(&arg, depth + 1, found)?;
            }
        }
    }
    Ok(())
}
