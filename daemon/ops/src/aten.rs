//! The aten overloads that a plan may call as they are, and which of them a call of the graph means. The list is
//! `aten.txt`, written by `tests/ops/gen_aten.py`; it has only overloads that make new tensors and do nothing else, and
//! those that torch composes of others, which may give their arguments back. The schema of an overload that is not in the
//! list comes with the call ([`Overload::of_schema`]).

use crate::signature::{Argument, Seen};
use flambeau_ir::code::Const;
use flambeau_ir::graph::Arg;
use flambeau_ir::kernel::DType;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// One overload.
#[derive(Debug)]
pub struct Overload {
    /// e.g. `aten::pow`.
    pub op: String,
    /// e.g. `Tensor_Scalar`.
    pub overload: String,
    /// The overload that writes into given tensors, if there is one.
    pub out: Option<String>,
    /// Number of results; `None`: a list of as many as the arguments say.
    pub results: Option<usize>,
    /// Draws random numbers.
    pub rng: bool,
    /// Torch composes it of other ops: it may give its argument, or a view of it.
    pub composed: bool,
    params: Vec<Param>,
}

#[derive(Debug)]
struct Param {
    name: String,
    kind: Kind,
    optional: bool,
    by_name: bool,
    default: Option<Const>,
    /// Has a default, be it one that is not read here.
    may_be_left_out: bool,
}

/// Types of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tensor,
    Tensors,
    Scalar,
    Int,
    /// Of this number, where one int stands for all; 0: of any.
    Ints(usize),
    Float,
    Floats,
    Bool,
    Str,
    DType,
    /// Layout, device, memory format.
    Place,
    /// Generators do not enter graphs.
    Generator,
}

/// A call of an overload: its arguments in schema order.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The overload.
    pub overload: Arc<Overload>,
    /// One per parameter; those at the end that were not given are left out unless `whole` was asked for.
    pub args: Vec<Arg>,
}

impl PartialEq for Overload {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op && self.overload == other.overload
    }
}

static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Arc<Overload>>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Arc<Overload>>> = HashMap::new();
    for line in include_str!("aten.txt").lines() {
        let (name, overload) = parse(line).unwrap_or_else(|| panic!("aten.txt: {line}"));
        table.entry(name).or_default().push(overload.into());
    }
    table
});

/// The first overload of the op `name` that takes these arguments. With `whole`, all its arguments are written out.
/// `fresh`: the call is known to make new tensors, which a composed op need not do.
pub fn choose(name: &str, args: &[Arg], kwargs: &[(Arc<str>, Arg)], (whole, fresh): (bool, bool)) -> Option<Chosen> {
    let overloads = OVERLOADS.get(name)?;
    let first = |composed: bool| {
        let mut of_kind = overloads.iter().filter(|overload| overload.composed == composed);
        of_kind.find_map(|of| Some(Chosen { overload: of.clone(), args: of.bind(args, kwargs, whole)? }))
    };
    first(false).or_else(|| fresh.then(|| first(true))?)
}

fn parse(line: &'static str) -> Option<(&'static str, Overload)> {
    let (line, composed) = line.strip_prefix("composed ").map_or((line, false), |rest| (rest, true));
    let (line, rng) = line.strip_prefix("rng ").map_or((line, false), |rest| (rest, true));
    let (line, out) = line.split_once(" | ").map_or((line, None), |(line, out)| (line, Some(out)));
    let read = Overload::of_schema(line)?;
    let name = line.split(['.', '(']).next()?;
    let op = format!("aten::{name}");
    Some((name, Overload { op, out: out.map(str::to_owned), rng, composed, ..read }))
}

/// Whether an op of this name is listed, and torch composes no overload of it of other ops.
pub(crate) fn is_one_kernel(name: &str) -> bool {
    OVERLOADS.get(name).is_some_and(|overloads| overloads.iter().all(|overload| !overload.composed))
}

