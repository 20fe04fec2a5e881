//! Where torch keeps a thread's state that its getters give piece by piece. Each place is tried when it is found: it has to
//! follow what is changed through torch's own functions; if one does not, the getters are asked.

use super::getters::ThreadByte;
use crate::torch::Torch;
use flambeau_ir::device::DeviceKind;
use pyo3::prelude::*;
use std::ffi::c_void;

/// A getter of a small number.
pub type Get = unsafe extern "C" fn() -> u8;
/// A getter of a small number of an object.
pub type GetOf = unsafe extern "C" fn(*const c_void) -> u8;
/// A getter of a small number by type of device.
pub type GetFor = unsafe extern "C" fn(i8) -> u8;
/// A getter of a number.
pub type GetLong = unsafe extern "C" fn() -> i64;
/// A getter of an address.
pub type GetAddress = unsafe extern "C" fn() -> *const usize;

/// The thread's state of autograd: what gives its address, and where in it the switches are.
#[derive(Clone, Copy)]
pub struct Autograd {
    get: GetAddress,
    switches: usize,
}

impl Autograd {
    /// From torch's getter, if one byte goes with grad mode and inference mode.
    pub fn new(py: Python<'_>, torch: &Torch, get: GetAddress) -> Option<Autograd> {
        /// Bytes that are searched.
        const SIZE: usize = 32;
        // SAFETY: returns a reference to a thread-local of at least that size; the thread's grad mode is put back.
        let read = |change: &dyn Fn()| unsafe {
            change();
            std::ptr::read_volatile(get().cast::<[u8; SIZE]>())
        };
        // SAFETY: writes a thread-local flag.
        let grad_mode = |on: bool| read(&|| unsafe { (torch.c.set_grad_enabled)(on) });
        // SAFETY: reads a thread-local flag.
        let before = unsafe { (torch.c.grad_enabled)() };
        let (on, off) = (grad_mode(true), grad_mode(false));
        grad_mode(before);
        let mut differ = (0..SIZE).filter(|at| on[*at] != off[*at]);
        let (Some(switches), None) = (differ.next(), differ.next()) else { return None };
        let inference = py.import("torch").ok()?.getattr("inference_mode").ok()?.call1((true,)).ok()?;
        let outside = read(&|| ())[switches];
        inference.call_method0("__enter__").ok()?;
        let within = read(&|| ())[switches];
        inference.call_method1("__exit__", (py.None(), py.None(), py.None())).ok()?;
        // Grad mode goes off in inference mode, so another bit has to differ as well.
        let other = !(on[switches] ^ off[switches]);
        let sees = (outside ^ within) & other != 0;
        (sees && read(&|| ())[switches] == outside).then_some(Autograd { get, switches })
    }

    /// Where the calling thread's switches are.
    pub fn here(self) -> *const u8 {
        // SAFETY: torch's getter; within what it gives a reference to.
        unsafe { (self.get)().cast::<u8>().add(self.switches) }
    }
}

/// What torch keeps for hooks of saved tensors.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HooksState {
    /// A `std::deque` of them.
    hooks: [usize; 10],
    /// Said where they are used while they are disabled.
    message: [usize; 4],
    disabled: u8,
}

/// What gives the address of the thread's [`HooksState`].
#[derive(Clone, Copy)]
pub struct SavedHooks(unsafe extern "C" fn() -> *const HooksState);

impl SavedHooks {
    /// From torch's getters, if hooks that are pushed, popped, disabled and enabled are seen.
    pub fn new(autograd: &Bound<'_, PyAny>, get: *mut c_void, enabled: Get) -> Option<SavedHooks> {
        // SAFETY: the getter returns a reference to a thread-local that is as large at least.
        let hooks = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const HooksState>(get) };
        // SAFETY: as above.
        let now = || unsafe { Self::read(hooks()) };
        // Where the program has hooks, they stay alone: torch refuses to disable them, and does so all the same.
        // SAFETY: torch's getter.
        let idle = || autograd.call_method1("_top_saved_tensors_default_hooks", (true,)).is_ok_and(|top| top.is_none());
        if unsafe { enabled() } != 1 || !idle() {
            return None;
        }
        let (none, push) = (now(), autograd.getattr("_push_saved_tensors_default_hooks").ok()?);
        push.call1((&push, &push)).ok()?;
        let one = now();
        autograd.call_method0("_pop_saved_tensors_default_hooks").ok()?;
        let popped = now();
        autograd.call_method1("_saved_tensors_hooks_disable", ("flambeau looks where this is kept",)).ok()?;
        let disabled = now();
        autograd.call_method0("_saved_tensors_hooks_enable").ok()?;
        ([none, one, popped, disabled, now()] == [0, 1, 0, 2, 0]).then_some(SavedHooks(hooks))
    }

    /// Where the calling thread's is.
    pub fn here(self) -> *const HooksState {
        // SAFETY: torch's getter.
        unsafe { (self.0)() }
    }

    /// Whether there are hooks, and whether they are disabled.
    pub unsafe fn read(state: *const HooksState) -> u64 {
        // SAFETY: it is this thread's.
        let state = unsafe { state.read_volatile() };
        // The deque's first element is not where the next one goes.
        u64::from(state.hooks[2] != state.hooks[6]) | u64::from(state.disabled) << 1
    }
}

