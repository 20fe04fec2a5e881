//! The devices of this machine that kernels can run on, and why others cannot.

use crate::program::{Spare, checked};
use crate::{DRIVER, NAME, loader, scratch};
use flambeau_plugin::abi::{MEMORY_HOST, MEMORY_OWN};
use flambeau_plugin::{Capabilities, fork, reference};
use ocl_core::ffi::cl_int;
use ocl_core::{
    CommandQueue, Context, ContextProperties, DeviceId, DeviceInfo, DeviceType, PlatformId, PlatformInfo, ffi,
};
use std::sync::OnceLock;
use std::{env, ptr};

/// What to do where no device can be used.
const ADVICE: &str = "install one that runs on the CPU, like Debian's package pocl-opencl-icd";

/// What to do where there is no OpenCL at all.
const LOADER_ADVICE: &str =
    "install its loader and a driver, like Debian's packages ocl-icd-libopencl1 and pocl-opencl-icd";

/// `own` in this variable: run on devices that have memory of their own, and elsewhere as if they had. Read where the daemon
/// starts, too.
const MEMORY_VARIABLE: &str = "FLAMBEAU_OPENCL_MEMORY";

/// Where kernels find their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// Where the host's pointers say.
    Pointers,
    /// In buffers made of the host's memory for each launch.
    Host,
    /// In the device's own memory.
    Own,
}

/// A device, with all that is made for it once in a process.
pub struct Device {
    pub(crate) id: DeviceId,
    pub(crate) context: Context,
    pub(crate) queues: Spare<CommandQueue>,
    /// For reports.
    pub name: String,
    /// Names device, driver and their versions: a binary for one target is for no other.
    pub target: String,
    /// Whether it divides and takes roots of f32 to the nearest value; if not, that is done in f64.
    pub rounds_f32: bool,
    /// Most bytes that a kernel's arguments have.
    pub argument_bytes: usize,
    pub(crate) buffers: Buffers,
    /// The queue of its own memory.
    queue: OnceLock<Result<CommandQueue, cl_int>>,
    /// How many work-groups run at once.
    pub(crate) cores: u32,
    /// Whether work-items run side by side, each on few points, not one after the other on a core.
    pub(crate) is_wide: bool,
}

impl Device {
    /// Has kernels take buffers in memory of its own, though they could take the host's.
    fn use_as_own(&mut self) {
        self.buffers = Buffers::Own;
        self.target.push_str("-own");
    }

    /// Whether kernels take buffers in its own memory.
    pub fn has_own_memory(&self) -> bool {
        self.buffers == Buffers::Own
    }

