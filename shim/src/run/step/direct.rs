//! Torch ops that are called through its C interface: no Python object is made for them, and they need no GIL.

use super::expect::Expected;
use super::extents::{Extents, Interner, Room};
use super::rows::{self, Rows};
use crate::guard::Expr;
use crate::run::step::ops::OpError;
use crate::run::step::regs::Regs;
use crate::torch::ambient::GradMode;
use crate::torch::outside::outside;
use crate::torch::{Handle, Owned, Status, Torch};
use flambeau_ir::code::Const;
use flambeau_ir::device::Runs;
use flambeau_ir::dim::Dim;
use flambeau_ir::plan::{PlanArg, PlanStep};
use flambeau_ir::tensor::Device;
use smallvec::SmallVec;
use std::ffi::CString;
use std::ptr::{from_ref, null, null_mut};
use std::rc::Rc;

type Product = unsafe extern "C" fn(Handle, Handle, Handle) -> Status;
type ScaledProduct = unsafe extern "C" fn(Handle, Handle, Handle, Handle, f64, f64) -> Status;
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

/// A call, and what follows it at once.
pub struct DirectCall {
    /// What is called.
    pub op: Direct,
    /// What its results must be.
    pub expected: SmallVec<[Expected; 1]>,
    /// Registers that end then.
    pub freed: SmallVec<[usize; 3]>,
}

impl DirectCall {
    /// Makes it.
    #[inline]
    pub fn run(&self, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), OpError> {
        {
            let _off = GradMode::new(regs.torch, false);
            match &self.op {
                Direct::Rows(rows) => rows.run(regs)?,
                Direct::Check(truth) => rows::check(regs, *truth)?,
                op => op.run(regs, symbols)?,
            }
        }
        self.expected.iter().try_for_each(|expected| expected.check(regs, symbols))?;
        self.freed.iter().for_each(|reg| regs.free(*reg));
        Ok(())
    }
}

/// A function ready to be called. Tensors are registers.
pub enum Direct {
    /// `(a, b, *, out)`
    Product { function: Product, a: usize, b: usize, out: usize },
    /// `(input, a, b, *, beta, alpha, out)`
    ScaledProduct { function: ScaledProduct, input: usize, a: usize, b: usize, beta: f64, alpha: f64, out: usize },
    /// `aten::convolution`
    Convolution {
        function: Convolution,
        input: usize,
        weight: usize,
        bias: Option<usize>,
        /// Stride, padding, dilation.
        places: [Rc<Extents>; 3],
        transposed: bool,
        output_padding: Rc<Extents>,
        groups: Expr,
        result: usize,
    },
    /// `aten::_scaled_dot_product_flash_attention_for_cpu`
    Attention {
        function: Attention,
        /// Query, key, value.
        inputs: [usize; 3],
        dropout: f64,
        causal: bool,
        mask: Option<usize>,
        scale: Option<f64>,
        results: [usize; 2],
    },
    /// Our own code.
    Rows(Box<Rows>),
    /// The same: the truth in a register.
    Check(usize),
    /// `aten::max_pool2d_with_indices`
    MaxPool {
        function: MaxPool,
        input: usize,
        /// Kernel size, stride, padding, dilation.
        windows: [Rc<Extents>; 4],
        ceil: bool,
        results: [usize; 2],
    },
}

