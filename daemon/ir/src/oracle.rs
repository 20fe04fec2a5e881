//! Questions a trace asks about the client's objects, and their answers. Answering runs no user code.

use crate::code::Const;
use crate::graph::{Target, ValueMeta};
use crate::object::{Described, ObjId};
use crate::reason::Reason;
use crate::tensor::TensorMeta;
use serde::{Deserialize, Serialize};

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
    /// `sys.modules.get(name)`.
    SysModule(String),
    /// Calls an allow-listed pure built-in, by path, on constants.
    Eval {
        /// e.g. `math.sqrt`, `builtins.str.join`.
        path: String,
        /// Positional arguments.
        args: Vec<Const>,
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

/// An argument of [`Question::TorchCall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum QueryArg {
    /// A tensor with this metadata.
    Tensor(TensorMeta),
    /// A constant.
    Const(Const),
    /// A list.
    List(Vec<QueryArg>),
    /// A tuple.
    Tuple(Vec<QueryArg>),
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
    /// A constant.
    Const(Const),
    /// It raised: exception type name and message.
    Raised(String, String),
    /// Metadata of a torch call's result.
    Meta(ValueMeta),
    /// The client cannot answer, with a reason that becomes the graph break's.
    Refused(Reason),
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
