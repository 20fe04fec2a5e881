//! The thread's state, checked on every call: a vector of words read from torch without Python for most of it. Where they
//! are as they were when the whole state was last compared, the state is the same; else the whole is compared again.

use super::getters::{self, Words};
use super::thread_state::{
    Autocast, Autograd, FunctionModes, Get, GetAddress, GetFor, GetLong, GetOf, HooksState, ModesState, SavedHooks,
};
use crate::python::gil::{GilCell, GilOnce};
use crate::python::raw::Raw;
use crate::torch::Torch;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::guard::Ambient;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;

/// Number of words.
const WORDS: usize = 35;

/// A state to compare with.
pub struct AmbientFact {
    expected: Ambient,
    /// What was read when the state was last found to be the expected one.
    seen: RefCell<Option<Seen>>,
}

/// What is read of a state.
#[derive(PartialEq)]
struct Seen {
    words: [u64; WORDS],
    /// Whether CUDA was in use, and so its current device is a word. `torch.cuda` says so, whose version is one, too.
    on_cuda: bool,
}

impl AmbientFact {
    /// Nothing seen yet.
    pub fn new(expected: &Ambient) -> Self {
        AmbientFact { expected: expected.clone(), seen: RefCell::new(None) }
    }

    /// Whether the calling thread is in this state.
    pub fn holds(&self, py: Python<'_>, torch: &Torch) -> bool {
        let precision = self.expected.precision;
        let any_precision = precision == Ambient::ANY_PRECISION;
        let probe = Probe::get(py, torch);
        if let (Some(probe), Some(seen)) = (probe, &*self.seen.borrow()) {
            let (mut expected, mut different) = (seen.words.iter(), 0);
            let all = probe.visit(py, any_precision, seen.on_cuda, &mut |word| {
                different |= expected.next().map_or(u64::MAX, |expected| expected ^ word);
            });
            if all.is_some() && different == 0 {
                return true;
            }
        }
        let seen = probe.and_then(|probe| probe.read(py, any_precision));
        let comparable = |found: Ambient| if any_precision { Ambient { precision, ..found } } else { found };
        let same = crate::torch::ambient::capture(py).is_ok_and(|found| comparable(found) == self.expected);
        if same {
            self.seen.replace(seen);
        }
        same
    }
}

/// A number that tells the calling thread's state from others. Asking for the whole state takes microseconds: the numbers of
/// the latest states are known by their words.
pub fn number_of_state(py: Python<'_>) -> u64 {
    const LATEST: usize = 4;
    static KNOWN: GilCell<VecDeque<(Seen, u64)>> = GilCell::new(VecDeque::new());
    let probe = Torch::get(py).ok().and_then(|torch| Probe::get(py, torch));
    let seen = probe.and_then(|probe| probe.read(py, false));
    let known = seen
        .as_ref()
        .and_then(|seen| KNOWN.borrow(py).iter().find(|(known, _)| known == seen).map(|(_, number)| *number));
    known.unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        crate::torch::ambient::capture(py).ok().hash(&mut hasher);
        let number = hasher.finish();
        let mut known = KNOWN.borrow(py);
        seen.into_iter().for_each(|seen| known.push_front((seen, number)));
        known.truncate(LATEST);
        number
    })
}

/// A function of torch's that gives a small number.
enum Getter {
    Plain(Get),
    /// Of the context at this address.
    OfContext(GetOf, usize),
    /// For this type of device.
    ForDevice(GetFor, i8),
    Count(GetLong),
}

impl Getter {
    /// # Safety
    /// Torch's getter; none of them can throw.
    unsafe fn ask(&self) -> u64 {
        // SAFETY: as above; the context is never freed.
        unsafe {
            match self {
                Getter::Plain(get) => u64::from(get()),
                Getter::OfContext(get, context) => u64::from(get(*context as *const c_void)),
                Getter::ForDevice(get, device) => u64::from(get(*device)),
                Getter::Count(get) => get() as u64,
            }
        }
    }
}

/// A part of the state: where it is, and what else is asked for it.
#[derive(Default)]
struct Switches {
    words: Words,
    getters: Vec<Getter>,
}

