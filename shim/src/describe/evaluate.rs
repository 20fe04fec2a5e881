//! Calls of pure built-in functions on constants, which a trace asks for. What depends on more than the arguments, a
//! program's own codecs or its limit of digits, is refused.

use crate::describe::answer::Refusal;
use crate::python::consts;
use crate::python::raw::Raw;
use crate::python::{paths, pure};
use flambeau_ir::code::Const;
use flambeau_ir::oracle::{AnswerValue, Plain};
use flambeau_ir::reason::ReasonCode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;

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
    "sys.exception",
    "sys.getrecursionlimit",
    "flambeau._autocast.depth",
    "flambeau._autocast.kernels",
    "flambeau._training.trains_together",
    "flambeau._begun.hash_seed",
    "torch._C._autograd._profiler_enabled",
    "torch._C._get_privateuse1_backend_name",
    "torch._C._cuda_getDeviceCount",
    "torch._C._accelerator_getAccelerator",
    "torch._C._get_cpu_capability",
    "torch._C._get_autograd_fallback_mode",
    "torch.is_warn_always_enabled",
    "torch.get_num_threads",
    "torch.get_num_interop_threads",
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

/// Modules of C all of whose functions are pure on constants, and functions of others.
const PURE_MODULES: &[&str] = &["math", "cmath", "_operator", "binascii", "unicodedata"];
const PURE_FUNCTIONS: &[&str] = &[
    "_struct.calcsize",
    "_struct.pack",
    "_struct.unpack",
    "sys.intern",
    "zlib.adler32",
    "zlib.crc32",
    "_pickle.dumps",
];

/// Whether it leaves the lists and dicts alone that it is given.
fn takes_containers(path: &str) -> bool {
    path == "_pickle.dumps"
        || path.starts_with("math.")
        || path.starts_with("numpy.")
        || path.strip_prefix("builtins.").is_some_and(|rest| rest.contains('.'))
}

/// Methods of the immutable types that depend on more than their arguments: the clock, the time zone, the locale, the seed
/// of hashes.
const IMPURE_METHODS: &[&str] = &[
    "__format__",
    "__hash__",
    "__reduce__",
    "__reduce_ex__",
    "astimezone",
    "fromtimestamp",
    "now",
    "strftime",
    "strptime",
    "timestamp",
    "today",
    "utcfromtimestamp",
    "utcnow",
];

/// What makes immutable objects of C, and what is asked of them.
fn is_of_pure_type(path: &str) -> bool {
    let of_type = ["re.Pattern.", "re.Match.", "datetime."].iter().any(|prefix| path.starts_with(prefix));
    let method = path.rsplit('.').next().unwrap_or(path);
    path == "flambeau._pure.pattern"
        || path == "flambeau._pure.attribute"
        || of_type && !IMPURE_METHODS.contains(&method)
}

/// Functions of NumPy that make numbers of numbers.
const OF_NUMPY: &[&str] = &[
    "abs",
    "absolute",
    "add",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "bool",
    "bool_",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "cumprod",
    "deg2rad",
    "divide",
    "exp",
    "exp2",
    "expm1",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "fmod",
    "hypot",
    "int32",
    "int64",
    "log",
    "log10",
    "log1p",
    "log2",
    "maximum",
    "mean",
    "minimum",
    "multiply",
    "negative",
    "power",
    "prod",
    "rad2deg",
    "rint",
    "round",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "std",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "var",
];

fn is_pure(path: &str) -> bool {
    let in_module = path.split_once('.').is_some_and(|(module, _)| PURE_MODULES.contains(&module));
    if path.strip_prefix("numpy.").is_some_and(|name| OF_NUMPY.contains(&name)) {
        return true;
    }
    if in_module || PURE_FUNCTIONS.contains(&path) || STATES.contains(&path) || is_of_pure_type(path) {
        return true;
    }
    let Some(rest) = path.strip_prefix("builtins.") else { return false };
    match rest.split_once('.') {
        None => PURE.contains(&rest),
        Some((class, method)) => PURE_TYPES.contains(&class) && method != "__hash__" && method != "__sizeof__",
    }
}

