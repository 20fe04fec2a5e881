//! Code objects and constants as they came from the client. Decoding instructions is `daemon/bytecode`'s work.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// blake3 of a code object's canonical encoding: bytecode without caches, constants, names, flags, file and first line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeHash(pub [u8; 32]);

impl CodeHash {
    /// Names this code above the one that `below` names: a resume function with the one it calls, and so on.
    #[must_use]
    pub fn above(self, below: CodeHash) -> CodeHash {
        CodeHash(*blake3::Hasher::new().update(&self.0).update(&below.0).finalize().as_bytes())
    }
}

impl fmt::Debug for CodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Who owns a file's code; decides where it may break and be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user's, and packages other than torch.
    User,
    /// The standard library's.
    Standard,
    /// Torch's.
    Torch,
    /// Torch's that run what they are given more than once, or under rules of their own.
    Whole,
}

impl Origin {
    /// By a code object's file name.
    pub fn of(filename: &str) -> Origin {
        const WHOLE: [&str; 4] = [
            "/torch/utils/checkpoint.py",
            "/torch/autograd/function.py",
            "/torch/autograd/graph.py",
            // Calls of ops: what implements them runs below torch's dispatcher.
            "/torch/_ops.py",
        ];
        let package = packaged(filename);
        if WHOLE.iter().any(|file| filename.ends_with(file)) || Self::is_front_end(filename) {
            Origin::Whole
        } else if filename.starts_with("<frozen ") || package.is_none() && filename.contains("/lib/python3.") {
            Origin::Standard
        } else if package.is_some_and(|inside| inside.starts_with("torch/")) {
            Origin::Torch
        } else {
            Origin::User
        }
    }

    /// Whether the file is a front end of torch's other compilers, which look at code and record calls themselves: below
    /// them programs run as plain Python.
    pub fn is_front_end(filename: &str) -> bool {
        const FRONT_ENDS: [&str; 9] = [
            "torch/jit/_script.py",
            "torch/jit/_trace.py",
            "torch/jit/_recursive.py",
            "torch/jit/frontend.py",
            "torch/fx/_symbolic_trace.py",
            "torch/fx/experimental/",
            "torch/export/",
            "torch/_export/",
            "torch/_subclasses/",
        ];
        packaged(filename).is_some_and(|inside| FRONT_ENDS.iter().any(|file| inside.starts_with(file)))
    }
}

/// Whether the code with these names is of what `flambeau.disable` makes: plain Python runs it, and what it calls.
pub fn is_disabled(qualname: &str, filename: &str) -> bool {
    qualname == "disable.<locals>.plain" && filename.ends_with("/flambeau/_marks.py")
}

/// The path inside the folder of installed packages.
fn packaged(filename: &str) -> Option<&str> {
    let folders = ["/site-packages/", "/dist-packages/"];
    folders.iter().find_map(|folder| filename.split_once(folder)).map(|(_, inside)| inside)
}

/// A CPython code object. Field meanings are those of CPython's `PyCodeObject`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are CPython's co_* attributes")]
pub struct Code {
    pub hash: CodeHash,
    /// (major, minor) of the interpreter that made it.
    pub python: (u8, u8),
    pub name: String,
    pub qualname: String,
    pub filename: String,
    pub firstlineno: u32,
    pub argcount: u32,
    pub posonlyargcount: u32,
    pub kwonlyargcount: u32,
    pub stacksize: u32,
    pub flags: u32,
    /// `co_code`: de-specialised bytecode, caches included.
    pub bytecode: Vec<u8>,
    #[serde(deserialize_with = "crate::bounds::items")]
    pub consts: Vec<Const>,
    pub names: Vec<String>,
    pub localsplusnames: Vec<String>,
    /// One byte per entry of `localsplusnames`: [`Code::LOCAL`], [`Code::CELL`], [`Code::FREE`].
    pub localspluskinds: Vec<u8>,
    pub linetable: Vec<u8>,
    pub exceptiontable: Vec<u8>,
}

impl Code {
    /// The last name of the code of a resume function, which takes up a frame behind a graph break. No user's code can have
    /// such a name.
    pub const RESUME_NAME: &str = ".resume";

    /// Whether it is the code of a resume function.
    pub fn is_resume(&self) -> bool {
        self.names.last().is_some_and(|name| name == Code::RESUME_NAME)
    }
}

