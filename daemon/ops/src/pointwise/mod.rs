//! Pointwise ops: one element out per element of the broadcast inputs. Python numbers take part as 0-dim tensors.

mod activation;
pub(crate) mod decompose;
pub(crate) mod decompose_activation;
mod decompose_special;
mod select;

use crate::call::{Answer, Call, Pointwise, invalid};
use crate::promote::{Category, category, real_of};
use crate::registry::{
    Mark::{KeepsNumbers, NoBools},
    OpDef, Saved,
    place::*,
};
use crate::signature::Value;
use crate::{InferError, Inferred, OpArg};
use flambeau_ir::code::Const;
use flambeau_ir::kernel::{Binary, DType, Unary};

use activation::float_only;
use decompose_special as special;

pub(crate) use activation::OPS as ACTIVATIONS;
pub(crate) use select::OPS as SELECT;

const UNARY: &str = "input:T, *, out:T=None";
const BINARY: &str = "input:TN, other:TN, *, out:T=None";
const TENSORS: &str = "input:T, other:T, *, out:T=None";
const TENSOR_FIRST: &str = "input:T, other:TN, *, out:T=None";
const SCALED: &str = "input:TN, other:TN, *, alpha:TN=1, out:T=None";

/// One operand, computed in a float type: ints and bools become the default dtype.
const fn float(name: &'static str) -> OpDef {
    OpDef::new(name, UNARY, float_unary, ALL)
}

