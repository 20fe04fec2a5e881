//! Kernels of the CUDA back end as text: kernel IR to CUDA C, and the launches that it is for. Which thread does what is chosen
//! here (`schedule`); what an operation becomes is in `flambeau_c_text`. No compiler and no device here.
//!
//! A kernel whose points are alike is one loop over all of them (`free`). Any other is teams of threads, each of which does a
//! row, stage by stage (`row`), and adds up what its threads found (`team`). Rows too long for registers are read once for what
//! takes two stages where it can be found in one (`joint`). Where there are few long rows, a row is divided
//! between blocks, and a stage that needs what they found is another launch.

mod entry;
mod free;
mod joint;
mod place;
mod reduction;
mod row;
mod schedule;
mod team;
mod vector;

use flambeau_c_text::{OPERATIONS, Text, simplified};
use flambeau_cuda_artifact::{Count, Fast, Header, Launch, capabilities};
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::simplify::is_free;
use schedule::lie_along_points;
use vector::Vector;

const PRELUDE: &str = include_str!("prelude.cuh");
const THREADS: &str = include_str!("threads.cuh");
const JOINT: &str = include_str!("joint.cuh");

/// A kernel in CUDA C.
pub struct Source {
    /// The program.
    pub text: String,
    /// Of the artifact with what is made of it.
    pub header: Header,
}

/// The program of a kernel; `target` is what it will be compiled for.
pub fn source(kernel: &Kernel, target: &str) -> Result<Source, String> {
    capabilities().check(kernel)?;
    let kernel = simplified(kernel)?;
    let name = identifier(&kernel.name);
    let mut text = Text::default();
    let vector = Vector::of(&kernel).filter(|_| is_free(&kernel) || !lie_along_points(&kernel));
    // What is hardly ever launched is short, as it is compiled too.
    let one = Vector { short: vector.is_some(), ..Vector::none(&kernel) };
    let plain = launches(&kernel, &name, &one, &mut text);
    let mut scratch = plain.scratch;
    let mut joins = plain.joins;
    let fast = vector.map(|vector| {
        let fast = launches(&kernel, &format!("{name}_by_{}", vector.width), &vector, &mut text);
        joins |= fast.joins;
        // Both count the same extents.
        let more = |scratch: &Count| fast.scratch.as_ref().is_some_and(|other| other.factor > scratch.factor);
        if scratch.as_ref().is_none_or(more) {
            scratch = fast.scratch;
        }
        Fast { alignments: vector.alignments, multiples: vector.multiples, launches: fast.launches }
    });
    let (buffers, scalars) = (kernel.params.len() as u32, kernel.scalars);
    let (target, plain) = (target.to_owned(), plain.launches);
    let header = Header { target, buffers, scalars, scratch, plain, fast, hash: [0; 32] };
    let joint = if joins { ["\n", JOINT] } else { ["", ""] };
    let text = [PRELUDE, OPERATIONS, "\n", THREADS, joint[0], joint[1], &text.text].concat();
    Ok(Source { text, header })
}

/// What does a whole kernel.
struct Functions {
    launches: Vec<Launch>,
    scratch: Option<Count>,
    /// Whether they need `joint.cuh`.
    joins: bool,
}

/// Writes the functions of one way to do a kernel. Their names begin with `name`.
fn launches(kernel: &Kernel, name: &str, vector: &Vector, text: &mut Text) -> Functions {
    if is_free(kernel) {
        Functions { launches: vec![free::write(kernel, name, vector, text)], scratch: None, joins: false }
    } else {
        row::write(kernel, name, vector, text)
    }
}

/// The kernel's name as far as C takes it: what profilers show.
fn identifier(name: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("fused_{}", name.chars().map(known).take(100).collect::<String>())
}

#[cfg(test)]
mod tests;
