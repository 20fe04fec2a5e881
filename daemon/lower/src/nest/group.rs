//! Decides which values get memory and which are computed together: fusion. Bodies of the groups are written by
//! [`crate::nest::body`].

use crate::nest::affine::strides_through_view;
use crate::nest::body::{self, Body, Place, Root, Space, Unfit, computes};
use crate::nest::collapse::collapse;
use crate::nest::joins::{self, Part};
use crate::nest::narrow::{narrow, repeated_along_rows};
use crate::nest::versions::{read_before_writes, written_by};
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp};
use flambeau_ir::bounds::check_time;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::{Binary, Unary};
use flambeau_ir::reason::{Reason, ReasonCode};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// One unit of execution.
#[derive(Clone, Debug)]
pub enum Task {
    /// A kernel.
    Kernel(Body),
    /// A torch op: a [`CoreOp::Extern`] node.
    Extern(CoreId),
}

/// A value as a view of a value with memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// Whose memory.
    pub base: CoreId,
    /// Strides.
    pub strides: Vec<Dim>,
    /// Elements from the base's first.
    pub offset: Dim,
}

/// Tasks in execution order, and the values that have memory.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// In order.
    pub tasks: Vec<Task>,
    /// Copies that views needed: they have memory although their op is a view.
    pub copied: BTreeSet<CoreId>,
    /// Values that lie in the memory of an earlier one, which they update in place.
    pub updates: BTreeMap<CoreId, CoreId>,
}

/// The value's memory, through views that torch could express; stops at values in `copied`.
pub fn memory_view(core: &Core, copied: &BTreeSet<CoreId>, id: CoreId) -> MemoryView {
    let node = core.node(id);
    let own = || MemoryView { base: id, strides: node.strides.clone(), offset: Dim::Const(0) };
    if !node.op.is_view() || copied.contains(&id) {
        return own();
    }
    let operand = node.op.operands()[0];
    let inner = memory_view(core, copied, operand);
    match strides_through_view(node, core.node(operand), &inner.strides, &inner.offset) {
        Some((strides, offset)) => MemoryView { base: inner.base, strides, offset },
        None => own(),
    }
}

/// Rough cost of computing one element, in additions.
fn own_cost(op: &CoreOp) -> u32 {
    match op {
        CoreOp::Unary(u, _) => match u {
            Unary::Neg | Unary::Abs | Unary::Not | Unary::BitNot | Unary::IsNan | Unary::IsInf | Unary::Sign => 1,
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => 1,
            Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => 6,
            _ => 15,
        },
        CoreOp::Binary(b, ..) => match b {
            Binary::Div | Binary::FloorDiv | Binary::TruncDiv => 6,
            Binary::Rem | Binary::Fmod => 10,
            Binary::Pow | Binary::Atan2 => 30,
            _ => 1,
        },
        CoreOp::Select(..) => 1,
        _ => 0,
    }
}

const SOFT_COST: u32 = 10;
/// Up to this cost a value that is repeated to larger sizes is computed where it is used.
const NARROW_COST: u32 = 60;
/// The same where it would be computed again for each row.
const AGAIN_COST: u32 = 12;
const RECOMPUTE_LIMIT: u32 = 30;
const DEPTH_LIMIT: u32 = 300;

struct Planner<'a> {
    core: &'a Core,
    /// The parts of joined values that have memory.
    parts: BTreeMap<CoreId, Vec<(CoreId, Part)>>,
    /// Values that must have memory.
    must: BTreeSet<CoreId>,
    copied: BTreeSet<CoreId>,
    /// Roots that are kernels of their own.
    apart: BTreeSet<CoreId>,
}

struct Live {
    /// Kernel roots by order key.
    roots: Vec<Root>,
    externs: BTreeSet<CoreId>,
    /// Values that have memory or are reductions: reading stops there.
    stops: BTreeSet<CoreId>,
    /// Inline cost of every live value up to the stops.
    cost: BTreeMap<CoreId, u32>,
}

struct Group {
    space: Space,
    roots: Vec<Root>,
}

enum Unit {
    Group(Group),
    Extern(CoreId),
}

struct Units {
    list: Vec<Unit>,
    deps: Vec<BTreeSet<usize>>,
    /// Where each value with memory is made.
    made: BTreeMap<CoreId, BTreeSet<usize>>,
}

