//! Torch ops of a plan: the frequent ones through their C functions, all others through `torch.ops` and vectorcall.

use super::outside::outside;
use super::regs::Regs;
use crate::consts;
use crate::guard::Expr;
use crate::torch_abi::{Handle, Owned, Status, Torch};
use flambeau_ir::code::Const;
use flambeau_ir::plan::{PlanArg, PlanStep};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

/// An argument ready to be read.
pub enum OpArg {
    /// A register.
    Reg(usize),
    /// A constant: as it is, and as an object.
    Const(Const, Py<PyAny>),
    /// A size.
    Dim(Expr),
    /// A list.
    List(Vec<OpArg>),
}

impl OpArg {
    fn new(py: Python<'_>, arg: &PlanArg) -> PyResult<OpArg> {
        Ok(match arg {
            PlanArg::Reg(reg) => OpArg::Reg(reg.0 as usize),
            PlanArg::Const(value) => OpArg::Const(value.clone(), consts::to_object(py, value)?.unbind()),
            PlanArg::Dim(dim) => OpArg::Dim(dim.into()),
            PlanArg::List(items) => OpArg::List(items.iter().map(|i| OpArg::new(py, i)).collect::<PyResult<_>>()?),
        })
    }

    fn object(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<Py<PyAny>, OpError> {
        Ok(match self {
            OpArg::Reg(reg) => regs.python(py, *reg).map_err(OpError::Native)?,
            OpArg::Const(_, object) => object.clone_ref(py),
            OpArg::Dim(_) => self.int(symbols)?.into_pyobject(py).map_err(PyErr::from)?.into_any().unbind(),
            OpArg::List(items) => {
                let items: Vec<_> = items.iter().map(|i| i.object(py, regs, symbols)).collect::<Result<_, _>>()?;
                PyList::new(py, items)?.into_any().unbind()
            }
        })
    }

    fn int(&self, symbols: &[i64]) -> Result<i64, OpError> {
        let value = match self {
            OpArg::Const(Const::Int(i), _) => Some(*i),
            OpArg::Const(Const::Bool(b), _) => Some(i64::from(*b)),
            OpArg::Dim(dim) => dim.eval(symbols),
            _ => None,
        };
        value.ok_or_else(|| OpError::Native("a torch op's argument is no int".into()))
    }

    fn float(&self, symbols: &[i64]) -> Result<f64, OpError> {
        match self {
            OpArg::Const(Const::Float(x), _) => Ok(*x),
            _ => Ok(self.int(symbols)? as f64),
        }
    }

    fn ints(&self, symbols: &[i64]) -> Result<SmallVec<[i64; 4]>, OpError> {
        match self {
            OpArg::List(items) => items.iter().map(|i| i.int(symbols)).collect(),
            OpArg::Const(Const::Tuple(items), _) => items
                .iter()
                .map(|i| if let Const::Int(i) = i { Ok(*i) } else { Err(OpError::Native("not an int".into())) })
                .collect(),
            _ => Err(OpError::Native("a torch op's argument is no list".into())),
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, OpArg::Const(Const::None, _))
    }

    fn handle(&self, regs: &Regs<'_>) -> Result<Handle, OpError> {
        match self {
            OpArg::Reg(reg) => regs.handle(*reg).map_err(OpError::Native),
            _ => Err(OpError::Native("a torch op's argument is no tensor".into())),
        }
    }
}

/// A failed op.
pub enum OpError {
    /// Torch's message, from its C interface.
    Native(String),
    /// A Python exception.
    Python(PyErr),
    /// Torch returned other metadata than the plan was made for: prediction and finding in words.
    Unexpected(String),
}

impl From<PyErr> for OpError {
    fn from(error: PyErr) -> Self {
        OpError::Python(error)
    }
}

type Out3 = unsafe extern "C" fn(Handle, Handle, Handle) -> Status;
type OutScaled = unsafe extern "C" fn(Handle, Handle, Handle, Handle, f64, f64) -> Status;
type Convolution = unsafe extern "C" fn(
    Handle,
    Handle,
    *const Handle,
    *const i64,
    i64,
    *const i64,
    i64,
    *const i64,
    i64,
    i32,
    *const i64,
    i64,
    i64,
    *mut Handle,
) -> Status;
type Attention = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    f64,
    i32,
    *const Handle,
    *const f64,
    *mut Handle,
    *mut Handle,
) -> Status;
type MaxPool = unsafe extern "C" fn(
    Handle,
    *const i64,
    i64,
    *const i64,
    i64,
    *const i64,
    i64,
    *const i64,
    i64,
    i32,
    *mut Handle,
    *mut Handle,
) -> Status;

