//! Sizes that guards say are equal become one expression: a size that is always 1 is repeated, two that always agree are the
//! same.

use flambeau_ir::dim::{Atom, Dim};
use flambeau_ir::graph::Graph;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The graph where these pairs are equal at every call, without the symbols that they tell; and what other parts of sizes
/// are, which lowering may come upon anew.
pub fn unified<'g>(
    graph: &'g Graph,
    equal: impl IntoIterator<Item = (&'g Dim, &'g Dim)>,
) -> (Cow<'g, Graph>, BTreeMap<Atom, Dim>) {
    let mut known: BTreeMap<Atom, Dim> = BTreeMap::new();
    for (a, b) in equal {
        let difference = a.sub(b).replace(&|atom| known.get(atom).cloned());
        let Some((solved, value)) = difference.solve() else { continue };
        let now = |atom: &Atom| (*atom == solved).then(|| value.clone());
        known.values_mut().for_each(|dim| *dim = dim.replace(&now));
        known.insert(solved, value);
    }
    let (symbols, others): (BTreeMap<_, _>, _) = known.into_iter().partition(|(atom, _)| matches!(atom, Atom::Sym(_)));
    if symbols.is_empty() {
        return (Cow::Borrowed(graph), others);
    }
    let mut graph = graph.clone();
    graph.replace(&|atom| symbols.get(atom).cloned());
    (Cow::Owned(graph), others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_ir::dim::SymId;
    use flambeau_ir::text::parse_graph;

    #[test]
    fn equalities_are_used_in_turn() {
        let text =
            "graph {\n  %x: f32[s0, s1]{s1, 1} = placeholder 0\n  %y: f32[s2]{1} = placeholder 1\n  return %x\n}";
        let graph = parse_graph(text).expect("a graph");
        let [a, b, c] = [0, 1, 2].map(|i| Dim::sym(SymId(i)));
        let pairs = [(a.sub(&Dim::Const(3)), Dim::Const(1)), (b.clone(), a), (c, b)];
        let (unified, others) = unified(&graph, pairs.iter().map(|(a, b)| (a, b)));
        assert!(others.is_empty());
        let sizes = |i: usize| unified.nodes[i].meta.as_tensor().expect("a tensor").sizes.clone();
        assert_eq!((sizes(0), sizes(1)), (vec![Dim::Const(4), Dim::Const(4)], vec![Dim::Const(4)]));
    }
}
