//! What the daemon's stages hand to each other and the client never sees: what tracing a frame yields, and the graphs that
//! torch calls are lowered through.

pub mod graph;
mod print;
pub mod rebuild;
pub mod trace;