/// What `path` gives for `args`, the last of which have `names`, or raises.
pub fn evaluate(py: Python<'_>, path: &str, args: &[Plain], names: &[Arc<str>]) -> Result<AnswerValue, Refusal> {
    let consts: Vec<Const> = args.iter().filter_map(Plain::as_const).cloned().collect();
    let is_object = |arg: &Plain| matches!(arg, Plain::Object(..));
    let takes = takes_containers(path) || args.iter().all(|arg| arg.as_const().is_some() || is_object(arg));
    let numpy = path.starts_with("numpy.") || args.iter().any(is_of_numpy);
    // Formats of dates ask the locale.
    let format = path == "builtins.format" && !numpy && args.get(1) != Some(&Plain::Const(Const::str("")));
    let by_seed = (path == "builtins.hash" || format) && args.iter().any(is_object);
    if !is_pure(path)
        || !takes
        || by_seed
        || numpy && !names.is_empty()
        || names.len() > args.len()
        || asks_registry(path, args, names)
    {
        return Err((ReasonCode::UnsupportedCall, path.to_owned()));
    }
    // A pickle refers back to what comes twice as one object, which equal strings may be.
    if path == "_pickle.dumps" && args.iter().map(texts_in).sum::<usize>() > 1 {
        return Err((ReasonCode::UnsupportedCall, format!("{path} of several strings")));
    }
    let made = args.iter().map(|arg| to_object(py, arg)).collect::<PyResult<Vec<_>>>();
    let made =
        made.map_err(|error| (ReasonCode::UnsupportedCall, format!("{path}, whose arguments are none: {error}")))?;
    let function = paths::resolve(py, path).map_err(|_| (ReasonCode::UnsupportedCall, path.to_owned()))?;
    let call = || -> PyResult<Py<PyAny>> {
        let (positional, named) = made.split_at(made.len() - names.len());
        let keywords = PyDict::new(py);
        names.iter().zip(named).try_for_each(|(name, value)| keywords.set_item(&**name, value))?;
        let keywords = (!names.is_empty()).then_some(&keywords);
        let positional = PyTuple::new(py, positional)?;
        if numpy {
            return Ok(py.import("flambeau._pure")?.call_method1("of_numpy", (function, positional))?.unbind());
        }
        Ok(function.call(positional, keywords)?.unbind())
    };
    let many_digits = || Err((ReasonCode::UnsupportedCall, format!("{path} of an int of many digits")));
    match call() {
        Ok(value) => match consts::from_code_const(value.bind(py)) {
            Some(result) if meets_digit_limit(&consts, &result) => many_digits(),
            Some(result) => Ok(AnswerValue::Const(result)),
            None => match object_of(value.bind(py), path, args, names).or_else(|| plain(value.bind(py), &mut 0)) {
                Some(made) => Ok(AnswerValue::Made(made)),
                None => Err((ReasonCode::UnsupportedCall, format!("{path} returned an object that is no constant"))),
            },
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
                _ if module == "flambeau._pure" => {
                    Err((ReasonCode::UnsupportedCall, format!("{path}, which warns or raises")))
                }
                _ => Err((ReasonCode::UnsupportedCall, format!("{path}, which raises {module}.{name}"))),
            }
        }
    }
}

fn is_of_numpy(value: &Plain) -> bool {
    match value {
        Plain::Object(of, ..) => of.starts_with("numpy."),
        Plain::Tuple(items) | Plain::List(items) => items.iter().any(is_of_numpy),
        Plain::Dict(items) => items.iter().any(|(_, value)| is_of_numpy(value)),
        Plain::Const(_) => false,
    }
}

