//! Lowers a graph's text from standard input; prints plan and kernels as JSON, or with `--text` as text.

use flambeau_ir::text::parse_graph;
use flambeau_lower::{LowerOptions, lower};
use std::io::Read;

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a graph on standard input");
    let graph = parse_graph(&text).expect("a graph");
    let started = std::time::Instant::now();
    match lower(&graph, &[], &LowerOptions::default()) {
        Ok(lowered) if std::env::args().any(|a| a == "--text") => {
            lowered.kernels.iter().for_each(|k| print!("{k}"));
            print!("{}", lowered.plan);
            eprintln!("{:?}", started.elapsed());
        }
        Ok(lowered) => {
            let out = serde_json::json!({ "plan": lowered.plan, "kernels": lowered.kernels });
            println!("{out}");
        }
        Err(reason) => {
            eprintln!("{}: {} {:?}", reason.code.name(), reason.detail, reason.stack);
            std::process::exit(1);
        }
    }
}
