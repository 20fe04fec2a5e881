//! Operators: tensors, operands whose class defines them in Python, then built-in types.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Class, Payload, Value};
use flambeau_bytecode::{Binary, Compare, Unary};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::Target;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::ObjectData;
use flambeau_ir::reason::ReasonCode;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Comparisons that run within each other: Python raises `RecursionError` at some depth.
const DEEPEST: usize = 100;

/// Methods of comparisons.
const COMPARISONS: &[&str] = &["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"];

impl Tracer<'_> {
    /// `a <op> b`, or `a <op>= b`.
    pub fn binary(&mut self, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Value> {
        if is_tensor(a) || is_tensor(b) {
            return self.tensor_binary(op, inplace, a, b);
        }
        need_no_address(&[a, b])?;
        let mut in_place = inplace;
        if may_define(a) || may_define(b) {
            if inplace {
                let own = format!("__i{}__", op.method());
                if let Some(result) = self.try_operator(a, &own, b)? {
                    return Ok(result);
                }
                // What Python code of its class does not do in place makes a new object.
                in_place = !(may_define(a) && self.python_special(a, &own)?.is_some());
            }
            if !(in_place && self.base_changes(op, a, b)) {
                if let Some(result) = self.own_binary(op, a, b)? {
                    return Ok(result);
                }
                if self.only_own_answer(op, a, b)? {
                    return self.no_operator(op, inplace, a, b);
                }
            }
        }
        let of_bytes = matches!(a, Value::Const(Const::Bytes(_))) && !matches!(b, Value::Const(_));
        if op == Binary::Remainder
            && (of_bytes || matches!(b, Value::Instance(_)) && matches!(a, Value::Const(Const::Str(_))))
        {
            // Its class says what `%s` shows.
            return stop(
                ReasonCode::UnsupportedObject,
                format!("% of a {} and a {}", self.type_name(a), self.type_name(b)),
            );
        }
        let (x, y) = (self.base(a), self.base(b));
        let constant = |v: &Value| matches!(v, Value::Const(_) | Value::Int(_));
        if inplace && op == Binary::Multiply && matches!(a, Value::Instance(_)) && x.is_int() && is_sequence(&y) {
            // Python classes have a table of sequence methods: the right operand's is not asked
            // (`PyNumber_InPlaceMultiply` in CPython's `Objects/abstract.c`).
            return self.unsupported_operands(op, inplace, a, b);
        }
        if op == Binary::Multiply
            && is_sequence(&x)
            && let Some(count) = self.own_index(b)?
        {
            return self.binary(op, inplace, a, &count);
        }
        if op == Binary::Multiply
            && is_sequence(&y)
            && let Some(count) = self.own_index(a)?
        {
            return self.binary(op, false, &count, b);
        }
        // A list takes what any iterable gives, one of a number's class as well.
        if in_place
            && op == Binary::Add
            && let Value::List(list) = x
        {
            self.list_extend(list, b)?;
            return Ok(x);
        }
        let result = self.library.binary(self, op, in_place, &x, &y);
        // What is folded says nothing of subclasses and of `op=` when it raises. Text that is formatted has errors of its own.
        let text = op == Binary::Remainder && matches!(x, Value::Const(Const::Str(_) | Const::Bytes(_)));
        if constant(&x) && constant(&y) && !text && self.is_raise_of(&result, "TypeError") {
            return self.operand_error(op, inplace, a, b);
        }
        match result? {
            Some(result) => Ok(result),
            None => self.unsupported_operands(op, inplace, a, b),
        }
    }

    /// Whether a built-in type, which may be a base of the left operand's class, has an `op=` of its own: it comes before `op`
    /// of the class. That of sets is for other sets alone; `*=` of sequences is no number's method, nor is `+=` of lists, which
    /// only derived classes have among those of numbers.
    fn base_changes(&self, op: Binary, a: &Value, b: &Value) -> bool {
        match (op, self.base(a)) {
            (Binary::Add, Value::List(id)) => self.arenas.lists[id].class.is_some(),
            (Binary::Or, Value::Dict(_)) => true,
            (Binary::And | Binary::Or | Binary::Subtract | Binary::Xor, Value::Set(_)) => {
                matches!(self.base(b), Value::Set(_) | Value::Const(Const::FrozenSet(_)))
            }
            _ => false,
        }
    }

    /// The int that an object which is none gives for its place, if Python code of its class says so (`PyNumber_Index`).
    pub(crate) fn own_index(&mut self, value: &Value) -> Flow<Option<Value>> {
        if !may_define(value) || self.base(value).is_int() {
            return Ok(None);
        }
        let Some(index) = self.python_special(value, "__index__")? else { return Ok(None) };
        let place = self.call(&index, Args::default())?;
        if place.is_int() {
            return Ok(Some(place));
        }
        // Python warns of an instance of a subclass.
        if self.base(&place).is_int() || matches!(place, Value::Const(Const::Bool(_))) {
            return stop(ReasonCode::UnsupportedObject, "an __index__ that gives a subclass's int");
        }
        self.need_plain(&place, "__index__")?;
        let name = self.type_name(&place);
        self.raise_named("TypeError", &format!("__index__ returned non-int (type {name})"))
    }

    /// `a <op> b` as Python code of their classes does it: the reflected method of a subclass of the left operand's class
    /// comes first if it is another one, that of the same class is never asked (`SLOT1BINFULL` and `binary_op1` in CPython's
    /// `Objects/typeobject.c` and `Objects/abstract.c`).
    fn own_binary(&mut self, op: Binary, a: &Value, b: &Value) -> Flow<Option<Value>> {
        let (method, reflected) = (format!("__{}__", op.method()), format!("__r{}__", op.method()));
        let (left, right) = (self.class_of(a)?, self.class_of(b)?);
        let mut asks_right = !left.same(&right);
        // Text is formatted before an object of another class is asked.
        let text = matches!(a, Value::Const(Const::Str(_) | Const::Bytes(_)));
        if asks_right && op == Binary::Remainder && text && !right.is_subclass(&left) {
            return Ok(None);
        }
        if asks_right && right.is_subclass(&left) && (!may_define(a) || self.overrides(&left, &right, &reflected)?) {
            if let Some(result) = self.try_operator(b, &reflected, a)? {
                return Ok(Some(result));
            }
            asks_right = false;
        }
        if let Some(result) = self.try_operator(a, &method, b)? {
            return Ok(Some(result));
        }
        let (least, most) = match op {
            Binary::MatrixMultiply => return if asks_right { self.try_operator(b, &reflected, a) } else { Ok(None) },
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::TrueDivide | Binary::Power => (1, 3),
            Binary::FloorDivide | Binary::Remainder => (1, 2),
            _ => (1, 1),
        };
        // A class of Python code for either order has a number's slot, which finds what the sequence does: that is the answer.
        let by_sequence = matches!(op, Binary::Add | Binary::Multiply) && is_sequence(&self.base(a)) && may_define(a);
        if asks_right
            && by_sequence
            && self.python_special(a, &method)?.is_none()
            && self.python_special(a, &reflected)?.is_some()
        {
            if op == Binary::Multiply && !self.base(b).is_int() {
                return stop(ReasonCode::UnsupportedObject, "a sequence of Python code, multiplied with no int");
            }
            return Ok(None);
        }
        if self.answers_as_number(a, b, &method, least..=most)? {
            return Ok(None);
        }
        if asks_right { self.try_operator(b, &reflected, a) } else { Ok(None) }
    }

    /// Whether Python code alone has this operator for both operands: its answer, `NotImplemented`, is the last. The method of
    /// a built-in base counts where the class does not replace it; one slot of both operands is asked once.
    fn only_own_answer(&mut self, op: Binary, a: &Value, b: &Value) -> Flow<bool> {
        let (method, reflected) = (format!("__{}__", op.method()), format!("__r{}__", op.method()));
        let left = may_define(a) && self.python_special(a, &method)?.is_some();
        let right = may_define(b) && self.python_special(b, &reflected)?.is_some();
        let (x, y) = (self.base(a), self.base(b));
        // What a class says of `+` or `*` takes the place of what sequences do, which answer for themselves alone.
        Ok(match op {
            Binary::Add if is_sequence(&x) || is_sequence(&y) => left,
            Binary::Multiply if is_sequence(&x) => left && !is_sequence(&y),
            Binary::Multiply if is_sequence(&y) => right,
            _ => {
                let other = self.class_of(b)?;
                left && (right || self.class_of(a)?.same(&other))
            }
        })
    }

    /// Whether the left operand's own type, a number of C of these ranks, has an answer: then the right one is not asked,
    /// whatever it defines. Each rank takes numbers of its own and of those below.
    fn answers_as_number(&mut self, a: &Value, b: &Value, method: &str, ranks: RangeInclusive<u8>) -> Flow<bool> {
        let rank = |value: &Value| match value {
            Value::Int(_) | Value::Const(Const::Int(_) | Const::Bool(_) | Const::BigInt(_)) => Some(1),
            Value::Const(Const::Float(_)) => Some(2),
            Value::Const(Const::Complex(..)) => Some(3),
            _ => None,
        };
        let (Some(left), Some(right)) = (rank(&self.base(a)), rank(&self.base(b))) else { return Ok(false) };
        let answers = left >= right && ranks.contains(&left);
        Ok(answers && (!may_define(a) || self.python_special(a, method)?.is_none()))
    }

    /// Whether a subclass has another method of this name than its base (`method_is_overloaded`).
    fn overrides(&mut self, base: &Rc<Class>, subclass: &Rc<Class>, name: &str) -> Flow<bool> {
        let Some((owner, _)) = self.type_lookup(subclass, name)? else { return Ok(false) };
        Ok(self.type_lookup(base, name)?.is_none_or(|(other, _)| !other.same(&owner)))
    }

    fn unsupported_operands(&mut self, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Value> {
        if !self.is_plain(a) || !self.is_plain(b) {
            let (x, y) = (self.type_name(a), self.type_name(b));
            return stop(ReasonCode::UnsupportedObject, format!("{x} {} {y}", op.symbol()));
        }
        self.operand_error(op, inplace, a, b)
    }

    /// What `binop_type_error` in CPython's `Objects/abstract.c` says of any operands.
    fn no_operator(&mut self, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Value> {
        let (x, y) = (self.type_name(a), self.type_name(b));
        let symbol = match (op, inplace) {
            (Binary::Power, false) => "** or pow()".to_string(),
            (_, false) => op.symbol().to_string(),
            (_, true) => format!("{}=", op.symbol()),
        };
        self.raise_named("TypeError", &format!("unsupported operand type(s) for {symbol}: '{x}' and '{y}'"))
    }

    /// What `binop_type_error` and the functions around it in CPython's `Objects/abstract.c` say.
    fn operand_error(&mut self, op: Binary, inplace: bool, left: &Value, right: &Value) -> Flow<Value> {
        let (x, y) = (self.type_name(left), self.type_name(right));
        let (a, b) = (&self.base(left), &self.base(right));
        // Types without a table of sequence methods; where the left operand's has one, `*=` does not ask the right one.
        let no_sequence = matches!(a, Value::Const(_) | Value::Int(_) | Value::Function(_) | Value::Method(_));
        let message = match op.symbol() {
            // The left operand's type is asked to concatenate, either one to repeat.
            "+" if matches!(a, Value::Const(Const::Bytes(_))) => format!("can't concat {y} to {x}"),
            "+" if is_sequence(a) => {
                let name = match a {
                    Value::List(_) => "list",
                    Value::Tuple(_) => "tuple",
                    _ => "str",
                };
                format!("can only concatenate {name} (not \"{y}\") to {name}")
            }
            "*" if is_sequence(a) => format!("can't multiply sequence by non-int of type '{y}'"),
            "*" if is_sequence(b) && (!inplace || no_sequence) => {
                format!("can't multiply sequence by non-int of type '{x}'")
            }
            _ => return self.no_operator(op, inplace, left, right),
        };
        self.raise_named("TypeError", &message)
    }

    /// The number that torch takes an instance of a subclass of `int` or `float` for: its value as the base type.
    fn number_for_torch(&self, value: &Value) -> Option<Value> {
        let Value::Instance(id) = value else { return None };
        let instance = &self.arenas.instances[*id];
        let Payload::Const(Const::Int(_) | Const::Float(_)) = instance.payload else { return None };
        instance.class.is_python.then(|| self.base(value))
    }

    fn tensor_binary(&mut self, op: Binary, inplace: bool, a: &Value, b: &Value) -> Flow<Value> {
        if let Value::Parts(parts) = b
            && let Some(number) = self.kind_of(parts).number(parts)
        {
            return self.tensor_binary(op, inplace, a, &number);
        }
        let other = if is_tensor(a) { b } else { a };
        if op != Binary::MatrixMultiply
            && let Some(number) = self.number_for_torch(other)
        {
            // The left operand's class is asked first; no number knows tensors.
            if !is_tensor(a)
                && let Some(result) = self.try_operator(a, &format!("__{}__", op.method()), b)?
            {
                return Ok(result);
            }
            self.need_plain_argument(other)?;
            let (x, y) = if is_tensor(a) { (a, &number) } else { (&number, b) };
            return self.tensor_binary(op, inplace, x, y);
        }
        if !matches!(other, Value::Tensor(_) | Value::Const(_) | Value::Int(_)) {
            if may_define(other) || matches!(other, Value::Parts(parts) if self.kind_of(parts).is_pure()) {
                return stop(
                    ReasonCode::UnsupportedObject,
                    format!("a tensor {} a {}", op.symbol(), self.type_name(other)),
                );
            }
            return self.unsupported_operands(op, inplace, a, b);
        }
        let name = match op {
            Binary::And => "and_",
            Binary::Or => "or_",
            other => other.method(),
        };
        let name =
            if inplace && is_tensor(a) { format!("_operator.i{}", op.method()) } else { format!("_operator.{name}") };
        self.torch_call(Target::Function(name.into()), Args::new(vec![a.clone(), b.clone()]))
    }

    /// Whether the tracer knows all that a value of this type can do, so that what it does not know is an error in Python
    /// too.
    pub(crate) fn is_plain(&self, value: &Value) -> bool {
        let exact = |class: &Option<std::rc::Rc<crate::value::Class>>| class.is_none();
        match value {
            Value::Const(c) => !matches!(c, Const::Dtype(_) | Const::Device(_) | Const::Layout(_) | Const::Code(_)),
            Value::Int(_) | Value::Set(_) => true,
            Value::Parts(parts) => self.kind_of(parts).is_plain(),
            Value::Function(_) | Value::Method(_) | Value::Generator(_) => true,
            Value::Tuple(t) => exact(&t.class),
            Value::List(id) => exact(&self.arenas.lists[*id].class),
            Value::Dict(id) => exact(&self.arenas.dicts[*id].class),
            Value::Instance(id) => {
                let instance = &self.arenas.instances[*id];
                matches!(instance.payload, Payload::None | Payload::Exception(..))
                    && instance.class.is_python
                    && !self.has_base_of_c(&instance.class)
            }
            _ => false,
        }
    }

    /// Whether a base of a Python class, but for `object` and exceptions, is a type of C, or may be one.
    fn has_base_of_c(&self, class: &Class) -> bool {
        class.mro.iter().any(|base| {
            let Some(described) = self.heap.get(*base) else { return true };
            let known = described.path.as_deref().and_then(|path| path.strip_prefix("builtins."));
            let harmless = known.is_some_and(|name| name == "object" || Self::is_exception(name));
            !harmless && !matches!(&described.data, ObjectData::Class(desc) if desc.is_python)
        })
    }

    /// Breaks where the tracer does not know enough of a value to say that Python raises.
    pub(crate) fn need_plain(&mut self, value: &Value, what: &str) -> Flow<()> {
        if self.is_plain(value) {
            return Ok(());
        }
        stop(ReasonCode::UnsupportedObject, format!("{what} of a {}", self.type_name(value)))
    }

    /// Calls `a.method(b)` if Python code defines it; `None` if not, or if it gives `NotImplemented`.
    fn try_operator(&mut self, a: &Value, method: &str, b: &Value) -> Flow<Option<Value>> {
        if !may_define(a) {
            return Ok(None);
        }
        let found = match self.special(a, method) {
            // A comparison whose method cannot be had is none (`slot_tp_richcompare` in CPython's `Objects/typeobject.c`).
            Err(Stop::Raise(_)) if COMPARISONS.contains(&method) => return Ok(None),
            found => found?,
        };
        let result = match found {
            Some(Value::Builtin(slot)) => match (&*slot.path, method) {
                // Its class may say that it compares as objects do, though a base of it does otherwise.
                ("builtins.object.__eq__", _) if !matches!(a, Value::Instance(_)) => {
                    return Ok(self.identical(a, b)?.then(|| Value::bool(true)));
                }
                // `object_richcompare` in CPython's `Objects/typeobject.c` asks `__eq__`.
                ("builtins.object.__ne__", _) => {
                    let Some(equal) = self.try_operator(a, "__eq__", b)? else { return Ok(None) };
                    return Ok(Some(Value::bool(!self.truth(&equal)?)));
                }
                _ if self.is_slot_of_polyfill(a, &slot) => {
                    self.call(&Value::Builtin(slot), Args::new(vec![b.clone()]))?
                }
                _ => return self.need_modelled(a, method).map(|()| None),
            },
            Some(function) => self.call(&function, Args::new(vec![b.clone()]))?,
            None => return Ok(None),
        };
        Ok((!matches!(result, Value::Const(Const::NotImplemented))).then_some(result))
    }

    /// The constant that an instance of a subclass of `int`, `str` and the like is; others as they are.
    pub(crate) fn base(&self, value: &Value) -> Value {
        if let Value::Instance(id) = value
            && let Payload::Const(c) = &self.arenas.instances[*id].payload
        {
            self.flattened.set(self.instruction());
            return Value::Const(c.clone());
        }
        value.clone()
    }

    /// `+a`, `-a`, `~a`, `not a`.
    pub fn unary(&mut self, op: Unary, a: &Value) -> Flow<Value> {
        if op == Unary::Not {
            return Ok(Value::bool(!self.truth(a)?));
        }
        let (function, method) = match op {
            Unary::Positive => ("_operator.pos", "__pos__"),
            Unary::Negative => ("_operator.neg", "__neg__"),
            _ => ("_operator.invert", "__invert__"),
        };
        need_no_address(&[a])?;
        if is_tensor(a) {
            return self.torch_call(Target::Function(function.into()), Args::new(vec![a.clone()]));
        }
        if may_define(a)
            && let Some(function) = self.python_special(a, method)?
        {
            return self.call(&function, Args::default());
        }
        let base = self.base(a);
        let result = self.library.unary(self, op, &base);
        // What is folded says nothing of subclasses when it raises.
        let refused = matches!(base, Value::Const(_)) && self.is_raise_of(&result, "TypeError");
        match if refused { None } else { result? } {
            Some(result) => Ok(result),
            None => {
                if !refused {
                    self.need_plain(a, "a unary operator")?;
                }
                let symbol = match op {
                    Unary::Positive => "unary +",
                    Unary::Negative => "unary -",
                    _ => "unary ~",
                };
                let name = self.type_name(a);
                self.raise_named("TypeError", &format!("bad operand type for {symbol}: '{name}'"))
            }
        }
    }

    /// `a <op> b`.
    pub fn compare(&mut self, op: Compare, a: &Value, b: &Value) -> Flow<Value> {
        if self.comparing >= DEEPEST {
            return stop(ReasonCode::Recursion, "comparisons within each other");
        }
        self.comparing += 1;
        let result = self.compare_values(op, a, b);
        self.comparing -= 1;
        result
    }

    /// `a <op> b` where one is a tensor.
    fn compare_tensors(&mut self, op: Compare, a: &Value, b: &Value) -> Flow<Value> {
        if let Value::Parts(parts) = b
            && let Some(number) = self.kind_of(parts).number(parts)
        {
            return self.compare_tensors(op, a, &number);
        }
        let other = if is_tensor(a) { b } else { a };
        let numeric = matches!(
            other,
            Value::Tensor(_)
                | Value::Int(_)
                | Value::Const(Const::Bool(_) | Const::Int(_) | Const::Float(_) | Const::Complex(..))
        );
        match op {
            _ if numeric => {
                let target = Target::Function(format!("_operator.{}", op.method()).into());
                self.torch_call(target, Args::new(vec![a.clone(), b.clone()]))
            }
            Compare::Eq if other.is_none() || other.as_str().is_some() => Ok(Value::bool(false)),
            Compare::Ne if other.is_none() || other.as_str().is_some() => Ok(Value::bool(true)),
            _ => stop(ReasonCode::UnsupportedObject, format!("a tensor {} a {}", op.symbol(), self.type_name(other))),
        }
    }

    fn compared_as(&self, value: &Value) -> Option<Value> {
        let Value::Parts(parts) = value else { return None };
        self.kind_of(parts).compared_as(parts)
    }

    /// What methods written in Python say of `a <op> b`, and whether `b` is asked first.
    fn compare_by_methods(&mut self, op: Compare, a: &Value, b: &Value) -> Flow<(bool, Option<Value>)> {
        if !may_define(a) && !may_define(b) {
            return Ok((false, None));
        }
        let (method, reflected) = (format!("__{}__", op.method()), format!("__{}__", op.reflected().method()));
        let (left, right) = (self.class_of(a)?, self.class_of(b)?);
        // A subclass is asked first, and not again (`do_richcompare` in CPython's `Objects/object.c`).
        let first = !left.same(&right) && right.is_subclass(&left);
        if first && let Some(result) = self.try_operator(b, &reflected, a)? {
            return Ok((first, Some(result)));
        }
        if let Some(result) = self.try_operator(a, &method, b)? {
            return Ok((first, Some(result)));
        }
        let most = if matches!(op, Compare::Eq | Compare::Ne) { 3 } else { 2 };
        let answered = !first && self.answers_as_number(a, b, &method, 1..=most)?;
        if !first
            && !answered
            && let Some(result) = self.try_operator(b, &reflected, a)?
        {
            return Ok((first, Some(result)));
        }
        Ok((first, None))
    }

    fn compare_values(&mut self, op: Compare, a: &Value, b: &Value) -> Flow<Value> {
        if is_tensor(a) || is_tensor(b) {
            return self.compare_tensors(op, a, b);
        }
        if let (Value::Address(a), Value::Address(b), Compare::Eq | Compare::Ne) = (a, b, op) {
            let (a, b) = (Value::clone(a), Value::clone(b));
            let same = self.identical(&a, &b)?;
            if !same && (self.origin_of(&a).is_none() || self.origin_of(&b).is_none()) {
                // One that is gone may have lain where the other does.
                return stop(ReasonCode::UnsupportedObject, "ids of new objects that differ");
            }
            return Ok(Value::bool(same == (op == Compare::Eq)));
        }
        need_no_address(&[a, b])?;
        if matches!((a, b), (Value::Cell(_), Value::Cell(_))) {
            return stop(ReasonCode::UnsupportedObject, "a comparison of cells");
        }
        if let Some(mapping) = self.compared_as(a) {
            return self.compare(op, &mapping, b);
        }
        let (first, answer) = self.compare_by_methods(op, a, b)?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
        // The other side has been asked before.
        if let Some(mapping) = self.compared_as(b) {
            return self.compare(op.reflected(), &mapping, a);
        }
        let (x, y) = (self.base(a), self.base(b));
        if !(self.compares_as_object(op, a)? && self.compares_as_object(op, b)?) {
            // So are the items of a subclass of a sequence.
            let result = if first {
                self.library.compare(self, op.reflected(), &y, &x)
            } else {
                self.library.compare(self, op, &x, &y)
            };
            // What is folded says nothing of subclasses when it raises.
            let folded = matches!((&x, &y), (Value::Const(_), Value::Const(_)));
            if !(folded && self.is_raise_of(&result, "TypeError"))
                && let Some(result) = result?
            {
                return Ok(result);
            }
        }
        match op {
            Compare::Eq => Ok(Value::bool(self.identical(a, b)?)),
            Compare::Ne => Ok(Value::bool(!self.identical(a, b)?)),
            _ => {
                self.need_plain(a, "a comparison")?;
                self.need_plain(b, "a comparison")?;
                let (x, y) = (self.type_name(a), self.type_name(b));
                let message = format!("'{}' not supported between instances of '{x}' and '{y}'", op.symbol());
                self.raise_named("TypeError", &message)
            }
        }
    }

    /// Whether the class of a list, dict or tuple says that it compares as objects do: by identity.
    fn compares_as_object(&mut self, op: Compare, value: &Value) -> Flow<bool> {
        if !matches!(op, Compare::Eq | Compare::Ne)
            || !matches!(value, Value::List(_) | Value::Dict(_) | Value::Tuple(_))
        {
            return Ok(false);
        }
        let slot = self.special(value, &format!("__{}__", op.method()))?;
        Ok(matches!(slot, Some(Value::Builtin(b)) if b.path.starts_with("builtins.object.")))
    }

    /// `a == b` as `list.index`, `in` and dict values compare: identity first.
    pub fn equal(&mut self, a: &Value, b: &Value) -> Flow<bool> {
        match self.is_same(a, b) {
            Some(true) => return Ok(true),
            None if has_nan(a) && has_nan(b) => {
                return stop(ReasonCode::UnsupportedObject, "equality of NaNs, which depends on their identity");
            }
            _ => {}
        }
        let result = self.compare(Compare::Eq, a, b)?;
        self.truth(&result)
    }

    /// `a is b`, with a guard where two outside objects were different.
    pub fn identical(&mut self, a: &Value, b: &Value) -> Flow<bool> {
        let Some(same) = self.is_same(a, b) else {
            return stop(
                ReasonCode::UnsupportedObject,
                format!("`is` of two equal values of type {}", self.type_name(a)),
            );
        };
        if !same
            && let (Some(x), Some(y)) = (self.origin_of(a), self.origin_of(b))
            && x.object != y.object
        {
            self.guard(x.source, GuardKind::NotSame(y.source));
        }
        Ok(same)
    }

    /// `item in container`.
    pub fn contains(&mut self, container: &Value, item: &Value) -> Flow<bool> {
        if let Some(method) = self.python_special(container, "__contains__")? {
            if method.is_none() {
                let name = self.type_name(container);
                return self.raise_named("TypeError", &format!("'{name}' object is not a container"));
            }
            let result = self.call(&method, Args::new(vec![item.clone()]))?;
            return self.truth(&result);
        }
        // A base's own search does not ask the iterator that the class defines.
        let of_base = self.special(container, "__contains__")?.is_some();
        let container = if of_base { &self.base(container) } else { container };
        if of_base && matches!(container, Value::Instance(_)) && self.python_special(container, "__iter__")?.is_some() {
            let name = self.type_name(container);
            return stop(ReasonCode::UnsupportedObject, format!("__contains__ of a {name}"));
        }
        match container {
            Value::Tensor(_) => return stop(ReasonCode::DataDependentValue, "`in` of a tensor"),
            Value::Instance(_) | Value::Generator(_) | Value::Iter(_) => {
                let iter = self.iter(container);
                if self.is_raise_of(&iter, "TypeError") {
                    // `_PySequence_IterSearch` in CPython's `Objects/abstract.c` says so of every such error.
                    let name = self.type_name(container);
                    return self.raise_named("TypeError", &format!("argument of type '{name}' is not iterable"));
                }
                let iter = iter?;
                while let Some(candidate) = self.next(&iter)? {
                    if self.equal(&candidate, item)? {
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
            _ => {}
        }
        match self.library.contains(self, container, item)? {
            Some(found) => Ok(found),
            None => {
                self.need_plain(container, "`in`")?;
                let name = self.type_name(container);
                self.raise_named("TypeError", &format!("argument of type '{name}' is not iterable"))
            }
        }
    }

    /// `container[key]`.
    pub fn subscript(&mut self, container: &Value, key: &Value) -> Flow<Value> {
        if let Value::Tensor(id) = container {
            let ndim = self.arenas.tensors[*id].meta.ndim();
            if ndim == 0 && matches!(key, Value::Const(Const::Int(_))) {
                let message = "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ \
                               to convert a 0-dim tensor to a number";
                return self.raise_named("IndexError", message);
            }
            let target = Target::Function("_operator.getitem".into());
            return self.torch_call(target, Args::new(vec![container.clone(), key.clone()]));
        }
        if let Some(method) = self.python_special(container, "__getitem__")? {
            return self.call(&method, Args::new(vec![key.clone()]));
        }
        if let Value::Class(class) = container
            && let Some(method @ (Value::Method(_) | Value::Builtin(_))) =
                self.find_attr(&Value::Class(class.clone()), "__class_getitem__")?
        {
            return self.call(&method, Args::new(vec![key.clone()]));
        }
        let base = self.base(container);
        if !matches!(base, Value::Dict(_)) {
            need_no_address(&[key])?;
        }
        if let Some(result) = self.library.subscript(self, &base, key)? {
            return Ok(result);
        }
        self.need_plain(&base, "an item")?;
        let name = self.type_name(container);
        self.raise_named("TypeError", &format!("'{name}' object is not subscriptable"))
    }

    /// `container[key] = value`.
    pub fn store_subscript(&mut self, container: &Value, key: &Value, value: Value) -> Flow<()> {
        if let Value::Tensor(_) = container {
            let target = Target::Function("_operator.setitem".into());
            self.torch_call(target, Args::new(vec![container.clone(), key.clone(), value]))?;
            return Ok(());
        }
        if let Some(method) = self.python_special(container, "__setitem__")? {
            self.call(&method, Args::new(vec![key.clone(), value]))?;
            return Ok(());
        }
        self.need_other_half(container, "__setitem__", "__delitem__")?;
        if self.library.store_subscript(self, container, key, value)? {
            return Ok(());
        }
        let class = self.class_of(container)?;
        if self.type_lookup(&class, "__setitem__")?.is_some() {
            self.need_plain(container, "an item assignment")?;
        }
        let name = self.type_name(container);
        self.raise_named("TypeError", &format!("'{name}' object does not support item assignment"))
    }

    /// `del container[key]`.
    pub fn delete_subscript(&mut self, container: &Value, key: &Value) -> Flow<()> {
        if let Some(method) = self.python_special(container, "__delitem__")? {
            self.call(&method, Args::new(vec![key.clone()]))?;
            return Ok(());
        }
        self.need_other_half(container, "__delitem__", "__setitem__")?;
        if self.library.delete_subscript(self, container, key)? {
            return Ok(());
        }
        self.need_plain(container, "an item deletion")?;
        let name = self.type_name(container);
        // Types without a table of sequence methods are asked in another way (`PyObject_DelItem`).
        let bare = matches!(container, Value::Const(c) if !matches!(c, Const::Str(_) | Const::Bytes(_)));
        let bare = bare || self.is_bare_of_items(container);
        let does_not = if bare || key.as_dim().is_none() { "does not" } else { "doesn't" };
        self.raise_named("TypeError", &format!("'{name}' object {does_not} support item deletion"))
    }

    /// Storing and deleting are one slot of a type: a class that defines the other half only has the slot, which then does
    /// not find this method (`slot_mp_ass_subscript` in CPython's `Objects/typeobject.c`).
    fn need_other_half(&mut self, container: &Value, method: &str, other: &str) -> Flow<()> {
        if may_define(container)
            && self.special(container, method)?.is_none()
            && self.python_special(container, other)?.is_some()
        {
            return self.raise_named("AttributeError", method);
        }
        Ok(())
    }

    /// A size as a constant where Python needs one.
    pub fn known_int(&mut self, value: &Value) -> Option<i64> {
        match value {
            Value::Int(dim) => Some(self.fix(&Dim::clone(dim))),
            other => other.as_int(),
        }
    }
}

fn has_nan(value: &Value) -> bool {
    match value {
        Value::Const(Const::Float(x)) => x.is_nan(),
        Value::Const(Const::Complex(x, y)) => x.is_nan() || y.is_nan(),
        _ => false,
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Tuple(_) | Value::Const(Const::Str(_) | Const::Bytes(_)))
}

fn is_tensor(value: &Value) -> bool {
    matches!(value, Value::Tensor(_))
}

/// Whether the value's class could define operators in Python; that of a class is its metaclass.
fn may_define(value: &Value) -> bool {
    matches!(
        value,
        Value::Instance(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Opaque(_) | Value::Class(_)
    )
}

/// Breaks where an operation would need the number that is the `id` of an object.
fn need_no_address(operands: &[&Value]) -> Flow<()> {
    if operands.iter().any(|value| matches!(value, Value::Address(_))) {
        return stop(ReasonCode::UnsupportedObject, "an operation on the id of an object");
    }
    Ok(())
}
