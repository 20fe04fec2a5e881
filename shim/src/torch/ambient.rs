//! The calling thread's torch state that changes what torch calls do.
//!
//! [`capture`] asks torch's own built-ins.

use super::Torch;
use crate::python::gil::GilOnce;
use flambeau_ir::device::{DeviceKind, RUNNING};
use flambeau_ir::guard::Ambient;
use flambeau_ir::tensor::Device;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use smallvec::SmallVec;

/// Grad mode is set while it lives.
pub struct GradMode {
    torch: &'static Torch,
    before: bool,
}

impl GradMode {
    /// Sets it.
    pub fn new(torch: &'static Torch, on: bool) -> GradMode {
        // SAFETY: reads and writes a thread-local flag.
        let before = unsafe {
            let before = (torch.c.grad_enabled)();
            (torch.c.set_grad_enabled)(on);
            before
        };
        GradMode { torch, before }
    }
}

impl Drop for GradMode {
    fn drop(&mut self) {
        // SAFETY: writes a thread-local flag.
        unsafe { (self.torch.c.set_grad_enabled)(self.before) };
    }
}

/// Autocast is off while it lives.
pub struct AutocastOff<'py> {
    py: Python<'py>,
    /// Names of the kinds of devices where it was on.
    on: SmallVec<[&'static str; RUNNING]>,
}

impl<'py> AutocastOff<'py> {
    /// Switches it off.
    pub fn new(py: Python<'py>) -> PyResult<AutocastOff<'py>> {
        let calls = calls(py)?;
        let mut off = AutocastOff { py, on: SmallVec::new() };
        for kind in DeviceKind::running() {
            if calls.autocast_enabled.bind(py).call1((kind.name,))?.is_truthy()? {
                calls.set_autocast_enabled.bind(py).call1((kind.name, false))?;
                off.on.push(kind.name);
            }
        }
        Ok(off)
    }
}

impl Drop for AutocastOff<'_> {
    fn drop(&mut self) {
        for kind in &self.on {
            let set = calls(self.py).map(|calls| &calls.set_autocast_enabled);
            if let Err(error) = set.and_then(|set| set.bind(self.py).call1((*kind, true))) {
                error.write_unraisable(self.py, None);
            }
        }
    }
}

/// The bound built-ins that [`capture`] calls.
struct Calls {
    grad_enabled: Py<PyAny>,
    inference_mode: Py<PyAny>,
    autocast_enabled: Py<PyAny>,
    set_autocast_enabled: Py<PyAny>,
    autocast_dtype: Py<PyAny>,
    autocast_cache: Py<PyAny>,
    default_dtype: Py<PyAny>,
    deterministic: Py<PyAny>,
    deterministic_warn_only: Py<PyAny>,
    float32_precision: Py<PyAny>,
    /// Two bits of [`Ambient::precision`] each, from bit 2.
    precision_flags: Vec<Py<PyAny>>,
    /// Two bits of [`Ambient::sdpa`] each; the second is [`Ambient::SDPA_FLASH`].
    sdpa_flags: Vec<Py<PyAny>>,
    function_stack_len: Py<PyAny>,
    function_stack_at: Py<PyAny>,
    dispatch_stack_len: Py<PyAny>,
    function_enabled: Py<PyAny>,
    tls_include: Py<PyAny>,
    tls_exclude: Py<PyAny>,
    top_saved_hooks: Py<PyAny>,
    saved_hooks_enabled: Py<PyAny>,
    functorch_depth: Py<PyAny>,
    anomaly: Py<PyAny>,
    tracing_state: Py<PyAny>,
    current_device: Option<Py<PyAny>>,
}

