//! The thread's state, checked on every call: a vector of words read from torch without Python for most of it. Where they
//! are as they were when the whole state was last compared, the state is the same; else the whole is compared again.

use crate::raw::Raw;
use crate::torch_abi::Torch;
use flambeau_ir::guard::Ambient;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};

/// Number of words.
const WORDS: usize = 34;

/// A state to compare with.
pub struct AmbientFact {
    expected: Ambient,
    /// The words when the state was last found to be the expected one.
    seen: RefCell<Option<[u64; WORDS]>>,
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
            let (mut expected, mut same) = (seen.iter(), true);
            let all = probe.visit(py, any_precision, &mut |word| same &= expected.next() == Some(&word));
            if all.is_some() && same {
                return true;
            }
        }
        let words = probe.and_then(|probe| probe.read(py, any_precision));
        let comparable = |found: Ambient| if any_precision { Ambient { precision, ..found } } else { found };
        let same = crate::ambient::capture(py).is_ok_and(|found| comparable(found) == self.expected);
        // CUDA's current device is no word.
        if same && self.expected.current_device < 0 {
            self.seen.replace(words);
        }
        same
    }
}

type Get = unsafe extern "C" fn() -> u8;
type GetOf = unsafe extern "C" fn(*const c_void) -> u8;
type GetFor = unsafe extern "C" fn(i8) -> i8;
type GetLong = unsafe extern "C" fn() -> i64;
type GetAddress = unsafe extern "C" fn() -> *const usize;

/// Switches of the global context.
#[derive(Default)]
struct Switches {
    /// Words that some are in, and which of their bytes those are.
    words: Vec<(*const u64, u64)>,
    /// Getters of the others.
    getters: Vec<GetOf>,
    context: usize,
}

impl Switches {
    /// Those that these getters read.
    unsafe fn new(getters: Vec<GetOf>, context: *const c_void) -> Switches {
        let mut switches = Switches { context: context as usize, ..Switches::default() };
        for get in getters {
            // SAFETY: torch's getters and the context they are for.
            match unsafe { byte_read(get, context) } {
                Some(byte) => switches.add(byte),
                None => switches.getters.push(get),
            }
        }
        switches
    }

    fn add(&mut self, byte: *const u8) {
        let within = byte as usize % size_of::<u64>();
        let word: *const u64 = byte.wrapping_sub(within).cast();
        let mut bytes = [0; size_of::<u64>()];
        bytes[within] = u8::MAX;
        let mask = u64::from_ne_bytes(bytes);
        match self.words.iter_mut().find(|(known, _)| *known == word) {
            Some((_, known)) => *known |= mask,
            None => self.words.push((word, mask)),
        }
    }

    /// # Safety
    /// The context lives.
    #[inline]
    unsafe fn visit(&self, give: &mut impl FnMut(u64)) {
        for (word, mask) in &self.words {
            // SAFETY: an aligned word with at least one byte of the context in it.
            give(unsafe { word.read_volatile() } & mask);
        }
        for get in &self.getters {
            // SAFETY: torch's getter.
            give(u64::from(unsafe { get(self.context as *const c_void) }));
        }
    }
}

/// The byte that a getter reads, if its code does nothing else.
unsafe fn byte_read(get: GetOf, context: *const c_void) -> Option<*const u8> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a function's code can be read; none ends within what is compared before its return.
    unsafe {
        // `movzx eax, byte ptr [rdi + offset]; ret`, the offset in one byte or in four.
        let code = get as *const u8;
        let is = |at: usize, byte: u8| *code.add(at) == byte;
        if is(0, 0x0f) && is(1, 0xb6) && is(2, 0x47) && is(4, 0xc3) {
            return Some(context.byte_offset((*code.add(3)).cast_signed() as isize).cast());
        }
        if is(0, 0x0f) && is(1, 0xb6) && is(2, 0x87) && is(7, 0xc3) {
            let offset = code.add(3).cast::<i32>().read_unaligned();
            return Some(context.byte_offset(offset as isize).cast());
        }
    }
    None
}

/// Where the calling thread's state is.
#[derive(Clone, Copy)]
struct Here {
    /// Grad mode, inference mode and other switches of autograd, a bit each; `None` where the getters are asked.
    autograd: Option<*const u8>,
    /// The state of `torch.jit.trace`.
    tracing: *const usize,
    /// See [`SavedHooks`].
    hooks: Option<*const [usize; 10]>,
    /// Dispatch key sets: included, excluded.
    keys: *const u64,
}