/// How an op is called.
enum Callee {
    /// `(a, b, *, out)`
    Out3(Out3),
    /// `(input, a, b, *, beta, alpha, out)`
    OutScaled(OutScaled),
    /// `aten::convolution`
    Convolution(Convolution),
    /// `aten::_scaled_dot_product_flash_attention_for_cpu`
    Attention(Attention),
    /// `aten::max_pool2d_with_indices`
    MaxPool(MaxPool),
    /// An overload of `torch.ops`, and the names of the last arguments.
    Python { overload: Py<PyAny>, names: Option<Py<PyTuple>> },
}

/// A call step ready to run.
pub struct Op {
    callee: Callee,
    args: Vec<OpArg>,
    results: Vec<usize>,
}

impl Op {
    /// From a call step on tensors of the CPU (`on_cpu`) or elsewhere.
    pub fn new(py: Python<'_>, torch: &Torch, step: &PlanStep, on_cpu: bool) -> Result<Op, String> {
        let PlanStep::Call { op, overload, args, results } = step else {
            return Err("no call step".into());
        };
        let failed = |e: PyErr| format!("{op}.{overload} cannot be called: {e}");
        let args = args.iter().map(|a| OpArg::new(py, a)).collect::<PyResult<Vec<_>>>().map_err(failed)?;
        let direct = if on_cpu { direct(torch, op, overload, args.len(), results.len()) } else { None };
        let callee = match direct {
            Some(callee) => callee,
            None => python(py, op, overload, args.len(), !results.is_empty()).map_err(failed)?,
        };
        Ok(Op { callee, args, results: results.iter().map(|r| r.0 as usize).collect() })
    }

    /// Runs it.
    pub fn run(&self, py: Python<'_>, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        let (args, torch) = (&self.args, regs.torch);
        let handle = |i: usize| args[i].handle(regs).map(SendHandle);
        let done = |status: Status| torch.check(status).map_err(OpError::Native);
        match &self.callee {
            Callee::Out3(function) => {
                let (a, b, out) = (handle(0)?, handle(1)?, handle(2)?);
                // SAFETY: live handles.
                let call = || outside(|| unsafe { function(out.get(), a.get(), b.get()) });
                done(multiply(py, regs, a, b, call))
            }
            Callee::OutScaled(function) => {
                let (input, a, b, out) = (handle(0)?, handle(1)?, handle(2)?, handle(5)?);
                let (beta, alpha) = (args[3].float(symbols)?, args[4].float(symbols)?);
                // SAFETY: live handles.
                let call = || outside(|| unsafe { function(out.get(), input.get(), a.get(), b.get(), beta, alpha) });
                done(multiply(py, regs, a, b, call))
            }
            Callee::Convolution(function) => {
                let (input, weight) = (handle(0)?, handle(1)?);
                let bias = if args[2].is_none() { None } else { Some(handle(2)?) };
                let lists = [args[3].ints(symbols)?, args[4].ints(symbols)?, args[5].ints(symbols)?];
                let (transposed, padding, groups) =
                    (args[6].int(symbols)? as i32, args[7].ints(symbols)?, args[8].int(symbols)?);
                let [a, b, c] = &lists;
                let made = regs.detach(py, || {
                    let bias = bias.map(SendHandle::get);
                    // SAFETY: live handles, arrays with their lengths; an absent bias is a null pointer.
                    unsafe {
                        make(|ret| {
                            function(
                                input.get(),
                                weight.get(),
                                bias.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                                a.as_ptr(),
                                a.len() as i64,
                                b.as_ptr(),
                                b.len() as i64,
                                c.as_ptr(),
                                c.len() as i64,
                                transposed,
                                padding.as_ptr(),
                                padding.len() as i64,
                                groups,
                                ret[0],
                            )
                        })
                    }
                });
                self.store::<1>(regs, made)
            }
            Callee::Attention(function) => {
                let (q, k, v) = (handle(0)?, handle(1)?, handle(2)?);
                let (dropout, causal) = (args[3].float(symbols)?, args[4].int(symbols)? as i32);
                let mask = if args[5].is_none() { None } else { Some(handle(5)?) };
                let scale = if args[6].is_none() { None } else { Some(args[6].float(symbols)?) };
                let made = regs.detach(py, || {
                    let mask = mask.map(SendHandle::get);
                    let scale = scale.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                    let mask = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                    // SAFETY: live handles; absent optionals are null pointers.
                    unsafe {
                        make(|ret| function(q.get(), k.get(), v.get(), dropout, causal, mask, scale, ret[0], ret[1]))
                    }
                });
                self.store::<2>(regs, made)
            }
            Callee::MaxPool(function) => {
                let input = handle(0)?;
                let [a, b, c, d] =
                    [args[1].ints(symbols)?, args[2].ints(symbols)?, args[3].ints(symbols)?, args[4].ints(symbols)?];
                let ceil = args[5].int(symbols)? as i32;
                let len = |l: &SmallVec<[i64; 4]>| l.len() as i64;
                let made = regs.detach(py, || {
                    // SAFETY: a live handle, arrays with their lengths.
                    unsafe {
                        make(|ret| {
                            let (a_len, b_len, c_len, d_len) = (len(&a), len(&b), len(&c), len(&d));
                            let (a, b, c, d) = (a.as_ptr(), b.as_ptr(), c.as_ptr(), d.as_ptr());
                            function(input.get(), a, a_len, b, b_len, c, c_len, d, d_len, ceil, ret[0], ret[1])
                        })
                    }
                });
                self.store::<2>(regs, made)
            }
            Callee::Python { overload, names } => self.run_python(py, overload, names.as_ref(), regs, symbols),
        }
    }