impl Switches {
    /// Adds what this getter says.
    fn add(&mut self, getter: Getter) {
        // SAFETY: code of functions, and the context that the getters are for.
        let byte = unsafe {
            match &getter {
                Getter::Plain(get) => getters::global(*get as *const u8),
                Getter::OfContext(get, context) => getters::member(*get as *const u8, *context as *const c_void),
                Getter::ForDevice(..) | Getter::Count(_) => None,
            }
        };
        match byte {
            Some(byte) => self.words.add_byte(byte),
            None => self.getters.push(getter),
        }
    }
}

/// Where what the calling thread sees is.
struct Here {
    /// Its own, and the process's.
    words: Words,
    hooks: Option<*const HooksState>,
    function_modes: Option<*const ModesState>,
}

thread_local! {
    static HERE: OnceCell<Option<Here>> = const { OnceCell::new() };
}

/// How torch is asked.
struct Probe {
    switches: Switches,
    precision: Switches,
    /// Built-ins without arguments whose results are compared by address, bools and interned strs: of the precision.
    precision_calls: Vec<Py<PyAny>>,
    function_stack: GetLong,
    tracing: GetAddress,
    keys_symbol: usize,
    // What the switches have getters for, or the call below, where it is `None`.
    autograd: Option<Autograd>,
    autocast: Option<Autocast>,
    function_modes: Option<FunctionModes>,
    saved_hooks: Option<SavedHooks>,
    top_saved_hooks: Py<PyAny>,
    /// Gives the current CUDA device, a small int, where CUDA is in use.
    current_device: Option<Py<PyAny>>,
    /// Modules whose variables say whether CUDA is ready and which level of forward-mode AD is entered: their dicts.
    _modules: [Py<PyAny>; 2],
}

// SAFETY: addresses of torch's functions and data, which stay loaded.
unsafe impl Send for Probe {}
// SAFETY: as above.
unsafe impl Sync for Probe {}

/// Switches that [`Autograd`] has, too.
const AUTOGRAD_FLAGS: &[&CStr] = &[c"aoti_torch_grad_mode_is_enabled", c"_ZN3c1013InferenceMode10is_enabledEv"];

/// Switches of the global context that guards cover in any case.
const CONTEXT_FLAGS: &[&CStr] = &[
    c"_ZNK2at7Context23deterministicAlgorithmsEv",
    c"_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv",
    c"_ZNK2at7Context18userEnabledMathSDPEv",
    c"_ZNK2at7Context19userEnabledFlashSDPEv",
    c"_ZNK2at7Context26userEnabledMemEfficientSDPEv",
    c"_ZNK2at7Context19userEnabledCuDNNSDPEv",
    c"_ZNK2at7Context26userEnabledOverrideableSDPEv",
    c"_ZNK2at7Context29allowFP16BF16ReductionMathSDPEv",
];

/// Those of [`Ambient::precision`].
const PRECISION_FLAGS: &[&CStr] = &[
    c"_ZNK2at7Context16userEnabledCuDNNEv",
    c"_ZNK2at7Context14benchmarkCuDNNEv",
    c"_ZNK2at7Context18deterministicCuDNNEv",
    c"_ZNK2at7Context17userEnabledMkldnnEv",
    c"_ZNK2at7Context19deterministicMkldnnEv",
    c"_ZNK2at7Context24allowFP16ReductionCuBLASEv",
    c"_ZNK2at7Context24allowBF16ReductionCuBLASEv",
];

/// Built-ins that torch may refuse to answer, so that they are asked through Python.
const CALLS: &[&str] = &["_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_cudnn_allow_tf32"];

