//! Pointwise ops: one element out per element of the broadcast inputs. Python numbers take part as 0-dim tensors.

mod activation;
pub(crate) mod decompose;
pub(crate) mod decompose_activation;
mod select;

use crate::call::{Answer, Call, Pointwise, invalid};
use crate::promote::{Category, category, real_of};
use crate::registry::{OpDef, place::*};
use crate::signature::Value;
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::DType;

pub(crate) use activation::OPS as ACTIVATIONS;
pub(crate) use select::OPS as SELECT;

const UNARY: &str = "input:T, *, out:T=None";
const BINARY: &str = "input:TN, other:TN, *, out:T=None";
const TENSORS: &str = "input:T, other:T, *, out:T=None";
const TENSOR_FIRST: &str = "input:T, other:TN, *, out:T=None";
const SCALED: &str = "input:TN, other:TN, *, alpha:N=1, out:T=None";

/// One operand, computed in a float type: ints and bools become the default dtype.
const fn float(name: &'static str) -> OpDef {
    OpDef::new(name, UNARY, float_unary, ALL)
}

/// One operand, its own type.
const fn unary(name: &'static str) -> OpDef {
    OpDef::new(name, UNARY, same_type, ALL)
}

/// Two operands, their promoted type.
const fn binary(name: &'static str) -> OpDef {
    OpDef::new(name, BINARY, arithmetic, ALL)
}

/// Two operands, a truth value.
const fn compare(name: &'static str) -> OpDef {
    OpDef::new(name, TENSOR_FIRST, comparison, ALL)
}

/// Two integers or bools.
const fn bits(name: &'static str) -> OpDef {
    OpDef::new(name, BINARY, bitwise, ALL)
}

