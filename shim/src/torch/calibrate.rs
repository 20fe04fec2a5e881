//! Start-up check of torch's C interface: what the borrowed handles of probe tensors say must be what Python says.

use super::layout::{Layout, Memory, PlainAutograd};
use super::{Functions, Handle, TENSOR_OFFSET, Torch, What, Wrap, find};
use flambeau_ir::kernel::DType;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// Words of a `TensorImpl` that are searched, if it has so many.
const IMPL_WORDS: usize = 24;
/// Words of a `StorageImpl`.
const STORAGE_WORDS: usize = 6;

/// Finds, checks and measures.
pub(super) fn load(py: Python<'_>) -> Result<Torch, String> {
    let fail = |e: PyErr| format!("torch cannot be probed: {e}");
    let module = py.import("torch").map_err(fail)?;
    let libraries = libraries()?;
    let c = Functions::load(&|name| find(&libraries, name))?;
    let class = |path: &str| crate::python::paths::resolve(py, path).map(|c| c.as_ptr() as usize).map_err(fail);
    let (tensor_class, parameter_class) = (class("torch.Tensor")?, class("torch.nn.Parameter")?);
    let wrap = Wrap::load(&|name| find(&libraries, name)).ok_or("torch exports nothing that makes tensor objects")?;
    let what = find(&libraries, c"torch_exception_get_what_without_backtrace");
    // SAFETY: the symbol has this signature in torch's public headers.
    let what = (!what.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, What>(what) });
    let mut torch = Torch { c, wrap, what, keys_offset: 0, layout: None, tensor_class, parameter_class, libraries };
    let probes = probes(&module).map_err(fail)?;
    for probe in &probes {
        agrees(&torch, probe).map_err(fail)?.then_some(()).ok_or("tensor objects have an unknown layout")?;
    }
    torch.keys_offset = keys_offset(&module, &probes).map_err(fail)?.ok_or("the dispatch key word was not found")?;
    torch.layout = layout(&torch, &probes);
    if !probes.iter().all(|probe| agrees(&torch, probe).unwrap_or(false)) {
        torch.layout = None;
    }
    Ok(torch)
}

fn libraries() -> Result<Vec<usize>, String> {
    // SAFETY: with RTLD_NOLOAD nothing is loaded or initialised.
    let loaded = |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) } as usize;
    let mut libraries = Vec::new();
    for name in [c"libtorch_cpu.so", c"libc10.so", c"libtorch_python.so"] {
        match loaded(name) {
            0 => return Err(format!("{} is not loaded", name.to_string_lossy())),
            library => libraries.push(library),
        }
    }
    // Builds of torch without CUDA have none.
    libraries.extend(Some(loaded(c"libtorch_cuda.so")).filter(|library| *library != 0));
    Ok(libraries)
}

/// The probe that requires a gradient.
const GRADIENT: usize = 1;
/// The probe that is a view.
const CONJUGATE: usize = 3;

/// Tensors that differ in all that is checked.
fn probes<'py>(torch: &Bound<'py, PyModule>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let make = |sizes: &[i64], strides: &[i64], dtype: &str, device: &str| {
        let kwargs = pyo3::types::PyDict::new(torch.py());
        kwargs.set_item("dtype", torch.getattr(dtype)?)?;
        kwargs.set_item("device", device)?;
        torch.getattr("empty_strided")?.call((sizes.to_vec(), strides.to_vec()), Some(&kwargs))
    };
    let plain = make(&[2, 3], &[5, 1], "float64", "cpu")?;
    let grad = make(&[4], &[1], "float32", "cpu")?;
    grad.call_method1("requires_grad_", (true,))?;
    let meta = make(&[1, 2, 3, 4, 5, 6, 7], &[5040, 2520, 840, 210, 42, 7, 1], "int64", "meta")?;
    let complex = make(&[3], &[2], "complex64", "cpu")?.call_method0("conj")?;
    let scalar = make(&[], &[], "bool", "cpu")?;
    Ok(vec![plain, grad, meta, complex, scalar])
}

/// Whether the handle in `probe` says what Python says.
fn agrees(torch: &Torch, probe: &Bound<'_, PyAny>) -> PyResult<bool> {
    let body: usize = probe.getattr("_cdata")?.extract()?;
    // SAFETY: a tensor object is larger than the word read. The handle is only dereferenced by torch after that word, the
    // `TensorImpl`, was found to be the same; wrapped anew, it is the object that it is inside of.
    unsafe {
        let borrowed = torch.handle(probe.as_ptr());
        if *borrowed.cast::<usize>() != body || !torch.to_python(probe.py(), borrowed).is_ok_and(|o| o.is(probe)) {
            return Ok(false);
        }
        let sizes: Vec<i64> = probe.call_method0("size")?.extract()?;
        let strides: Vec<i64> = probe.call_method0("stride")?.extract()?;
        let dtype = crate::python::consts::dtype(probe.py(), probe.getattr("dtype")?.as_ptr());
        let requires_grad: bool = probe.getattr("requires_grad")?.extract()?;
        let meta: bool = probe.getattr("is_meta")?.extract()?;
        let device = torch.device(borrowed);
        let data: usize = if meta { 0 } else { probe.call_method0("data_ptr")?.extract()? };
        Ok(torch.sizes(borrowed) == sizes
            && torch.strides(borrowed) == strides
            && DType::from_torch(torch.dtype(borrowed) as u8) == dtype
            && torch.requires_grad(borrowed) == requires_grad
            && (device.kind == 14) == meta
            && (meta || torch.data(borrowed) as usize == data))
    }
}