    /// Waits for what is in the queue of its own memory, if it has one.
    pub(crate) fn finish(&self) -> Result<(), cl_int> {
        match self.queue.get() {
            // SAFETY: the queue lives as long as the device.
            Some(Ok(queue)) => checked(unsafe { ffi::clFinish(queue.as_ptr()) }),
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// The one queue of its own memory.
    pub(crate) fn queue(&self) -> Result<ffi::cl_command_queue, cl_int> {
        let made =
            self.queue.get_or_init(|| ocl_core::create_command_queue(&self.context, self.id, None).map_err(status));
        made.as_ref().map(CommandQueue::as_ptr).map_err(|status| *status)
    }
}

/// [`flambeau_plugin::abi::Description::memory`] of the devices that are used: all have the same.
pub fn memory() -> Result<u32, String> {
    Ok(if devices()?.iter().any(Device::has_own_memory) { MEMORY_OWN } else { MEMORY_HOST })
}

/// The devices that can be used, best first as their drivers list them; or one sentence about why there are none.
pub fn devices() -> Result<&'static [Device], String> {
    static DEVICES: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
    if fork::is_child() {
        return Err(fork::sentence(DRIVER));
    }
    DEVICES.get_or_init(find).as_deref().map_err(Clone::clone)
}

/// What kernels may hold. Every device that is used has f64, and so has all of it.
pub fn capabilities() -> Capabilities {
    reference::capabilities()
}

fn find() -> Result<Vec<Device>, String> {
    loader::load().map_err(|why| format!("OpenCL cannot be loaded ({why}); {LOADER_ADVICE}"))?;
    scratch::prepare();
    fork::watch();
    let own = env::var_os(MEMORY_VARIABLE).is_some_and(|value| value == "own");
    let (mut usable, mut elsewhere, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for platform in platforms()? {
        // A platform may have none.
        for id in ocl_core::get_device_ids(platform, Some(DeviceType::ALL), None).unwrap_or_default() {
            let name = text(id, DeviceInfo::Name).unwrap_or_else(|| "a device without a name".to_owned());
            match open(platform, id, name.clone()) {
                Ok(device) if device.has_own_memory() => elsewhere.push(device),
                Ok(device) => usable.push(device),
                Err(why) => refused.push(format!("{name} {why}")),
            }
        }
    }
    if own || usable.is_empty() {
        usable.iter_mut().for_each(Device::use_as_own);
        elsewhere.extend(usable);
        usable = elsewhere;
    }
    if !usable.is_empty() {
        return Ok(usable);
    }
    if refused.is_empty() {
        refused.push("the drivers name no device".to_owned());
    }
    Err(format!("no OpenCL device can be used ({}); {ADVICE}", refused.join("; ")))
}

/// `ocl_core::get_platform_ids` waits ten seconds where there are none.
fn platforms() -> Result<Vec<PlatformId>, String> {
    let mut count = 0;
    // SAFETY: with no room for platforms, only their number is written.
    let status = unsafe { ffi::clGetPlatformIDs(0, ptr::null_mut(), &raw mut count) };
    if status == ffi::CL_PLATFORM_NOT_FOUND_KHR || (status == ffi::CL_SUCCESS && count == 0) {
        return Err(format!("there is no OpenCL driver; {ADVICE}"));
    }
    ocl_core::get_platform_ids().map_err(|error| format!("OpenCL names no platforms ({}); {ADVICE}", line(&error)))
}

/// The error says what it lacks: "has no ...".
fn open(platform: PlatformId, id: DeviceId, name: String) -> Result<Device, String> {
    suits(id)?;
    let properties = ContextProperties::new().platform(platform);
    let context = ocl_core::create_context(Some(&properties), &[id], None, None)
        .map_err(|error| format!("cannot be opened: {}", line(&error)))?;
    Ok(Device {
        context,
        queues: Spare::default(),
        target: target(platform, id),
        buffers: buffers(id),
        queue: OnceLock::new(),
        is_wide: number(id, ffi::CL_DEVICE_TYPE) & ffi::CL_DEVICE_TYPE_CPU == 0,
        rounds_f32: number(id, ffi::CL_DEVICE_SINGLE_FP_CONFIG) & ffi::CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
        argument_bytes: number(id, ffi::CL_DEVICE_MAX_PARAMETER_SIZE) as usize,
        cores: number(id, ffi::CL_DEVICE_MAX_COMPUTE_UNITS).max(1) as u32,
        id,
        name,
    })
}

fn suits(id: DeviceId) -> Result<(), String> {
    let has = |what| number(id, what) != 0;
    let whole = has(ffi::CL_DEVICE_AVAILABLE) && has(ffi::CL_DEVICE_COMPILER_AVAILABLE);
    let checks = [
        (whole, "is not available or has no compiler"),
        (number(id, ffi::CL_DEVICE_ADDRESS_BITS) == 64 && has(ffi::CL_DEVICE_ENDIAN_LITTLE), "is no 64-bit device"),
        (has(ffi::CL_DEVICE_DOUBLE_FP_CONFIG), "has no f64"),
    ];
    checks.into_iter().find(|(fits, _)| !fits).map_or(Ok(()), |(_, why)| Err(why.to_owned()))
}

fn buffers(id: DeviceId) -> Buffers {
    let has = |what, bit| number(id, what) & bit != 0;
    if has(ffi::CL_DEVICE_SVM_CAPABILITIES, ffi::CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) {
        Buffers::Pointers
    } else if has(ffi::CL_DEVICE_TYPE, ffi::CL_DEVICE_TYPE_CPU) {
        Buffers::Host
    } else {
        Buffers::Own
    }
}

/// Everything that shapes a binary, hashed.
fn target(platform: PlatformId, id: DeviceId) -> String {
    let mut hash = blake3::Hasher::new();
    for info in [PlatformInfo::Name, PlatformInfo::Vendor, PlatformInfo::Version] {
        let said = ocl_core::get_platform_info(platform, info).map(|said| said.to_string()).unwrap_or_default();
        hash.update(said.as_bytes()).update(&[0]);
    }
    let infos = [
        DeviceInfo::Name,
        DeviceInfo::Vendor,
        DeviceInfo::Version,
        DeviceInfo::DriverVersion,
        DeviceInfo::OpenclCVersion,
        DeviceInfo::Extensions,
    ];
    for info in infos {
        hash.update(text(id, info).unwrap_or_default().as_bytes()).update(&[0]);
    }
    format!("{NAME}-{}", &hash.finalize().to_hex()[..16])
}

/// OpenCL's status in an error.
pub(crate) fn status(error: ocl_core::Error) -> cl_int {
    error.api_status().map_or(ffi::CL_OUT_OF_HOST_MEMORY, |status| status as cl_int)
}

/// The bytes of an answer as a number; 0 where the device knows no such question.
fn number(id: DeviceId, what: u32) -> u64 {
    let mut bytes = ocl_core::get_device_info_raw(id, what).unwrap_or_default();
    bytes.resize(8, 0);
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn text(id: DeviceId, what: DeviceInfo) -> Option<String> {
    let said = ocl_core::get_device_info(id, what).ok()?;
    Some(said.to_string().trim().to_owned())
}

/// An error of OpenCL in one line.
pub(crate) fn line(error: &ocl_core::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(|line| line.trim_matches(['#', ' ']));
    lines.filter(|line| !line.is_empty()).take(2).collect::<Vec<_>>().join(": ")
}