    /// Puts new handles into the result registers.
    fn store<const N: usize>(&self, regs: &mut Regs<'_>, made: (Status, [SendHandle; N])) -> Result<(), OpError> {
        let torch = regs.torch;
        torch.check(made.0).map_err(OpError::Native)?;
        for (reg, handle) in self.results.iter().zip(made.1) {
            // SAFETY: the call succeeded, so each is a new reference.
            regs.own(*reg, unsafe { Owned::new(torch, handle.get()) });
        }
        Ok(())
    }

    fn run_python(
        &self,
        py: Python<'_>,
        overload: &Py<PyAny>,
        names: Option<&Py<PyTuple>>,
        regs: &mut Regs<'_>,
        symbols: &[i64],
    ) -> Result<(), OpError> {
        regs.hold();
        let named = names.map_or(0, |n| n.bind(py).len());
        let positional = self.args.len() - named;
        let objects: Vec<_> = self.args.iter().map(|a| a.object(py, regs, symbols)).collect::<Result<_, _>>()?;
        let kwargs = match names {
            None => None,
            Some(names) => {
                let kwargs = PyDict::new(py);
                for (name, value) in names.bind(py).iter().zip(&objects[positional..]) {
                    kwargs.set_item(name, value)?;
                }
                Some(kwargs)
            }
        };
        let positional = PyTuple::new(py, &objects[..positional])?;
        let result = outside(|| overload.bind(py).call(positional, kwargs.as_ref()))?;
        if let [only] = self.results[..] {
            regs.keep(only, result.unbind());
        } else if !self.results.is_empty() {
            for (reg, item) in self.results.iter().zip(result.try_iter()?) {
                regs.keep(*reg, item?.unbind());
            }
        }
        Ok(())
    }
}

/// A handle that may be used while the GIL is released.
#[derive(Clone, Copy)]
struct SendHandle(Handle);

// SAFETY: torch's C interface may be called from any thread; the run keeps the tensor alive.
unsafe impl Send for SendHandle {}
// SAFETY: as above.
unsafe impl Sync for SendHandle {}

impl SendHandle {
    fn get(self) -> Handle {
        self.0
    }
}

/// Multiplications of a product of matrices that is done before another thread could take the GIL.
const SMALL: i64 = 1 << 16;

