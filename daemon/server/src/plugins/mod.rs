//! Plug-ins on disk: which there are, what each says of itself, and their code generators.

pub mod backends;
pub mod inspect;
pub mod known;
pub mod registry;
