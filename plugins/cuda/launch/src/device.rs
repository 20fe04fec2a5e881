//! The GPUs of this process, in torch's order, and the context that torch computes in on each.

use crate::DRIVER;
use crate::driver::{self, COMPUTE_CAPABILITY, Context, Driver, Module, NO_DEVICE, NOT_INITIALIZED, Status};
use flambeau_plugin::fork;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Longest name of a device, with the zero at its end.
const NAME: usize = 256;

/// A GPU.
pub struct Device {
    pub(crate) driver: &'static Driver,
    /// The driver's handle.
    handle: c_int,
    /// For reports.
    pub name: String,
    /// What cubins for it are called: `sm_90`.
    pub target: String,
    context: OnceLock<Result<Shared, String>>,
    /// Modules by the hash of their cubin. They are never unloaded: a CUDA graph may hold their functions for longer than
    /// anybody else, and unloading would wait for the device.
    pub(crate) modules: Mutex<HashMap<[u8; 32], Shared>>,
}

/// A handle of the driver, which any thread may use: a [`Context`] or a [`Module`].
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut std::ffi::c_void);

// SAFETY: the driver takes its handles from any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The devices that torch has too, in the same order; or one sentence about why there are none.
pub fn devices() -> Result<&'static [Device], String> {
    static DEVICES: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
    if fork::is_child() {
        return Err(fork::sentence(DRIVER));
    }
    DEVICES.get_or_init(|| find(driver::driver()?)).as_deref().map_err(Clone::clone)
}

/// Starts CUDA and names its devices. `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` are the driver's, and so do for torch what
/// they do here.
pub(crate) fn find(driver: &'static Driver) -> Result<Vec<Device>, String> {
    // SAFETY: no flags are known.
    let started = unsafe { (driver.cuInit)(0) };
    if started == NOT_INITIALIZED {
        return Err(fork::sentence(DRIVER));
    }
    let mut count = 0;
    let counted = match started {
        // SAFETY: the number is written.
        0 => unsafe { (driver.cuDeviceGetCount)(&raw mut count) },
        failed => failed,
    };
    if counted != 0 && counted != NO_DEVICE {
        return Err(format!("CUDA does not start: {}; `nvidia-smi` says more", driver.named(counted)));
    }
    if count == 0 {
        return Err("there is no CUDA device; `nvidia-smi` lists those of the machine, and the variable \
            CUDA_VISIBLE_DEVICES chooses among them"
            .to_owned());
    }
    fork::watch();
    (0..count).map(|ordinal| Device::new(driver, ordinal)).collect()
}

impl Device {
    fn new(driver: &'static Driver, ordinal: c_int) -> Result<Device, String> {
        let mut handle = 0;
        let mut name: [c_char; NAME] = [0; NAME];
        let mut capability = [0, 0];
        let mut ask = || -> Status {
            let attributes: [c_uint; 2] = [COMPUTE_CAPABILITY.0, COMPUTE_CAPABILITY.1];
            // SAFETY: what is asked for is written, and no more of the name than there is room for.
            unsafe {
                let mut status = (driver.cuDeviceGet)(&raw mut handle, ordinal);
                if status == 0 {
                    status = (driver.cuDeviceGetName)(name.as_mut_ptr(), NAME as c_int - 1, handle);
                }
                for (value, attribute) in capability.iter_mut().zip(attributes) {
                    if status == 0 {
                        status = (driver.cuDeviceGetAttribute)(value, attribute, handle);
                    }
                }
                status
            }
        };
        let status = ask();
        driver.checked(status).map_err(|why| format!("CUDA device {ordinal} cannot be looked at: {why}"))?;
        // SAFETY: its last byte is zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let [major, minor] = capability;
        let (context, modules) = (OnceLock::new(), Mutex::default());
        Ok(Device { driver, handle, name, target: format!("sm_{major}{minor}"), context, modules })
    }

    /// The primary context, which the runtime library and so torch compute in. It is never given back.
    pub(crate) fn context(&self) -> Result<Context, String> {
        let retain = || {
            let mut context = ptr::null_mut();
            // SAFETY: the context is written.
            let status = unsafe { (self.driver.cuDevicePrimaryCtxRetain)(&raw mut context, self.handle) };
            let failed = |why| format!("{} cannot be used: {why}; `nvidia-smi` says what else uses it", self.name);
            self.driver.checked(status).map(|()| Shared(context)).map_err(failed)
        };
        self.context.get_or_init(retain).as_ref().map(|context| context.0).map_err(Clone::clone)
    }

    /// The module of a cubin, loaded by `load` if it is not there yet.
    pub(crate) fn module<E>(&self, hash: [u8; 32], load: impl FnOnce() -> Result<Module, E>) -> Result<Module, E> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&hash) {
            return Ok(module.0);
        }
        let module = load()?;
        modules.insert(hash, Shared(module));
        Ok(module)
    }
}

/// A context that is current in this thread as long as this lives; the one before is again when it ends.
pub(crate) struct Current(Option<&'static Driver>);

impl Current {
    /// Pushes the context, unless it is current already.
    pub(crate) fn enter(driver: &'static Driver, context: Context) -> Result<Current, Status> {
        let mut now = ptr::null_mut();
        // SAFETY: the context is written.
        let asked = unsafe { (driver.cuCtxGetCurrent)(&raw mut now) };
        if asked == 0 && now == context {
            return Ok(Current(None));
        }
        // SAFETY: contexts are kept.
        match unsafe { (driver.cuCtxPushCurrent_v2)(context) } {
            0 => Ok(Current(Some(driver))),
            failed => Err(failed),
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(driver) = self.0 {
            let mut popped = ptr::null_mut();
            // SAFETY: pushed by `enter` in this thread, which this type does not leave.
            unsafe { (driver.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}