/// Torch's getters. None of them can throw.
struct Probe {
    /// Switches of the thread or process without an argument.
    flags: Vec<Get>,
    switches: Switches,
    precision: Switches,
    /// By device type. Whether it is on is a dispatch key.
    autocast_dtype: GetFor,
    function_stack: GetLong,
    autograd: Option<Autograd>,
    autograd_flags: Vec<Get>,
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

/// Switches that [`Autograd`] has, too.
const AUTOGRAD_FLAGS: &[&CStr] = &[c"aoti_torch_grad_mode_is_enabled", c"_ZN3c1013InferenceMode10is_enabledEv"];

const FLAGS: &[&CStr] = &[
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
        // SAFETY: returns a reference to a static.
        let context = unsafe { global_context() }.cast::<c_void>();
        // SAFETY: getters of the context.
        let switches = |all: Vec<GetOf>| unsafe { Switches::new(all, context) };
        let c = py.import("torch._C").ok()?;
        let module = |name: &str| Some(py.import(name).ok()?.dict().into_any().unbind());
        let autograd = c.getattr("_autograd").ok()?;
        Some(Probe {
            flags: functions!(FLAGS, Get),
            switches: switches(functions!(CONTEXT_FLAGS, GetOf)),
            precision: switches(functions!(PRECISION_FLAGS, GetOf)),
            autocast_dtype: functions!([c"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"], GetFor)[0],
            function_stack: functions!([c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"], GetLong)[0],
            autograd: Autograd::new(py, torch, functions!([c"_ZN3c1013AutogradState13get_tls_stateEv"], GetAddress)[0]),
            autograd_flags: functions!(AUTOGRAD_FLAGS, Get),
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

    /// The words now; `None` where they do not say everything.
    fn read(&self, py: Python<'_>, any_precision: bool) -> Option<[u64; WORDS]> {
        let (mut words, mut at) = ([0; WORDS], 0);
        self.visit(py, any_precision, &mut |word| {
            words[at] = word;
            at += 1;
        })?;
        Some(words)
    }

    /// Gives each word; `None` where they do not say everything: a torch-function mode is in use.
    #[inline]
    fn visit(&self, py: Python<'_>, any_precision: bool, give: &mut impl FnMut(u64)) -> Option<()> {
        let here = self.here()?;
        // SAFETY: torch's own getters and data.
        unsafe {
            if (self.function_stack)() != 0 {
                return None;
            }
            match here.autograd {
                Some(byte) => give(u64::from(byte.read_volatile())),
                None => self.autograd_flags.iter().for_each(|get| give(u64::from(get()))),
            }
            self.flags.iter().for_each(|get| give(u64::from(get())));
            self.switches.visit(give);
            give((self.autocast_dtype)(0) as u64);
            give((self.autocast_dtype)(1) as u64);
            give(*here.tracing as u64);
            give(u64::from(*(self.anomaly as *const u8)));
            give(*here.keys);
            give(*here.keys.add(1));
            if !any_precision {
                self.precision.visit(give);
                for call in &self.calls {
                    give(call_address(py, call.as_ptr(), &[])?);
                }
            }
            give(match here.hooks {
                Some(hooks) => u64::from(SavedHooks::are_set(&*hooks)),
                None => call_address(py, self.top_saved_hooks.as_ptr(), &[ffi::Py_True()])?,
            });
            for dict in &self.modules {
                give(*crate::raw::dict_version(dict.as_ptr()));
            }
        }
        Some(())
    }

    /// Where the calling thread's state is; looked for once a thread.
    #[inline]
    fn here(&self) -> Option<Here> {
        thread_local! {
            static HERE: Cell<Option<Here>> = const { Cell::new(None) };
        }
        HERE.get().or_else(|| {
            HERE.set(self.find_here());
            HERE.get()
        })
    }

    #[cold]
    fn find_here(&self) -> Option<Here> {
        let library = c"libc10.so".as_ptr();
        // SAFETY: finds a thread-local of a library that is loaded: its address for this thread. The getters return
        // references to thread-locals.
        unsafe {
            let library = libc::dlopen(library, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if library.is_null() || self.keys_symbol == 0 {
                return None;
            }
            let keys: *const u64 = libc::dlsym(library, c"_ZN3c104impl26raw_local_dispatch_key_setE".as_ptr()).cast();
            let here = Here {
                autograd: self.autograd.map(|autograd| (autograd.get)().cast::<u8>().add(autograd.switches)),
                tracing: (self.tracing)(),
                hooks: self.saved_hooks.map(|hooks| (hooks.0)()),
                keys,
            };
            (!keys.is_null()).then_some(here)
        }
    }
}

/// The thread's state of autograd: what gives its address, and where in it the switches are.
#[derive(Clone, Copy)]
struct Autograd {
    get: GetAddress,
    switches: usize,
}

impl Autograd {
    /// From torch's getter, if one byte goes with grad mode and inference mode.
    fn new(py: Python<'_>, torch: &Torch, get: GetAddress) -> Option<Autograd> {
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
}

/// The thread's stack of hooks for saved tensors, a `std::deque` at the start of what torch gives the address of.
#[derive(Clone, Copy)]
struct SavedHooks(unsafe extern "C" fn() -> *const [usize; 10]);

impl SavedHooks {
    /// From torch's getter, if hooks that are pushed and popped are seen.
    fn new(autograd: &Bound<'_, PyAny>, get: *mut c_void) -> Option<SavedHooks> {
        // SAFETY: returns a reference to a thread-local that is larger than ten words (a deque has ten).
        let (hooks, here) = unsafe {
            let hooks = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const [usize; 10]>(get);
            (SavedHooks(hooks), &*hooks().cast::<Cell<[usize; 10]>>())
        };
        let (none, push) = (!Self::are_set(&here.get()), autograd.getattr("_push_saved_tensors_default_hooks").ok()?);
        push.call1((&push, &push)).ok()?;
        let one = Self::are_set(&here.get());
        autograd.call_method0("_pop_saved_tensors_default_hooks").ok()?;
        (none && one && !Self::are_set(&here.get())).then_some(hooks)
    }

    /// Whether there is one: the deque's first element is not where the next one goes.
    fn are_set(deque: &[usize; 10]) -> bool {
        deque[2] != deque[6]
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
