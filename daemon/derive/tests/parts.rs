//! What becomes of small graphs: their derivatives, what is kept for them, and their nodes of autograd.

use flambeau_core::graph::{Core, CoreId, CoreOp, CoreOutput, ExternCall, OutputBase};
use flambeau_derive::{Parts, Wanted, derive, within};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_ir::plan::Taken;
use flambeau_ir::tensor::contiguous_strides;
use std::collections::{BTreeMap, BTreeSet};

fn sizes() -> Vec<Dim> {
    vec![Dim::Const(4)]
}

/// A graph of one input; `make` gives the values that leave it.
fn graph(make: impl FnOnce(&mut dyn FnMut(CoreOp) -> CoreId, CoreId) -> Vec<CoreId>) -> (Core, Vec<CoreId>) {
    let mut core = Core::new(BTreeMap::new());
    let x = core.push(CoreOp::Input(0), DType::F32, sizes());
    let values = make(&mut |op| core.push(op, DType::F32, sizes()), x);
    for id in &values {
        let (sizes, strides) = (sizes(), contiguous_strides(&sizes()));
        core.outputs.push(CoreOutput { base: OutputBase::Value(*id), sizes, strides, offset: 0.into() });
    }
    (core, values)
}

fn parts((core, values): (Core, Vec<CoreId>), made_of: Vec<BTreeSet<u32>>) -> Parts {
    let outputs = vec![true; values.len()];
    let reached = vec![BTreeSet::from([0]); values.len()];
    let shared = vec![false; values.len()];
    let wanted = Wanted { inputs: vec![true], outputs, values, made_of, reached, shared, ..Wanted::default() };
    derive(&core, &wanted).unwrap()
}

#[test]
fn a_result_that_leaves_is_what_its_derivative_reads() {
    let parts = parts(graph(|add, x| vec![add(CoreOp::Unary(Unary::Tanh, x))]), vec![BTreeSet::new()]);
    let [node] = &parts.nodes[..] else { panic!("one node") };
    assert_eq!(node.reads, [Taken::Output(0)]);
    assert_eq!(node.gradients, [Taken::Input(0)]);
    assert_eq!(parts.forward.outputs.len(), 1);
    let text = node.backward.to_string();
    assert!(!text.contains("tanh"), "{text}");
}

#[test]
fn an_input_is_kept_where_the_derivative_reads_it() {
    let parts = parts(graph(|add, x| vec![add(CoreOp::Unary(Unary::Sin, x))]), vec![BTreeSet::new()]);
    assert_eq!(parts.nodes[0].reads, [Taken::Input(0)]);
    assert!(parts.nodes[0].backward.to_string().contains("cos"));
}

#[test]
fn few_operations_are_done_again() {
    // exp(tanh(x)): the second result is computed again from the first.
    let program = graph(|add, x| {
        let inner = add(CoreOp::Unary(Unary::Tanh, x));
        let middle = add(CoreOp::Unary(Unary::Exp, inner));
        vec![add(CoreOp::Unary(Unary::Neg, middle))]
    });
    let parts = parts(program, vec![BTreeSet::new()]);
    assert_eq!(parts.forward.outputs.len(), 2, "{}", parts.forward);
    assert!(parts.nodes[0].backward.to_string().contains("exp"));
}

#[test]
fn gradients_in_the_graph_read_little_of_it() {
    for creates in [false, true] {
        let (mut core, values) = graph(|add, x| {
            let inner = add(CoreOp::Unary(Unary::Tanh, x));
            let middle = add(CoreOp::Unary(Unary::Exp, inner));
            vec![add(CoreOp::Unary(Unary::Neg, middle))]
        });
        let x = core.input_node(0).unwrap();
        let gradients = within(&mut core, &[x], &[(values[0], None)], creates).unwrap();
        assert_eq!(gradients.len(), 1);
        let text = core.to_string();
        // Gradients of gradients are taken of the graph as it is.
        assert_eq!(text.matches("exp").count(), if creates { 1 } else { 2 }, "{text}");
        assert_eq!(text.matches("tanh").count(), 1, "{text}");
        assert_eq!(core.ids().filter(|id| core.is_again(*id)).count(), usize::from(!creates));
    }
}

