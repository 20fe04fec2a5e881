//! Goldens: `tests/lower/*.ir` hold a graph, then (after a line of dashes) what it lowers to. `BLESS=1` rewrites them.

use flambeau_ir::text::parse_graph;
use flambeau_lower::{LowerOptions, lower};
use std::fmt::Write;
use std::path::PathBuf;

/// Files whose names begin so are for a back end with memory of its own.
const OWN_MEMORY: &str = "own_memory";

fn lowered(text: &str, own_memory: bool) -> String {
    let graph = parse_graph(text).expect("the golden's graph parses");
    assert_eq!(parse_graph(&graph.to_string()).as_ref(), Ok(&graph), "text form round-trips");
    // For the kind of device that the first tensor is on.
    let first = graph.nodes.iter().find_map(|node| node.meta.as_tensor());
    let (backend, device_kind) = match first.map_or(0, |meta| meta.device.kind) {
        0 => ("cpu", 0),
        other => ("cuda", other),
    };
    let capabilities = Some(flambeau_cpu_artifact::capabilities());
    let options = LowerOptions { backend: backend.into(), device_kind, own_memory, capabilities, ..Default::default() };
    match lower(&graph, &[], &options) {
        Ok(lowered) => {
            let mut out = String::new();
            lowered.kernels.iter().for_each(|k| write!(out, "{k}").expect("strings take text"));
            write!(out, "{}", lowered.plan).expect("strings take text");
            out
        }
        Err(reason) => format!("{}: {}\n", reason.code.name(), reason.detail),
    }
}

#[test]
fn goldens() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/lower");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("goldens").map(|e| e.expect("entry").path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "ir")) {
        let text = std::fs::read_to_string(file).expect("golden");
        let graph = text.split("\n----\n").next().unwrap_or_default().trim_end();
        let own_memory = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_MEMORY));
        let now = format!("{graph}\n----\n{}", lowered(graph, own_memory));
        if now == text {
            continue;
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(file, now).expect("golden written");
        } else {
            wrong.push(format!("{}:\n{now}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "run with BLESS=1 if these are right:\n{}", wrong.join("\n"));
}
