//! Python constants ⇄ `ir::code::Const`. Only exact built-in types and torch's own constants convert.

use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyFloat, PyFrozenSet, PyInt, PySlice, PyString, PyTuple};
use std::collections::HashMap;

/// torch's constants by address; they live as long as torch does.
struct TorchConsts {
    by_address: HashMap<usize, Const>,
    objects: HashMap<Const, Py<PyAny>>,
    device_class: usize,
    device: Py<PyAny>,
}

fn torch(py: Python<'_>) -> Option<&'static TorchConsts> {
    static TORCH: GilOnce<Option<TorchConsts>> = GilOnce::new();
    TORCH.get_or_init(py, || load_torch(py).ok()).as_ref()
}

fn load_torch(py: Python<'_>) -> PyResult<TorchConsts> {
    let torch = py.import("torch")?;
    let mut objects = HashMap::new();
    for (name, dtype) in DTYPES {
        objects.insert(Const::Dtype(*dtype), torch.getattr(*name)?.unbind());
    }
    for name in ["strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"] {
        if let Ok(layout) = torch.getattr(name) {
            objects.insert(Const::Layout(name.into()), layout.unbind());
        }
    }
    for name in ["contiguous_format", "channels_last", "channels_last_3d", "preserve_format"] {
        objects.insert(Const::MemoryFormat(name.into()), torch.getattr(name)?.unbind());
    }
    let by_address = objects.iter().map(|(c, o)| (o.as_ptr() as usize, c.clone())).collect();
    let device = torch.getattr("device")?;
    Ok(TorchConsts { by_address, objects, device_class: device.as_ptr() as usize, device: device.unbind() })
}

const DTYPES: &[(&str, DType)] = &[
    ("uint8", DType::U8),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
    ("complex32", DType::C32),
    ("complex64", DType::C64),
    ("complex128", DType::C128),
    ("bool", DType::Bool),
    ("bfloat16", DType::Bf16),
];

/// The constant that a `torch.dtype` object is.
pub fn dtype(py: Python<'_>, object: Raw) -> Option<DType> {
    match torch(py)?.by_address.get(&(object as usize)) {
        Some(Const::Dtype(d)) => Some(*d),
        _ => None,
    }
}

/// A `torch.device` object's value.
pub fn device(object: &Bound<'_, PyAny>) -> Option<Device> {
    let kind = object.getattr("type").ok()?;
    let kind = kind.cast::<PyString>().ok()?.to_str().ok()?;
    let number = DeviceKind::named(kind)?.number;
    let index: Option<i8> = object.getattr("index").ok()?.extract().ok()?;
    Some(Device { kind: number, index: index.unwrap_or(-1) })
}

/// The constant an object is, if it is of exact built-in type (containers apart) or one of torch's constants.
pub fn from_object(object: &Bound<'_, PyAny>) -> Option<Const> {
    let py = object.py();
    let address = object.as_ptr();
    // SAFETY: comparisons of addresses with CPython's singletons and type objects.
    unsafe {
        if address == ffi::Py_None() {
            return Some(Const::None);
        }
        if address == ffi::Py_Ellipsis() {
            return Some(Const::Ellipsis);
        }
        if address == ffi::Py_NotImplemented() {
            return Some(Const::NotImplemented);
        }
        if address == ffi::Py_True() || address == ffi::Py_False() {
            return Some(Const::Bool(address == ffi::Py_True()));
        }
    }
    if let Some(value) = scalar_base(object, true) {
        return Some(value);
    }
    let torch = torch(py)?;
    if let Some(value) = torch.by_address.get(&(address as usize)) {
        return Some(value.clone());
    }
    (object.get_type().as_ptr() as usize == torch.device_class).then(|| device(object).map(Const::Device))?
}

/// The int, float, complex, str or bytes value of an object of that exact type, or (with `exact` off) of a subclass.
pub fn scalar_base(object: &Bound<'_, PyAny>, exact: bool) -> Option<Const> {
    let py = object.py();
    if is::<PyInt>(object, exact) {
        return int(object.as_ptr());
    }
    if is::<PyFloat>(object, exact) {
        // SAFETY: a float or a subclass of it.
        return Some(Const::Float(unsafe { ffi::PyFloat_AS_DOUBLE(object.as_ptr()) }));
    }
    if is::<PyString>(object, exact) {
        // SAFETY: a live str.
        return unsafe { raw::utf8(object.as_ptr()) }.map(Const::str);
    }
    if is::<PyBytes>(object, exact) {
        return Some(Const::Bytes(object.cast::<PyBytes>().ok()?.as_bytes().to_vec()));
    }
    if is::<PyComplex>(object, exact) {
        // SAFETY: a complex or a subclass, read without calling `__complex__`.
        let value = unsafe { (*object.as_ptr().cast::<ffi::PyComplexObject>()).cval };
        return Some(Const::Complex(value.real, value.imag));
    }
    let _ = py;
    None
}

fn is<T: pyo3::PyTypeInfo>(object: &Bound<'_, PyAny>, exact: bool) -> bool {
    if exact { object.is_exact_instance_of::<T>() } else { object.is_instance_of::<T>() }
}

fn int(object: Raw) -> Option<Const> {
    unsafe extern "C" {
        fn _PyLong_NumBits(object: Raw) -> usize;
        fn _PyLong_AsByteArray(object: Raw, bytes: *mut u8, n: usize, little_endian: i32, is_signed: i32) -> i32;
    }
    // SAFETY: an int or a subclass; both functions read its digits only.
    unsafe {
        let mut overflow = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
        if overflow == 0 {
            return Some(Const::Int(value));
        }
        let mut bytes = vec![0_u8; _PyLong_NumBits(object) / 8 + 1];
        if _PyLong_AsByteArray(object, bytes.as_mut_ptr(), bytes.len(), 1, 1) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        Some(Const::BigInt(bytes))
    }
}

/// A constant of a code object: also tuples, frozensets and code. The elements of a frozenset come in an order of their own,
/// since Python's differs from process to process and even between equal sets.
pub fn from_code_const(object: &Bound<'_, PyAny>) -> Option<Const> {
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        return Some(Const::Tuple(tuple.iter().map(|item| from_code_const(&item)).collect::<Option<_>>()?));
    }
    if let Ok(set) = object.cast_exact::<PyFrozenSet>() {
        let mut items = set.iter().map(|item| from_code_const(&item)).collect::<Option<Vec<_>>>()?;
        // Writing plain data to memory does not fail.
        items.sort_by_cached_key(|item| postcard::to_stdvec(item).unwrap_or_default());
        return Some(Const::FrozenSet(items));
    }
    if object.is_exact_instance_of::<pyo3::types::PyCode>() {
        // SAFETY: a live code object.
        return unsafe { crate::python::code::encode(object.py(), object.as_ptr()) }.map(Const::Code);
    }
    from_object(object)
}

