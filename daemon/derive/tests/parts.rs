//! What becomes of small graphs: their derivatives, what is kept for them, and their nodes of autograd.

use flambeau_core::graph::{Core, CoreId, CoreOp, CoreOutput, OutputBase};
use flambeau_derive::{Parts, Wanted, derive};
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, DType, Unary};
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
