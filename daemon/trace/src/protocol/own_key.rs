//! Keys whose class hashes and compares them by Python code. A key of the trace stands for all that are equal, so what the code
//! says is asked when an object becomes a key, of it and of all older ones with its hash: more often than Python asks.
//! So it may do nothing that shows. Dicts and sets that leave the frame are made where it ends, by this code: what it says
//! there is the same, and it reads nothing that the frame changes.

use crate::state::own_keys::{Hash, OwnKey};
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Args, Key, Value};
use flambeau_bytecode::Op;
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;

/// What changes nothing and runs no code but Python's, which is held to the same.
const PURE: &[&str] = &[
    "builtins.hash",
    "builtins.id",
    "builtins.isinstance",
    "builtins.issubclass",
    "builtins.len",
    "builtins.getattr",
    "builtins.hasattr",
    "builtins.object.__eq__",
    "builtins.object.__ne__",
];

/// Types whose methods are pure. Their own hashes are asked by `hash` only.
const PURE_TYPES: &[&str] =
    &["builtins.str.", "builtins.int.", "builtins.float.", "builtins.bytes.", "builtins.tuple."];

/// Classes whose calls change nothing.
const PURE_CLASSES: &[&str] =
    &["builtins.type", "builtins.super", "builtins.str", "builtins.int", "builtins.float", "builtins.bool"];