fn calls(py: Python<'_>) -> PyResult<&'static Calls> {
    static CALLS: GilOnce<Calls> = GilOnce::new();
    CALLS.get_or_try_init(py, || load(py))
}

fn load(py: Python<'_>) -> PyResult<Calls> {
    let torch = py.import("torch")?;
    let c = torch.getattr("_C")?;
    let of = |object: &Bound<'_, PyAny>, name: &str| -> PyResult<Py<PyAny>> { Ok(object.getattr(name)?.unbind()) };
    let many = |names: &[&str]| -> Vec<Py<PyAny>> {
        names.iter().filter_map(|name| c.getattr(*name).ok().map(Bound::unbind)).collect()
    };
    let autograd = c.getattr("_autograd")?;
    Ok(Calls {
        grad_enabled: of(&torch, "is_grad_enabled")?,
        inference_mode: of(&torch, "is_inference_mode_enabled")?,
        autocast_enabled: of(&torch, "is_autocast_enabled")?,
        set_autocast_enabled: of(&torch, "set_autocast_enabled")?,
        autocast_dtype: of(&torch, "get_autocast_dtype")?,
        autocast_cache: of(&torch, "is_autocast_cache_enabled")?,
        default_dtype: of(&torch, "get_default_dtype")?,
        deterministic: of(&c, "_get_deterministic_algorithms")?,
        deterministic_warn_only: of(&c, "_get_deterministic_algorithms_warn_only")?,
        float32_precision: of(&c, "_get_float32_matmul_precision")?,
        precision_flags: many(&[
            "_get_cublas_allow_tf32",
            "_get_cudnn_allow_tf32",
            "_get_cudnn_enabled",
            "_get_cudnn_benchmark",
            "_get_cudnn_deterministic",
            "_get_mkldnn_enabled",
            "_get_mkldnn_deterministic",
            "_get_cublas_allow_fp16_reduced_precision_reduction",
            "_get_cublas_allow_bf16_reduced_precision_reduction",
        ]),
        sdpa_flags: many(&[
            "_get_math_sdp_enabled",
            "_get_flash_sdp_enabled",
            "_get_mem_efficient_sdp_enabled",
            "_get_cudnn_sdp_enabled",
            "_get_overrideable_sdp_enabled",
            "_get_math_sdp_allow_fp16_bf16_reduction",
        ]),
        function_stack_len: of(&c, "_len_torch_function_stack")?,
        function_stack_at: of(&c, "_get_function_stack_at")?,
        dispatch_stack_len: of(&c, "_len_torch_dispatch_stack")?,
        function_enabled: of(&c, "_is_torch_function_enabled")?,
        tls_include: of(&c, "_dispatch_tls_local_include_set")?,
        tls_exclude: of(&c, "_dispatch_tls_local_exclude_set")?,
        top_saved_hooks: of(&autograd, "_top_saved_tensors_default_hooks")?,
        saved_hooks_enabled: of(&autograd, "_saved_tensors_hooks_is_enabled")?,
        functorch_depth: of(&c.getattr("_functorch")?, "get_dynamic_layer_stack_depth")?,
        anomaly: of(&torch, "is_anomaly_enabled")?,
        tracing_state: of(&c, "_get_tracing_state")?,
        current_device: c.getattr("_cuda_getDevice").ok().map(Bound::unbind),
    })
}

/// The state now. Both the snapshot and the guard on it use this function, so that their packings agree.
pub fn capture(py: Python<'_>) -> PyResult<Ambient> {
    let calls = calls(py)?;
    let flag = |call: &Py<PyAny>| -> PyResult<bool> { Ok(call.bind(py).call0()?.cast::<PyBool>()?.is_true()) };
    let autocast = |device: &str| -> PyResult<(bool, u8)> {
        let enabled = calls.autocast_enabled.bind(py).call1((device,))?.cast::<PyBool>()?.is_true();
        let dtype = calls.autocast_dtype.bind(py).call1((device,))?;
        Ok((enabled, torch_number(py, &dtype)))
    };
    let mut autocasts = [(false, 0); RUNNING];
    for (place, kind) in autocasts.iter_mut().zip(DeviceKind::running()) {
        *place = autocast(kind.name)?;
    }
    let bits = |calls: &[Py<PyAny>]| -> PyResult<u32> {
        calls.iter().enumerate().try_fold(0, |bits, (i, call)| Ok(bits | switch(&call.bind(py).call0()?)? << (2 * i)))
    };
    let precision = match calls.float32_precision.bind(py).call0()?.extract::<String>()?.as_str() {
        "highest" => 0,
        "high" => 1,
        _ => 2,
    };
    let (function_modes, default_device) = function_modes(py, calls)?;
    let hooks = !calls.top_saved_hooks.bind(py).call1((true,))?.is_none();
    let tracing = !calls.tracing_state.bind(py).call0()?.is_none();
    let raw = |call: &Py<PyAny>| -> PyResult<u64> { call.bind(py).call0()?.call_method0("raw_repr")?.extract() };
    Ok(Ambient {
        grad_enabled: flag(&calls.grad_enabled)?,
        inference_mode: flag(&calls.inference_mode)?,
        autocast: autocasts,
        autocast_cache: flag(&calls.autocast_cache)?,
        default_dtype: torch_number(py, &calls.default_dtype.bind(py).call0()?),
        default_device,
        deterministic: (flag(&calls.deterministic)?, flag(&calls.deterministic_warn_only)?),
        precision: precision | bits(&calls.precision_flags)? << 2,
        sdpa: bits(&calls.sdpa_flags)?,
        saved_tensor_hooks: hooks || !flag(&calls.saved_hooks_enabled)?,
        function_modes,
        dispatch_modes: calls.dispatch_stack_len.bind(py).call0()?.extract()?,
        functorch_levels: calls.functorch_depth.bind(py).call0()?.extract()?,
        forward_ad: forward_ad(py),
        torch_function_disabled: !flag(&calls.function_enabled)?,
        tls_keys: (raw(&calls.tls_include)?, raw(&calls.tls_exclude)?),
        observers: u32::from(flag(&calls.anomaly)?) | (u32::from(tracing) * Ambient::TRACING),
        current_device: current_device(py, calls),
    })
}

/// Whether what the program entered on this thread sees or changes calls of torch: modes, a default device, transforms,
/// `torch.jit.trace`, inference.
pub fn changes_calls(py: Python<'_>) -> PyResult<bool> {
    let calls = calls(py)?;
    let says = |call: &Py<PyAny>| -> PyResult<bool> { call.bind(py).call0()?.is_truthy() };
    let stacks = [&calls.function_stack_len, &calls.dispatch_stack_len, &calls.functorch_depth];
    for call in stacks.into_iter().chain([&calls.tracing_state, &calls.inference_mode]) {
        if says(call)? {
            return Ok(true);
        }
    }
    Ok(!says(&calls.function_enabled)?)
}

/// A switch's state in two bits: torch gives a bool, or a pair of them.
fn switch(state: &Bound<'_, PyAny>) -> PyResult<u32> {
    if let Ok(state) = state.cast::<PyBool>() {
        return Ok(u32::from(state.is_true()));
    }
    let (first, second): (bool, bool) = state.extract()?;
    Ok(u32::from(first) | u32::from(second) << 1)
}

/// Function modes other than the one that `torch.set_default_device` pushes, and that one's device.
fn function_modes(py: Python<'_>, calls: &Calls) -> PyResult<(u32, Option<Device>)> {
    let length: u32 = calls.function_stack_len.bind(py).call0()?.extract()?;
    let (mut others, mut device) = (0, None);
    for i in 0..length {
        let mode = calls.function_stack_at.bind(py).call1((i,))?;
        // SAFETY: the type of a live object.
        let (module, name) = unsafe { crate::python::raw::class_names(mode.get_type().as_ptr()) };
        if (module.as_str(), name.as_str()) == ("torch.utils._device", "DeviceContext") {
            device = crate::python::consts::device(&mode.getattr("device")?);
        } else {
            others += 1;
        }
    }
    Ok((others, device))
}

/// Whether a forward-mode AD level is entered: a module global of torch.
fn forward_ad(py: Python<'_>) -> bool {
    let module = py.import("sys").and_then(|sys| sys.getattr("modules")?.get_item("torch.autograd.forward_ad"));
    module.and_then(|m| m.getattr("_current_level")?.extract::<i64>()).is_ok_and(|level| level >= 0)
}

/// Whether CUDA is in use. Whatever asks for its current device uses it.
pub fn cuda_is_ready(py: Python<'_>) -> bool {
    py.import("sys")
        .and_then(|sys| sys.getattr("modules")?.get_item("torch.cuda"))
        .and_then(|cuda| cuda.getattr("_initialized")?.extract::<bool>())
        .unwrap_or(false)
}

/// The current CUDA device: the first one, until CUDA is in use.
fn current_device(py: Python<'_>, calls: &Calls) -> i16 {
    let ask = |call: &Py<PyAny>| call.bind(py).call0().ok()?.extract::<i16>().ok();
    if cuda_is_ready(py) { calls.current_device.as_ref().and_then(ask).unwrap_or(-1) } else { 0 }
}

/// torch's number of a dtype; 255 for one that flambeau does not know.
fn torch_number(py: Python<'_>, dtype: &Bound<'_, PyAny>) -> u8 {
    crate::python::consts::dtype(py, dtype.as_ptr()).map_or(255, |d| d as u8)
}