/// The one offset at which every probe holds its key set.
fn keys_offset(module: &Bound<'_, PyModule>, probes: &[Bound<'_, PyAny>]) -> PyResult<Option<usize>> {
    let dispatch_keys = module.getattr("_C")?.getattr("_dispatch_keys")?;
    let mut candidates: Vec<usize> = (1..IMPL_WORDS).collect();
    for probe in probes {
        let keys: u64 = dispatch_keys.call1((probe,))?.call_method0("raw_repr")?.extract()?;
        // SAFETY: the tensor's first word points to its `TensorImpl`, which is not read beyond its end.
        unsafe {
            let tensor = probe.as_ptr().byte_add(TENSOR_OFFSET).cast::<*const u64>();
            let body: *const u64 = *tensor;
            let words = words(body, IMPL_WORDS);
            candidates.retain(|i| *i < words && *body.add(*i) == keys);
        }
    }
    Ok(only(candidates.into_iter()).map(|at| at * 8))
}

/// Words of an allocation, of which this is the start: no more than may be read, and at most so many.
#[cfg(target_os = "linux")]
unsafe fn words(start: *const u64, most: usize) -> usize {
    // SAFETY: the caller's, which is that of `malloc_usable_size`.
    most.min(unsafe { libc::malloc_usable_size(start.cast_mut().cast()) } / size_of::<u64>())
}

#[cfg(not(target_os = "linux"))]
unsafe fn words(_start: *const u64, most: usize) -> usize {
    most
}

/// The one layout in which every probe says what torch's functions say of it.
fn layout(torch: &Torch, probes: &[Bound<'_, PyAny>]) -> Option<Layout> {
    // SAFETY: live tensors, whose `TensorImpl` is not read beyond its end; sizes of more than five dimensions, which lie
    // elsewhere, are read where the count of dimensions is right.
    unsafe {
        let known = probes.iter().map(|probe| {
            let handle = torch.handle(probe.as_ptr());
            let facts = (torch.dtype(handle), torch.device(handle), torch.requires_grad(handle));
            (*handle.cast::<*const u64>(), torch.sizes(handle), torch.strides(handle), facts)
        });
        let known: Vec<_> = known.collect();
        let words = known.iter().map(|(body, ..)| words(*body, IMPL_WORDS)).min()?;
        let one = |holds: &dyn Fn(usize) -> bool, count: usize| only((1..count).filter(|at| holds(*at)));
        let sizes = one(
            &|at| {
                known.iter().all(|(body, sizes, strides, _)| {
                    let layout = Layout { sizes: at, ..Layout::default() };
                    *body.add(at) == sizes.len() as u64
                        && layout.sizes(*body) == *sizes
                        && layout.strides(*body) == *strides
                })
            },
            words.saturating_sub(10),
        )?;
        let typed = one(
            &|at| {
                known.iter().all(|(body, _, _, (dtype, device, _))| {
                    let layout = Layout { sizes, typed: at * 2, ..Layout::default() };
                    layout.dtype(*body) == *dtype && layout.device(*body) == *device
                })
            },
            words * 4 - 1,
        )?;
        let numel = one(
            &|at| known.iter().all(|(body, sizes, ..)| *body.add(at) == sizes.iter().product::<i64>() as u64),
            words,
        )?;
        // Of a view autograd knows something in any case.
        let autograd = one(
            &|at| {
                known.iter().enumerate().all(|(i, (body, _, _, (_, _, requires_grad)))| {
                    (*body.add(at) != 0) == *requires_grad || i == CONJUGATE
                })
            },
            words,
        )?;
        let required = required(&probes[GRADIENT], autograd);
        let memory = memory(torch, probes[0].py(), sizes).ok().flatten();
        let plain = plain_autograd(torch, &probes[GRADIENT], autograd).ok().flatten();
        Some(Layout { words, sizes, numel, typed: typed * 2, autograd, required, plain, memory })
    }
}

#[cfg(not(target_os = "linux"))]
fn required(_leaf: &Bound<'_, PyAny>, _autograd: usize) -> Option<usize> {
    None
}

/// The one byte of what autograd knows of a leaf that goes with `requires_grad_`.
#[cfg(target_os = "linux")]
fn required(leaf: &Bound<'_, PyAny>, autograd: usize) -> Option<usize> {
    // SAFETY: a live tensor that autograd knows of; the allocation is not read beyond its end.
    unsafe {
        let body = *leaf.as_ptr().byte_add(TENSOR_OFFSET).cast::<*const *const u8>();
        let known = *body.add(autograd);
        let mut candidates: Vec<usize> = (8..libc::malloc_usable_size(known.cast_mut().cast())).collect();
        for value in [0, 1, 0, 1] {
            leaf.call_method1("requires_grad_", (value != 0,)).ok()?;
            candidates.retain(|at| *known.add(*at) == value);
        }
        only(candidates.into_iter())
    }
}

/// Where autograd keeps the function of a tensor that is no view, which torch's getter gives the address of.
fn plain_autograd(torch: &Torch, leaf: &Bound<'_, PyAny>, autograd: usize) -> PyResult<Option<PlainAutograd>> {
    /// Words of what autograd knows that are searched.
    const WORDS: usize = 24;
    let get = torch.symbol(c"_ZNK2at10TensorBase7grad_fnEv");
    if get.is_null() {
        return Ok(None);
    }
    // SAFETY (all): reads and writes a thread-local flag.
    let before = unsafe { (torch.c.grad_enabled)() };
    unsafe { (torch.c.set_grad_enabled)(true) };
    let result = leaf.call_method0("exp");
    unsafe { (torch.c.set_grad_enabled)(before) };
    let result = result?;
    // SAFETY: the getter takes a tensor and gives the address of a shared pointer to its function.
    unsafe {
        let get: unsafe extern "C" fn(Handle) -> *const u64 = std::mem::transmute(get);
        let known = |tensor: &Bound<'_, PyAny>| {
            let handle = torch.handle(tensor.as_ptr());
            (*(*handle.cast::<*const *const u64>()).add(autograd), get(handle))
        };
        let ((leaf, of_leaf), (result, of_result)) = (known(leaf), known(&result));
        let at = |words: *const u64, address: *const u64| (address as usize).wrapping_sub(words as usize) / 8;
        let function = at(result, of_result);
        let agree =
            function < WORDS && *result == *leaf && *of_result != 0 && *of_leaf == 0 && *leaf.add(function) == 0;
        Ok(agree.then_some(PlainAutograd { class: *leaf, function }))
    }
}

