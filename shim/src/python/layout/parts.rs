//! Objects that are what their parts are ([`flambeau_ir::object::PARTS`]): their types in this process, and their parts, read raw.

use crate::python::raw::Raw;
use flambeau_ir::object::{PARTS, PartsOf};
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// The types, in the table's order.
fn types(py: Python<'_>) -> PyResult<&'static [usize]> {
    static FOUND: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    // Their modules keep them alive for the life of the process.
    let found = PARTS.iter().map(|of| Ok(crate::python::paths::resolve(py, of.path)?.into_ptr() as usize));
    let found = found.collect::<PyResult<_>>()?;
    Ok(FOUND.get_or_init(|| found))
}

/// The address of the type that a number stands for.
pub fn class(py: Python<'_>, of: PartsOf) -> PyResult<usize> {
    Ok(types(py)?[usize::from(of)])
}

/// How far behind an object's beginning a part lies. Unit: bytes.
pub const fn offset(at: u8) -> usize {
    std::mem::size_of::<ffi::PyObject>() + std::mem::size_of::<Raw>() * at as usize
}

/// The type and the parts of an object, if it is exactly of such a type.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn of(py: Python<'_>, object: Raw) -> Option<(PartsOf, Vec<Raw>)> {
    // SAFETY: the caller's promise.
    let class = unsafe { ffi::Py_TYPE(object) } as usize;
    let of = types(py).ok()?.iter().position(|known| *known == class)?;
    // SAFETY: objects of the table's types are a head and their parts, none of which is missing.
    let part = |at| unsafe { *object.byte_add(offset(at)).cast::<Raw>() };
    Some((of as PartsOf, (0..PARTS[of].names.len() as u8).map(part).collect()))
}