/// One operand, a truth value.
const fn test(name: &'static str) -> OpDef {
    OpDef::new(name, UNARY, predicate, BOTH)
}

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("add", SCALED, arithmetic, ALL).binary("add"),
    OpDef::new("sub", SCALED, subtraction, ALL).also(&["torch.subtract", ".subtract", ".subtract_"]).binary("sub"),
    OpDef::new("rsub", "input:T, other:TN, *, alpha:N=1", subtraction, FN),
    binary("mul").also(&["torch.multiply", ".multiply", ".multiply_"]).binary("mul"),
    OpDef::new("div", "input:TN, other:TN, *, rounding_mode:S=None, out:T=None", division, ALL)
        .also(&["torch.divide", ".divide", ".divide_", "torch.true_divide", ".true_divide", ".true_divide_"])
        .binary("truediv"),
    OpDef::new("floor_divide", BINARY, arithmetic, ALL).binary("floordiv"),
    binary("remainder").binary("mod"),
    OpDef::new("fmod", TENSOR_FIRST, arithmetic, ALL),
    OpDef::new(
        "pow",
        "input:T, exponent:T, *, out:T=None | input:T, exponent:N, *, out:T=None | input:N, exponent:T, *, out:T=None",
        power,
        ALL,
    )
    .binary("pow"),
    OpDef::new("maximum", TENSORS, arithmetic, BOTH),
    OpDef::new("minimum", TENSORS, arithmetic, BOTH),
    OpDef::new("fmax", TENSORS, arithmetic, BOTH),
    OpDef::new("fmin", TENSORS, arithmetic, BOTH),
    OpDef::new("atan2", TENSORS, float_arithmetic, ALL).also(&["torch.arctan2", ".arctan2", ".arctan2_"]),
    OpDef::new("copysign", TENSOR_FIRST, float_arithmetic, ALL),
    OpDef::new("xlogy", BINARY, float_arithmetic, ALL).also(&["torch._C._special.special_xlogy"]),
    OpDef::new("hypot", TENSORS, floats_only, ALL),
    OpDef::new("logaddexp", TENSORS, floats_only, BOTH),
    OpDef::new("logaddexp2", TENSORS, floats_only, BOTH),
    OpDef::new("nextafter", TENSORS, floats_only, ALL),
    OpDef::new("gcd", TENSORS, bitwise, ALL),
    OpDef::new("lcm", TENSORS, bitwise, ALL),
    bits("bitwise_and").binary("and_"),
    bits("bitwise_or").binary("or_"),
    bits("bitwise_xor").binary("xor"),
    bits("bitwise_left_shift").binary("lshift"),
    bits("bitwise_right_shift").binary("rshift"),
    OpDef::new("bitwise_not", UNARY, bitwise_not, ALL).operator("invert"),
    compare("eq").comparison("eq"),
    compare("ne").also(&["torch.not_equal", ".not_equal", ".not_equal_"]).comparison("ne"),
    compare("lt").also(&["torch.less", ".less", ".less_"]).comparison("lt"),
    compare("le").also(&["torch.less_equal", ".less_equal", ".less_equal_"]).comparison("le"),
    compare("gt").also(&["torch.greater", ".greater", ".greater_"]).comparison("gt"),
    compare("ge").also(&["torch.greater_equal", ".greater_equal", ".greater_equal_"]).comparison("ge"),
    OpDef::new("logical_and", TENSORS, logical, ALL),
    OpDef::new("logical_or", TENSORS, logical, ALL),
    OpDef::new("logical_xor", TENSORS, logical, ALL),
    OpDef::new("logical_not", UNARY, logical, ALL),
    test("isnan"),
    OpDef::new("isinf", "input:T", infinite, BOTH),
    OpDef::new("isfinite", "input:T", infinite, BOTH),
    test("isposinf"),
    test("isneginf"),
    test("signbit"),
    unary("neg").also(&["torch.negative", ".negative", ".negative_"]).operator("neg"),
    OpDef::new("positive", "input:T", itself, BOTH).operator("pos"),
    OpDef::new("abs", UNARY, absolute, ALL).also(&["torch.absolute", ".absolute", ".absolute_"]).operator("abs"),
    unary("sign"),
    unary("sgn"),
    unary("floor"),
    unary("ceil"),
    unary("trunc").also(&["torch.fix", ".fix", ".fix_"]),
    unary("frac"),
    OpDef::new("round", "input:T, *, decimals:I=0, out:T=None", same_type, ALL),
    OpDef::new("square", UNARY, square, ALL),
    float("exp"),
    float("exp2").also(&["torch._C._special.special_exp2"]),
    float("expm1").also(&["torch._C._special.special_expm1"]),
    float("log"),
    float("log2"),
    float("log10"),
    float("log1p").also(&["torch._C._special.special_log1p"]),
    float("sqrt"),
    float("rsqrt"),
    float("reciprocal"),
    float("sin"),
    float("cos"),
    float("tan"),
    float("asin").also(&["torch.arcsin", ".arcsin", ".arcsin_"]),
    float("acos").also(&["torch.arccos", ".arccos", ".arccos_"]),
    float("atan").also(&["torch.arctan", ".arctan", ".arctan_"]),
    float("sinh"),
    float("cosh"),
    float("tanh"),
    float("asinh").also(&["torch.arcsinh", ".arcsinh", ".arcsinh_"]),
    float("acosh").also(&["torch.arccosh", ".arccosh", ".arccosh_"]),
    float("atanh").also(&["torch.arctanh", ".arctanh", ".arctanh_"]),
    float("sigmoid").also(&["torch._C._special.special_expit"]),
    float("erf").also(&["torch._C._special.special_erf"]),
    float("erfc").also(&["torch._C._special.special_erfc"]),
    float("erfinv").also(&["torch._C._special.special_erfinv"]),
    float("lgamma").also(&["torch._C._special.special_gammaln"]),
    float("digamma").also(&["torch._C._special.special_digamma"]),
    float("sinc").also(&["torch._C._special.special_sinc"]),
    OpDef::new("deg2rad", UNARY, float_like, ALL),
    OpDef::new("rad2deg", UNARY, float_like, ALL),
    OpDef::new("logit", "input:T, eps:N=None, *, out:T=None", float_unary, ALL),
    OpDef::new("nan_to_num", "input:T, nan:N=None, posinf:N=None, neginf:N=None, *, out:T=None", same_type_like, ALL),
];