/// The one place of a tensor's elements, and what frees memory of torch's own allocator. `sizes`: what is looked for lies
/// before that word, or within [`IMPL_WORDS`].
fn memory(torch: &Torch, py: Python<'_>, sizes: usize) -> PyResult<Option<Memory>> {
    let module = py.import("torch")?;
    let whole = module.call_method1("empty", (7,))?;
    let part = whole.get_item(pyo3::types::PySlice::new(py, 3, 7, 1))?;
    let other = module.call_method1("empty", (7,))?;
    let bytes = pyo3::types::PyByteArray::new(py, &[0; 8]);
    let kind = pyo3::types::PyDict::new(py);
    kind.set_item("dtype", module.getattr("uint8")?)?;
    let borrowed = module.call_method("frombuffer", (bytes,), Some(&kind))?;
    let copied = module.call_method1("_lazy_clone", (module.call_method1("empty", (7,))?,))?;
    // SAFETY: live tensors; words before the sizes are pointers to allocations or null, none of which is read beyond its end.
    unsafe {
        let body = |tensor: &Bound<'_, PyAny>| *torch.handle(tensor.as_ptr()).cast::<*const u64>();
        let [whole, part, other, borrowed, copied] = [&whole, &part, &other, &borrowed, &copied].map(body);
        let words_of_impl = words(whole, IMPL_WORDS);
        let data = |body: *const u64| {
            let mut data = std::ptr::null_mut();
            (torch.c.data)((&raw const body).cast_mut().cast(), &raw mut data);
            data as u64
        };
        let shared = |at: &usize| *whole.add(*at) == *part.add(*at) && *whole.add(*at) != *other.add(*at);
        let word = |body: *const u64, at: usize, i: usize| *(*body.add(at).cast::<*const u64>()).add(i);
        let in_storage = |at: usize| 1..words(*whole.add(at).cast::<*const u64>(), STORAGE_WORDS);
        let places = (1..sizes).filter(shared).flat_map(|at| in_storage(at).map(move |i| (at, i)));
        let starts =
            |(at, i): &(usize, usize)| [whole, borrowed].iter().all(|body| word(*body, *at, *i) == data(*body));
        let Some((storage, start)) = only(places.filter(starts)) else { return Ok(None) };
        let frees = |i: &usize| {
            let own = word(whole, storage, *i);
            let differs = |body: *const u64| own != word(body, storage, *i);
            own == word(other, storage, *i) && differs(borrowed) && differs(copied) && is_in_library(own)
        };
        let moved = |at: &usize| [whole, part, other].map(|body| *body.add(*at)) == [0, 3, 0];
        let (Some(deleter), Some(offset)) =
            (only(in_storage(storage).filter(frees)), only((1..words_of_impl).filter(moved)))
        else {
            return Ok(None);
        };
        Ok(Some(Memory { storage, offset, start, deleter, own: word(whole, storage, deleter) }))
    }
}

/// Whether the address is one of a loaded library, as that of a function is. Bytes that fill a word up are anything.
fn is_in_library(address: u64) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: reads nothing at the address; writes what was found.
    unsafe { libc::dladdr(address as *const c_void, found.as_mut_ptr()) != 0 }
}

/// The one item, if there is one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next();
    first.filter(|_| items.next().is_none())
}