/// An immutable object of C that a call gave, by what makes an equal one: constants, or else that call.
fn object_of(object: &Bound<'_, PyAny>, path: &str, args: &[Plain], names: &[Arc<str>]) -> Option<Plain> {
    // SAFETY: a live object.
    let of = unsafe { pure::type_of(object.py(), object.as_ptr()) }?;
    match pure::made_of(object) {
        Some((maker, args)) => Some(Plain::Object(of.into(), maker, args.into_iter().map(Plain::Const).collect())),
        None => names.is_empty().then(|| Plain::Object(of.into(), path.into(), args.to_vec())),
    }
}

fn to_object(py: Python<'_>, value: &Plain) -> PyResult<Py<PyAny>> {
    let all = |items: &[Plain]| items.iter().map(|item| to_object(py, item)).collect::<PyResult<Vec<_>>>();
    Ok(match value {
        Plain::Const(value) => consts::to_object(py, value)?.unbind(),
        Plain::Object(_, path, args) => {
            if !is_pure(path) {
                return Err(PyValueError::new_err(format!("{path} makes no immutable object")));
            }
            paths::resolve(py, path)?.call1(PyTuple::new(py, all(args)?)?)?.unbind()
        }
        Plain::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any().unbind(),
        Plain::List(items) => PyList::new(py, all(items)?)?.into_any().unbind(),
        Plain::Dict(items) => {
            let dict = PyDict::new(py);
            for (key, value) in items {
                dict.set_item(consts::to_object(py, key)?, to_object(py, value)?)?;
            }
            dict.into_any().unbind()
        }
    })
}

/// Values in one result.
const MOST_VALUES: usize = 10_000;

/// A new object as what it holds; `None` for what is not of exact built-in types, or too large.
fn plain(object: &Bound<'_, PyAny>, seen: &mut usize) -> Option<Plain> {
    flambeau_ir::bounds::check();
    *seen += 1;
    if *seen > MOST_VALUES {
        return None;
    }
    if let Some(value) = consts::from_code_const(object) {
        return Some(Plain::Const(value));
    }
    if let Ok(list) = object.cast_exact::<PyList>() {
        return list.iter().map(|item| plain(&item, seen)).collect::<Option<_>>().map(Plain::List);
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        return tuple.iter().map(|item| plain(&item, seen)).collect::<Option<_>>().map(Plain::Tuple);
    }
    let dict = object.cast_exact::<PyDict>().ok()?;
    let pairs = dict.iter().map(|(key, value)| Some((consts::from_code_const(&key)?, plain(&value, seen)?)));
    pairs.collect::<Option<_>>().map(Plain::Dict)
}

/// Strings and other constants that a program may have twice as one object.
fn texts_in(value: &Plain) -> usize {
    match value {
        Plain::Const(Const::Tuple(items) | Const::FrozenSet(items)) => items.len() + 1,
        Plain::Const(Const::None | Const::Bool(_) | Const::Int(_) | Const::Float(_)) => 0,
        Plain::Const(_) => 1,
        Plain::Object(..) => 2,
        Plain::Tuple(items) | Plain::List(items) => items.iter().map(texts_in).sum(),
        Plain::Dict(items) => {
            items.iter().map(|(key, value)| texts_in(&Plain::Const(key.clone())) + texts_in(value)).sum()
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
fn asks_registry(path: &str, args: &[Plain], names: &[Arc<str>]) -> bool {
    let encodes = matches!(path, "builtins.str.encode" | "builtins.bytes.decode" | "builtins.str" | "builtins.bytes");
    let positional = args.len().saturating_sub(names.len());
    let given = |at: usize, word: &str| {
        let named = names.iter().position(|name| **name == *word).map(|name| positional + name);
        named.or((at < positional).then_some(at)).and_then(|at| args.get(at)).and_then(Plain::as_const)
    };
    let is_among = |given: Option<&Const>, known: &[&str]| match given {
        Some(Const::Str(name)) => known.contains(&name.to_ascii_lowercase().replace('_', "-").as_str()),
        _ => true,
    };
    encodes && !(is_among(given(1, "encoding"), CODECS) && is_among(given(2, "errors"), HANDLERS))
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