/// One number, its own type.
const fn unary(name: &'static str) -> OpDef {
    OpDef::new(name, UNARY, no_bool, ALL)
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
    OpDef::new("add", SCALED, arithmetic, ALL)
        .derives(|cx| decompose::scaled(cx, Binary::Add, false))
        .commutative("add")
        .saves(Saved::Nothing),
    OpDef::new("sub", SCALED, arithmetic, ALL)
        .is(NoBools)
        .derives(|cx| decompose::scaled(cx, Binary::Sub, false))
        .also(&["subtract"])
        .binary("sub")
        .saves(Saved::Nothing),
    OpDef::new("rsub", "input:T, other:TN, *, alpha:TN=1", reflected_subtraction, FN)
        .is(NoBools)
        .derives(|cx| decompose::scaled(cx, Binary::Sub, true))
        .saves(Saved::Nothing),
    binary("mul").derives(decompose::mul).also(&["multiply"]).commutative("mul").is(KeepsNumbers).saves(Saved::Factors),
    OpDef::new("div", "input:TN, other:TN, *, rounding_mode:S=None, out:T=None", division, ALL)
        .derives(decompose::div)
        .also(&["divide", "true_divide"])
        .binary("truediv")
        .is(KeepsNumbers)
        .saves(Saved::Factors),
    OpDef::new("floor_divide", BINARY, whole_division, ALL)
        .lowers(|cx| decompose::whole_division(cx, Binary::FloorDiv))
        .binary("floordiv"),
    OpDef::new("remainder", BINARY, whole_division, ALL)
        .lowers(|cx| decompose::whole_division(cx, Binary::Rem))
        .binary("mod"),
    OpDef::new("fmod", TENSOR_FIRST, whole_division, ALL).lowers(|cx| decompose::whole_division(cx, Binary::Fmod)),
    OpDef::new(
        "pow",
        "input:T, exponent:T, *, out:T=None | input:T, exponent:N, *, out:T=None | input:N, exponent:T, *, out:T=None",
        power,
        ALL,
    )
    .derives(decompose::pow)
    .binary("pow")
    .is(KeepsNumbers),
    OpDef::new("maximum", TENSORS, arithmetic, BOTH).derives(|cx| decompose::binary(cx, Binary::Max)),
    OpDef::new("minimum", TENSORS, arithmetic, BOTH).derives(|cx| decompose::binary(cx, Binary::Min)),
    OpDef::new("fmax", TENSORS, arithmetic, BOTH).lowers(|cx| special::beside_nan(cx, Binary::Max)),
    OpDef::new("fmin", TENSORS, arithmetic, BOTH).lowers(|cx| special::beside_nan(cx, Binary::Min)),
    OpDef::new("atan2", TENSORS, float_arithmetic, ALL)
        .derives(|cx| decompose::binary(cx, Binary::Atan2))
        .also(&["arctan2"]),
    OpDef::new("copysign", TENSOR_FIRST, float_arithmetic, ALL),
    OpDef::new("xlogy", BINARY, float_arithmetic, ALL)
        .paths(&["torch._C._special.special_xlogy"])
        .lowers(special::xlogy),
    OpDef::new("hypot", TENSORS, floats_only, ALL).lowers(special::hypot),
    OpDef::new("logaddexp", TENSORS, floats_only, BOTH).lowers(special::logaddexp),
    OpDef::new("logaddexp2", TENSORS, floats_only, BOTH),
    OpDef::new("nextafter", TENSORS, floats_only, ALL),
    OpDef::new("gcd", TENSORS, divisors, ALL),
    OpDef::new("lcm", TENSORS, divisors, ALL),
    bits("bitwise_and").lowers(|cx| decompose::bits(cx, Binary::And)).binary("and_"),
    bits("bitwise_or").lowers(|cx| decompose::bits(cx, Binary::Or)).binary("or_"),
    bits("bitwise_xor").lowers(|cx| decompose::bits(cx, Binary::Xor)).binary("xor"),
    OpDef::new("bitwise_left_shift", BINARY, shift, ALL).binary("lshift"),
    OpDef::new("bitwise_right_shift", BINARY, shift, ALL).binary("rshift"),
    OpDef::new("bitwise_not", UNARY, bitwise_not, ALL).lowers(decompose::bitwise_not).operator("invert"),
    compare("eq").lowers(|cx| decompose::compare(cx, Binary::Eq)).comparison("eq"),
    compare("ne").lowers(|cx| decompose::compare(cx, Binary::Ne)).also(&["not_equal"]).comparison("ne"),
    compare("lt").lowers(|cx| decompose::compare(cx, Binary::Lt)).also(&["less"]).comparison("lt"),
    compare("le").lowers(|cx| decompose::compare(cx, Binary::Le)).also(&["less_equal"]).comparison("le"),
    compare("gt").lowers(|cx| decompose::compare(cx, Binary::Gt)).also(&["greater"]).comparison("gt"),
    compare("ge").lowers(|cx| decompose::compare(cx, Binary::Ge)).also(&["greater_equal"]).comparison("ge"),
    OpDef::new("logical_and", TENSORS, logical, ALL).lowers(|cx| decompose::logical(cx, Binary::And)),
    OpDef::new("logical_or", TENSORS, logical, ALL).lowers(|cx| decompose::logical(cx, Binary::Or)),
    OpDef::new("logical_xor", TENSORS, logical, ALL).lowers(|cx| decompose::logical(cx, Binary::Xor)),
    OpDef::new("logical_not", UNARY, logical, ALL).lowers(decompose::logical_not),
    test("isnan").lowers(|cx| decompose::test(cx, Unary::IsNan)),
    OpDef::new("isinf", "input:T", isinf, BOTH).lowers(|cx| decompose::test(cx, Unary::IsInf)),
    OpDef::new("isfinite", "input:T", isfinite, BOTH).lowers(decompose::isfinite),
    test("isposinf").lowers(|cx| special::is_infinity(cx, 1.0)),
    test("isneginf").lowers(|cx| special::is_infinity(cx, -1.0)),
    test("signbit"),
    unary("neg")
        .derives(|cx| decompose::unary(cx, Unary::Neg))
        .also(&["negative"])
        .operator("neg")
        .saves(Saved::Nothing),
    OpDef::new("positive", "input:T", itself, BOTH).derives(decompose::same).operator("pos"),
    OpDef::new("abs", UNARY, absolute, ALL)
        .derives(|cx| decompose::unary(cx, Unary::Abs))
        .also(&["absolute"])
        .operator("abs")
        .saves(Saved::Arguments),
    OpDef::new("sign", UNARY, same_type, ALL).derives(|cx| decompose::unary(cx, Unary::Sign)).saves(Saved::Nothing),
    OpDef::new("sgn", UNARY, same_type, ALL).derives(|cx| decompose::unary(cx, Unary::Sign)),
    OpDef::new("floor", UNARY, same_type, ALL)
        .is(NoBools)
        .derives(|cx| decompose::rounding(cx, Unary::Floor))
        .saves(Saved::Nothing),
    OpDef::new("ceil", UNARY, same_type, ALL)
        .is(NoBools)
        .derives(|cx| decompose::rounding(cx, Unary::Ceil))
        .saves(Saved::Nothing),
    OpDef::new("trunc", UNARY, same_type, ALL)
        .is(NoBools)
        .derives(|cx| decompose::rounding(cx, Unary::Trunc))
        .also(&["fix"])
        .saves(Saved::Nothing),
    OpDef::new("frac", UNARY, float_only, ALL).lowers(special::frac),
    OpDef::new("round", "input:T, *, decimals:I=0, out:T=None", same_type, ALL)
        .is(NoBools)
        .derives(decompose::round)
        .saves(Saved::Nothing),
    unary("square").derives(decompose::square).saves(Saved::Arguments),
    float("exp").derives(|cx| decompose::unary(cx, Unary::Exp)),
    float("exp2").derives(|cx| decompose::unary(cx, Unary::Exp2)).paths(&["torch._C._special.special_exp2"]),
    float("expm1").derives(|cx| decompose::unary(cx, Unary::Expm1)).paths(&["torch._C._special.special_expm1"]),
    float("log").derives(|cx| decompose::unary(cx, Unary::Log)).saves(Saved::Arguments),
    float("log2").derives(|cx| decompose::unary(cx, Unary::Log2)),
    float("log10").derives(|cx| decompose::unary(cx, Unary::Log10)),
    float("log1p").derives(|cx| decompose::unary(cx, Unary::Log1p)).paths(&["torch._C._special.special_log1p"]),
    float("sqrt").derives(|cx| decompose::unary(cx, Unary::Sqrt)),
    float("rsqrt").derives(|cx| decompose::unary(cx, Unary::Rsqrt)),
    float("reciprocal").derives(|cx| decompose::unary(cx, Unary::Reciprocal)),
    float("sin").derives(|cx| decompose::unary(cx, Unary::Sin)).saves(Saved::Arguments),
    float("cos").derives(|cx| decompose::unary(cx, Unary::Cos)).saves(Saved::Arguments),
    float("tan").derives(|cx| decompose::unary(cx, Unary::Tan)),
    float("asin").derives(|cx| decompose::unary(cx, Unary::Asin)).also(&["arcsin"]),
    float("acos").derives(|cx| decompose::unary(cx, Unary::Acos)).also(&["arccos"]),
    float("atan").derives(|cx| decompose::unary(cx, Unary::Atan)).also(&["arctan"]),
    float("sinh").derives(|cx| decompose::unary(cx, Unary::Sinh)),
    float("cosh").derives(|cx| decompose::unary(cx, Unary::Cosh)),
    float("tanh").derives(|cx| decompose::unary(cx, Unary::Tanh)),
    float("asinh").derives(|cx| decompose::unary(cx, Unary::Asinh)).also(&["arcsinh"]),
    float("acosh").derives(|cx| decompose::unary(cx, Unary::Acosh)).also(&["arccosh"]),
    float("atanh").derives(|cx| decompose::unary(cx, Unary::Atanh)).also(&["arctanh"]),
    float("sigmoid").derives(|cx| decompose::unary(cx, Unary::Sigmoid)).paths(&["torch._C._special.special_expit"]),
    float("erf").derives(|cx| decompose::unary(cx, Unary::Erf)).paths(&["torch._C._special.special_erf"]),
    float("erfc").derives(|cx| decompose::unary(cx, Unary::Erfc)).paths(&["torch._C._special.special_erfc"]),
    float("erfinv").paths(&["torch._C._special.special_erfinv"]),
    float("lgamma").paths(&["torch._C._special.special_gammaln"]),
    float("digamma").paths(&["torch._C._special.special_digamma"]),
    float("sinc").paths(&["torch._C._special.special_sinc"]).lowers(special::sinc),
    OpDef::new("deg2rad", UNARY, float_like, ALL).derives(|cx| decompose::scaled_by(cx, std::f64::consts::PI / 180.0)),
    OpDef::new("rad2deg", UNARY, float_like, ALL).derives(|cx| decompose::scaled_by(cx, 180.0 / std::f64::consts::PI)),
    OpDef::told("heaviside", "input:T, values:T, *, out:T=None", ALL).lowers(special::heaviside),
    OpDef::told("special_entr", "input:T, *, out:T=None", FN)
        .paths(&["torch._C._special.special_entr"])
        .lowers(special::entropy),
    OpDef::told("diff", "input:T, n:I=1, dim:I=-1, prepend:T=None, append:T=None", BOTH).derives(special::difference),
    OpDef::new("logit", "input:T, eps:N=None, *, out:T=None", float_unary, ALL).lowers(special::logit),
    OpDef::new("nan_to_num", "input:T, nan:N=None, posinf:N=None, neginf:N=None, *, out:T=None", same_type_like, ALL)
        .lowers(special::nan_to_num),
];

