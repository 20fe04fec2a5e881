//! The thread's state, checked on every call: a vector of words read from torch without Python for most of it. Where they
//! are as they were when the whole state was last compared, the state is the same; else the whole is compared again.

use crate::raw::Raw;
use crate::torch_abi::Torch;
use flambeau_ir::guard::Ambient;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::Cell;
use std::ffi::{CStr, c_void};

/// Number of words.
const WORDS: usize = 34;

/// A state to compare with.
pub struct AmbientFact {
    expected: Ambient,
    /// The words when the state was last found to be the expected one.
    seen: Cell<Option<[u64; WORDS]>>,
}

impl AmbientFact {
    /// Nothing seen yet.
    pub fn new(expected: &Ambient) -> Self {
        AmbientFact { expected: expected.clone(), seen: Cell::new(None) }
    }

    /// Whether the calling thread is in this state.
    pub fn holds(&self, py: Python<'_>, torch: &Torch) -> bool {
        let precision = self.expected.precision;
        let any_precision = precision == Ambient::ANY_PRECISION;
        let words = Probe::get(py, torch).and_then(|probe| probe.read(py, any_precision));
        if words.is_some() && words == self.seen.get() {
            return true;
        }
        let comparable = |found: Ambient| if any_precision { Ambient { precision, ..found } } else { found };
        let same = crate::ambient::capture(py).is_ok_and(|found| comparable(found) == self.expected);
        // CUDA's current device is no word.
        if same && self.expected.current_device < 0 {
            self.seen.set(words);
        }
        same
    }
}

type Get = unsafe extern "C" fn() -> u8;
type GetOf = unsafe extern "C" fn(*const c_void) -> u8;
type GetFor = unsafe extern "C" fn(i8) -> i8;
type GetLong = unsafe extern "C" fn() -> i64;
type GetAddress = unsafe extern "C" fn() -> *const usize;

/// Torch's getters. None of them can throw.
struct Probe {
    /// Switches of the thread or process without an argument.
    flags: Vec<Get>,
    /// Switches of the global context.
    context_flags: Vec<GetOf>,
    precision_flags: Vec<GetOf>,
    context: usize,
    /// By device type. Whether it is on is a dispatch key.
    autocast_dtype: GetFor,
    function_stack: GetLong,
    tracing: GetAddress,
    anomaly: usize,
    /// Built-ins without arguments whose results are compared by address: bools and interned strs.
    calls: Vec<Py<PyAny>>,
    top_saved_hooks: Py<PyAny>,
    /// In place of that call, where it is known to say the same.
    saved_hooks: Option<SavedHooks>,
    /// Modules whose variables say whether CUDA is ready and which level of forward-mode AD is entered: their dicts.
    modules: [Py<PyAny>; 2],
    keys_symbol: usize,
}

// SAFETY: addresses of torch's functions and data, which stay loaded.
unsafe impl Send for Probe {}
// SAFETY: as above.
unsafe impl Sync for Probe {}