/// An immutable Python value that code, guards and graphs may carry. Equality is by type and bits (`0.0 != -0.0`,
/// a NaN equals itself, `1 != True`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the variants are Python's types")]
pub enum Const {
    None,
    Ellipsis,
    NotImplemented,
    Bool(bool),
    Int(i64),
    /// Two's complement, little endian, for what does not fit an `i64`.
    BigInt(Vec<u8>),
    Float(f64),
    Complex(f64, f64),
    Str(Arc<str>),
    Bytes(Vec<u8>),
    Tuple(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Const>),
    FrozenSet(#[serde(deserialize_with = "crate::bounds::nested_items")] Vec<Const>),
    Slice(#[serde(deserialize_with = "crate::bounds::nested")] Box<[Const; 3]>),
    Code(#[serde(deserialize_with = "crate::bounds::nested")] Arc<Code>),
    Dtype(crate::kernel::DType),
    Device(crate::tensor::Device),
    /// `torch.strided` as `strided`.
    Layout(Arc<str>),
    /// `torch.contiguous_format` as `contiguous_format`.
    MemoryFormat(Arc<str>),
}

impl PartialEq for Const {
    fn eq(&self, other: &Self) -> bool {
        use Const as C;
        match (self, other) {
            (C::None, C::None) | (C::Ellipsis, C::Ellipsis) | (C::NotImplemented, C::NotImplemented) => true,
            (C::Bool(a), C::Bool(b)) => a == b,
            (C::Int(a), C::Int(b)) => a == b,
            (C::BigInt(a), C::BigInt(b)) | (C::Bytes(a), C::Bytes(b)) => a == b,
            (C::Float(a), C::Float(b)) => a.to_bits() == b.to_bits(),
            (C::Complex(a, b), C::Complex(c, d)) => a.to_bits() == c.to_bits() && b.to_bits() == d.to_bits(),
            (C::Str(a), C::Str(b)) | (C::Layout(a), C::Layout(b)) | (C::MemoryFormat(a), C::MemoryFormat(b)) => a == b,
            (C::Tuple(a), C::Tuple(b)) | (C::FrozenSet(a), C::FrozenSet(b)) => a == b,
            (C::Slice(a), C::Slice(b)) => a == b,
            (C::Code(a), C::Code(b)) => a.hash == b.hash,
            (C::Dtype(a), C::Dtype(b)) => a == b,
            (C::Device(a), C::Device(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Const {}

impl std::hash::Hash for Const {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Const::None | Const::Ellipsis | Const::NotImplemented => {}
            Const::Bool(b) => b.hash(state),
            Const::Int(i) => i.hash(state),
            Const::BigInt(b) | Const::Bytes(b) => b.hash(state),
            Const::Float(x) => x.to_bits().hash(state),
            Const::Complex(x, y) => (x.to_bits(), y.to_bits()).hash(state),
            Const::Str(s) | Const::Layout(s) | Const::MemoryFormat(s) => s.hash(state),
            Const::Tuple(v) | Const::FrozenSet(v) => v.hash(state),
            Const::Slice(v) => v.hash(state),
            Const::Code(c) => c.hash.hash(state),
            Const::Dtype(d) => d.hash(state),
            Const::Device(d) => d.hash(state),
        }
    }
}

impl Const {
    /// A string constant.
    pub fn str(s: &str) -> Const {
        Const::Str(s.into())
    }

    /// Whether all code in it is what its hash says.
    pub fn is_sound(&self) -> bool {
        match self {
            Const::Tuple(parts) | Const::FrozenSet(parts) => parts.iter().all(Const::is_sound),
            Const::Slice(parts) => parts.iter().all(Const::is_sound),
            Const::Code(code) => code.is_sound(),
            _ => true,
        }
    }

    /// Whether Python keeps one object for all that are equal to it.
    pub fn is_singleton(&self) -> bool {
        match self {
            Const::None | Const::Ellipsis | Const::NotImplemented | Const::Bool(_) => true,
            Const::Dtype(_) | Const::Layout(_) | Const::MemoryFormat(_) => true,
            Const::Int(i) => (-5..=256).contains(i),
            // A literal of one character may be another object than what `chr` gives: identifiers have theirs.
            Const::Str(s) => s.is_empty(),
            _ => false,
        }
    }
}

impl Code {
    /// `CO_FAST_LOCAL` of `localspluskinds`: a local variable or parameter.
    pub const LOCAL: u8 = 0x20;
    /// `CO_FAST_CELL`: a variable that inner functions use.
    pub const CELL: u8 = 0x40;
    /// `CO_FAST_FREE`: a variable of an enclosing function.
    pub const FREE: u8 = 0x80;

    /// The hash that names this code: blake3 over every field but `hash` itself.
    pub fn content_hash(&self) -> CodeHash {
        // The encoding of `hash` is its bytes: what follows them is that of all other fields. Writing plain data to memory
        // cannot fail; an empty encoding would only make the hash match nothing.
        let mut bytes = postcard::to_stdvec(self).unwrap_or_default();
        if let Some(hash) = bytes.first_chunk_mut::<32>() {
            *hash = [0; 32];
        }
        CodeHash(*blake3::hash(&bytes).as_bytes())
    }

    /// Whether the code, and all code in its constants, is what its hash says.
    pub fn is_sound(&self) -> bool {
        self.content_hash() == self.hash && self.consts.iter().all(Const::is_sound)
    }
}