/// The promoted type of both operands.
pub(super) fn arithmetic(call: &mut Call) -> Answer {
    let over = call.operands(&["input", "other"])?;
    let dtype = over.dtype()?;
    if call.bound.value("alpha").is_some() && call.factor("alpha")? > category(dtype).max(Category::Integer) {
        return invalid("For integral input tensors, argument alpha must not be a floating point number.");
    }
    let result = call.pointwise(&over, dtype, Some(dtype))?;
    call.finish(result, "input")
}

/// The type that the operands of a binary op have in common.
fn common_type(call: &Call) -> Result<DType, InferError> {
    call.operands(&["input", "other"])?.dtype()
}

/// As [`arithmetic`], for ops that have no kernel for bools.
fn no_bools(call: &mut Call) -> Answer {
    if common_type(call)? == DType::Bool {
        return Err(InferError::NoRule);
    }
    arithmetic(call)
}

/// Quotients and remainders: a divisor that is no float may be zero, also where it is a number that the type cuts off.
fn whole_division(call: &mut Call) -> Answer {
    let dtype = common_type(call)?;
    let checks = match call.bound.constant("other") {
        _ if dtype.is_float() => false,
        Some(Const::Int(divisor)) => divisor.trailing_zeros() as usize >= 8 * dtype.size(),
        _ => true,
    };
    Ok(Inferred { checks, ..no_bools(call)? })
}

