//! The arguments of a call.

use super::Value;
use std::sync::Arc;

/// The arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Positional.
    pub pos: Vec<Value>,
    /// By keyword, in call order.
    pub kw: Vec<(Arc<str>, Value)>,
}

impl Args {
    /// Positional arguments only.
    pub fn new(pos: Vec<Value>) -> Self {
        Args { pos, kw: vec![] }
    }

    /// All, positional ones first.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.pos.iter().chain(self.kw.iter().map(|(_, value)| value))
    }

    /// Takes a keyword argument out.
    pub fn take_kw(&mut self, name: &str) -> Option<Value> {
        let at = self.kw.iter().position(|(n, _)| &**n == name)?;
        Some(self.kw.remove(at).1)
    }
}
