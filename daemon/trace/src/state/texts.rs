//! Strings that the traced code makes or is given: each is an object of its own, though an equal one may be about.
//!
//! Strings of source code are mostly one object where they are equal. What an operation makes is a new one, which `is`
//! tells from all others, here and in what goes on after a break.

use crate::state::tracer::Tracer;
use flambeau_ir::code::Const;
use flambeau_ir::source::SourceId;
use std::collections::HashMap;
use std::sync::Arc;

/// Strings by their address, kept alive so that no other gets it.
#[derive(Default)]
pub(crate) struct Texts {
    /// Those that the trace made.
    made: HashMap<usize, Arc<str>>,
    /// Those from outside, and where they are.
    outside: HashMap<usize, (Arc<str>, SourceId)>,
}

impl Tracer<'_> {
    /// Notes that an operation on `args` made `text`, where it surely is none that was there before.
    pub(crate) fn made_text(&mut self, text: &Const, args: &[Const]) {
        let Const::Str(text) = text else { return };
        // CPython keeps the strings of one character.
        if text.chars().nth(1).is_some() && !args.iter().any(|arg| may_give(arg, text)) {
            self.texts.made.insert(address(text), text.clone());
        }
    }

    /// What tells a new string from equal ones; `None` for any other constant.
    pub(crate) fn new_text(&self, c: &Const) -> Option<usize> {
        let Const::Str(text) = c else { return None };
        Some(address(text)).filter(|address| self.texts.made.contains_key(address))
    }

    /// Notes that this constant is an object from outside.
    pub(crate) fn met_text(&mut self, text: &Const, source: SourceId) {
        if let Const::Str(text) = text {
            self.texts.outside.entry(address(text)).or_insert_with(|| (text.clone(), source));
        }
    }

    /// Where the object from outside is that this constant is, though equal ones may be elsewhere: known of strings.
    pub(crate) fn outside_text(&self, c: &Const) -> Option<SourceId> {
        let Const::Str(text) = c else { return None };
        self.texts.outside.get(&address(text)).map(|(_, source)| *source)
    }

    /// `a is b` of equal constants that are no singletons, where it is known. An operation that changes nothing may give
    /// a string itself, which is not kept track of.
    pub(crate) fn is_same_text(&self, a: &Const, b: &Const) -> Option<bool> {
        if let (Const::Str(x), Const::Str(y)) = (a, b)
            && Arc::ptr_eq(x, y)
        {
            // One value that was passed on.
            return Some(true);
        }
        Some(self.new_text(a)? == self.new_text(b)?)
    }
}

fn address(text: &Arc<str>) -> usize {
    Arc::as_ptr(text).cast::<u8>() as usize
}

/// Whether an operation on this may give a string that was there before: the argument, a part of it, or a name.
fn may_give(arg: &Const, text: &str) -> bool {
    match arg {
        Const::Str(s) => **s == *text,
        Const::Tuple(items) | Const::FrozenSet(items) => items.iter().any(|item| may_give(item, text)),
        Const::Int(_) | Const::BigInt(_) | Const::Float(_) | Const::Complex(..) => false,
        Const::Bytes(_) | Const::Slice(_) => false,
        _ => true,
    }
}
