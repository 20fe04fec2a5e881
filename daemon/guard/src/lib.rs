//! Guards to a deduplicated [`GuardProgram`]: which facts are checked, and in which order. Evaluating them is the client's
//! work; finding compiled frames by key is the server's.

use flambeau_core::trace::Trace;
use flambeau_ir::code::Const;
use flambeau_ir::guard::{ClassRef, Guard, GuardKind, GuardProgram};
use flambeau_ir::source::{SourceId, SourceTable, Step};
use std::collections::{HashMap, HashSet};

/// The guards of `trace` in canonical form.
///
/// The source table is kept whole, so that every [`SourceId`] of the trace stays valid. Facts that repeat, or that
/// another fact of the same source implies, are dropped. A guard comes after all guards of the values its own path
/// leads through, so that a path is walked only once its types are known; among those that may come at the same place,
/// arguments come before globals (they change most) and cheap checks before dear ones.
pub fn program(trace: &Trace) -> GuardProgram {
    let depths = depths(&trace.sources);
    let implied = Implied::of(&trace.guards);
    let mut seen = HashSet::new();
    let mut guards: Vec<&Guard> = trace
        .guards
        .iter()
        .filter(|g| seen.insert((g.source, &g.kind)) && !implied.drops(g))
        .filter(|g| !(flambeau_ir::mutated!("type_guards_dropped") && matches!(g.kind, GuardKind::Type(_))))
        .collect();
    guards.sort_by_cached_key(|g| rank(g, &depths));
    GuardProgram { sources: trace.sources.clone(), guards: guards.into_iter().cloned().collect() }
}

/// Number of steps from its root, and whether that root is an argument, for every source.
fn depths(table: &SourceTable) -> Vec<(u32, bool)> {
    let mut depths: Vec<(u32, bool)> = Vec::with_capacity(table.nodes().len());
    for node in table.nodes() {
        depths.push(match node.base {
            None => (0, matches!(node.step, Step::Arg(_))),
            Some(base) => {
                let (depth, argument) = depths[base.0 as usize];
                (depth + 1, argument)
            }
        });
    }
    depths
}

/// Place in the checking order: phase, depth, root, cost. The sort is stable: equal ranks keep the order of the trace.
fn rank(guard: &Guard, depths: &[(u32, bool)]) -> (u8, u32, bool, u8) {
    let at = |s: SourceId| depths.get(s.0 as usize).copied().unwrap_or((u32::MAX, false));
    let (depth, argument) = at(guard.source);
    let (phase, cost) = guard.kind.phase_and_cost();
    // A guard on several values waits for the deepest of them.
    let depth = match &guard.kind {
        GuardKind::Same(other) | GuardKind::NotSame(other) => depth.max(at(*other).0),
        _ => depth,
    };
    (phase, depth, !argument, cost)
}

/// What stronger facts are known of a source.
struct Implied<'a> {
    /// Exact Python types that a tensor guard checks anyway.
    tensors: HashMap<SourceId, &'a ClassRef>,
    /// Sources with an exact constant: the type is part of it.
    constants: HashSet<SourceId>,
    /// Sources whose keys are checked: the length is part of it.
    keys: HashMap<SourceId, usize>,
}

impl<'a> Implied<'a> {
    fn of(guards: &'a [Guard]) -> Self {
        let mut implied = Implied { tensors: HashMap::new(), constants: HashSet::new(), keys: HashMap::new() };
        for guard in guards {
            match &guard.kind {
                GuardKind::Tensor(t) => {
                    implied.tensors.insert(guard.source, &t.class);
                }
                GuardKind::Equals(value) if checks_type(value) => {
                    implied.constants.insert(guard.source);
                }
                GuardKind::Keys(keys) => {
                    implied.keys.insert(guard.source, keys.len());
                }
                _ => {}
            }
        }
        implied
    }

    fn drops(&self, guard: &Guard) -> bool {
        match &guard.kind {
            GuardKind::Type(class) => {
                self.constants.contains(&guard.source) || self.tensors.get(&guard.source).is_some_and(|t| *t == class)
            }
            GuardKind::EndsUnseen => self.constants.contains(&guard.source) || self.tensors.contains_key(&guard.source),
            GuardKind::Len(n) => self.keys.get(&guard.source) == Some(n),
            _ => false,
        }
    }
}

/// Whether comparing with `value` compares exact types, all the way down. Code constants compare by hash.
fn checks_type(value: &Const) -> bool {
    !matches!(value, Const::Code(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_ir::guard::{Ambient, Relation};

    fn class(name: &str) -> GuardKind {
        GuardKind::Type(ClassRef { module: "builtins".into(), qualname: name.into() })
    }

    /// The program of guards on: arg0, its dict, that dict's item `w`, the function's globals.
    fn of(guards: &[(u32, GuardKind)]) -> Vec<(u32, GuardKind)> {
        let mut trace = Trace::default();
        let function = trace.sources.intern(None, Step::Function);
        let arg = trace.sources.intern(None, Step::Arg(0));
        let dict = trace.sources.intern(Some(arg), Step::Dict);
        trace.sources.intern(Some(dict), Step::Item(Const::str("w")));
        trace.sources.intern(Some(function), Step::Globals);
        trace.guards = guards.iter().map(|(s, kind)| Guard { source: SourceId(*s), kind: kind.clone() }).collect();
        let program = program(&trace);
        assert_eq!(program.sources, trace.sources);
        program.guards.into_iter().map(|g| (g.source.0, g.kind)).collect()
    }

    #[test]
    fn repeats_and_implied_facts_go() {
        let one = GuardKind::Equals(Const::Int(1));
        assert_eq!(of(&[(3, class("int")), (3, one.clone()), (3, one.clone())]), [(3, one)]);
        let keys = GuardKind::Keys(vec![Const::str("w")]);
        assert_eq!(of(&[(2, GuardKind::Len(1)), (2, keys.clone())]), [(2, keys.clone())]);
        // A length that contradicts the keys stays: the program must then never pass.
        assert_eq!(of(&[(2, GuardKind::Len(2)), (2, keys)]).len(), 2);
    }

    #[test]
    fn parents_come_first_arguments_before_globals_relations_last() {
        let relation = GuardKind::Relation(Relation::Gt, 3.into(), 2.into());
        let ambient = GuardKind::Ambient(Box::<Ambient>::default());
        let ordered = of(&[
            (0, relation.clone()),
            (3, GuardKind::Same(SourceId(1))),
            (4, class("dict")),
            (3, class("list")),
            (2, class("dict")),
            (0, ambient.clone()),
            (1, class("Net")),
        ]);
        let expected = [
            (1, class("Net")),
            (0, ambient),
            (2, class("dict")),
            (4, class("dict")),
            (3, class("list")),
            (3, GuardKind::Same(SourceId(1))),
            (0, relation),
        ];
        assert_eq!(ordered, expected);
    }
}
