//! What the trace changed of one object from outside, and read or changed of another: in a later call both may be one object,
//! and what was read would be what was there before the change. That they are not becomes a guard.

use crate::state::tracer::Tracer;
use crate::value::{Class, DictValue, Key, Origin};
use flambeau_ir::guard::{Guard, GuardKind};
use flambeau_ir::object::{ClassDesc, ObjectData};
use flambeau_ir::source::{SourceId, Step};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

/// Two sources whose objects have to differ.
type Pair = (SourceId, SourceId);

/// Items of a dict from outside, or of an object's `__dict__`.
struct Items<'t> {
    /// The dict; `None` where the object has none so far.
    own: Option<Origin>,
    /// The object whose `__dict__` it is.
    owner: Option<Origin>,
    /// What is known of it; `None`: that it has no items.
    dict: Option<&'t DictValue>,
    /// Whether it was counted.
    counted: bool,
}

impl Items<'_> {
    /// Whether any change of it would have been seen.
    fn is_whole(&self) -> bool {
        self.counted || self.dict.is_none_or(|dict| dict.loaded)
    }

    fn is_known(&self, key: &Key) -> bool {
        let holds = |dict: &DictValue| dict.items.contains_key(key) || dict.absent.contains(key);
        self.is_whole() || self.dict.is_some_and(holds)
    }

    /// Whether a change of it is one of what is known of the other.
    fn changes(&self, other: &Items<'_>) -> bool {
        let Some(dict) = self.dict else { return false };
        let is_read = |dict: &DictValue| !dict.items.is_empty() || !dict.absent.is_empty();
        dict.written_factory.is_some() && other.dict.is_some_and(|other| other.factory.is_some())
            || dict.rewritten && (other.is_whole() || other.dict.is_some_and(is_read))
            || dict.writes.keys().any(|key| other.is_known(key))
    }
}

