//! Exceptions raised inside a trace.

use crate::state::broken::Broken;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Class, Instance, InstanceId, Payload, Raised, Value};
use flambeau_ir::code::Const;
use flambeau_ir::guard::GuardKind;
use flambeau_ir::reason::{Reason, ReasonCode};
use indexmap::IndexMap;
use std::rc::Rc;

/// Built-in exceptions with their bases up to `BaseException`.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    ("BaseException", &[]),
    ("Exception", &["BaseException"]),
    ("ArithmeticError", &["Exception", "BaseException"]),
    ("AssertionError", &["Exception", "BaseException"]),
    ("AttributeError", &["Exception", "BaseException"]),
    ("EOFError", &["Exception", "BaseException"]),
    ("FloatingPointError", &["ArithmeticError", "Exception", "BaseException"]),
    ("ImportError", &["Exception", "BaseException"]),
    ("IndexError", &["LookupError", "Exception", "BaseException"]),
    ("KeyError", &["LookupError", "Exception", "BaseException"]),
    ("LookupError", &["Exception", "BaseException"]),
    ("ModuleNotFoundError", &["ImportError", "Exception", "BaseException"]),
    ("NameError", &["Exception", "BaseException"]),
    ("NotImplementedError", &["RuntimeError", "Exception", "BaseException"]),
    ("OSError", &["Exception", "BaseException"]),
    ("OverflowError", &["ArithmeticError", "Exception", "BaseException"]),
    ("RecursionError", &["RuntimeError", "Exception", "BaseException"]),
    ("RuntimeError", &["Exception", "BaseException"]),
    ("StopIteration", &["Exception", "BaseException"]),
    ("TypeError", &["Exception", "BaseException"]),
    ("UnboundLocalError", &["NameError", "Exception", "BaseException"]),
    ("ValueError", &["Exception", "BaseException"]),
    ("ZeroDivisionError", &["ArithmeticError", "Exception", "BaseException"]),
    ("GeneratorExit", &["BaseException"]),
];

/// What C keeps of built-in exceptions beside their `args`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parts {
    /// Attributes, of several arguments.
    OfSeveral,
    /// The first argument.
    Value,
    /// Attributes, made of the arguments by its own `__new__` or `__init__`.
    Own,
    /// Objects that it uses again.
    Memory,
}

const WITH_PARTS: &[(&str, Parts)] = &[
    ("BaseExceptionGroup", Parts::Own),
    ("ImportError", Parts::OfSeveral),
    ("MemoryError", Parts::Memory),
    ("OSError", Parts::OfSeveral),
    ("StopIteration", Parts::Value),
    ("SyntaxError", Parts::OfSeveral),
    ("SystemExit", Parts::OfSeveral),
    ("UnicodeDecodeError", Parts::Own),
    ("UnicodeEncodeError", Parts::Own),
    ("UnicodeTranslateError", Parts::Own),
];

impl Parts {
    /// Of a class; `None` if there are none.
    pub(crate) fn of(class: &Class) -> Option<Parts> {
        let derived = |(name, _): &&(&str, Parts)| class.derives(&format!("builtins.{name}"));
        WITH_PARTS.iter().find(derived).map(|(_, parts)| *parts)
    }
}