/// Splits at commas outside of brackets and quotes.
fn items(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut parts) = (0, false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 && !quoted => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

impl Param {
    fn parse(text: &str, by_name: bool) -> Option<Param> {
        let (head, default) = text.split_once('=').map_or((text, None), |(head, value)| (head, Some(value)));
        let (kind, name) = head.rsplit_once(' ')?;
        let (kind, optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        let kind = match kind {
            "Tensor" => Kind::Tensor,
            "Tensor[]" | "Tensor?[]" => Kind::Tensors,
            "Scalar" => Kind::Scalar,
            "int" | "SymInt" => Kind::Int,
            "int[]" | "SymInt[]" => Kind::Ints(0),
            "float" => Kind::Float,
            "float[]" => Kind::Floats,
            "bool" => Kind::Bool,
            "str" => Kind::Str,
            "ScalarType" => Kind::DType,
            "Layout" | "Device" | "MemoryFormat" => Kind::Place,
            "Generator" => Kind::Generator,
            sized => {
                let size = sized.strip_prefix("int[").or_else(|| sized.strip_prefix("SymInt["))?;
                Kind::Ints(size.strip_suffix(']')?.parse().ok()?)
            }
        };
        let read = default.and_then(|text| constant(kind, text));
        let name = name.to_owned();
        Some(Param { name, kind, optional, by_name, default: read, may_be_left_out: default.is_some() })
    }

    fn accepts(&self, arg: &Arg) -> bool {
        let number = |arg: &Arg| is_int(arg) || matches!(arg.seen(), Seen::Const(Const::Float(_)));
        let each = |of: &dyn Fn(&Arg) -> bool| matches!(arg.seen(), Seen::Items(items) if items.iter().all(of));
        if matches!(arg.seen(), Seen::Const(Const::None)) {
            return self.optional;
        }
        match self.kind {
            Kind::Tensor => matches!(arg, Arg::Node(_)),
            Kind::Tensors => each(&|i| matches!(i, Arg::Node(_))),
            Kind::Scalar => number(arg) || matches!(arg.seen(), Seen::Const(Const::Bool(_) | Const::Complex(..))),
            Kind::Int => is_int(arg),
            Kind::Ints(size) => {
                each(&is_int)
                    || size > 0 && is_int(arg)
                    || matches!(arg.seen(), Seen::Const(Const::Tuple(t)) if t.iter().all(|c| matches!(c, Const::Int(_))))
            }
            Kind::Float => number(arg),
            Kind::Floats => each(&number),
            Kind::Bool => matches!(arg.seen(), Seen::Const(Const::Bool(_))),
            Kind::Str => matches!(arg.seen(), Seen::Const(Const::Str(_))),
            Kind::DType => matches!(arg.seen(), Seen::Const(Const::Dtype(_))),
            Kind::Place => {
                matches!(arg.seen(), Seen::Const(Const::Device(_) | Const::Layout(_) | Const::MemoryFormat(_)))
            }
            Kind::Generator => false,
        }
    }

    /// The argument as aten takes it: an int for a list of a fixed size stands for each of its items.
    fn given(&self, arg: Arg) -> Option<Arg> {
        match self.kind {
            _ if !self.accepts(&arg) => None,
            Kind::Ints(size) if is_int(&arg) => Some(Arg::List(vec![arg; size])),
            _ => Some(arg),
        }
    }

    /// Whether Python calls this parameter `name`: `input` is what schemas call `self`.
    fn is_called(&self, name: &str) -> bool {
        self.name == name
            || self.name == "self" && name == "input"
            || self.name == "value" && name == "src"
            || self.name == "dim" && name == "axis"
            || self.name == "keepdim" && name == "keepdims"
    }
}

fn is_int(arg: &Arg) -> bool {
    matches!(arg.seen(), Seen::Const(Const::Int(_)) | Seen::Dim(_))
}

/// A default as torch prints it; `None` for layouts and memory formats, which are numbers there.
fn constant(kind: Kind, text: &str) -> Option<Const> {
    if text == "None" {
        return Some(Const::None);
    }
    match kind {
        Kind::Int => text.parse().ok().map(Const::Int),
        Kind::Float => text.parse().ok().map(Const::Float),
        Kind::Scalar => text.parse().map(Const::Int).or_else(|_| text.parse().map(Const::Float)).ok(),
        Kind::Bool => match text {
            "True" => Some(Const::Bool(true)),
            "False" => Some(Const::Bool(false)),
            _ => None,
        },
        Kind::DType => text.parse().ok().and_then(DType::from_torch).map(Const::Dtype),
        Kind::Str => Some(Const::str(text.strip_prefix('"')?.strip_suffix('"')?)),
        Kind::Ints(_) => match text.strip_prefix('[') {
            Some(list) => {
                let items = list.strip_suffix(']')?.split(", ").filter(|i| !i.is_empty());
                items.map(|i| i.parse().ok().map(Const::Int)).collect::<Option<_>>().map(Const::Tuple)
            }
            None => text.parse().ok().map(Const::Int),
        },
        _ => None,
    }
}

/// The overload of the list with these names.
pub fn listed(op: &str, overload: &str) -> Option<Arc<Overload>> {
    let overloads = OVERLOADS.get(op.strip_prefix("aten::")?)?;
    overloads.iter().find(|of| of.overload == overload).cloned()
}

impl Overload {
    /// The number of a parameter.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// From `LIBRARY::NAME.OVERLOAD(PARAMETERS) -> TENSORS`, as torch prints schemas; `None` where a parameter has a type that
    /// no plan passes on, or is written to, or where something else than new tensors comes back.
    pub fn of_schema(text: &str) -> Option<Overload> {
        let (head, returns) = text.rsplit_once(" -> ")?;
        let (head, params) = head.split_once('(')?;
        let (op, overload) = head.split_once('.').unwrap_or((head, "default"));
        let mut parsed = Vec::new();
        let mut by_name = false;
        for text in items(params.strip_suffix(')')?) {
            if text == "*" {
                by_name = true;
            } else {
                parsed.push(Param::parse(text, by_name)?);
            }
        }
        let returned = items(returns.strip_prefix('(').map_or(Some(returns), |inner| inner.strip_suffix(')'))?);
        let is_list = matches!(returned[..], ["Tensor[]"]);
        let is_tensor = |text: &&str| is_list || text.split(' ').next() == Some("Tensor");
        let results = (!is_list).then_some(returned.len());
        let (op, overload) = (op.to_owned(), overload.to_owned());
        let read = Overload { op, overload, out: None, results, rng: false, composed: false, params: parsed };
        returned.iter().all(is_tensor).then_some(read)
    }

    /// Whether its first parameter is a tensor's method's own.
    pub fn is_method(&self) -> bool {
        self.params.first().is_some_and(|p| p.name == "self")
    }

    /// The arguments in schema order, if they fit.
    pub fn bind(&self, args: &[Arg], kwargs: &[(Arc<str>, Arg)], whole: bool) -> Option<Vec<Arg>> {
        let mut given: Vec<Option<Arg>> = vec![None; self.params.len()];
        let mut at = 0;
        for (slot, param) in self.params.iter().enumerate().take_while(|(_, p)| !p.by_name) {
            let rest = &args[at..];
            let Some(arg) = rest.first() else { break };
            if param.kind == Kind::Ints(0) && is_int(arg) {
                // `rand(2, 3)`: the list is spread over the positions.
                given[slot] = Some(Arg::List(rest.to_vec()));
                at = args.len();
            } else {
                given[slot] = Some(arg.clone());
                at += 1;
            }
        }
        if at < args.len() {
            return None;
        }
        for (name, arg) in kwargs {
            let slot = self.params.iter().position(|p| p.is_called(name))?;
            if given[slot].replace(arg.clone()).is_some() {
                return None;
            }
        }
        let last = given.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let needed = self.params.iter().rposition(|p| !p.may_be_left_out).map_or(0, |last| last + 1);
        let count = if whole { self.params.len() } else { last.max(needed) };
        let filled = given.into_iter().zip(&self.params).take(count).map(|(arg, param)| match arg {
            Some(arg) => param.given(arg),
            None => param.default.clone().map(Arg::Const),
        });
        filled.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_ir::graph::NodeId;

    const X: Arg = Arg::Node(NodeId(0));

    fn int(i: i64) -> Arg {
        Arg::Const(Const::Int(i))
    }

    fn chosen(name: &str, args: &[Arg], kwargs: &[(&str, Arg)]) -> Option<(String, Vec<Arg>)> {
        let kwargs: Vec<(Arc<str>, Arg)> = kwargs.iter().map(|(n, a)| ((*n).into(), a.clone())).collect();
        choose(name, args, &kwargs, (false, false)).map(|c| (c.overload.overload.clone(), c.args))
    }

    #[test]
    fn kinds_of_arguments_choose_the_overload() {
        assert_eq!(chosen("pow", &[X, int(3)], &[]), Some(("Tensor_Scalar".into(), vec![X, int(3)])));
        assert_eq!(chosen("pow", &[int(2), X], &[]), Some(("Scalar".into(), vec![int(2), X])));
        assert_eq!(chosen("pow", &[X], &[("exponent", X)]), Some(("Tensor_Tensor".into(), vec![X, X])));
        assert_eq!(chosen("max", &[X], &[]), Some(("default".into(), vec![X])));
        assert_eq!(chosen("max", &[X], &[("dim", int(1))]), Some(("dim".into(), vec![X, int(1)])));
        assert_eq!(chosen("sin", &[], &[("input", X)]), Some(("default".into(), vec![X])));
    }

    #[test]
    fn lists_may_be_spread_and_defaults_are_filled_in() {
        let size = Arg::List(vec![int(2), int(3)]);
        assert_eq!(chosen("rand", &[int(2), int(3)], &[]), Some(("default".into(), vec![size])));
        let keepdim = Arg::Const(Const::Bool(true));
        let args = vec![X, Arg::Const(Const::None), keepdim.clone()];
        assert_eq!(chosen("argmax", &[X], &[("keepdim", keepdim)]), Some(("default".into(), args)));
        let dtype = Arg::Const(Const::Dtype(DType::I64));
        let args = vec![int(2), Arg::List(vec![int(3)]), dtype, Arg::Const(Const::None), Arg::Const(Const::None)];
        let nowhere = Arg::Const(Const::None);
        assert_eq!(
            chosen("randint", &[int(2), args[1].clone()], &[("device", nowhere)]),
            Some(("default".into(), args))
        );
        let whole = choose("argmax", &[X], &[], (true, false)).map(|c| c.args.len());
        assert_eq!(whole, Some(3));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(chosen("sin", &[int(1)], &[]), None);
        assert_eq!(chosen("sin", &[X, X], &[]), None);
        assert_eq!(chosen("diagonal", &[X], &[]), None, "a view");
        assert_eq!(chosen("batch_norm", &[X], &[]), None, "writes to its arguments");
        assert_eq!(chosen("argmax", &[X], &[("dim", Arg::Const(Const::Bool(true)))]), None);
    }

    #[test]
    fn composed_ops_are_chosen_where_they_make_new_tensors() {
        let given = [Arg::Const(Const::str("ij->i")), Arg::List(vec![X])];
        let of = |fresh| choose("einsum", &given, &[], (false, fresh)).is_some();
        assert!(of(true) && !of(false));
    }

    #[test]
    fn schemas_of_libraries_are_read() {
        let read =
            Overload::of_schema("lib::op.out_of(Tensor a, int[2] size, *, str how=\"no, yes\") -> (Tensor, Tensor b)");
        let read = read.unwrap();
        assert_eq!((&*read.op, &*read.overload, read.results), ("lib::op", "out_of", Some(2)));
        let size = Arg::List(vec![int(3), int(3)]);
        assert_eq!(read.bind(&[X, int(3)], &[], false), Some(vec![X, size]));
        for refused in
            ["lib::op(Tensor(a!) x) -> Tensor", "lib::op(Tensor x) -> (Tensor, Tensor[])", "lib::op(Any x) -> Tensor"]
        {
            assert!(Overload::of_schema(refused).is_none(), "{refused}");
        }
    }

    #[test]
    fn every_line_is_read() {
        let known: usize = OVERLOADS.values().map(Vec::len).sum();
        assert_eq!(known, include_str!("aten.txt").lines().count());
    }
}