#[test]
fn an_output_that_another_is_computed_of_ends_a_node() {
    let program = graph(|add, x| {
        let inner = add(CoreOp::Unary(Unary::Sin, x));
        vec![inner, add(CoreOp::Binary(Binary::Mul, inner, inner))]
    });
    let parts = parts(program, vec![BTreeSet::new(), BTreeSet::from([0])]);
    let [first, second] = &parts.nodes[..] else { panic!("two nodes") };
    assert_eq!((first.outputs[0].output, &first.gradients[..]), (0, &[Taken::Input(0)][..]));
    assert_eq!((second.outputs[0].output, &second.gradients[..]), (1, &[Taken::Output(0)][..]));
}

#[test]
fn what_a_later_node_reads_of_an_earlier_one_is_an_output_that_nobody_sees() {
    let program = graph(|add, x| {
        let trunk = add(CoreOp::Unary(Unary::Exp, x));
        let inner = add(CoreOp::Unary(Unary::Sin, trunk));
        vec![inner, add(CoreOp::Binary(Binary::Mul, inner, trunk))]
    });
    let parts = parts(program, vec![BTreeSet::new(), BTreeSet::from([0])]);
    let [first, second] = &parts.nodes[..] else { panic!("two nodes") };
    assert_eq!(first.outputs.iter().map(|of| of.output).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(second.gradients, [Taken::Output(0), Taken::Output(2)]);
}

#[test]
fn what_has_no_derivative_is_refused_by_name() {
    let (core, values) = graph(|add, x| vec![add(CoreOp::Binary(Binary::Fmod, x, x))]);
    let (made_of, reached, shared) = (vec![BTreeSet::new()], vec![BTreeSet::from([0])], vec![false]);
    let wanted =
        Wanted { inputs: vec![true], outputs: vec![true], values, made_of, reached, shared, ..Wanted::default() };
    let reason = derive(&core, &wanted).unwrap_err();
    assert!(reason.detail.contains("Fmod"), "{reason:?}");
}

/// Of `y = exp(x)`, in a region or not, `tanh(sum(y) * y * what is drawn)`; then that plus `x`.
fn with_a_region(region: Option<u32>) -> Parts {
    let mut core = Core::new(BTreeMap::new());
    let x = core.push(CoreOp::Input(0), DType::F32, sizes());
    let y = core.push(CoreOp::Unary(Unary::Exp, x), DType::F32, sizes());
    core.region = region;
    let total = core.push(CoreOp::Reduce(ReduceOp::Sum, y, vec![0]), DType::F32, vec![1.into()]);
    let total = core.push(CoreOp::Expand(total), DType::F32, sizes());
    let scaled = core.push(CoreOp::Binary(Binary::Mul, total, y), DType::F32, sizes());
    let draw =
        ExternCall { order: Some(0), draws: true, ..ExternCall::pure(("aten::rand", "default"), None, vec![], 1) };
    let drawn = core.push(CoreOp::Extern(draw.into()), DType::F32, vec![]);
    let drawn = core.push(CoreOp::Result(drawn, 0), DType::F32, sizes());
    let scaled = core.push(CoreOp::Binary(Binary::Mul, scaled, drawn), DType::F32, sizes());
    let inner = core.push(CoreOp::Unary(Unary::Tanh, scaled), DType::F32, sizes());
    core.region = None;
    let value = core.push(CoreOp::Binary(Binary::Add, inner, x), DType::F32, sizes());
    let (sizes, strides) = (sizes(), contiguous_strides(&sizes()));
    core.outputs.push(CoreOutput { base: OutputBase::Value(value), sizes, strides, offset: 0.into() });
    parts((core, vec![value]), vec![BTreeSet::new()])
}

#[test]
fn a_region_is_computed_again_from_what_it_takes_and_draws() {
    let texts = [None, Some(0)].map(|region| {
        let [node] = &with_a_region(region).nodes[..] else { panic!("one node") };
        (node.reads.len(), node.backward.to_string())
    });
    let sums = |text: &str| text.matches("reduce_sum").count();
    let [(plain_reads, plain), (reads, text)] = &texts;
    assert_eq!((*plain_reads, sums(plain)), (3, 1), "{plain}");
    assert_eq!((*reads, sums(text)), (2, 2), "{text}");
    assert!(!text.contains("rand"), "{text}");
}
