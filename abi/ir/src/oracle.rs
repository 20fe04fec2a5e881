//! Questions a trace asks about the client's objects, and their answers. Answering runs no user code.

use crate::code::Const;
use crate::graph::{Target, ValueMeta};
use crate::object::{Described, Heap, ObjId, PrefetchedItem, PrefetchedLookup};
use crate::reason::Reason;
use crate::source::CallKey;
use crate::tensor::TensorMeta;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// One question. Questions about values read raw state only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// Describe these objects (and what they reach, to the client's prefetch depth).
    Describe(Vec<ObjId>),
    /// `dict.get(key)` by exact constant key, for a dict or namespace; no user `__eq__` or `__hash__` runs.
    DictItem {
        /// The dict.
        dict: ObjId,
        /// Its key.
        key: Const,
    },
    /// The first class of `class.__mro__` whose own dict has `name`, and the raw value there.
    TypeLookup {
        /// A type.
        class: ObjId,
        /// The attribute.
        name: String,
    },
    /// The raw value of member descriptor (slot) `name` of `object`.
    Slot {
        /// The object.
        object: ObjId,
        /// The slot's name.
        name: String,
    },
    /// The result that a function with an `lru_cache` keeps for a call, or what it would call.
    Cached {
        /// The function.
        function: ObjId,
        /// The arguments.
        key: CallKey<ObjId>,
    },
    /// Whether a class is registered with this abstract class or with one of its subclasses.
    Registered(ObjId),
    /// Whether `class` is registered with the abstract class at a trusted path, or with one below it.
    RegisteredWith {
        /// A type.
        class: ObjId,
        /// e.g. `collections.abc.Sequence`.
        path: Arc<str>,
    },
    /// Whether `class` is registered with an abstract class of the user's, or with one below it.
    RegisteredWithOwn {
        /// A type.
        class: ObjId,
        /// The abstract class.
        with: ObjId,
    },
    /// What a context variable gives.
    ContextValue {
        /// The variable.
        variable: ObjId,
        /// Whether its own default counts.
        own_default: bool,
    },
    /// A constant of a function's code, by its index there.
    CodeConst {
        /// The function.
        function: ObjId,
        /// The index.
        index: u32,
    },
    /// The elements of a set that the trace made, in their order.
    SetOrder {
        /// How it was made (`set_order` of `flambeau/_begun.py`).
        made: Const,
        /// The sets from outside that have a part in it.
        sets: Vec<ObjId>,
    },
    /// What patterns take the instances of a class for.
    Collection(ObjId),
    /// Whether there are weak references to an instance of a class of Python.
    WeakReferences(ObjId),
    /// `.grad` of a tensor that is a leaf; torch warns of reading that of others.
    Grad(ObjId),
    /// Whether there are hooks on the gradients of these leaves.
    Hooked(Vec<ObjId>),
    /// `sys.modules.get(name)`.
    SysModule(String),
    /// Calls an allow-listed pure built-in, by path, on plain values.
    Eval {
        /// e.g. `math.sqrt`, `builtins.str.join`.
        path: String,
        /// Arguments.
        args: Vec<Plain>,
        /// Names of the last of them, which are given by keyword.
        names: Vec<Arc<str>>,
    },
    /// The output metadata of a torch call on tensors with this metadata (fake tensors on the real device).
    TorchCall {
        /// The callable.
        target: Target,
        /// Positional arguments.
        args: Vec<QueryArg>,
        /// Keyword arguments.
        kwargs: Vec<(String, QueryArg)>,
        /// The trace's simulated grad mode, autocast and default dtype.
        ambient: Box<crate::guard::Ambient>,
    },
}

/// A value of exact built-in types: a constant, a container of its own, an immutable object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Plain {
    /// A constant.
    Const(Const),
    /// A tuple that is no constant.
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Plain>),
    /// A list.
    List(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Plain>),
    /// A dict, in order.
    Dict(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<(Const, Plain)>),
    /// An immutable object of the type of C at this path: what the function at the next path gives for these arguments.
    Object(Arc<str>, Arc<str>, #[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Plain>),
}

impl Plain {
    /// The constant, if it is one.
    pub fn as_const(&self) -> Option<&Const> {
        match self {
            Plain::Const(value) => Some(value),
            _ => None,
        }
    }
}

/// An argument of [`Question::TorchCall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum QueryArg {
    /// A tensor with this metadata.
    Tensor(TensorMeta),
    /// A constant.
    Const(Const),
    /// A list.
    List(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<QueryArg>),
    /// A tuple.
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<QueryArg>),
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What was asked for.
    pub value: AnswerValue,
    /// Descriptions of objects named for the first time.
    pub described: Described,
}