/// As [`arithmetic`], for ops that have no kernel for ints.
fn floats_only(call: &mut Call) -> Answer {
    if !common_type(call)?.is_float() {
        return Err(InferError::NoRule);
    }
    arithmetic(call)
}

/// `other - alpha * input`: the minuend comes first.
fn reflected_subtraction(call: &mut Call) -> Answer {
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
        Some(Const::Str(mode)) if matches!(&**mode, "trunc" | "floor") => whole_division(call),
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
        // Fake tensors have another result.
        return Err(InferError::Unknown("a power of bools".into()));
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
fn isinf(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    if category(input.dtype) <= Category::Integer {
        return like_input(call, DType::Bool);
    }
    let over = call.operands(&["input"])?;
    let magnitude = call.pointwise(&over, DType::Bool, None)?;
    let mut over = Pointwise::default();
    over.add(&magnitude);
    call.pointwise_arg(&OpArg::Const(Const::Float(f64::INFINITY)), &mut over)?;
    let result = call.pointwise(&over, DType::Bool, None)?;
    Ok(Inferred::tensor(result))
}

/// As [`isinf`], and not a NaN: the product of two comparisons.
fn isfinite(call: &mut Call) -> Answer {
    let input = call.tensor("input")?;
    let small = isinf(call)?;
    if category(input.dtype) <= Category::Integer {
        return Ok(small);
    }
    let mut same = Pointwise::default();
    same.add(input);
    same.add(input);
    let mut both = Pointwise::default();
    both.add(&call.pointwise(&same, DType::Bool, None)?);
    both.add(small.meta.as_tensor().ok_or(InferError::NoRule)?);
    Ok(Inferred::tensor(call.pointwise(&both, DType::Bool, None)?))
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

fn no_floats(call: &Call) -> Result<(), InferError> {
    if category(common_type(call)?) > Category::Integer { invalid("not implemented for floats") } else { Ok(()) }
}

fn bitwise(call: &mut Call) -> Answer {
    no_floats(call)?;
    arithmetic(call)
}

fn divisors(call: &mut Call) -> Answer {
    no_floats(call)?;
    no_bools(call)
}

/// Fake tensors shift floats, for which torch has kernels on some devices alone.
fn shift(call: &mut Call) -> Answer {
    no_floats(call).map_err(|_| InferError::Unknown("a shift of floats".into()))?;
    no_bools(call)
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

/// As [`same_type`], for ops that have no kernel for bools.
fn no_bool(call: &mut Call) -> Answer {
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
