//! Calls of pure built-in functions on constants, which a trace asks for. What depends on more than the arguments, a
//! program's own codecs or its limit of digits, is refused.

use crate::describe::answer::Refusal;
use crate::python::consts;
use crate::python::paths;
use crate::python::raw::Raw;
use flambeau_ir::code::Const;
use flambeau_ir::oracle::AnswerValue;
use flambeau_ir::reason::ReasonCode;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Built-ins that are pure on exact built-in immutable values. Methods of those types are pure too, bar the ones that
/// depend on the locale or on hash seeds.
const PURE: &[&str] = &[
    "abs",
    "all",
    "any",
    "ascii",
    "bin",
    "bool",
    "bytes",
    "chr",
    "complex",
    "divmod",
    "float",
    "format",
    "frozenset",
    "hash", // of what the seed's guard covers
    "hex",
    "int",
    "len",
    "max",
    "min",
    "oct",
    "ord",
    "pow",
    "range",
    "repr",
    "round",
    "sorted",
    "str",
    "sum",
    "tuple",
];
/// Switches that the ambient state's guard covers, functions of dtypes, and states of the process, each with a guard.
const STATES: &[&str] = &[
    "sys.getrecursionlimit",
    "flambeau._begun.hash_seed",
    "torch._C._get_cudnn_enabled",
    "torch._C._get_cudnn_benchmark",
    "torch._C._get_mkldnn_enabled",
    "torch._C._get_cudnn_deterministic",
    "torch._C._get_cudnn_allow_tf32",
    "torch._C._get_cublas_allow_tf32",
    "torch._C._get_flash_sdp_enabled",
    "torch._C._get_math_sdp_enabled",
    "torch._C._get_mem_efficient_sdp_enabled",
    "torch._C._get_cudnn_sdp_enabled",
    "torch._C._get_float32_matmul_precision",
    "torch.promote_types",
    "torch.can_cast",
];
const PURE_TYPES: &[&str] = &["int", "bool", "float", "complex", "str", "bytes", "tuple", "frozenset", "range"];

fn is_pure(path: &str) -> bool {
    if path.starts_with("math.") || path.starts_with("_operator.") || STATES.contains(&path) {
        return true;
    }
    let Some(rest) = path.strip_prefix("builtins.") else { return false };
    match rest.split_once('.') {
        None => PURE.contains(&rest),
        Some((class, method)) => PURE_TYPES.contains(&class) && method != "__hash__" && method != "__sizeof__",
    }
}

/// What `path` gives for `args`, or raises.
pub fn evaluate(py: Python<'_>, path: &str, args: &[Const]) -> Result<AnswerValue, Refusal> {
    if !is_pure(path) || asks_registry(path, args) {
        return Err((ReasonCode::UnsupportedCall, path.to_owned()));
    }
    let call = || -> PyResult<Py<PyAny>> {
        let args = args.iter().map(|a| consts::to_object(py, a)).collect::<PyResult<Vec<_>>>()?;
        Ok(paths::resolve(py, path)?.call1(PyTuple::new(py, args)?)?.unbind())
    };
    let many_digits = || Err((ReasonCode::UnsupportedCall, format!("{path} of an int of many digits")));
    match call() {
        Ok(value) => match consts::from_code_const(value.bind(py)) {
            Some(result) if meets_digit_limit(args, &result) => many_digits(),
            Some(result) => Ok(AnswerValue::Const(result)),
            None => Err((ReasonCode::UnsupportedCall, format!("{path} returned an object that is no constant"))),
        },
        Err(error) => {
            let class = error.get_type(py);
            let (Ok(module), Ok(name)) = (class.module(), class.name()) else {
                return Err((ReasonCode::UnsupportedCall, format!("{path}, which raises")));
            };
            // Other exceptions are more than a message.
            let args: PyResult<(String,)> = error.value(py).getattr("args").and_then(|args| args.extract());
            match args {
                Ok((message,)) if message.starts_with(DIGIT_LIMIT) => many_digits(),
                Ok((message,)) if module == "builtins" => Ok(AnswerValue::Raised(name.to_string(), message)),
                _ => Err((ReasonCode::UnsupportedCall, format!("{path}, which raises {module}.{name}"))),
            }
        }
    }
}

/// The elements of a set, in their order, after what made it was done again with these sets.
pub fn set_order(py: Python<'_>, made: &Const, sets: &[Raw]) -> Result<AnswerValue, Refusal> {
    let order = || -> PyResult<Option<Const>> {
        // SAFETY: live objects.
        let sets = sets.iter().map(|set| unsafe { Bound::from_borrowed_ptr(py, *set) });
        let args = (consts::to_object(py, made)?, PyTuple::new(py, sets.collect::<Vec<_>>())?);
        let order = py.import("flambeau._begun")?.call_method1("set_order", args)?;
        Ok(consts::from_code_const(&order))
    };
    match order() {
        Ok(Some(order)) => Ok(AnswerValue::Const(order)),
        _ => Err((ReasonCode::UnguardableObject, "the order of a set's elements".into())),
    }
}

/// The codecs and error handlers that CPython does not look up in the registry, to which programs add theirs.
const CODECS: &[&str] =
    &["utf-8", "utf8", "utf-16", "utf-32", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "iso8859-1"];
const HANDLERS: &[&str] =
    &["strict", "ignore", "replace", "backslashreplace", "surrogateescape", "surrogatepass", "xmlcharrefreplace"];

/// Whether the codec or the error handler is one that the registry of codecs gives.
fn asks_registry(path: &str, args: &[Const]) -> bool {
    let encodes = matches!(path, "builtins.str.encode" | "builtins.bytes.decode" | "builtins.str" | "builtins.bytes");
    let is_among = |at: usize, known: &[&str]| match args.get(at) {
        Some(Const::Str(name)) => known.contains(&name.to_ascii_lowercase().replace('_', "-").as_str()),
        _ => true,
    };
    encodes && !(is_among(1, CODECS) && is_among(2, HANDLERS))
}

/// How many digits an int may always have in text; how many more, the program sets (`sys.set_int_max_str_digits`).
const DIGITS: usize = 640;
/// How CPython says that there are too many.
const DIGIT_LIMIT: &str = "Exceeds the limit";

/// Whether an int with so many digits that the limit may matter became text, or the other way round.
fn meets_digit_limit(args: &[Const], result: &Const) -> bool {
    let mut texts = args.iter().chain([result]).filter(|value| matches!(value, Const::Str(_) | Const::Bytes(_)));
    texts.next().is_some() && args.iter().chain([result]).any(is_long_int)
}

fn is_long_int(value: &Const) -> bool {
    match value {
        // Some 2.4 digits a byte.
        Const::BigInt(bytes) => bytes.len() * 12 / 5 >= DIGITS,
        Const::Tuple(items) | Const::FrozenSet(items) => items.iter().any(is_long_int),
        _ => false,
    }
}