impl Direct {
    /// From a call step on tensors of a device, if it has a function here, torch exports it, and its arguments are plain.
    pub fn new(torch: &Torch, interner: &mut Interner, device: Device, step: &PlanStep) -> Option<Direct> {
        let PlanStep::Call { op, overload, args, results } = step else { return None };
        let kind = device.known().filter(|kind| kind.runs != Runs::Never)?.name;
        macro_rules! function {
            ($name:literal: $signature:ty) => {{
                let symbol = CString::new(format!("aoti_torch_{kind}_{}", $name)).ok()?;
                let address = torch.symbol(&symbol);
                if address.is_null() {
                    return None;
                }
                // SAFETY: the symbol has this signature in torch's public headers.
                unsafe { std::mem::transmute::<*mut std::ffi::c_void, $signature>(address) }
            }};
        }
        let product =
            |function| Some(Direct::Product { function, a: reg(args, 0)?, b: reg(args, 1)?, out: reg(args, 2)? });
        let scaled = |function| {
            let (input, a, b) = (reg(args, 0)?, reg(args, 1)?, reg(args, 2)?);
            let (beta, alpha, out) = (float(args, 3)?, float(args, 4)?, reg(args, 5)?);
            Some(Direct::ScaledProduct { function, input, a, b, beta, alpha, out })
        };
        let result = |i: usize| results.get(i).map(|reg| reg.0 as usize);
        let mut ints = |at: usize| ints(args, at, interner);
        match (&**op, &**overload, args.len(), results.len()) {
            ("aten::mm", "out", 3, 0) => product(function!("mm_out": Product)),
            ("aten::bmm", "out", 3, 0) => product(function!("bmm_out": Product)),
            ("aten::addmm", "out", 6, 0) => scaled(function!("addmm_out": ScaledProduct)),
            ("aten::baddbmm", "out", 6, 0) => scaled(function!("baddbmm_out": ScaledProduct)),
            ("aten::convolution", "default", 9, 1) => Some(Direct::Convolution {
                function: function!("convolution": Convolution),
                input: reg(args, 0)?,
                weight: reg(args, 1)?,
                bias: if is_none(args, 2) { None } else { Some(reg(args, 2)?) },
                places: [ints(3)?, ints(4)?, ints(5)?],
                transposed: boolean(args, 6)?,
                output_padding: ints(7)?,
                groups: (&int(args.get(8)?)?).into(),
                result: result(0)?,
            }),
            ("aten::_scaled_dot_product_flash_attention_for_cpu", "default", 7, 2) => Some(Direct::Attention {
                function: function!("_scaled_dot_product_flash_attention_for_cpu": Attention),
                inputs: [reg(args, 0)?, reg(args, 1)?, reg(args, 2)?],
                dropout: float(args, 3)?,
                causal: boolean(args, 4)?,
                mask: if is_none(args, 5) { None } else { Some(reg(args, 5)?) },
                scale: if is_none(args, 6) { None } else { Some(float(args, 6)?) },
                results: [result(0)?, result(1)?],
            }),
            ("aten::max_pool2d_with_indices", "default", 6, 2) => Some(Direct::MaxPool {
                function: function!("max_pool2d_with_indices": MaxPool),
                input: reg(args, 0)?,
                windows: [ints(1)?, ints(2)?, ints(3)?, ints(4)?],
                ceil: boolean(args, 5)?,
                results: [result(0)?, result(1)?],
            }),
            _ => None,
        }
    }

    /// Registers of the factors of a product of matrices, and of the product.
    pub fn product(&self) -> Option<[usize; 3]> {
        match self {
            Direct::Product { a, b, out, .. } | Direct::ScaledProduct { a, b, out, .. } => Some([*a, *b, *out]),
            _ => None,
        }
    }

