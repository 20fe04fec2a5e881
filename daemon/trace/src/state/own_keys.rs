//! What is known of keys whose class hashes and compares them by Python code.

use super::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Key, Value};
use flambeau_ir::code::Const;
use flambeau_ir::reason::ReasonCode;

/// Objects of classes that hash and compare their objects by Python code, which were keys, and what their code said.
#[derive(Default)]
pub(crate) struct OwnKeys {
    pub known: Vec<OwnKey>,
    /// Calls of such code that run.
    pub running: usize,
    /// Constants that it took the hash of, with that.
    pub hashed: Vec<(Const, i64)>,
}

#[derive(Clone)]
pub(crate) struct OwnKey {
    pub object: Value,
    pub hash: Hash,
    pub key: Key,
}

/// What `__hash__` gave.
#[derive(Clone, PartialEq)]
pub(crate) enum Hash {
    Number(i64),
    /// The hash of something, which is another number in each process.
    Of(Key),
    /// The object's own, by identity.
    Own,
}

impl OwnKeys {
    /// Notes the hash of a constant, where it is of use.
    pub(crate) fn note_hash(&mut self, of: &Const, hash: &Value) {
        if let (true, Some(hash)) = (self.running > 0, hash.as_int()) {
            self.hashed.push((of.clone(), hash));
        }
    }

    /// Whether such code runs.
    pub(crate) fn are_asked(&self) -> bool {
        self.running > 0
    }
}

impl Tracer<'_> {
    /// Breaks where code that runs again, where the trace does not see it, reads what the trace changes: whether that is
    /// done before the code runs is not known.
    pub(crate) fn need_unchanged(&self, changed: bool) -> Flow<()> {
        if changed && self.own_keys.are_asked() {
            return stop(
                ReasonCode::UnsupportedObject,
                "a __hash__ or __eq__ of a key that reads what the frame changed",
            );
        }
        if changed && self.in_one_call {
            return stop(ReasonCode::SideEffect, "code that runs within the graph reads what the frame changed");
        }
        Ok(())
    }
}
