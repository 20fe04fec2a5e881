//! Text forms of graphs, guards and plans. Graphs and kernels parse back to what was printed.
//!
//! A graph, one node a line (sizes in brackets; strides in braces unless row-major; `!` where a gradient is required):
//!
//! ```text
//! graph {
//!   %x: f32[8, s0] = placeholder 3
//!   %y: f32[s0, 8]{1, s0} = .transpose(%x, 0, 1) # 1
//!   return %y
//!   # 1: "model.py" 12 forward
//! }
//! ```

mod lex;
mod parse;
pub mod print;
pub(crate) mod print_guard;
mod print_plan;
mod python;
mod reasons;

pub use lex::ParseError;
pub use parse::parse_graph;
pub use print_guard::{guard, symbol};
pub use python::{constant, python};
pub use reasons::reasons_page;