/// Schedules the graph. Values in `once` get memory.
pub fn schedule(core: &Core, once: BTreeSet<CoreId>) -> Result<Schedule, Reason> {
    let parts = joins::parts(core, &once);
    let mut planner = Planner { core, parts, must: once, copied: BTreeSet::new(), apart: BTreeSet::new() };
    for id in read_before_writes(core) {
        planner.must.insert(id);
        if core.node(id).op.is_view() {
            planner.copied.insert(id);
        }
    }
    for _ in 0..core.nodes().len() + 8 {
        check_time();
        let live = planner.live();
        let units = planner.units(&live);
        if let Some(tasks) = planner.emit(&live, &units)? {
            return Ok(Schedule { tasks, copied: planner.copied, updates: BTreeMap::new() });
        }
    }
    Err(Reason::new(ReasonCode::Internal, "fusion does not settle"))
}

impl Planner<'_> {
    fn view(&self, id: CoreId) -> MemoryView {
        memory_view(self.core, &self.copied, id)
    }

    /// The value behind `id` gets memory.
    fn demand(&mut self, id: CoreId) -> CoreId {
        let base = self.view(id).base;
        let op = &self.core.node(base).op;
        if op.is_view() {
            self.copied.insert(base);
        }
        if computes(op) {
            self.must.insert(base);
        }
        base
    }

    /// What a value is computed of; of joined ones the parts that are written.
    fn operands(&self, id: CoreId) -> Vec<CoreId> {
        let parts = self.parts.get(&id).map(|parts| parts.iter().map(|(node, _)| *node).collect());
        parts.unwrap_or_else(|| self.core.node(id).op.operands())
    }

    /// What has to be computed, found backwards from what leaves the graph.
    fn live(&mut self) -> Live {
        let core = self.core;
        let mut live = vec![false; core.nodes().len()];
        let mut parts: Vec<Root> = Vec::new();
        for id in core.output_values() {
            let base = self.demand(id);
            live[base.0 as usize] = true;
        }
        for (_, value) in &core.writes {
            let base = self.demand(*value);
            live[base.0 as usize] = true;
            live[value.0 as usize] = true;
        }
        let mut externs = BTreeSet::new();
        for id in core.ids().rev() {
            let op = &core.node(id).op;
            let must_run = matches!(op, CoreOp::Extern(call) if call.order.is_some());
            if !live[id.0 as usize] && !must_run {
                continue;
            }
            match op {
                CoreOp::Extern(_) => {
                    externs.insert(id);
                    for operand in op.operands() {
                        let base = self.demand(operand);
                        live[base.0 as usize] = true;
                    }
                }
                CoreOp::Join(..) => {
                    for (node, part) in self.parts.get(&id).into_iter().flatten() {
                        live[node.0 as usize] = true;
                        parts.push(Root { node: *node, place: Place::Part(part.clone()) });
                    }
                }
                CoreOp::Stored(_, value, _) => {
                    op.operands().into_iter().for_each(|o| live[o.0 as usize] = true);
                    parts.push(Root { node: *value, place: Place::Stored(id) });
                }
                _ => op.operands().into_iter().for_each(|o| live[o.0 as usize] = true),
            }
        }
        let (stops, cost) = self.stops(&live);
        let own =
            stops.iter().filter(|id| computes(&core.node(**id).op)).map(|id| Root { node: *id, place: Place::Own });
        let mut roots: Vec<Root> = own.chain(parts).collect();
        roots.sort_by(|a, b| (a.order(), &a.place).cmp(&(b.order(), &b.place)));
        roots.retain(|r| r.place != Place::Own || !core.node(r.node).is_empty());
        let at_the_end = core.writes.iter().filter(|(_, value)| !core.node(*value).op.is_input());
        roots.extend(at_the_end.map(|(i, v)| Root { node: *v, place: Place::Input(*i) }));
        Live { roots, externs, stops, cost }
    }

    /// Values where inlining stops, and the inline cost of every value.
    fn stops(&self, live: &[bool]) -> (BTreeSet<CoreId>, BTreeMap<CoreId, u32>) {
        let core = self.core;
        let mut users = vec![0_u32; live.len()];
        for id in core.ids().filter(|id| live[id.0 as usize]) {
            let weight = u32::from(!core.node(id).op.is_view());
            self.operands(id).into_iter().for_each(|o| users[o.0 as usize] += weight);
        }
        for id in core.ids().rev().filter(|id| live[id.0 as usize] && core.node(*id).op.is_view()) {
            let through = users[id.0 as usize];
            users[core.node(id).op.operands()[0].0 as usize] += through.max(1);
        }
        let narrow = narrow(core, live, &self.must, |id| self.operands(id));
        let along_rows = repeated_along_rows(core, live);
        let mut stops = BTreeSet::new();
        let mut cost: BTreeMap<CoreId, u32> = BTreeMap::new();
        let mut shape: BTreeMap<CoreId, (u32, u32)> = BTreeMap::new();
        for id in core.ids().filter(|id| live[id.0 as usize]) {
            let node = core.node(id);
            let (mut total, mut loads, mut depth) = (own_cost(&node.op), 0, 0);
            let mut seen = BTreeSet::new();
            for operand in node.op.operands().into_iter().filter(|o| seen.insert(*o)) {
                let (l, d) = shape.get(&operand).copied().unwrap_or((0, 0));
                if stops.contains(&operand) {
                    let full = Dim::product(&core.node(operand).sizes) == Dim::product(&node.sizes);
                    loads += u32::from(full);
                } else if !(narrow[operand.0 as usize] && matches!(node.op, CoreOp::Expand(_))) {
                    total = total.saturating_add(cost.get(&operand).copied().unwrap_or(0)).min(100_000);
                    loads += l;
                }
                depth = depth.max(d + 1);
            }
            if matches!(node.op, CoreOp::Expand(_)) {
                loads = 0;
            }
            let shared = users[id.0 as usize] > 1 && !node.op.is_view() && (total > SOFT_COST || loads > 1);
            let shared = shared && !(narrow[id.0 as usize] && total <= NARROW_COST);
            let stop = !computes(&node.op)
                || matches!(node.op, CoreOp::Reduce(..))
                || self.must.contains(&id)
                || shared
                || (total > AGAIN_COST && along_rows.contains(&id))
                || (depth > DEPTH_LIMIT && !node.op.is_view());
            cost.insert(id, total);
            if stop {
                stops.insert(id);
                depth = 0;
            }
            shape.insert(id, (loads, depth));
        }
        (stops, cost)
    }

    /// Values with memory (or reductions) that computing `root` reads.
    fn leaves(&self, live: &Live, root: &Root) -> BTreeSet<CoreId> {
        let mut found = BTreeSet::new();
        let mut seen = HashSet::new();
        let mut todo = if root.place != Place::Own && live.stops.contains(&root.node) {
            found.insert(root.node);
            vec![]
        } else {
            self.core.node(root.node).op.operands()
        };
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            if live.stops.contains(&id) {
                found.insert(id);
            } else {
                todo.extend(self.core.node(id).op.operands());
            }
        }
        found
    }

    /// Values with memory that computing `root` reads, and whether all that reads each of them has another dimension
    /// last.
    fn turned(&self, live: &Live, root: &Root) -> BTreeMap<CoreId, bool> {
        let mut found = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut todo: Vec<(CoreId, bool)> =
            self.core.node(root.node).op.operands().into_iter().map(|id| (id, false)).collect();
        while let Some((id, turned)) = todo.pop() {
            if !seen.insert((id, turned)) {
                continue;
            }
            let node = self.core.node(id);
            if live.stops.contains(&id) {
                found.entry(id).and_modify(|all| *all &= turned).or_insert(turned);
                continue;
            }
            let swaps = matches!(&node.op, CoreOp::Permute(_, order) if order.last() != order.iter().max());
            todo.extend(node.op.operands().into_iter().map(|operand| (operand, turned != swaps)));
        }
        found
    }

    /// Whether a root reads across the rows what others read along them: in one kernel one of both would gather elements.
    fn cross(&self, live: &Live, roots: &[Root], root: &Root) -> bool {
        let own = self.turned(live, root);
        let is_large = |id: CoreId| self.core.node(id).sizes.iter().filter(|size| !size.is(1)).count() > 1;
        let others = roots.iter().flat_map(|other| self.turned(live, other));
        others.into_iter().any(|(id, turned)| own.get(&id).is_some_and(|own| *own != turned) && is_large(id))
    }

    /// Assigns every root to a group, every call to a unit of its own.
    fn units(&self, live: &Live) -> Units {
        let mut units = Units { list: vec![], deps: vec![], made: BTreeMap::new() };
        let mut externs = live.externs.iter().copied().peekable();
        let mut last = None;
        let mut add_extern = |units: &mut Units, id: CoreId| {
            let op = &self.core.node(id).op;
            let mut deps: BTreeSet<usize> =
                op.operands().iter().flat_map(|o| units.makers(self.core, self.view(*o).base)).collect();
            let at = units.list.len();
            if matches!(op, CoreOp::Extern(call) if call.order.is_some()) {
                deps.extend(last.replace(at));
            }
            if let Some(written) = written_by(op) {
                deps.extend(self.readers(live, units, self.view(written).base));
            }
            units.list.push(Unit::Extern(id));
            units.deps.push(deps);
            units.made.entry(id).or_default().insert(at);
        };
        for root in &live.roots {
            let write = matches!(root.place, Place::Input(_));
            while let Some(id) = externs.next_if(|e| write || *e < root.order()) {
                add_extern(&mut units, id);
            }
            self.place(live, &mut units, root);
        }
        externs.for_each(|id| add_extern(&mut units, id));
        units
    }

    fn place(&self, live: &Live, units: &mut Units, root: &Root) {
        check_time();
        let leaves = self.leaves(live, root);
        let mut deps: BTreeSet<usize> = leaves.iter().flat_map(|l| units.makers(self.core, *l)).collect();
        if let Place::Stored(after) = root.place
            && let Some(before) = self.core.node(after).op.before()
        {
            deps.extend(units.makers(self.core, before));
            deps.extend(self.readers(live, units, before));
        }
        let producers = deps.clone();
        if let Place::Part(Part { updates: Some(before), .. }) = root.place {
            deps.extend(units.makers(self.core, before));
        }
        let lonely = root.place.is_input() || self.apart.contains(&root.node);
        let mut home = None;
        if !lonely {
            let producers = producers.iter().rev().copied();
            let recent = (units.list.len().saturating_sub(12)..units.list.len()).rev();
            let sharing = recent.filter(|u| !self.is_later(units, *u, root) && units.shares(*u, &leaves, self, live));
            // What a unit joins piecewise it cannot read: only its whole values are at hand while it runs.
            let joined = |l: &&CoreId| matches!(self.core.node(**l).op, CoreOp::Join(..));
            let unreadable: BTreeSet<usize> =
                leaves.iter().filter(joined).flat_map(|l| units.makers(self.core, *l)).collect();
            let again = self.core.is_again(root.node);
            let barred = |u: &usize| unreadable.contains(u) || again && self.is_later(units, *u, root);
            home = producers.chain(sharing).filter(|u| !barred(u)).find_map(|u| {
                let space = self.joined(live, units, u, root)?;
                let acyclic = deps.iter().all(|d| *d == u || !units.reaches(*d, u));
                acyclic.then_some((u, space))
            });
        }
        let at = match home {
            Some((u, space)) => {
                if let Unit::Group(group) = &mut units.list[u] {
                    group.space = space;
                    group.roots.push(root.clone());
                }
                u
            }
            None => {
                let space = Space::of(self.core, root.node);
                units.list.push(Unit::Group(Group { space, roots: vec![root.clone()] }));
                units.deps.push(BTreeSet::new());
                units.list.len() - 1
            }
        };
        units.deps[at].extend(deps.into_iter().filter(|d| *d != at));
        match &root.place {
            Place::Own => units.made.entry(root.node).or_default().insert(at),
            Place::Part(Part { joined: made, .. }) | Place::Stored(made) => {
                units.made.entry(*made).or_default().insert(at)
            }
            Place::Input(_) => true,
        };
    }

    /// Whether a root is of a later part of the graph than all of a unit.
    fn is_later(&self, units: &Units, unit: usize, root: &Root) -> bool {
        let Unit::Group(group) = &units.list[unit] else { return false };
        let part = self.core.part_of(root.node);
        group.roots.iter().all(|of| self.core.part_of(of.node) < part)
    }

    /// Units that read the memory of `id`.
    fn readers(&self, live: &Live, units: &Units, id: CoreId) -> Vec<usize> {
        let reads = |unit: &Unit| match unit {
            Unit::Group(group) => group.roots.iter().any(|root| self.leaves(live, root).contains(&id)),
            Unit::Extern(call) => self.core.node(*call).op.operands().iter().any(|o| self.view(*o).base == id),
        };
        (0..units.list.len()).filter(|at| reads(&units.list[*at])).collect()
    }

    /// The space of the unit with `root` added, if they may be one kernel.
    fn joined(&self, live: &Live, units: &Units, unit: usize, root: &Root) -> Option<Space> {
        let Unit::Group(group) = &units.list[unit] else { return None };
        if group.roots.iter().any(|r| self.apart.contains(&r.node) || r.place.is_input()) {
            return None;
        }
        if group.roots.len() > 24 {
            return None;
        }
        let space = Space::of(self.core, root.node);
        if (group.space.reduces() || space.reduces()) && self.cross(live, &group.roots, root) {
            return None;
        }
        match (group.space.reduces(), space.reduces()) {
            (false, false) => (space == group.space).then_some(space),
            (true, false) => {
                let fits = space.sizes == group.space.sizes || space.sizes == group.space.outer();
                fits.then(|| group.space.clone())
            }
            (true, true) => (space == group.space).then_some(space),
            (false, true) => {
                let recomputed = group.roots.iter().map(|r| live.cost.get(&r.node).copied().unwrap_or(0)).sum::<u32>();
                let ok = space.sizes == group.space.sizes && parallel(&space) && recomputed <= RECOMPUTE_LIMIT;
                ok.then_some(space)
            }
        }
    }

    /// Bodies of all units in execution order; `None` if a decision was changed and planning starts again.
    fn emit(&mut self, live: &Live, units: &Units) -> Result<Option<Vec<Task>>, Reason> {
        let mut readers: BTreeMap<CoreId, BTreeSet<usize>> = BTreeMap::new();
        for (at, unit) in units.list.iter().enumerate() {
            if let Unit::Group(group) = unit {
                for leaf in group.roots.iter().flat_map(|r| self.leaves(live, r)) {
                    readers.entry(leaf).or_default().insert(at);
                }
            }
        }
        let kept = |at: usize, root: &Root| {
            root.place != Place::Own
                || self.must.contains(&root.node)
                || readers.get(&root.node).is_some_and(|r| r.iter().any(|u| *u != at))
        };
        let mut stored: Vec<Vec<Root>> = Vec::new();
        for (at, unit) in units.list.iter().enumerate() {
            stored.push(match unit {
                Unit::Group(group) => group.roots.iter().filter(|r| kept(at, r)).cloned().collect(),
                Unit::Extern(_) => vec![],
            });
        }
        let in_memory: HashSet<CoreId> =
            stored.iter().flatten().filter(|r| r.place == Place::Own).map(|r| r.node).collect();
        let mut bodies = Vec::new();
        for (unit, roots) in units.list.iter().zip(&stored) {
            check_time();
            let Unit::Group(group) = unit else {
                bodies.push(None);
                continue;
            };
            if roots.is_empty() {
                bodies.push(None);
                continue;
            }
            match body::write(self.core, &group.space, roots, &in_memory) {
                Ok(mut body) => {
                    collapse(&mut body);
                    bodies.push(Some(body));
                }
                Err(unfit) => {
                    self.give_way(group, &unfit)?;
                    return Ok(None);
                }
            }
        }
        let mut tasks = Vec::new();
        for at in self.order(units) {
            match &units.list[at] {
                Unit::Extern(id) => tasks.push(Task::Extern(*id)),
                Unit::Group(_) => tasks.extend(bodies[at].take().map(Task::Kernel)),
            }
        }
        Ok(Some(tasks))
    }

    /// Changes a decision so that the group fits next time.
    fn give_way(&mut self, group: &Group, unfit: &Unfit) -> Result<(), Reason> {
        let changed = match unfit {
            Unfit::Realise(id) if !self.must.contains(id) && !self.core.node(*id).op.is_view() => self.must.insert(*id),
            Unfit::Realise(id) if self.core.node(*id).op.is_view() && !self.copied.contains(id) => {
                self.copied.insert(*id);
                self.must.insert(*id)
            }
            _ => {
                let before = self.apart.len();
                self.apart.extend(group.roots.iter().map(|r| r.node));
                self.apart.len() > before
            }
        };
        if changed {
            return Ok(());
        }
        let is_unknown = |node: &CoreNode| node.op.is_view() && node.sizes.iter().any(|size| size.as_const().is_none());
        if let Unfit::Realise(_) = unfit
            && self.core.nodes().iter().any(is_unknown)
        {
            // It has memory, which no strides read in the order that is wanted: no digits can be told of the sizes of what
            // it is, or of a view of it.
            return Err(Reason::new(ReasonCode::NotLowered, "a reshape whose sizes are not known"));
        }
        Err(Reason::new(ReasonCode::Internal, format!("a value cannot be scheduled: {unfit:?}")))
    }

    /// A topological order that keeps program order where it can.
    fn order(&self, units: &Units) -> Vec<usize> {
        let n = units.list.len();
        let mut deps = units.deps.clone();
        for (at, unit) in units.list.iter().enumerate() {
            let Unit::Group(group) = unit else { continue };
            for root in &group.roots {
                if matches!(root.place, Place::Input(_)) {
                    deps[at].extend((0..n).filter(|u| *u != at && !is_write(&units.list[*u])));
                }
            }
        }
        let mut waiting: Vec<usize> = deps.iter().map(BTreeSet::len).collect();
        let mut users: Vec<Vec<usize>> = vec![vec![]; n];
        deps.iter().enumerate().for_each(|(at, d)| d.iter().for_each(|x| users[*x].push(at)));
        // A write to an input that nothing waits for comes last: of what fails before, it is not seen.
        let unread = |at: usize| users[at].iter().all(|user| is_write(&units.list[*user]));
        let key = |at: usize| match &units.list[at] {
            Unit::Extern(id) if written_by(&self.core.node(*id).op).is_some() && unread(at) => (CoreId(u32::MAX), at),
            Unit::Extern(id) => (*id, at),
            Unit::Group(g) if g.roots.iter().any(|r| r.place.is_input()) && unread(at) => (CoreId(u32::MAX), at),
            Unit::Group(g) => (g.roots.iter().map(Root::order).min().unwrap_or(CoreId(0)), at),
        };
        let mut ready: BTreeSet<(CoreId, usize)> = (0..n).filter(|u| waiting[*u] == 0).map(key).collect();
        let mut order = Vec::with_capacity(n);
        while let Some((_, at)) = ready.pop_first() {
            order.push(at);
            for &user in &users[at] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.insert(key(user));
                }
            }
        }
        order
    }
}