/// The Python object of a constant. Code constants have none of their own and fail.
pub fn to_object<'py>(py: Python<'py>, value: &Const) -> PyResult<Bound<'py, PyAny>> {
    let unknown = || pyo3::exceptions::PyValueError::new_err(format!("{value:?} has no object"));
    Ok(match value {
        Const::None => py.None().into_bound(py),
        Const::Ellipsis => py.Ellipsis().into_bound(py),
        Const::NotImplemented => py.NotImplemented().into_bound(py),
        Const::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Const::Int(i) => i.into_pyobject(py)?.into_any(),
        Const::BigInt(bytes) => big_int(py, bytes)?,
        Const::Float(x) => PyFloat::new(py, *x).into_any(),
        Const::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
        // Strings of source code are mostly interned, and compared by identity here and there.
        Const::Str(s) => PyString::intern(py, s).into_any(),
        Const::Bytes(b) => PyBytes::new(py, b).into_any(),
        Const::Tuple(items) => {
            PyTuple::new(py, items.iter().map(|i| to_object(py, i)).collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Const::FrozenSet(items) => {
            PyFrozenSet::new(py, items.iter().map(|i| to_object(py, i)).collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Const::Slice(parts) => {
            let [start, stop, step] = &**parts;
            let (start, stop, step) = (to_object(py, start)?, to_object(py, stop)?, to_object(py, step)?);
            py.get_type::<PySlice>().call1((start, stop, step))?
        }
        Const::Code(_) => return Err(unknown()),
        Const::Dtype(_) | Const::Layout(_) | Const::MemoryFormat(_) => {
            torch(py).and_then(|t| t.objects.get(value)).ok_or_else(unknown)?.bind(py).clone()
        }
        Const::Device(d) => {
            let torch = torch(py).ok_or_else(unknown)?;
            let kind = d.known().ok_or_else(unknown)?.name;
            if d.index < 0 {
                torch.device.bind(py).call1((kind,))?
            } else {
                torch.device.bind(py).call1((kind, d.index))?
            }
        }
    })
}

fn big_int<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    unsafe extern "C" {
        fn _PyLong_FromByteArray(bytes: *const u8, n: usize, little_endian: i32, is_signed: i32) -> Raw;
    }
    // SAFETY: reads `bytes`, returns a new reference or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, _PyLong_FromByteArray(bytes.as_ptr(), bytes.len(), 1, 1)) }
}

/// The item that a descriptor of a named tuple's field gives, if the object is one: what it would be pickled with.
pub fn tuple_field(object: &Bound<'_, PyAny>) -> Option<u32> {
    static CLASS: GilOnce<Py<PyAny>> = GilOnce::new();
    let class = CLASS.get_or_try_init(object.py(), || {
        crate::python::paths::resolve(object.py(), "collections._tuplegetter").map(Bound::unbind)
    });
    if object.get_type().as_ptr() != class.ok()?.as_ptr() {
        return None;
    }
    let (_, (item, _)): (Py<PyAny>, (u32, Py<PyAny>)) = object.call_method0("__reduce__").ok()?.extract().ok()?;
    Some(item)
}