    /// Makes it.
    #[inline]
    fn run(&self, regs: &mut Regs<'_>, symbols: &[i64]) -> Result<(), String> {
        let mut rooms = <[Room; 4]>::default();
        let [first, second, third, fourth] = &mut rooms;
        match self {
            Direct::Rows(_) | Direct::Check(_) => Ok(()),
            Direct::Product { function, a, b, out } => {
                let (a, b, out) = (regs.handle(*a)?, regs.handle(*b)?, regs.handle(*out)?);
                // SAFETY: live handles.
                regs.torch.check(outside(|| unsafe { function(out, a, b) }))
            }
            Direct::ScaledProduct { function, input, a, b, beta, alpha, out } => {
                let (input, out) = (regs.handle(*input)?, regs.handle(*out)?);
                let (a, b) = (regs.handle(*a)?, regs.handle(*b)?);
                // SAFETY: live handles.
                regs.torch.check(outside(|| unsafe { function(out, input, a, b, *beta, *alpha) }))
            }
            Direct::Convolution {
                function,
                input,
                weight,
                bias,
                places: [stride, padding, dilation],
                transposed,
                output_padding,
                groups,
                result,
            } => {
                let (input, weight) = (regs.handle(*input)?, regs.handle(*weight)?);
                let bias = bias.map(|reg| regs.handle(reg)).transpose()?;
                let bias = bias.as_ref().map_or(null(), from_ref);
                let (stride, padding) = (stride.eval(symbols, first)?, padding.eval(symbols, second)?);
                let (dilation, output_padding) =
                    (dilation.eval(symbols, third)?, output_padding.eval(symbols, fourth)?);
                let (a, a_len) = (stride.as_ptr(), stride.len() as i64);
                let (b, b_len) = (padding.as_ptr(), padding.len() as i64);
                let (c, c_len) = (dilation.as_ptr(), dilation.len() as i64);
                let (d, d_len) = (output_padding.as_ptr(), output_padding.len() as i64);
                let groups = super::extents::size(groups, symbols)?;
                let transposed = i32::from(*transposed);
                // SAFETY: live handles, arrays with their lengths; an absent bias is a null pointer.
                let made = unsafe {
                    Owned::make(regs.torch, |ret| {
                        function(input, weight, bias, a, a_len, b, b_len, c, c_len, transposed, d, d_len, groups, ret)
                    })?
                };
                regs.own(*result, made);
                Ok(())
            }
            Direct::Attention { function, inputs: [q, k, v], dropout, causal, mask, scale, results } => {
                let (q, k, v) = (regs.handle(*q)?, regs.handle(*k)?, regs.handle(*v)?);
                let mask = mask.map(|reg| regs.handle(reg)).transpose()?;
                let (mask, scale) = (mask.as_ref().map_or(null(), from_ref), scale.as_ref().map_or(null(), from_ref));
                let causal = i32::from(*causal);
                // SAFETY: live handles; absent optionals are null pointers.
                pair(regs, *results, |a, b| unsafe { function(q, k, v, *dropout, causal, mask, scale, a, b) })
            }
            Direct::MaxPool { function, input, windows: [size, stride, padding, dilation], ceil, results } => {
                let input = regs.handle(*input)?;
                let (size, stride) = (size.eval(symbols, first)?, stride.eval(symbols, second)?);
                let (padding, dilation) = (padding.eval(symbols, third)?, dilation.eval(symbols, fourth)?);
                let (a, a_len) = (size.as_ptr(), size.len() as i64);
                let (b, b_len) = (stride.as_ptr(), stride.len() as i64);
                let (c, c_len) = (padding.as_ptr(), padding.len() as i64);
                let (d, d_len) = (dilation.as_ptr(), dilation.len() as i64);
                let ceil = i32::from(*ceil);
                pair(regs, *results, |made, at| {
                    // SAFETY: a live handle, arrays with their lengths.
                    unsafe { function(input, a, a_len, b, b_len, c, c_len, d, d_len, ceil, made, at) }
                })
            }
        }
    }
}

/// Makes a call that writes two new handles, and puts them into these registers.
fn pair(
    regs: &mut Regs<'_>,
    results: [usize; 2],
    call: impl FnOnce(*mut Handle, *mut Handle) -> Status,
) -> Result<(), String> {
    let made = outside(|| {
        let (mut first, mut second) = (null_mut(), null_mut());
        regs.torch.check(call(&raw mut first, &raw mut second)).map(|()| [first, second])
    })?;
    for (reg, handle) in results.into_iter().zip(made) {
        // SAFETY: the call succeeded, so each is a new reference.
        let made = unsafe { Owned::new(regs.torch, handle) };
        regs.own(reg, made);
    }
    Ok(())
}

fn reg(args: &[PlanArg], i: usize) -> Option<usize> {
    if let PlanArg::Reg(reg) = args.get(i)? { Some(reg.0 as usize) } else { None }
}

fn is_none(args: &[PlanArg], i: usize) -> bool {
    matches!(args.get(i), Some(PlanArg::Const(Const::None)))
}

fn int(arg: &PlanArg) -> Option<Dim> {
    match arg {
        PlanArg::Const(value) => constant(value),
        PlanArg::Dim(dim) => Some(dim.clone()),
        _ => None,
    }
}

fn constant(value: &Const) -> Option<Dim> {
    if let Const::Int(value) = value { Some(Dim::Const(*value)) } else { None }
}

fn boolean(args: &[PlanArg], i: usize) -> Option<bool> {
    if let PlanArg::Const(Const::Bool(value)) = args.get(i)? { Some(*value) } else { None }
}

fn float(args: &[PlanArg], i: usize) -> Option<f64> {
    match args.get(i)? {
        PlanArg::Const(Const::Float(value)) => Some(*value),
        PlanArg::Const(Const::Int(value)) => Some(*value as f64),
        _ => None,
    }
}

fn ints(args: &[PlanArg], i: usize, interner: &mut Interner) -> Option<Rc<Extents>> {
    let dims: Option<Vec<Dim>> = match args.get(i)? {
        PlanArg::List(items) => items.iter().map(int).collect(),
        PlanArg::Const(Const::Tuple(items)) => items.iter().map(constant).collect(),
        _ => None,
    };
    Some(interner.extents(&dims?))
}
