//! Whether an object is exactly a constant: same type, same bits. No user code runs.

use crate::python::raw::{self, Raw};
use flambeau_ir::code::Const;
use pyo3::ffi;
use pyo3::prelude::*;

/// A constant to compare with.
pub struct Constant {
    /// The constant.
    pub value: Const,
    /// Its object, where it has one that is unique or can be compared by address first.
    pub object: Option<Py<PyAny>>,
}

impl Constant {
    /// Ready to compare.
    pub fn new(py: Python<'_>, value: &Const) -> Self {
        Constant { value: value.clone(), object: crate::python::consts::to_object(py, value).ok().map(Bound::unbind) }
    }

    /// Whether `object` is exactly this constant.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn is(&self, py: Python<'_>, object: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if self.object.as_ref().is_some_and(|own| own.as_ptr() == object) {
                return true;
            }
            equals(py, object, &self.value)
        }
    }
}

/// Whether `object` is exactly `value`.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn equals(py: Python<'_>, object: Raw, value: &Const) -> bool {
    // SAFETY: each arm has checked the type that it reads.
    unsafe {
        let class = ffi::Py_TYPE(object);
        match value {
            Const::None => object == ffi::Py_None(),
            Const::Ellipsis => object == ffi::Py_Ellipsis(),
            Const::NotImplemented => object == ffi::Py_NotImplemented(),
            Const::Bool(b) => object == if *b { ffi::Py_True() } else { ffi::Py_False() },
            Const::Int(_) | Const::BigInt(_) => class == &raw mut ffi::PyLong_Type && base_equals(py, object, value),
            Const::Float(_) => class == &raw mut ffi::PyFloat_Type && base_equals(py, object, value),
            Const::Str(_) => class == &raw mut ffi::PyUnicode_Type && base_equals(py, object, value),
            Const::Tuple(items) => {
                class == &raw mut ffi::PyTuple_Type
                    && ffi::PyTuple_GET_SIZE(object) as usize == items.len()
                    && (0..).zip(items).all(|(i, item)| equals(py, ffi::PyTuple_GET_ITEM(object, i), item))
            }
            Const::FrozenSet(items) => class == &raw mut ffi::PyFrozenSet_Type && elements(py, object, items),
            Const::Slice(parts) => {
                let slice = object.cast::<ffi::PySliceObject>();
                class == &raw mut ffi::PySlice_Type
                    && [(*slice).start, (*slice).stop, (*slice).step]
                        .into_iter()
                        .zip(&**parts)
                        .all(|(part, expected)| equals(py, part, expected))
            }
            Const::Code(code) => {
                ffi::PyCode_Check(object) != 0 && crate::python::code::hash(py, object) == Some(code.hash)
            }
            Const::Complex(..)
            | Const::Bytes(_)
            | Const::Dtype(_)
            | Const::Device(_)
            | Const::Layout(_)
            | Const::MemoryFormat(_) => {
                crate::python::consts::from_object(&Bound::from_borrowed_ptr(py, object)).as_ref() == Some(value)
            }
        }
    }
}

/// Whether the int, float or str (or subclass) `object` has this base value.
///
/// # Safety
/// As [`equals`].
pub unsafe fn base_equals(py: Python<'_>, object: Raw, value: &Const) -> bool {
    // SAFETY: each arm has checked the type that it reads.
    unsafe {
        match value {
            Const::Int(expected) => {
                if ffi::PyLong_Check(object) == 0 {
                    return false;
                }
                let mut overflow = 0;
                let found = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
                overflow == 0 && found == *expected
            }
            Const::Float(expected) => {
                ffi::PyFloat_Check(object) != 0 && ffi::PyFloat_AS_DOUBLE(object).to_bits() == expected.to_bits()
            }
            Const::Str(expected) => raw::utf8(object) == Some(&**expected),
            _ => {
                crate::python::consts::scalar_base(&Bound::from_borrowed_ptr(py, object), false).as_ref() == Some(value)
            }
        }
    }
}

/// Whether a set or frozenset has exactly these elements.
///
/// # Safety
/// As [`equals`]; `set` is a set or frozenset, or an instance of a subclass.
pub unsafe fn elements(py: Python<'_>, set: Raw, expected: &[Const]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { each_is(set, expected.len(), |_, element| expected.iter().any(|value| equals(py, element, value))) }
}

/// As [`elements`], and in this order.
///
/// # Safety
/// As [`elements`].
pub unsafe fn in_order(py: Python<'_>, set: Raw, expected: &[Const]) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        each_is(set, expected.len(), |i, element| expected.get(i).is_some_and(|value| equals(py, element, value)))
    }
}

/// Whether a set has so many elements, and each, in their order, is what is asked of it.
unsafe fn each_is(set: Raw, len: usize, is: impl Fn(usize, Raw) -> bool) -> bool {
    // SAFETY: a live set; nothing runs between two steps that could change it.
    unsafe {
        if ffi::PySet_Size(set) as usize != len {
            return false;
        }
        let (mut position, mut element, mut hash) = (0, std::ptr::null_mut(), 0);
        for i in 0..len {
            if raw::set_next(set, &raw mut position, &raw mut element, &raw mut hash) == 0 || !is(i, element) {
                return false;
            }
        }
        true
    }
}