/// What torch keeps for modes and classes that take its functions over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModesState {
    disabled: i32,
    /// A `std::vector` of shared pointers: where it begins, ends, and may grow to.
    modes: [usize; 3],
}

/// What gives the address of the thread's [`ModesState`].
#[derive(Clone, Copy)]
pub struct FunctionModes(unsafe extern "C" fn() -> *const ModesState);

impl FunctionModes {
    /// From torch's getters, if a mode that is pushed and popped is seen, and that they are disabled.
    pub fn new(c: &Bound<'_, PyModule>, get: *mut c_void, count: GetLong, disabled: Get) -> Option<FunctionModes> {
        // SAFETY: the getter returns a reference to a thread-local that is as large at least.
        let modes = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const ModesState>(get) };
        // SAFETY: as above; torch's getters.
        let agree = || unsafe { Self::read(modes()) == Self::word(count() as u64, u64::from(disabled())) };
        let before = agree();
        c.call_method1("_push_on_torch_function_stack", (c,)).ok()?;
        let pushed = agree();
        c.call_method0("_pop_torch_function_stack").ok()?;
        let popped = agree();
        let off = c.getattr("DisableTorchFunction").ok()?.call0().ok()?;
        off.call_method0("__enter__").ok()?;
        let within = agree();
        off.call_method1("__exit__", (c.py().None(), c.py().None(), c.py().None())).ok()?;
        (before && pushed && popped && within && agree()).then_some(FunctionModes(modes))
    }

    /// Where the calling thread's is.
    pub fn here(self) -> *const ModesState {
        // SAFETY: torch's getter.
        unsafe { (self.0)() }
    }

    /// How many modes there are, and torch's number for what is disabled.
    pub unsafe fn read(state: *const ModesState) -> u64 {
        // SAFETY: it is this thread's.
        let ModesState { disabled, modes: [begin, end, _] } = unsafe { state.read_volatile() };
        Self::word((end.wrapping_sub(begin) / size_of::<[usize; 2]>()) as u64, u64::from(disabled.cast_unsigned()))
    }

    fn word(modes: u64, disabled: u64) -> u64 {
        modes << u32::BITS | disabled
    }
}

/// The thread's switches of autocast: whether it keeps what it converted, the types it converts to by type of device.
#[derive(Clone, Copy)]
pub struct Autocast {
    cache: ThreadByte,
    dtypes: ThreadByte,
}

impl Autocast {
    /// From torch's getters, if the bytes that they seem to read are what they give, and change with it.
    pub fn new(torch: &Bound<'_, PyModule>, cache: Get, dtype: GetFor) -> Option<Autocast> {
        /// Types of devices that torch has had for long.
        const DEVICES: i8 = 10;
        // SAFETY: code of functions.
        let (cached, dtypes) = unsafe { (ThreadByte::new(cache as *const u8)?, ThreadByte::new(dtype as *const u8)?) };
        // SAFETY: torch's getters; the bytes that they read.
        let agree = || unsafe {
            *cached.here() == cache() && (0..DEVICES).all(|of| *dtypes.here().add(of as usize) == dtype(of))
        };
        let before = agree();
        // SAFETY: torch's getter.
        let on = unsafe { cache() } != 0;
        let set = |on: bool| torch.call_method1("set_autocast_cache_enabled", (on,));
        set(!on).ok()?;
        let other = agree();
        set(on).ok()?;
        (before && other && agree()).then_some(Autocast { cache: cached, dtypes })
    }

    /// Addresses of the calling thread's: of the cache, of the types for each kind of device that plans run on.
    pub fn here(self) -> impl Iterator<Item = *const u8> {
        let dtypes = self.dtypes.here();
        let of_kinds = DeviceKind::running().map(move |kind| dtypes.wrapping_add(kind.number.into()));
        std::iter::once(self.cache.here()).chain(of_kinds)
    }
}
