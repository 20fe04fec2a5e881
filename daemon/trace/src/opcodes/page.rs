//! The page that says which opcodes of which version traces go through.

use super::is_traced;
use flambeau_bytecode::Op;
use flambeau_bytecode::dialect::{Becomes, Opcode};
use flambeau_bytecode::versions::VERSIONS;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Arguments that are tried; what an opcode does may depend on it.
const ARGUMENTS: std::ops::Range<u32> = 0..32;

/// `docs/opcodes.md`
pub fn opcodes_page() -> String {
    let mut page = String::from(
        "# Opcodes\n\nWhat flambeau does with the opcodes of each version of CPython. *Traced*: a trace goes through it. *Breaks*: the \
         graph ends, the instruction runs as plain Python. *Skipped*: it does nothing that a trace would see. *Some*: traced, \
         but for rare arguments. Written from the tables in `daemon/bytecode` by `cargo xtask docs`.\n\n| opcode |",
    );
    let mut rows: BTreeMap<&str, BTreeMap<(u8, u8), &str>> = BTreeMap::new();
    for (version, dialect) in VERSIONS {
        _ = write!(page, " {}.{} |", version.0, version.1);
        for opcode in dialect.opcodes {
            rows.entry(opcode.name).or_default().insert(*version, handled(opcode));
        }
    }
    _ = writeln!(page, "\n|---{}|", "|---".repeat(VERSIONS.len()));
    for (name, handled) in rows {
        let cells = VERSIONS.iter().map(|(version, _)| handled.get(version).copied().unwrap_or(""));
        _ = writeln!(page, "| `{name}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    page
}

fn handled(opcode: &Opcode) -> &'static str {
    let made = ARGUMENTS.map(opcode.make);
    let known: Vec<Vec<Op>> = made
        .filter_map(|made| match made {
            Becomes::Op(op) => Some(vec![op]),
            Becomes::Two(first, second) => Some(vec![first, second]),
            Becomes::Dropped => Some(vec![]),
            Becomes::Bad => None,
        })
        .collect();
    let traced = known.iter().filter(|ops| ops.iter().all(|op| is_traced(*op))).count();
    match (known.len(), traced) {
        (0, _) => "never in code",
        _ if known.iter().all(Vec::is_empty) => "skipped",
        (all, traced) if all == traced => "traced",
        (_, 0) => "breaks",
        _ => "some",
    }
}