/// The kinds of answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerValue {
    /// The objects asked for are in [`Answer::described`].
    Described,
    /// An object, or that there is none.
    Object(Option<ObjId>),
    /// Found on the type of the first id: the second.
    Found(ObjId, ObjId),
    /// Not found.
    Missing,
    /// No result is kept, this is the function to call, and so many results more fit into the cache.
    NotCached(ObjId, u32),
    /// A constant.
    Const(Const),
    /// What a call made anew.
    Made(Plain),
    /// What patterns take instances for.
    Collection(crate::guard::Collection),
    /// It raised: exception type name and message.
    Raised(String, String),
    /// Metadata of a torch call's result.
    Meta(ValueMeta),
    /// A torch call returns this argument itself; keyword arguments count on from the positional ones.
    Same(u32),
    /// The client cannot answer, with a reason that becomes the graph break's.
    Refused(Reason),
    /// Metadata of the result of a torch call that writes to these arguments, counted as in [`AnswerValue::Same`].
    Written(ValueMeta, Vec<u32>),
    /// As [`AnswerValue::Meta`], of results that share memory neither with an argument nor with each other. With the schema
    /// of the overload that is called, where that is one of `torch.ops`.
    Fresh(ValueMeta, Option<String>),
}

/// Answers questions: a live client, or a recording.
pub trait Oracle {
    /// Answers in the order asked.
    fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError>;
}

/// The client went away, or the recording has no such answer.
#[derive(Debug, thiserror::Error)]
#[error("the client did not answer: {0}")]
pub struct OracleError(pub String);

/// Owner and value of a type look-up, or that there is none.
type Lookup = Option<(ObjId, ObjId)>;

/// An oracle that serves what was prefetched and passes the rest on, in one batch. Both a live compile and a replay put it
/// before the real one, so that the tracer asks in one way.
pub struct Prefetched<'a> {
    inner: &'a mut dyn Oracle,
    items: HashMap<(ObjId, Arc<str>), Option<ObjId>>,
    lookups: HashMap<(ObjId, Arc<str>), Lookup>,
}

impl<'a> Prefetched<'a> {
    /// Serves the answers that came with `heap`.
    pub fn new(heap: &Heap, inner: &'a mut dyn Oracle) -> Self {
        let mut prefetched = Prefetched { inner, items: HashMap::new(), lookups: HashMap::new() };
        prefetched.learn(&heap.items, &heap.lookups);
        prefetched
    }

    fn learn(&mut self, items: &[PrefetchedItem], lookups: &[PrefetchedLookup]) {
        self.items.extend(items.iter().map(|i| ((i.dict, i.key.clone()), i.value)));
        self.lookups.extend(lookups.iter().map(|l| ((l.class, l.name.clone()), l.found)));
    }

    fn known(&self, question: &Question) -> Option<AnswerValue> {
        match question {
            Question::DictItem { dict, key: Const::Str(key) } => {
                self.items.get(&(*dict, key.clone())).map(|value| AnswerValue::Object(*value))
            }
            Question::TypeLookup { class, name } => {
                self.lookups.get(&(*class, name.as_str().into())).map(|found| match found {
                    Some((owner, value)) => AnswerValue::Found(*owner, *value),
                    None => AnswerValue::Missing,
                })
            }
            _ => None,
        }
    }
}

impl Oracle for Prefetched<'_> {
    fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let known: Vec<Option<AnswerValue>> = questions.iter().map(|q| self.known(q)).collect();
        let rest: Vec<Question> =
            questions.iter().zip(&known).filter(|(_, k)| k.is_none()).map(|(q, _)| q.clone()).collect();
        let asked = if rest.is_empty() { Vec::new() } else { self.inner.ask(&rest)? };
        for answer in &asked {
            self.learn(&answer.described.items, &answer.described.lookups);
        }
        let mut asked = asked.into_iter();
        known
            .into_iter()
            .map(|known| match known {
                Some(value) => Ok(Answer { value, described: Described::default() }),
                None => asked.next().ok_or_else(|| OracleError("fewer answers than questions".into())),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(usize);

    impl Oracle for Counting {
        fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
            self.0 += questions.len();
            Ok(questions
                .iter()
                .map(|_| Answer { value: AnswerValue::Missing, described: Described::default() })
                .collect())
        }
    }

    #[test]
    fn prefetched_answers_are_served_and_the_rest_is_asked() {
        let mut heap = Heap::default();
        heap.items.push(PrefetchedItem { dict: ObjId(1), key: "x".into(), value: Some(ObjId(7)) });
        heap.lookups.push(PrefetchedLookup { class: ObjId(2), name: "f".into(), found: None });
        let mut inner = Counting(0);
        let mut oracle = Prefetched::new(&heap, &mut inner);
        let questions = [
            Question::DictItem { dict: ObjId(1), key: Const::str("x") },
            Question::DictItem { dict: ObjId(1), key: Const::str("y") },
            Question::TypeLookup { class: ObjId(2), name: "f".into() },
        ];
        let values: Vec<AnswerValue> = oracle.ask(&questions).unwrap().into_iter().map(|a| a.value).collect();
        assert_eq!(values, [AnswerValue::Object(Some(ObjId(7))), AnswerValue::Missing, AnswerValue::Missing]);
        assert_eq!(inner.0, 1);
    }
}
