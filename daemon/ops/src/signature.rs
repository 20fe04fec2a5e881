//! Signatures of torch calls, and binding of arguments to them by position and name. Rules for what an argument means
//! are not here; only enough of its kind is looked at to choose between overloads.
//!
//! A signature is written as text: overloads separated by ` | `, parameters by `, `, each `name:kind=default`. A lone `*`
//! starts the keyword-only ones. Kinds: `T` tensor, `N` number, `TN` tensor or number, `I` int, `L` list of ints (one int
//! will do), `L*` as `L` or spread over all remaining positions, `TL` list of tensors, `TL*` likewise, `D` dtype,
//! `B` bool, `S` string, `A` (or nothing) anything. `?` after the kind allows `None`.

use crate::InferError;
use crate::OpArg;
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::Arg;
use std::sync::Arc;

/// What an argument looks like, whatever stage it comes from.
#[derive(Debug)]
pub enum Seen<'a, A> {
    /// A tensor (or another node's value).
    Tensor,
    /// A constant.
    Const(&'a Const),
    /// A symbolic int.
    Dim(&'a Dim),
    /// A list or tuple.
    Items(&'a [A]),
    /// A slice.
    Slice(&'a [A; 3]),
    /// Anything else.
    Other,
}

/// Arguments that signatures can bind: those of rules, and those of graph nodes.
pub trait Argument: Sized {
    /// How it looks.
    fn seen(&self) -> Seen<'_, Self>;
}

impl Argument for OpArg {
    fn seen(&self) -> Seen<'_, Self> {
        match self {
            OpArg::Tensor(_) => Seen::Tensor,
            OpArg::Const(c) => Seen::Const(c),
            OpArg::Dim(d) => Seen::Dim(d),
            OpArg::List(items) | OpArg::Tuple(items) => Seen::Items(items),
            OpArg::Slice(parts) => Seen::Slice(parts),
        }
    }
}

impl Argument for Arg {
    fn seen(&self) -> Seen<'_, Self> {
        match self {
            Arg::Node(_) => Seen::Tensor,
            Arg::Const(c) => Seen::Const(c),
            Arg::Dim(d) => Seen::Dim(d),
            Arg::List(items) | Arg::Tuple(items) => Seen::Items(items),
            Arg::Slice(parts) => Seen::Slice(parts),
            Arg::Dict(_) => Seen::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Tensor,
    Number,
    TensorOrNumber,
    Int,
    Ints,
    Tensors,
    DType,
    Bool,
    Str,
}

/// One parameter of a signature.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// The value when it is not given; `None` if it must be.
    pub default: Option<Const>,
    kind: Kind,
    optional: bool,
    spread: bool,
}

/// One overload.
#[derive(Debug)]
pub struct Overload {
    /// Parameters in order.
    pub params: Vec<Param>,
    positional: usize,
}

/// All overloads of an op, tried in order.
#[derive(Debug)]
pub struct Signature {
    /// At least one.
    pub overloads: Vec<Overload>,
}

impl Signature {
    /// Parses the text form described at the top of the module. The text is part of this crate's tables.
    pub(crate) fn parse(text: &'static str) -> Signature {
        Signature { overloads: text.split(" | ").map(Overload::parse).collect() }
    }
}

impl Overload {
    fn parse(text: &'static str) -> Overload {
        let mut overload = Overload { params: Vec::new(), positional: usize::MAX };
        for item in text.split(", ").filter(|item| !item.is_empty()) {
            if item == "*" {
                overload.positional = overload.params.len();
            } else {
                overload.params.push(Param::parse(item));
            }
        }
        overload.positional = overload.positional.min(overload.params.len());
        overload
    }
}

impl Param {
    fn parse(text: &'static str) -> Param {
        let (head, default) = match text.split_once('=') {
            Some((head, default)) => (head, Some(parse_default(default))),
            None => (text, None),
        };
        let (name, kind) = head.split_once(':').unwrap_or((head, "A?"));
        let (kind, optional) = kind.strip_suffix('?').map_or((kind, false), |k| (k, true));
        let (kind, spread) = kind.strip_suffix('*').map_or((kind, false), |k| (k, true));
        let kind = match kind {
            "T" => Kind::Tensor,
            "N" => Kind::Number,
            "TN" => Kind::TensorOrNumber,
            "I" => Kind::Int,
            "L" => Kind::Ints,
            "TL" => Kind::Tensors,
            "D" => Kind::DType,
            "B" => Kind::Bool,
            "S" => Kind::Str,
            _ => Kind::Any,
        };
        let optional = optional || default == Some(Const::None);
        Param { name, default, kind, optional, spread }
    }

    fn accepts<A: Argument>(&self, arg: &A) -> bool {
        match arg.seen() {
            Seen::Tensor => matches!(self.kind, Kind::Any | Kind::Tensor | Kind::TensorOrNumber),
            Seen::Dim(_) => {
                matches!(self.kind, Kind::Any | Kind::Number | Kind::TensorOrNumber | Kind::Int | Kind::Ints)
            }
            Seen::Const(c) => self.accepts_const(c),
            Seen::Items(items) => match self.kind {
                Kind::Any => true,
                Kind::Ints => items.iter().all(is_int),
                Kind::Tensors => items.iter().all(|i| matches!(i.seen(), Seen::Tensor)),
                _ => false,
            },
            Seen::Slice(_) | Seen::Other => self.kind == Kind::Any,
        }
    }

    fn accepts_const(&self, c: &Const) -> bool {
        match c {
            Const::None => self.optional,
            Const::Bool(_) => matches!(self.kind, Kind::Any | Kind::Bool | Kind::Number | Kind::TensorOrNumber),
            Const::Int(_) => {
                matches!(self.kind, Kind::Any | Kind::Int | Kind::Ints | Kind::Number | Kind::TensorOrNumber)
            }
            Const::Float(_) | Const::Complex(..) => {
                matches!(self.kind, Kind::Any | Kind::Number | Kind::TensorOrNumber)
            }
            Const::Tuple(items) => {
                self.kind == Kind::Any
                    || self.kind == Kind::Ints && items.iter().all(|i| matches!(i, Const::Int(_)))
                    || self.kind == Kind::Tensors && items.is_empty()
            }
            Const::Dtype(_) => matches!(self.kind, Kind::Any | Kind::DType),
            Const::Str(_) => matches!(self.kind, Kind::Any | Kind::Str),
            _ => self.kind == Kind::Any,
        }
    }
}

fn is_int<A: Argument>(arg: &A) -> bool {
    matches!(arg.seen(), Seen::Const(Const::Int(_)) | Seen::Dim(_))
}

fn parse_default(text: &'static str) -> Const {
    match text {
        "None" => Const::None,
        "True" => Const::Bool(true),
        "False" => Const::Bool(false),
        "()" => Const::Tuple(Vec::new()),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(i), _) => Const::Int(i),
            (_, Ok(x)) => Const::Float(x),
            _ => Const::str(text),
        },
    }
}