/// The promoted type of both operands.
pub(super) fn arithmetic(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    let dtype = over.dtype()?;
    if dtype == DType::Bool && no_bools(call.canon.op.name) {
        return Err(InferError::NoRule);
    }
    if call.bound.value("alpha").is_some() {
        let alpha = call.bound.constant("alpha").cloned().map(OpArg::Const).and_then(|a| a.seen_number());
        if alpha.ok_or(InferError::NoRule)? > category(dtype).max(Category::Integer) {
            return invalid("For integral input tensors, argument alpha must not be a floating point number.");
        }
    }
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    let checks = !dtype.is_float() && matches!(call.canon.op.name, "floor_divide" | "remainder" | "fmod" | "div");
    Ok(Inferred { checks, ..call.finish(result, "input")? })
}

/// Ops without a kernel for bools.
fn no_bools(name: &str) -> bool {
    matches!(
        name,
        "remainder" | "fmod" | "floor_divide" | "div" | "gcd" | "lcm" | "bitwise_left_shift" | "bitwise_right_shift"
    )
}

/// As [`arithmetic`], for ops that have no kernel for ints.
fn floats_only(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    if !over.dtype()?.is_float() {
        return Err(InferError::NoRule);
    }
    arithmetic(call)
}

/// As [`arithmetic`], refusing bools as torch does.
fn subtraction(call: &mut Call) -> Answer {
    let bool_tensor = |name| call.maybe_tensor_or_number(name).is_some_and(|t| t.dtype == DType::Bool);
    let bool_number = |name| matches!(call.bound.constant(name), Some(Const::Bool(_)));
    if bool_tensor("input") || bool_tensor("other") || bool_number("input") || bool_number("other") {
        return Err(InferError::NoRule);
    }
    if call.canon.op.name != "rsub" {
        return arithmetic(call);
    }
    // The minuend comes first.
    let over = call.operands(&["other", "input"])?;
    let dtype = over.dtype()?;
    if matches!(call.bound.constant("alpha"), Some(Const::Float(_))) && category(dtype) <= Category::Integer {
        return Err(InferError::NoRule);
    }
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

fn float_arithmetic(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    let dtype = floated(call, over.dtype()?)?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

/// The dtype itself, or the default dtype for ints and bools.
pub(crate) fn floated(call: &Call, dtype: DType) -> Result<DType, InferError> {
    if dtype.is_float() || dtype.is_complex() { Ok(dtype) } else { call.default_dtype() }
}

fn division(call: &mut Call) -> Answer {
    match call.bound.constant("rounding_mode") {
        Some(Const::Str(mode)) if matches!(&**mode, "trunc" | "floor") => arithmetic(call),
        Some(Const::None) if call.canon.operator && call.maybe_tensor_or_number("input").is_none() => reciprocal(call),
        Some(Const::None) if call.canon.reflected => reciprocal(call),
        Some(Const::None) => float_arithmetic(call),
        _ => Err(InferError::NoRule),
    }
}

/// `number / x` is `x.reciprocal() * number`.
fn reciprocal(call: &mut Call) -> Answer {
    let divisor = call.operands(&["other"])?;
    let dtype = floated(call, divisor.dtype()?)?;
    let inverse = call.pointwise(&divisor, dtype, Some(dtype))?;
    let mut over = Pointwise::default();
    over.add(&inverse);
    call.pointwise_arg(call.bound.arg("input").ok_or(InferError::NoRule)?, &mut over)?;
    let dtype = over.dtype()?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    Ok(Inferred::tensor(result))
}

/// `base ** exponent`. With a number as exponent the layout is that of a unary op; with a number as base the result is
/// contiguous.
fn power(call: &mut Call) -> Answer {
    let mut over = call.operands(&["input", "exponent"])?;
    let dtype = over.dtype()?;
    if dtype == DType::Bool {
        return Err(InferError::NoRule);
    }
    let number = |name: &str| match call.bound.value(name) {
        Some(Value::Arg(arg)) => arg.seen_number().is_some(),
        _ => false,
    };
    if number("input") {
        let exponent = call.tensor("exponent")?;
        let result = call.contiguous(exponent, dtype, exponent.sizes.clone());
        return call.finish(result, "exponent");
    }
    if number("exponent") {
        if matches!(call.bound.arg("exponent"), Some(OpArg::Const(Const::Int(i))) if *i < 0) && !dtype.is_float() {
            return invalid("Integers to negative integer powers are not allowed.");
        }
        over.forget_numbers();
    }
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

fn comparison(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    let computed = over.dtype()?;
    let result = call.pointwise(&over, DType::Bool, Some(computed))?;
    call.finish(result, "input")
}

/// Operands keep their own types.
fn logical(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    let result = call.pointwise(&over, DType::Bool, None)?;
    call.finish(result, "input")
}

fn predicate(call: &mut Call) -> Answer {
    logical(call)
}

/// Constant for ints; for floats a comparison of the absolute value.
fn infinite(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if category(input.dtype) <= Category::Integer {
        return like_input(call, DType::Bool);
    }
    let over = call.operands(&["input"])?;
    let magnitude = call.pointwise(&over, DType::Bool, None)?;
    let mut over = Pointwise::default();
    over.add(&magnitude);
    call.pointwise_arg(&OpArg::Const(Const::Float(f64::INFINITY)), &mut over)?;
    let mut result = call.pointwise(&over, DType::Bool, None)?;
    if call.canon.op.name == "isfinite" {
        // Also not a NaN: the product of both comparisons.
        let input = call.tensor("input")?;
        let mut same = Pointwise::default();
        same.add(input);
        same.add(input);
        let equal = call.pointwise(&same, DType::Bool, None)?;
        let mut both = Pointwise::default();
        both.add(&equal);
        both.add(&result);
        result = call.pointwise(&both, DType::Bool, None)?;
    }
    Ok(Inferred::tensor(result))
}

/// The layout that `empty_like` gives.
pub(super) fn like_input(call: &mut Call, dtype: DType) -> Answer {
    let input = call.tensor("input")?;
    let strides = crate::layout::preserved(&mut call.env, input);
    let result = call.strided_result(dtype, input.device, input.sizes.clone(), strides);
    call.finish(result, "input")
}

/// As [`same_type`], into what `empty_like` makes.
fn same_type_like(call: &mut Call) -> Answer {
    let dtype = call.tensor("input")?.dtype;
    like_input(call, dtype)
}

/// As [`float_unary`], into what `empty_like` makes.
fn float_like(call: &mut Call) -> Answer {
    let dtype = call.tensor("input")?.dtype;
    let dtype = floated(call, dtype)?;
    like_input(call, dtype)
}

fn bitwise(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    if category(over.dtype()?) > Category::Integer {
        // There are kernels of shifts alone; a fake tensor would not know.
        let shift = call.canon.op.name.ends_with("_shift");
        return Err(if shift { InferError::NoRule } else { InferError::Invalid("not implemented for floats".into()) });
    }
    arithmetic(call)
}

fn bitwise_not(call: &mut Call) -> Answer {
    if category(call.tensor("input")?.dtype) > Category::Integer {
        return Err(InferError::Invalid("not implemented for floats".into()));
    }
    same_type(call)
}

/// One operand, its own type.
pub(super) fn same_type(call: &mut Call) -> Answer {
    let over = call.operands(&["input"])?;
    let dtype = over.dtype()?;
    if call.canon.op.name == "frac" && !dtype.is_float() {
        return Err(InferError::NoRule);
    }
    if dtype == DType::Bool
        && matches!(call.canon.op.name, "neg" | "relu" | "frac" | "round" | "floor" | "ceil" | "trunc")
    {
        return Err(InferError::NoRule);
    }
    let result = call.pointwise(&over, dtype, None)?;
    call.finish(result, "input")
}

pub(super) fn float_unary(call: &mut Call) -> Answer {
    let over = call.operands(&["input"])?;
    let dtype = floated(call, over.dtype()?)?;
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

/// Complex inputs give their float type.
fn absolute(call: &mut Call) -> Answer {
    let over = call.operands(&["input"])?;
    let dtype = over.dtype()?;
    if dtype == DType::Bool {
        return Err(InferError::NoRule);
    }
    let result = call.pointwise(&over, real_of(dtype), None)?;
    call.finish(result, "input")
}

fn square(call: &mut Call) -> Answer {
    if call.tensor("input")?.dtype == DType::Bool {
        return Err(InferError::NoRule);
    }
    same_type(call)
}

fn itself(call: &mut Call) -> Answer {
    if call.tensor("input")?.dtype == DType::Bool {
        return Err(InferError::NoRule);
    }
    call.same_object("input")
}