fn is_write(unit: &Unit) -> bool {
    matches!(unit, Unit::Group(g) if g.roots.iter().any(|r| matches!(r.place, Place::Input(_))))
}

/// False if fusing a pointwise producer into the reduction would leave too few rows to share between threads.
fn parallel(space: &Space) -> bool {
    let outer = Dim::product(&space.outer());
    let all = Dim::product(&space.sizes);
    match (outer.as_const(), all.as_const()) {
        (Some(outer), Some(all)) => outer >= 8 || all <= 65_536,
        _ => true,
    }
}

impl Units {
    /// Units that write the memory of `id`.
    fn makers(&self, core: &Core, id: CoreId) -> Vec<usize> {
        let id = if let CoreOp::Result(call, _) | CoreOp::Changed(_, call) = core.node(id).op { call } else { id };
        self.made.get(&id).into_iter().flatten().copied().collect()
    }

    /// True if `from` runs after `to`.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.list.len()];
        let mut todo = vec![from];
        while let Some(at) = todo.pop() {
            if at == to {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                todo.extend(&self.deps[at]);
            }
        }
        false
    }

    /// True if the unit is a group that reads one of `leaves` too.
    fn shares(&self, unit: usize, leaves: &BTreeSet<CoreId>, planner: &Planner<'_>, live: &Live) -> bool {
        let Unit::Group(group) = &self.list[unit] else { return false };
        group.roots.iter().any(|r| !planner.leaves(live, r).is_disjoint(leaves))
    }
}