impl Tracer<'_> {
    /// A changed object must not be another one that was read or changed, and keys that are compared by identity not each
    /// other.
    pub(super) fn guard_distinct(&mut self) {
        let mut keyed: Vec<SourceId> = self.keyed.values().copied().collect();
        if keyed.len() > 1 {
            keyed.sort_unstable_by_key(|source| source.0);
            self.guard(keyed[0], GuardKind::Distinct(keyed));
        }
        let classes = self.classes_apart();
        let counted = self.counted();
        let kinds = [
            self.lists_apart(&counted),
            self.sets_apart(),
            self.cells_apart(),
            self.slots_apart(),
            self.grads_apart(),
            self.items_apart(&counted),
            classes,
        ];
        for pairs in kinds.into_iter().filter(|_| !flambeau_ir::mutated!("no_guard_of_other_objects")) {
            let all = all_apart(&pairs);
            for (a, b) in pairs.into_iter().filter(|(a, b)| !all.contains(a) || !all.contains(b)) {
                self.guard(a, GuardKind::NotSame(b));
            }
            if let Some(first) = all.first() {
                self.guard(*first, GuardKind::Distinct(all.into_iter().collect()));
            }
        }
        self.guard_drawn();
    }

    /// The sources of two objects, if they may have one object in another call: the type of each is guarded.
    fn sources_apart(&self, a: Origin, b: Origin) -> Option<Pair> {
        let types = [a, b].map(|origin| self.heap.get(origin.object).map(|object| object.class));
        let may_be_one = a.object != b.object && (types[0] == types[1] || types.contains(&None));
        may_be_one.then_some((a.source, b.source))
    }

    /// Of objects that were changed (`true`) or only read, those that have to be apart.
    fn apart_from_changed(&self, objects: &[(Origin, bool)]) -> Vec<Pair> {
        let sources = |(a, _): &_, (b, _): &_| self.sources_apart(*a, *b);
        pairs(objects, |(_, changed)| *changed, |_, _| true, sources)
    }

    /// What was asked for its length, or for whether it has one.
    fn counted(&self) -> HashSet<SourceId> {
        let of_length = |kind: &GuardKind| matches!(kind, GuardKind::Len(_) | GuardKind::AtLeast(_));
        self.guards.iter().filter(|guard| of_length(&guard.kind)).map(|guard| guard.source).collect()
    }

    fn lists_apart(&self, counted: &HashSet<SourceId>) -> Vec<Pair> {
        let lists = self.arenas.lists.iter().filter_map(|(_, list)| Some((list.origin?, list)));
        let read = lists.filter(|(origin, list)| list.dirty || list.loaded || counted.contains(&origin.source));
        self.apart_from_changed(&read.map(|(origin, list)| (origin, list.dirty)).collect::<Vec<_>>())
    }

    /// All of a set is read where it is met.
    fn sets_apart(&self) -> Vec<Pair> {
        let sets = self.arenas.sets.iter().filter_map(|(_, set)| Some((set.origin?, set.is_changed())));
        self.apart_from_changed(&sets.collect::<Vec<_>>())
    }

    /// Cells of one function's closure are apart: they are of different variables.
    fn cells_apart(&self) -> Vec<Pair> {
        let cells = self.arenas.cells.iter().filter(|(_, cell)| cell.loaded || cell.dirty);
        let cells: Vec<_> = cells.filter_map(|(_, cell)| Some((cell.origin?, cell.dirty))).collect();
        let function = |cell: SourceId| {
            let source = self.sources.get(cell);
            matches!(source.step, Step::Closure(_)).then_some(source.base).flatten()
        };
        let mut apart = self.apart_from_changed(&cells);
        apart.retain(|(a, b)| function(*a).is_none() || function(*a) != function(*b));
        apart
    }

    fn slots_apart(&self) -> Vec<Pair> {
        let instances = self.arenas.instances.iter().filter(|(_, instance)| !instance.slots.is_empty());
        let instances: Vec<_> = instances.filter_map(|(_, instance)| Some((instance.origin?, instance))).collect();
        pairs(
            &instances,
            |(_, instance)| !instance.slot_writes.is_empty(),
            |(_, a), (_, b)| a.slot_writes.keys().any(|name| b.slots.contains_key(name)),
            |(a, _), (b, _)| self.sources_apart(*a, *b),
        )
    }

    fn grads_apart(&self) -> Vec<Pair> {
        let tensors = self.arenas.tensors.iter();
        let known: Vec<_> = tensors.filter_map(|(_, t)| Some((t.origin?, t.grad.as_ref()?.written))).collect();
        self.apart_from_changed(&known)
    }

    /// A class that was changed, from those where something was looked up, and their bases. Classes of other names are apart
    /// by the guards of these.
    fn classes_apart(&mut self) -> Vec<Pair> {
        let written: Vec<Rc<Class>> = self.class_writes.iter().map(|written| written.class.clone()).collect();
        if written.is_empty() {
            return vec![];
        }
        let mut met: Vec<(Rc<Class>, Origin)> =
            self.classes.values().filter_map(|class| Some((class.clone(), class.origin?))).collect();
        met.sort_unstable_by_key(|(_, origin)| origin.source.0);
        let mut apart = Vec::new();
        for changed in written {
            let Some(of_changed) = changed.origin else { continue };
            for (class, origin) in met.iter().filter(|(class, _)| class.path.is_none()) {
                for (i, base) in class.mro.iter().enumerate() {
                    let named = |desc: &ClassDesc| {
                        (&desc.module, &desc.qualname) == (&changed.name.module, &changed.name.qualname)
                    };
                    let data = self.heap.get(*base).map(|base| &base.data);
                    if *base == of_changed.object || !matches!(data, Some(ObjectData::Class(desc)) if named(desc)) {
                        continue;
                    }
                    let at = if i == 0 { origin.source } else { self.step(origin.source, Step::Mro(i as u32)) };
                    apart.push((of_changed.source, at));
                }
            }
        }
        apart
    }

    fn items_apart(&self, counted: &HashSet<SourceId>) -> Vec<Pair> {
        if !self.arenas.dicts.iter().any(|(_, dict)| dict.is_outside() && dict.is_changed()) {
            return vec![];
        }
        let dicts = self.arenas.dicts.iter().filter(|(_, dict)| dict.is_outside());
        let dicts = dicts.map(|(_, dict)| Items {
            own: dict.origin,
            owner: dict.owner,
            dict: Some(dict),
            counted: dict.origin.is_some_and(|origin| counted.contains(&origin.source)),
        });
        let mut items: Vec<_> = dicts.collect();
        let is_bare = |guard: &&Guard| guard.kind == GuardKind::NoAttributes;
        let mut bare: HashSet<SourceId> = self.guards.iter().filter(is_bare).map(|guard| guard.source).collect();
        // One that got attributes in the trace is among the dicts.
        items.iter().filter_map(|items| items.owner).for_each(|owner| _ = bare.remove(&owner.source));
        let mut bare: Vec<Origin> = self
            .known
            .iter()
            .filter(|(_, (_, source))| bare.contains(source))
            .map(|(object, (_, source))| Origin { object: *object, source: *source })
            .collect();
        bare.sort_unstable_by_key(|owner| owner.source.0);
        items.extend(bare.into_iter().map(|owner| Items { own: None, owner: Some(owner), dict: None, counted: false }));
        let is_changed = |items: &Items<'_>| items.dict.is_some_and(DictValue::is_changed);
        pairs(&items, is_changed, Items::changes, |a, b| match (a.own, b.own) {
            (Some(a), Some(b)) => self.sources_apart(a, b),
            _ => self.sources_apart(a.owner?, b.owner?),
        })
    }
}

/// Many sources of which each two are a pair; none if there are few.
fn all_apart(pairs: &[Pair]) -> BTreeSet<SourceId> {
    const FEW: usize = 4;
    let mut beside: BTreeMap<SourceId, BTreeSet<SourceId>> = BTreeMap::new();
    for (a, b) in pairs {
        beside.entry(*a).or_default().insert(*b);
        beside.entry(*b).or_default().insert(*a);
    }
    let mut order: Vec<SourceId> = beside.keys().copied().collect();
    order.sort_by_key(|source| std::cmp::Reverse(beside[source].len()));
    let mut all: BTreeSet<SourceId> = BTreeSet::new();
    for source in order {
        if all.is_subset(&beside[&source]) {
            all.insert(source);
        }
    }
    if all.len() > FEW { all } else { BTreeSet::new() }
}

/// The `sources` of all pairs of which one `changes` the other, each once.
fn pairs<T>(
    all: &[T],
    is_changed: impl Fn(&T) -> bool,
    changes: impl Fn(&T, &T) -> bool,
    sources: impl Fn(&T, &T) -> Option<Pair>,
) -> Vec<Pair> {
    let mut found = Vec::new();
    for (i, a) in all.iter().enumerate().filter(|(_, a)| is_changed(a)) {
        let others = all.iter().enumerate().filter(|(j, b)| *j != i && changes(a, b));
        let others = others.filter(|(j, b)| *j > i || !is_changed(b) || !changes(b, a));
        found.extend(others.filter_map(|(_, b)| sources(a, b)));
    }
    found
}