impl Tracer<'_> {
    /// Whether the trace can raise a built-in exception with this name.
    pub(crate) fn is_exception(name: &str) -> bool {
        EXCEPTIONS.iter().any(|(known, _)| *known == name)
    }

    /// The class of a built-in exception, by a name that [`Tracer::is_exception`] knows; `Exception` for others.
    pub fn exception_class(&mut self, name: &str) -> Rc<Class> {
        let known = EXCEPTIONS.iter().find(|(n, _)| *n == name).unwrap_or(&EXCEPTIONS[1]);
        if let Some(class) = self.builtin_classes.get(known.0) {
            return class.clone();
        }
        let bases: Vec<String> = known.1.iter().map(|b| format!("builtins.{b}")).collect();
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        let class = Class::builtin(&format!("builtins.{}", known.0), &bases);
        self.builtin_classes.insert(known.0, class.clone());
        class
    }

    /// A new exception of this class.
    pub fn new_exception(&mut self, class: Rc<Class>, args: Vec<Value>) -> Value {
        let attrs = class.is_python.then(|| self.fresh_attrs());
        let instance = Instance {
            class,
            attrs,
            slots: IndexMap::new(),
            slot_writes: IndexMap::new(),
            payload: Payload::Exception(Box::new(Raised { args, ..Raised::default() })),
            origin: None,
        };
        Value::Instance(self.arenas.instances.push(instance))
    }

    /// A traceback: true, not `None`, and nothing in it can be read.
    pub(crate) fn traceback(&mut self) -> Value {
        self.unreadable("types.TracebackType")
    }

    /// An object of a built-in type that the trace may pass on, but neither read nor let out.
    pub(crate) fn unreadable(&mut self, class: &'static str) -> Value {
        let class = self.builtin_class(class);
        let instance = Instance {
            class,
            attrs: None,
            slots: IndexMap::new(),
            slot_writes: IndexMap::new(),
            payload: Payload::Native(vec![]),
            origin: None,
        };
        Value::Instance(self.arenas.instances.push(instance))
    }

    /// Raises a built-in exception with a message.
    pub fn raise_named<T>(&mut self, name: &str, message: &str) -> Flow<T> {
        self.raise_with(name, vec![Value::str(message)])
    }

    /// As [`Tracer::raise_named`] with a message that Python words in another way.
    pub fn raise_inexact<T>(&mut self, name: &str, message: &str) -> Flow<T> {
        let class = self.exception_class(name);
        let exception = self.new_exception(class, vec![Value::str(message)]);
        if let Value::Instance(id) = exception {
            self.inexact.insert(id.0, self.instruction());
        }
        Err(Stop::Raise(exception))
    }

    /// Raises what a built-in says of constants. Of an instance of a subclass Python may name the class.
    pub(crate) fn raise_folded<T>(&mut self, name: &str, message: &str) -> Flow<T> {
        if self.flattened.get() == self.instruction() {
            self.raise_inexact(name, message)
        } else {
            self.raise_named(name, message)
        }
    }

    /// The number of the instruction that the innermost frame is at.
    pub(crate) fn instruction(&self) -> usize {
        self.stack.last().map_or(0, |info| info.executed)
    }

    /// An exception whose message the tracer words otherwise than Python does may be matched by type. Where the message is
    /// read, what raised it is left to plain Python.
    pub(crate) fn inexact_text<T>(&mut self, id: InstanceId) -> Flow<T> {
        let class = &self.arenas.instances[id].class.name.qualname;
        let detail = format!("the message of a {class} that Python itself raises");
        let reason = Reason { stack: self.locations(), ..Reason::new(ReasonCode::UnsupportedObject, detail) };
        self.broken = self.inexact.get(&id.0).map(|raised| Broken::Again(*raised));
        Err(Stop::Break(Box::new(reason)))
    }

    /// What an exception holds that the trace made. Raising it is no write that anybody waits for.
    pub(crate) fn raised_mut(&mut self, exception: &Value) -> Option<&mut Raised> {
        let Value::Instance(id) = exception else { return None };
        match &mut self.arenas.instances.note(*id).payload {
            Payload::Exception(raised) => Some(raised),
            _ => None,
        }
    }

    /// Sets `__cause__`, as `raise ... from` does.
    pub(crate) fn set_cause(&mut self, exception: &Value, cause: Value) {
        if let Some(raised) = self.raised_mut(exception) {
            raised.cause = (!cause.is_none()).then_some(cause);
            raised.suppress_context = true;
        }
    }

    /// Sets `__context__` of an exception that is raised now (`_PyErr_SetObject` in CPython's `Python/errors.c`).
    pub(crate) fn set_context(&mut self, exception: &Value) {
        let handled = self.handling.last().cloned();
        let Some(raised) = self.raised_mut(exception) else { return };
        raised.is_raised = true;
        let Some(handled) = handled else {
            raised.within_callers = true;
            return;
        };
        let is_it = |other: &Value| matches!((other, exception), (Value::Instance(a), Value::Instance(b)) if a == b);
        if is_it(&handled) {
            return;
        }
        (raised.context, raised.within_callers) = (Some(handled.clone()), false);
        // No exception is in its own chain.
        let mut outer = handled;
        while let Some(raised) = self.raised_mut(&outer) {
            match raised.context.clone() {
                None => return,
                Some(context) if is_it(&context) => raised.context = None,
                Some(context) => outer = context,
            }
        }
    }

    /// Sets the context of an exception that the instruction raised, and not one that only passes through.
    pub(crate) fn set_first_context(&mut self, exception: &Value) {
        if self.raised_mut(exception).is_some_and(|raised| !raised.is_raised) {
            self.set_context(exception);
        }
    }

    /// The exception that is handled now: `None` where there is none, which becomes a fact of the frame's callers.
    pub(crate) fn handled(&mut self) -> Flow<Value> {
        const HANDLED: &str = "sys.exception";
        if let Some(handled) = self.handling.last() {
            return Ok(handled.clone());
        }
        let of_callers = self.eval(HANDLED, vec![])?;
        if !of_callers.is_none() {
            return stop(ReasonCode::UnsupportedObject, "an exception that a caller of the frame handles");
        }
        let source = self.function_source();
        self.guard(source, GuardKind::Gives(HANDLED.into(), Const::None));
        Ok(of_callers)
    }

    /// `exception.__context__`
    pub(crate) fn context_of(&mut self, exception: InstanceId) -> Flow<Value> {
        let Payload::Exception(raised) = &self.arenas.instances[exception].payload else { return Ok(Value::NONE) };
        let context = raised.context.clone().unwrap_or(Value::NONE);
        if raised.within_callers {
            let handling = std::mem::take(&mut self.handling);
            let of_callers = self.handled();
            self.handling = handling;
            of_callers?;
        }
        Ok(context)
    }

    /// Raises a built-in exception with these arguments.
    pub fn raise_with<T>(&mut self, name: &str, args: Vec<Value>) -> Flow<T> {
        let class = self.exception_class(name);
        Err(Stop::Raise(self.new_exception(class, args)))
    }

    /// Whether `result` raised a built-in exception with this name (or a subclass): then `Ok(None)`.
    pub fn catch<T>(&mut self, result: Flow<T>, name: &str) -> Flow<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Stop::Raise(exception)) if self.class_of(&exception)?.derives(&format!("builtins.{name}")) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