impl Probe {
    fn get(py: Python<'_>, torch: &Torch) -> Option<&'static Probe> {
        static PROBE: GilOnce<Option<Probe>> = GilOnce::new();
        PROBE.get_or_init(py, || Probe::load(py, torch)).as_ref()
    }

    fn load(py: Python<'_>, torch: &Torch) -> Option<Probe> {
        let find = |name: &CStr| Some(torch.symbol(name)).filter(|address| !address.is_null());
        macro_rules! functions {
            ($names:expr, $kind:ty) => {
                $names
                    .iter()
                    // SAFETY: the symbols name functions of this type: no or one small argument, a small result.
                    .map(|name| Some(unsafe { std::mem::transmute::<*mut c_void, $kind>(find(name)?) }))
                    .collect::<Option<Vec<$kind>>>()?
            };
        }
        macro_rules! function {
            ($name:expr, $kind:ty) => {
                functions!([$name], $kind)[0]
            };
        }
        let global_context = function!(c"_ZN2at13globalContextEv", GetAddress);
        // SAFETY: returns a reference to a static.
        let context = unsafe { global_context() } as usize;
        let c = py.import("torch._C").ok()?;
        let autograd = c.getattr("_autograd").ok()?;
        let (mut switches, mut precision) = (Switches::default(), Switches::default());
        for get in functions!(CONTEXT_FLAGS, GetOf) {
            switches.add(Getter::OfContext(get, context));
        }
        for get in functions!(PRECISION_FLAGS, GetOf) {
            precision.add(Getter::OfContext(get, context));
        }
        switches.add(Getter::Plain(function!(c"_ZN3c1031get_default_dtype_as_scalartypeEv", Get)));
        switches.words.add_byte(find(c"_ZN5torch8autograd11AnomalyMode8_enabledE")?.cast());
        let module = |name: &str| Some(py.import(name).ok()?.dict().into_any().unbind());
        let modules = [module("torch.cuda")?, module("torch.autograd.forward_ad")?];
        // SAFETY: live dicts.
        modules.iter().for_each(|of| switches.words.add(unsafe { crate::python::raw::dict_version(of.as_ptr()) }));
        let autograd_state =
            Autograd::new(py, torch, function!(c"_ZN3c1013AutogradState13get_tls_stateEv", GetAddress));
        if autograd_state.is_none() {
            functions!(AUTOGRAD_FLAGS, Get).into_iter().for_each(|get| switches.add(Getter::Plain(get)));
        }
        let autocast_cache = function!(c"_ZN2at8autocast25is_autocast_cache_enabledEv", Get);
        let autocast_dtype = function!(c"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", GetFor);
        let autocast = Autocast::new(&py.import("torch").ok()?, autocast_cache, autocast_dtype);
        if autocast.is_none() {
            switches.add(Getter::Plain(autocast_cache));
            for kind in DeviceKind::running() {
                switches.add(Getter::ForDevice(autocast_dtype, kind.number as i8));
            }
        }
        let function_stack = function!(c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", GetLong);
        let disabled = function!(c"_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", Get);
        let function_modes = find(c"_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv")
            .and_then(|get| FunctionModes::new(&c, get, function_stack, disabled));
        if function_modes.is_none() {
            switches.add(Getter::Count(function_stack));
            switches.add(Getter::Plain(disabled));
        }
        let hooks_enabled = function!(c"_ZN2at23SavedTensorDefaultHooks10is_enabledEv", Get);
        let saved_hooks = find(c"_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv")
            .and_then(|get| SavedHooks::new(&autograd, get, hooks_enabled));
        if saved_hooks.is_none() {
            switches.add(Getter::Plain(hooks_enabled));
        }
        let calls = CALLS.iter().map(|name| c.getattr(*name).ok().map(Bound::unbind));
        Some(Probe {
            switches,
            precision,
            precision_calls: calls.collect::<Option<_>>()?,
            function_stack,
            tracing: function!(c"_ZN5torch3jit6tracer15getTracingStateEv", GetAddress),
            keys_symbol: find(c"_ZN3c104impl26raw_local_dispatch_key_setE")? as usize,
            autograd: autograd_state,
            autocast,
            function_modes,
            saved_hooks,
            top_saved_hooks: autograd.getattr("_top_saved_tensors_default_hooks").ok()?.unbind(),
            current_device: c.getattr("_cuda_getDevice").ok().map(Bound::unbind),
            _modules: modules,
        })
    }

    /// The words now; `None` where they do not say everything: a torch-function mode is in use.
    fn read(&self, py: Python<'_>, any_precision: bool) -> Option<Seen> {
        // SAFETY: torch's getter.
        if unsafe { (self.function_stack)() } != 0 {
            return None;
        }
        let on_cuda = crate::torch::ambient::cuda_is_ready(py);
        let (mut words, mut at) = ([0; WORDS], 0);
        self.visit(py, any_precision, on_cuda, &mut |word| {
            words[at] = word;
            at += 1;
        })?;
        Some(Seen { words, on_cuda })
    }

    /// Gives each word; `None` where torch cannot be asked.
    #[inline]
    fn visit(&self, py: Python<'_>, any_precision: bool, on_cuda: bool, give: &mut impl FnMut(u64)) -> Option<()> {
        // SAFETY: the calling thread's, which lives as long as it; torch's own getters and data.
        unsafe {
            let here = &*self.here()?;
            here.words.visit(give);
            here.function_modes.iter().for_each(|state| give(FunctionModes::read(*state)));
            here.hooks.iter().for_each(|state| give(SavedHooks::read(*state)));
            self.switches.getters.iter().for_each(|getter| give(getter.ask()));
            if here.hooks.is_none() {
                give(call_address(py, self.top_saved_hooks.as_ptr(), &[ffi::Py_True()])?);
            }
            if on_cuda {
                give(call_address(py, self.current_device.as_ref()?.as_ptr(), &[])?);
            }
            if !any_precision {
                self.precision.words.visit(give);
                self.precision.getters.iter().for_each(|getter| give(getter.ask()));
                for call in &self.precision_calls {
                    give(call_address(py, call.as_ptr(), &[])?);
                }
            }
        }
        Some(())
    }

    /// The calling thread's.
    #[inline]
    fn here(&self) -> Option<*const Here> {
        HERE.with(|here| here.get_or_init(|| self.find_here()).as_ref().map(ptr::from_ref))
    }

    /// Looked for once a thread.
    #[cold]
    fn find_here(&self) -> Option<Here> {
        let library = c"libc10.so".as_ptr();
        // SAFETY: finds a thread-local of a library that is loaded: its address for this thread. The getter returns a
        // reference to a thread-local.
        let (keys, tracing) = unsafe {
            let library = libc::dlopen(library, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if library.is_null() || self.keys_symbol == 0 {
                return None;
            }
            let keys: *const u64 = libc::dlsym(library, c"_ZN3c104impl26raw_local_dispatch_key_setE".as_ptr()).cast();
            (keys, (self.tracing)())
        };
        if keys.is_null() {
            return None;
        }
        let mut words = self.switches.words;
        // Included and excluded keys, and what `torch.jit.trace` is at.
        [keys, keys.wrapping_add(1), tracing.cast()].into_iter().for_each(|word| words.add(word));
        self.autograd.iter().for_each(|autograd| words.add_byte(autograd.here()));
        self.autocast.iter().flat_map(|autocast| autocast.here()).for_each(|byte| words.add_byte(byte));
        Some(Here {
            words,
            hooks: self.saved_hooks.map(SavedHooks::here),
            function_modes: self.function_modes.map(FunctionModes::here),
        })
    }
}

/// What a built-in returns, as a number: its address if it is a singleton, itself if it is an int, the first letters if it is
/// a str; else `None`.
unsafe fn call_address(py: Python<'_>, callable: Raw, args: &[Raw]) -> Option<u64> {
    // SAFETY: a live callable and arguments; the result is owned here.
    unsafe {
        let result = ffi::PyObject_Vectorcall(callable, args.as_ptr(), args.len(), ptr::null_mut());
        let Some(result) = Py::<PyAny>::from_owned_ptr_or_opt(py, result) else {
            ffi::PyErr_Clear();
            return None;
        };
        let object = result.as_ptr();
        if object == ffi::Py_None() || object == ffi::Py_True() || object == ffi::Py_False() {
            return Some(object as u64);
        }
        if ffi::PyLong_Check(object) != 0 {
            // Too large an int is an error, and -1.
            let number = ffi::PyLong_AsLong(object);
            ffi::PyErr_Clear();
            return Some(number as u64);
        }
        let text = crate::python::raw::utf8(object)?;
        Some(text.bytes().take(8).fold(0, |word, byte| word << 8 | u64::from(byte)))
    }
}
