//! What the daemon and clients decode or parse of frames and graphs, and the verifier on frames with something wrong.

use flambeau_ir::code::Const;
use flambeau_ir::dim::{Dim, SymId};
use flambeau_ir::graph::Graph;
use flambeau_ir::plan::CompiledFrame;
use flambeau_ir::text::parse_graph;
use flambeau_ir::verify;
use flambeau_mutate::{Memory, bytes, cases, encodings, text};
use proptest::strategy::Just;

/// As of messages.
const MEMORY: Memory = Memory::per_byte(512);

/// As printed by `Display`, with one of everything.
const GRAPH: &str = r#"graph f64 {
  %x: f32[8, s0]! = placeholder 3
  %n: int(s0) = placeholder 4
  %y: f32[s0, 8]{1, s0} = .transpose(%x, 0, -1) private view # 0
  %z: (f32[], i64[2]@1:0) = torch.thing([%x, (%y, None)], 1.5, -inf, dim(1+2*s0+floordiv(6*s1*s1, max(s0, 2))), "a\"b\u{7f}", slice(None, 2, None), dtype=dtype.bf16, d={"k": %x}, c=tuple(1, frozenset(True)), e=1e-5, f=-0.0, m=memory_format.channels_last, g=device(0, -1), w=complex(1.0, nan), b=bytes.x00ff, i=bigint.xffffffffffffffff00)
  %last: const None = torch._assert(%x)
  return %y, %z
  # 0: "model \"x\".py" 12 "Model.forward.<locals>.f"
}
"#;

#[test]
fn graphs_as_text() {
    let dims =
        "graph { %a: int(mod(min(-9223372036854775808*s0, s1), -1)+floordiv(s0*s1*s2, s1)) = placeholder 0 return }";
    text("graphs as text", &[GRAPH, dims], Memory::per_byte(256), |text| {
        let Ok(graph) = parse_graph(text) else { return false };
        let printed = graph.to_string();
        let again = parse_graph(&printed).map(|graph| graph.to_string());
        assert_eq!(again.as_ref(), Ok(&printed), "what is printed is another graph");
        true
    });
}

/// What clients do with a frame before they make it ready.
#[test]
fn compiled_frames() {
    bytes("compiled frames", encodings::<CompiledFrame>(40), MEMORY, |bytes| {
        let Ok(frame) = postcard::from_bytes::<CompiledFrame>(bytes) else { return false };
        let _ = (verify::frame(&frame, 2), frame.guards.sources.nodes().len(), format!("{:?}", frame.exit).len());
        true
    });
}

#[test]
fn graphs() {
    bytes("graphs", encodings::<Graph>(40), MEMORY, |bytes| {
        let Ok(graph) = postcard::from_bytes::<Graph>(bytes) else { return false };
        // Only what was verified is printed.
        let _ = verify::graph(&graph, 3).map(|()| graph.to_string());
        true
    });
}

/// Sizes are computed with, as they came.
#[test]
fn sizes() {
    let computed = |dim: &Dim| {
        let (two, symbol) = (Dim::Const(2), Dim::sym(SymId(1)));
        let sizes = [dim.add(&symbol), dim.mul(&two), dim.floor_div(&two), dim.modulo(&symbol), symbol.floor_div(dim)];
        for size in sizes.iter().chain([&dim.floor_div(&Dim::Const(-1)), &dim.modulo(&Dim::Const(-1)), dim]) {
            let _ = [i64::MIN, -1, 0, 1, 7, i64::MAX].map(|value| size.eval(&|_| value));
            let _ = (size.to_string(), size.is_handy(), size.as_const());
        }
    };
    bytes("sizes", encodings::<Vec<Dim>>(40), Memory::per_byte(2048), |bytes| {
        let Ok(dims) = postcard::from_bytes::<Vec<Dim>>(bytes) else { return false };
        dims.iter().for_each(computed);
        true
    });
}

/// Tuples in tuples, each of which announces more than there is.
#[test]
fn announced_at_each_depth() {
    let deep = Just([&[1][..], &[10, 255, 255, 1].repeat(50_000)].concat());
    let decode = |bytes: &Vec<u8>| postcard::from_bytes::<Vec<Const>>(bytes).is_ok();
    cases("announced at each depth", deep, MEMORY, Vec::len, decode);
}

#[test]
fn constants() {
    bytes("constants", encodings::<Vec<Const>>(40), MEMORY, |bytes| {
        let Ok(constants) = postcard::from_bytes::<Vec<Const>>(bytes) else { return false };
        let _ = constants.iter().filter(|value| value.is_sound() || value.is_singleton()).count();
        assert!(constants.iter().all(|value| value == value), "a constant differs from itself");
        true
    });
}