const FLAGS: &[&CStr] = &[
    c"aoti_torch_grad_mode_is_enabled",
    c"_ZN3c1013InferenceMode10is_enabledEv",
    c"_ZN2at8autocast25is_autocast_cache_enabledEv",
    c"_ZN3c1031get_default_dtype_as_scalartypeEv",
    c"_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv",
    c"_ZN2at23SavedTensorDefaultHooks10is_enabledEv",
];

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
        static PROBE: PyOnceLock<Option<Probe>> = PyOnceLock::new();
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
        let global_context = functions!([c"_ZN2at13globalContextEv"], GetAddress)[0];
        let c = py.import("torch._C").ok()?;
        let module = |name: &str| Some(py.import(name).ok()?.dict().into_any().unbind());
        let autograd = c.getattr("_autograd").ok()?;
        Some(Probe {
            flags: functions!(FLAGS, Get),
            context_flags: functions!(CONTEXT_FLAGS, GetOf),
            precision_flags: functions!(PRECISION_FLAGS, GetOf),
            // SAFETY: returns a reference to a static.
            context: unsafe { global_context() } as usize,
            autocast_dtype: functions!([c"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"], GetFor)[0],
            function_stack: functions!([c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"], GetLong)[0],
            tracing: functions!([c"_ZN5torch3jit6tracer15getTracingStateEv"], GetAddress)[0],
            anomaly: find(c"_ZN5torch8autograd11AnomalyMode8_enabledE")? as usize,
            calls: CALLS.iter().map(|name| c.getattr(*name).ok().map(Bound::unbind)).collect::<Option<_>>()?,
            top_saved_hooks: autograd.getattr("_top_saved_tensors_default_hooks").ok()?.unbind(),
            saved_hooks: find(c"_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv")
                .and_then(|get| SavedHooks::new(&autograd, get)),
            modules: [module("torch.cuda")?, module("torch.autograd.forward_ad")?],
            keys_symbol: find(c"_ZN3c104impl26raw_local_dispatch_key_setE")? as usize,
        })
    }

    /// The words now; `None` where they do not say everything: a torch-function mode is in use.
    fn read(&self, py: Python<'_>, any_precision: bool) -> Option<[u64; WORDS]> {
        let mut words = [0; WORDS];
        let mut at = 0;
        let mut push = |word: u64| {
            words[at] = word;
            at += 1;
        };
        // SAFETY: torch's own getters and data; the key sets are two words of the calling thread.
        unsafe {
            self.flags.iter().for_each(|get| push(u64::from(get())));
            self.context_flags.iter().for_each(|get| push(u64::from(get(self.context as *const c_void))));
            push((self.autocast_dtype)(0) as u64);
            push((self.autocast_dtype)(1) as u64);
            if (self.function_stack)() != 0 {
                return None;
            }
            push(*(self.tracing)() as u64);
            push(u64::from(*(self.anomaly as *const u8)));
            let keys = self.local_keys()?;
            push(*keys);
            push(*keys.add(1));
            if !any_precision {
                self.precision_flags.iter().for_each(|get| push(u64::from(get(self.context as *const c_void))));
                for call in &self.calls {
                    push(call_address(py, call.as_ptr(), &[])?);
                }
            }
            push(match self.saved_hooks {
                Some(hooks) => u64::from(hooks.are_set()),
                None => call_address(py, self.top_saved_hooks.as_ptr(), &[ffi::Py_True()])?,
            });
            for dict in &self.modules {
                push((*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_version_tag);
            }
        }
        Some(words)
    }

    /// The calling thread's dispatch key sets: included, excluded.
    fn local_keys(&self) -> Option<*const u64> {
        thread_local! {
            static KEYS: Cell<*const u64> = const { Cell::new(std::ptr::null()) };
        }
        KEYS.with(|keys| {
            if keys.get().is_null() {
                let library = c"libc10.so".as_ptr();
                // SAFETY: finds a thread-local of a library that is loaded: its address for this thread.
                unsafe {
                    let library = libc::dlopen(library, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
                    if library.is_null() || self.keys_symbol == 0 {
                        return None;
                    }
                    keys.set(libc::dlsym(library, c"_ZN3c104impl26raw_local_dispatch_key_setE".as_ptr()).cast());
                }
            }
            Some(keys.get()).filter(|keys| !keys.is_null())
        })
    }
}

/// The thread's stack of hooks for saved tensors, a `std::deque` at the start of what torch gives the address of.
#[derive(Clone, Copy)]
struct SavedHooks(unsafe extern "C" fn() -> *const [usize; 10]);

impl SavedHooks {
    /// From torch's getter, if hooks that are pushed and popped are seen.
    fn new(autograd: &Bound<'_, PyAny>, get: *mut c_void) -> Option<SavedHooks> {
        // SAFETY: returns a reference to a thread-local that is larger than ten words (a deque has ten).
        let hooks = SavedHooks(unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const [usize; 10]>(get)
        });
        let (none, push) = (!hooks.are_set(), autograd.getattr("_push_saved_tensors_default_hooks").ok()?);
        push.call1((&push, &push)).ok()?;
        let one = hooks.are_set();
        autograd.call_method0("_pop_saved_tensors_default_hooks").ok()?;
        (none && one && !hooks.are_set()).then_some(hooks)
    }

    /// Whether there is one: the deque's first element is not where the next one goes.
    fn are_set(self) -> bool {
        // SAFETY: see `new`.
        unsafe {
            let deque = &*(self.0)();
            deque[2] != deque[6]
        }
    }
}

/// What a built-in returns, as a number: its address if it is a singleton, the first letters if it is a str; else `None`.
unsafe fn call_address(py: Python<'_>, callable: Raw, args: &[Raw]) -> Option<u64> {
    // SAFETY: a live callable and arguments; the result is owned here.
    unsafe {
        let result = ffi::PyObject_Vectorcall(callable, args.as_ptr(), args.len(), std::ptr::null_mut());
        let Some(result) = Py::<PyAny>::from_owned_ptr_or_opt(py, result) else {
            ffi::PyErr_Clear();
            return None;
        };
        let object = result.as_ptr();
        if object == ffi::Py_None() || object == ffi::Py_True() || object == ffi::Py_False() {
            return Some(object as u64);
        }
        let text = crate::raw::utf8(object)?;
        Some(text.bytes().take(8).fold(0, |word, byte| word << 8 | u64::from(byte)))
    }
}