/// Where a parameter's value comes from.
#[derive(Debug)]
pub enum Value<'a, A> {
    /// An argument.
    Arg(&'a A),
    /// All remaining positional arguments, spread (`view(2, 3)`).
    Spread(&'a [A]),
    /// Not given: the signature's default.
    Default(&'static Const),
}

impl<A> Clone for Value<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Value<'_, A> {}

/// Arguments bound to the parameters of one overload.
#[derive(Debug)]
pub struct Bound<'a, A> {
    /// Which overload, by its place in the signature.
    pub overload: usize,
    params: &'static [Param],
    values: Vec<(Value<'a, A>, Option<usize>)>,
}

impl<'a, A: Argument> Bound<'a, A> {
    /// Binds to the first overload that accepts the arguments.
    pub(crate) fn new(
        signature: &'static Signature,
        args: &'a [A],
        kwargs: &'a [(Arc<str>, A)],
        reflected: bool,
    ) -> Result<Self, InferError> {
        for (overload, form) in signature.overloads.iter().enumerate() {
            if let Some(values) = bind_one(form, args, kwargs, reflected) {
                return Ok(Bound { overload, params: &form.params, values });
            }
        }
        Err(InferError::NoRule)
    }

    fn slot(&self, name: &str) -> Option<&(Value<'a, A>, Option<usize>)> {
        let at = self.params.iter().position(|p| p.name == name)?;
        self.values.get(at)
    }

    /// Parameters of the chosen overload, with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, Value<'a, A>)> {
        self.params.iter().zip(self.values.iter().map(|(v, _)| *v))
    }

    /// A parameter's value. `None` if the overload has no such parameter.
    pub fn value(&self, name: &str) -> Option<Value<'a, A>> {
        self.slot(name).map(|(v, _)| *v)
    }

    /// The argument given for a parameter; `None` where it was not given, or given as Python's `None`.
    pub fn arg(&self, name: &str) -> Option<&'a A> {
        match self.slot(name)?.0 {
            Value::Arg(a) if !matches!(a.seen(), Seen::Const(Const::None)) => Some(a),
            _ => None,
        }
    }

    /// Place of the argument given for a parameter: positional arguments first, then keyword arguments in call order.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.slot(name)?.1
    }

    /// The constant a parameter has, given or by default.
    pub fn constant(&self, name: &str) -> Option<&'a Const> {
        match self.slot(name)?.0 {
            Value::Arg(a) => match a.seen() {
                Seen::Const(c) => Some(c),
                _ => None,
            },
            Value::Default(c) => Some(c),
            Value::Spread(_) => None,
        }
    }

    /// A parameter as bool.
    pub fn bool(&self, name: &str) -> Result<bool, InferError> {
        match self.constant(name) {
            Some(Const::Bool(b)) => Ok(*b),
            Some(Const::Int(i)) => Ok(*i != 0),
            _ => Err(InferError::NoRule),
        }
    }

    /// A parameter as a fixed int; `None` for Python's `None`.
    pub fn int(&self, name: &str) -> Result<Option<i64>, InferError> {
        match self.constant(name) {
            Some(Const::Int(i)) => Ok(Some(*i)),
            Some(Const::None) => Ok(None),
            _ => Err(InferError::NoRule),
        }
    }

    /// A parameter as a float; ints convert. `None` for Python's `None`.
    pub fn float(&self, name: &str) -> Result<Option<f64>, InferError> {
        match self.constant(name) {
            Some(Const::Int(i)) => Ok(Some(*i as f64)),
            Some(Const::Float(x)) => Ok(Some(*x)),
            Some(Const::None) => Ok(None),
            _ => Err(InferError::NoRule),
        }
    }

    /// A parameter as an int that may be symbolic; `None` for Python's `None`.
    pub fn dim(&self, name: &str) -> Result<Option<Dim>, InferError> {
        match self.value(name) {
            Some(Value::Arg(a)) => as_dim_or_none(a),
            Some(Value::Default(Const::None)) => Ok(None),
            Some(Value::Default(Const::Int(i))) => Ok(Some(Dim::Const(*i))),
            _ => Err(InferError::NoRule),
        }
    }

    /// A parameter as a list of ints; one int is a list of one. `None` for Python's `None`.
    pub fn dims(&self, name: &str) -> Result<Option<Vec<Dim>>, InferError> {
        let collect = |items: &[A]| items.iter().map(as_dim).collect::<Result<Vec<_>, _>>().map(Some);
        match self.value(name) {
            Some(Value::Spread(items)) => collect(items),
            Some(Value::Arg(a)) => match a.seen() {
                Seen::Items(items) => collect(items),
                Seen::Const(c) => const_dims(c),
                Seen::Dim(d) => Ok(Some(vec![d.clone()])),
                _ => Err(InferError::NoRule),
            },
            Some(Value::Default(c)) => const_dims(c),
            None => Err(InferError::NoRule),
        }
    }

    /// A parameter as a list of fixed ints; `None` for Python's `None`.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, InferError> {
        let Some(dims) = self.dims(name)? else { return Ok(None) };
        let fixed = |d: &Dim| d.as_const().ok_or_else(|| InferError::Dynamic(format!("{name} = {d}")));
        dims.iter().map(fixed).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// A parameter's items: a list or tuple of arguments, or what was spread over the positions.
    pub fn items(&self, name: &str) -> Option<&'a [A]> {
        match self.value(name)? {
            Value::Spread(items) => Some(items),
            Value::Arg(a) => match a.seen() {
                Seen::Items(items) => Some(items),
                _ => None,
            },
            Value::Default(_) => None,
        }
    }
}