/// Runs a product of `a` and `b`, a small one with the GIL held.
fn multiply(
    py: Python<'_>,
    regs: &mut Regs<'_>,
    a: SendHandle,
    b: SendHandle,
    call: impl Send + FnOnce() -> Status,
) -> Status {
    // SAFETY: live handles of strided tensors.
    let count = unsafe {
        let columns = regs.torch.sizes(b.get()).last().copied().unwrap_or(1);
        regs.torch.numel(a.get()).saturating_mul(columns)
    };
    if count < SMALL { call() } else { regs.detach(py, call) }
}

/// Runs a function that writes `N` new handles.
///
/// # Safety
/// On success `call` has written all of them.
unsafe fn make<const N: usize>(call: impl FnOnce([*mut Handle; N]) -> Status) -> (Status, [SendHandle; N]) {
    let mut handles = [SendHandle(std::ptr::null_mut()); N];
    let status = outside(|| call(handles.each_mut().map(|h| &raw mut h.0)));
    (status, handles)
}

/// The C function for an op, if it has one here and torch exports it.
fn direct(torch: &Torch, op: &str, overload: &str, args: usize, results: usize) -> Option<Callee> {
    macro_rules! function {
        ($symbol:literal: $signature:ty) => {{
            let address = torch.symbol($symbol);
            if address.is_null() {
                return None;
            }
            // SAFETY: the symbol has this signature in torch's public headers.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, $signature>(address) }
        }};
    }
    Some(match (op, overload, args, results) {
        ("aten::mm", "out", 3, 0) => Callee::Out3(function!(c"aoti_torch_cpu_mm_out": Out3)),
        ("aten::bmm", "out", 3, 0) => Callee::Out3(function!(c"aoti_torch_cpu_bmm_out": Out3)),
        ("aten::addmm", "out", 6, 0) => Callee::OutScaled(function!(c"aoti_torch_cpu_addmm_out": OutScaled)),
        ("aten::baddbmm", "out", 6, 0) => Callee::OutScaled(function!(c"aoti_torch_cpu_baddbmm_out": OutScaled)),
        ("aten::convolution", "default", 9, 1) => {
            Callee::Convolution(function!(c"aoti_torch_cpu_convolution": Convolution))
        }
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "default", 7, 2) => {
            Callee::Attention(function!(c"aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu": Attention))
        }
        ("aten::max_pool2d_with_indices", "default", 6, 2) => {
            Callee::MaxPool(function!(c"aoti_torch_cpu_max_pool2d_with_indices": MaxPool))
        }
        _ => return None,
    })
}

/// The overload object, and the names of arguments that its schema takes by keyword only. One that returns (a view of) an
/// argument is refused: memory of results is the plan's own.
fn python(py: Python<'_>, op: &str, overload: &str, args: usize, has_results: bool) -> PyResult<Callee> {
    let (namespace, name) = op.split_once("::").unwrap_or(("aten", op));
    let overload = py.import("torch")?.getattr("ops")?.getattr(namespace)?.getattr(name)?.getattr(overload)?;
    let schema = overload.getattr("_schema")?;
    let arguments: Vec<Bound<'_, PyAny>> = schema.getattr("arguments")?.extract()?;
    for returned in schema.getattr("returns")?.extract::<Vec<Bound<'_, PyAny>>>()? {
        if has_results && !returned.getattr("alias_info")?.is_none() {
            return Err(PyRuntimeError::new_err("it returns its argument's memory"));
        }
    }
    let mut names = Vec::new();
    for argument in arguments.iter().take(args) {
        if argument.getattr("kwarg_only")?.is_truthy()? {
            names.push(argument.getattr("name")?);
        }
    }
    let names = if names.is_empty() { None } else { Some(PyTuple::new(py, names)?.unbind()) };
    Ok(Callee::Python { overload: overload.unbind(), names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_in_order() {
        // SAFETY: the closure writes both.
        let (status, handles) = unsafe {
            make::<2>(|ret| {
                *ret[0] = std::ptr::without_provenance_mut(1);
                *ret[1] = std::ptr::without_provenance_mut(2);
                0
            })
        };
        assert_eq!(status, 0);
        assert_eq!(handles.map(|h| h.get() as usize), [1, 2]);
    }
}
