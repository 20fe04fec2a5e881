//! Tensors as data, through torch's own C getters. A tensor whose getters could run user code is not read.

use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use crate::torch::Torch;
use flambeau_ir::dim::Dim;
use flambeau_ir::tensor::{Device, TensorDesc, TensorMeta};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::collections::HashMap;

/// Numbers storages in the order met.
#[derive(Default)]
pub struct TensorReader {
    storages: HashMap<usize, u32>,
}

struct TorchTypes {
    base: Py<PyAny>,
    /// Types whose C getters run no Python: exact `Tensor` and the types torch itself derives from it.
    plain: Vec<usize>,
    dispatch_keys: Py<PyAny>,
    is_functional: Py<PyAny>,
    disable_function: Py<PyAny>,
    /// Dispatch keys of an ordinary CPU tensor: with these, nothing peculiar is left to ask about.
    ordinary: Option<u64>,
}

fn types(py: Python<'_>) -> Option<&'static TorchTypes> {
    static TYPES: GilOnce<Option<TorchTypes>> = GilOnce::new();
    TYPES.get_or_init(py, || load(py).ok()).as_ref()
}

/// Reads torch's types now rather than at the first description.
pub fn ask(py: Python<'_>) {
    types(py);
}

fn load(py: Python<'_>) -> PyResult<TorchTypes> {
    let torch = py.import("torch")?;
    let c = torch.getattr("_C")?;
    let nn = py.import("torch.nn.parameter")?;
    let mut plain = vec![torch.getattr("Tensor")?.as_ptr() as usize, nn.getattr("Parameter")?.as_ptr() as usize];
    plain.extend(nn.getattr("Buffer").map(|b| b.as_ptr() as usize));
    Ok(TorchTypes {
        base: c.getattr("TensorBase")?.unbind(),
        plain,
        dispatch_keys: c.getattr("_dispatch_keys")?.unbind(),
        is_functional: torch.getattr("_is_functional_tensor")?.unbind(),
        disable_function: c.getattr("DisableTorchFunction")?.unbind(),
        ordinary: ordinary(py, &torch).ok(),
    })
}

fn ordinary(py: Python<'_>, torch: &Bound<'_, PyModule>) -> PyResult<u64> {
    let scope = torch.getattr("inference_mode")?.call1((false,))?;
    scope.call_method0("__enter__")?;
    let keys = torch.getattr("_C")?.call_method1("_dispatch_keys", (torch.getattr("Tensor")?.call0()?,));
    let none = py.None();
    scope.call_method1("__exit__", (&none, &none, &none))?;
    keys?.call_method0("raw_repr")?.extract()
}

impl TensorReader {
    /// Whether the object's type derives from torch's tensor type.
    pub fn is_tensor(&self, py: Python<'_>, object: Raw) -> bool {
        types(py).is_some_and(|t| {
            // SAFETY: both are live types.
            unsafe { pyo3::ffi::PyType_IsSubtype(raw::class_of(object).cast(), t.base.as_ptr().cast()) != 0 }
        })
    }

    /// The tensor's description; `None` if torch cannot be asked.
    pub fn describe(&mut self, py: Python<'_>, object: Raw) -> Option<TensorDesc> {
        let types = types(py)?;
        // SAFETY: a live object.
        let tensor = unsafe { Bound::from_borrowed_ptr(py, object) };
        let class = tensor.get_type();
        if !types.plain.contains(&(class.as_ptr() as usize)) {
            return Some(unusual(format!(
                "of type {}",
                class.qualname().map_or_else(|_| "?".into(), |n| n.to_string())
            )));
        }
        if let Some(described) = self.read_ordinary(py, types, object) {
            return Some(described);
        }
        // A function mode (a default device, say) would see the reads below.
        let guard = types.disable_function.bind(py).call0().ok()?;
        guard.call_method0("__enter__").ok()?;
        let described = self.read(py, types, &tensor);
        let none = py.None();
        let left = guard.call_method1("__exit__", (&none, &none, &none));
        // A view of which autograd no longer knows how it was made does not even say whether it is a leaf.
        Some(left.and(described).unwrap_or_else(|error| unusual(format!("of which torch says: {error}"))))
    }

    /// An ordinary CPU tensor, without Python.
    fn read_ordinary(&mut self, py: Python<'_>, types: &TorchTypes, object: Raw) -> Option<TensorDesc> {
        let torch = Torch::get(py).ok()?;
        // SAFETY: an exact tensor type; with ordinary keys the tensor is strided and its getters run no Python.
        unsafe {
            let handle = torch.handle(object);
            let keys = torch.keys(handle);
            if Some(keys) != types.ordinary {
                return None;
            }
            let dtype = flambeau_ir::kernel::DType::from_torch(u8::try_from(torch.dtype(handle)).ok()?)?;
            let requires_grad = torch.requires_grad(handle);
            let is_leaf_or_view = !requires_grad || is_leaf_or_view(&Bound::from_borrowed_ptr(py, object)).ok()?;
            let (start, size) = torch.storage(handle);
            // Empty storages have no address to tell them apart by, and nothing that could overlap.
            let storage = if size == 0 { object as usize } else { start };
            let dims = |values: &[i64]| values.iter().copied().map(Dim::Const).collect();
            Some(TensorDesc {
                meta: TensorMeta {
                    dtype,
                    device: torch.device(handle),
                    sizes: dims(torch.sizes(handle)),
                    strides: dims(torch.strides(handle)),
                    requires_grad,
                },
                storage_offset: torch.storage_offset(handle),
                storage: self.number(storage),
                dispatch_keys: keys,
                is_leaf_or_view,
                is_inference: false,
                unusual: None,
            })
        }
    }

    fn number(&mut self, storage: usize) -> u32 {
        let next = self.storages.len() as u32;
        *self.storages.entry(storage).or_insert(next)
    }

    fn read(&mut self, py: Python<'_>, types: &TorchTypes, tensor: &Bound<'_, PyAny>) -> PyResult<TensorDesc> {
        let flag = |name: &str| -> PyResult<bool> { Ok(tensor.getattr(name)?.cast::<PyBool>()?.is_true()) };
        let called = |name: &str| -> PyResult<bool> { Ok(tensor.call_method0(name)?.cast::<PyBool>()?.is_true()) };
        let keys: u64 = types.dispatch_keys.bind(py).call1((tensor,))?.call_method0("raw_repr")?.extract()?;
        if let Some(what) = peculiarity(py, types, tensor)? {
            return Ok(TensorDesc { dispatch_keys: keys, ..unusual(what) });
        }
        let dtype = tensor.getattr("dtype")?;
        let Some(dtype) = crate::python::consts::dtype(py, dtype.as_ptr()) else {
            return Ok(TensorDesc { dispatch_keys: keys, ..unusual(format!("of dtype {dtype}")) });
        };
        let device = crate::python::consts::device(&tensor.getattr("device")?)
            .ok_or_else(|| pyo3::exceptions::PyValueError::new_err("unknown device"))?;
        let dims = |name: &str| -> PyResult<Vec<Dim>> {
            Ok(tensor.call_method0(name)?.extract::<Vec<i64>>()?.into_iter().map(Dim::Const).collect())
        };
        let storage = tensor.call_method0("untyped_storage")?;
        let (start, size): (usize, usize) =
            (storage.call_method0("data_ptr")?.extract()?, storage.call_method0("nbytes")?.extract()?);
        let storage = if size == 0 || start == 0 { tensor.as_ptr() as usize } else { start };
        Ok(TensorDesc {
            meta: TensorMeta {
                dtype,
                device,
                sizes: dims("size")?,
                strides: dims("stride")?,
                requires_grad: flag("requires_grad")?,
            },
            storage_offset: tensor.call_method0("storage_offset")?.extract()?,
            storage: self.number(storage),
            dispatch_keys: keys,
            is_leaf_or_view: is_leaf_or_view(tensor)?,
            is_inference: called("is_inference")?,
            unusual: None,
        })
    }
}

/// Whether the tensor is a leaf or a view: while they require grad, torch lets nobody write to leaves, views of leaves, and
/// views of which one call made several.
fn is_leaf_or_view(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(tensor.getattr("is_leaf")?.is_truthy()? || !tensor.getattr("_base")?.is_none())
}

/// What makes the tensor one that is not traced, if anything does.
fn peculiarity(py: Python<'_>, types: &TorchTypes, tensor: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let layout = tensor.getattr("layout")?;
    let strided = crate::python::consts::from_object(&layout);
    if strided != Some(flambeau_ir::code::Const::Layout("strided".into())) {
        return Ok(Some(format!("with layout {layout}")));
    }
    for (name, what) in [("is_quantized", "quantized"), ("is_nested", "nested"), ("is_mkldnn", "in MKLDNN layout")] {
        if tensor.getattr(name)?.is_truthy()? {
            return Ok(Some(what.into()));
        }
    }
    for (name, what) in [("is_conj", "lazily conjugated"), ("is_neg", "lazily negated")] {
        if tensor.call_method0(name)?.is_truthy()? {
            return Ok(Some(what.into()));
        }
    }
    if types.is_functional.bind(py).call1((tensor,))?.is_truthy()? {
        return Ok(Some("wrapped for functionalization".into()));
    }
    let functorch =
        py.import("torch._C")?.getattr("_functorch")?.call_method1("is_functorch_wrapped_tensor", (tensor,))?;
    Ok(functorch.is_truthy()?.then(|| "wrapped by a functorch transform".into()))
}

fn unusual(what: String) -> TensorDesc {
    let meta = TensorMeta::contiguous(flambeau_ir::kernel::DType::F32, Device::CPU, Vec::new());
    TensorDesc {
        meta,
        storage_offset: 0,
        storage: u32::MAX,
        dispatch_keys: 0,
        is_leaf_or_view: true,
        is_inference: false,
        unusual: Some(what),
    }
}