fn const_dims(c: &Const) -> Result<Option<Vec<Dim>>, InferError> {
    match c {
        Const::None => Ok(None),
        Const::Int(i) => Ok(Some(vec![Dim::Const(*i)])),
        Const::Tuple(items) => {
            let each = |c: &Const| match c {
                Const::Int(i) => Ok(Dim::Const(*i)),
                _ => Err(InferError::NoRule),
            };
            items.iter().map(each).collect::<Result<Vec<_>, _>>().map(Some)
        }
        _ => Err(InferError::NoRule),
    }
}

fn as_dim_or_none<A: Argument>(arg: &A) -> Result<Option<Dim>, InferError> {
    match arg.seen() {
        Seen::Const(Const::None) => Ok(None),
        _ => as_dim(arg).map(Some),
    }
}

/// The argument as an int that may be symbolic.
pub(crate) fn as_dim<A: Argument>(arg: &A) -> Result<Dim, InferError> {
    match arg.seen() {
        Seen::Const(Const::Int(i)) => Ok(Dim::Const(*i)),
        Seen::Dim(d) => Ok(d.clone()),
        _ => Err(InferError::NoRule),
    }
}

type Values<'a, A> = Vec<(Value<'a, A>, Option<usize>)>;

fn bind_one<'a, A: Argument>(
    form: &'static Overload,
    args: &'a [A],
    kwargs: &'a [(Arc<str>, A)],
    reflected: bool,
) -> Option<Values<'a, A>> {
    let mut values: Vec<Option<(Value<'a, A>, Option<usize>)>> = Vec::with_capacity(form.params.len());
    values.resize_with(form.params.len(), || None);
    let mut at = 0;
    for (slot, param) in form.params[..form.positional].iter().enumerate() {
        if at >= args.len() {
            break;
        }
        let from = if reflected && at < 2 && args.len() == 2 { 1 - at } else { at };
        let arg = &args[from];
        if param.spread && spreads(param, &args[at..]) {
            values[slot] = Some((Value::Spread(&args[at..]), Some(at)));
            at = args.len();
        } else if param.accepts(arg) {
            values[slot] = Some((Value::Arg(arg), Some(from)));
            at += 1;
        } else {
            return None;
        }
    }
    if at < args.len() {
        return None;
    }
    for (i, (name, arg)) in kwargs.iter().enumerate() {
        let slot = form.params.iter().position(|p| p.name == &**name).or_else(|| {
            let numpy = numpy_name(name)?;
            form.params.iter().position(|p| p.name == numpy)
        })?;
        if values[slot].is_some() || !form.params[slot].accepts(arg) {
            return None;
        }
        values[slot] = Some((Value::Arg(arg), Some(args.len() + i)));
    }
    let fill = |(slot, param): (Option<(Value<'a, A>, Option<usize>)>, &'static Param)| {
        slot.or_else(|| param.default.as_ref().map(|d| (Value::Default(d), None)))
    };
    values.into_iter().zip(&form.params).map(fill).collect()
}

fn spreads<A: Argument>(param: &Param, rest: &[A]) -> bool {
    match param.kind {
        Kind::Ints => rest.iter().all(is_int),
        Kind::Tensors => rest.iter().all(|a| matches!(a.seen(), Seen::Tensor)),
        _ => rest.len() > 1,
    }
}

/// Torch accepts numpy's names for some parameters.
fn numpy_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "axis" => "dim",
        "keepdims" => "keepdim",
        "x" | "a" | "x1" => "input",
        "x2" => "other",
        "self" => "input",
        _ => return None,
    })
}