impl Tracer<'_> {
    /// The key of an object and of all that are equal to it; `None` where it is not Python code that says so.
    pub(crate) fn own_key(&mut self, value: &Value) -> Flow<Option<Key>> {
        let Value::Instance(_) = value else { return Ok(None) };
        let Some((hash, others)) = self.own_hash(value)? else { return Ok(None) };
        if let Hash::Own = hash {
            return Ok(Key::by_structure(value));
        }
        for other in others {
            if self.are_equal_keys(&other, value)? {
                return stop(ReasonCode::UnsupportedObject, "a key that equals one of another type");
            }
        }
        let known: Vec<OwnKey> = self.own_keys.known.iter().filter(|known| known.hash == hash).cloned().collect();
        let mut equal = Vec::with_capacity(known.len());
        for one in &known {
            equal.push(self.are_equal_keys(&one.object, value)?);
        }
        let found = known.iter().zip(&equal).find(|(_, equal)| **equal).map(|(known, _)| known.key.clone());
        if known.iter().zip(&equal).any(|(one, equal)| *equal != (Some(&one.key) == found.as_ref())) {
            return stop(ReasonCode::UnsupportedObject, "keys of which one equals two that differ");
        }
        let key = found.unwrap_or(Key::Own(self.own_keys.known.len()));
        if !known.iter().any(|known| self.is_same(&known.object, value) == Some(true)) {
            self.own_keys.known.push(OwnKey { object: value.clone(), hash, key: key.clone() });
        }
        Ok(Some(key))
    }

    /// What the code of an object's class says its hash is, and constants that may be equal to it as they have that hash.
    fn own_hash(&mut self, value: &Value) -> Flow<Option<(Hash, Vec<Value>)>> {
        let Some(hash) = self.python_special(value, "__hash__")? else { return Ok(None) };
        let first = self.own_keys.hashed.len();
        let result = match self.purely(|tracer| tracer.call(&hash, Args::default()))? {
            Value::Int(dim) => Value::int(self.fix(&dim)),
            result => result,
        };
        let hashed = self.own_keys.hashed.split_off(first);
        Ok(match &result {
            Value::Const(Const::Int(number)) => {
                let number = if *number == -1 { -2 } else { *number };
                let same = hashed.into_iter().filter(|(_, hash)| *hash == number).map(|(of, _)| of);
                Some((Hash::Number(number), same.chain([Const::Int(number)]).map(Value::Const).collect()))
            }
            Value::Address(of) if self.is_same(of, value) == Some(true) => Some((Hash::Own, Vec::new())),
            Value::Address(of) => Some((Hash::Of(self.key(of)?), vec![Value::clone(of)])),
            _ => None,
        })
    }

    /// Refuses an end of the frame at which the code of the keys' classes says something else than it did.
    pub(crate) fn need_same_keys(&mut self) -> Flow<()> {
        let known = self.own_keys.known.clone();
        for (i, one) in known.iter().enumerate() {
            let hash = match self.own_hash(&one.object) {
                Err(Stop::Raise(_)) => None,
                done => done?.map(|(hash, _)| hash),
            };
            let mut same = hash.as_ref() == Some(&one.hash);
            for other in known[..i].iter().filter(|other| other.hash == one.hash) {
                same &= self.are_equal_keys(&one.object, &other.object)? == (one.key == other.key);
            }
            if !same {
                return stop(ReasonCode::UnsupportedObject, "a key that the frame changed since");
            }
        }
        Ok(())
    }

    /// Whether both are one key, as either of them says.
    fn are_equal_keys(&mut self, a: &Value, b: &Value) -> Flow<bool> {
        let mut ask = |a: &Value, b: &Value| match self.purely(|tracer| tracer.equal(a, b)) {
            Err(Stop::Raise(_)) => stop(ReasonCode::UnsupportedObject, "a comparison of keys that raises"),
            done => done,
        };
        let (one, other) = (ask(a, b)?, ask(b, a)?);
        if one == other {
            Ok(one)
        } else {
            stop(ReasonCode::UnsupportedObject, "keys of which only one equals the other")
        }
    }

    fn purely<T>(&mut self, work: impl FnOnce(&mut Self) -> Flow<T>) -> Flow<T> {
        self.own_keys.running += 1;
        let result = work(self);
        self.own_keys.running -= 1;
        result
    }

    /// Breaks at an instruction that may do more than the code of keys is allowed to.
    pub(crate) fn need_pure(&self, op: Op) -> Flow<()> {
        if !self.own_keys.are_asked() || is_pure(op) {
            return Ok(());
        }
        stop(ReasonCode::UnsupportedObject, "a __hash__ or __eq__ of a key that may do more than look")
    }

    /// As [`Tracer::need_pure`], for what is called.
    pub(crate) fn need_pure_call(&self, callee: &Value) -> Flow<()> {
        let pure = match callee {
            _ if !self.own_keys.are_asked() => true,
            Value::Function(_) | Value::Method(_) => true,
            Value::Builtin(builtin) => {
                let of_type = PURE_TYPES.iter().any(|path| builtin.path.starts_with(path));
                PURE.contains(&&*builtin.path) || of_type && !builtin.path.ends_with("__hash__")
            }
            Value::Class(class) => class.path.as_ref().is_some_and(|path| PURE_CLASSES.contains(&&**path)),
            _ => false,
        };
        if pure {
            return Ok(());
        }
        stop(ReasonCode::UnsupportedObject, "a __hash__ or __eq__ of a key that calls more than is known to look only")
    }
}

/// Reads, decides, calls, and makes what nobody else has.
fn is_pure(op: Op) -> bool {
    matches!(
        op,
        Op::PopTop
            | Op::PushNull
            | Op::Swap(_)
            | Op::Copy(_)
            | Op::Unary(_)
            | Op::ToBool
            | Op::Binary { inplace: false, .. }
            | Op::Compare(_)
            | Op::Is { .. }
            | Op::BinarySubscr
            | Op::LoadConst(_)
            | Op::LoadFast(_)
            | Op::StoreFast(_)
            | Op::LoadGlobal { .. }
            | Op::LoadAttr { .. }
            | Op::LoadSuperAttr { .. }
            | Op::LoadDeref(_)
            | Op::CopyFreeVars(_)
            | Op::BuildTuple(_)
            | Op::BuildString(_)
            | Op::FormatValue { .. }
            | Op::ConvertValue(_)
            | Op::KwNames(_)
            | Op::Call { .. }
            | Op::CallKw { .. }
            | Op::Jump(_)
            | Op::PopJumpIf { .. }
            | Op::JumpIfOrPop { .. }
            | Op::ReturnValue
    )
}
