//! Updates in place: a joined value that is an earlier one but for some parts lies in that one's memory, where nobody reads there
//! any more what the parts replace. What stays is not copied then.

use crate::nest::affine::Affine;
use crate::nest::apart::{Reach, apart};
use crate::nest::body::{Body, Expr, Place, Write};
use crate::nest::group::{Schedule, Task, memory_view};
use crate::plan::memory::Shape;
use flambeau_core::graph::{Core, CoreId, CoreOp};
use flambeau_ir::bounds::check_time;
use flambeau_ir::dim::Dim;
use flambeau_ir::plan::TAPED;
use std::collections::{BTreeMap, BTreeSet};

/// Finds them, and leaves the copies out.
pub fn find(core: &Core, schedule: &mut Schedule) {
    let is_part = |write: &Write| matches!(write.root.place, Place::Part(_));
    if !schedule.tasks.iter().any(|task| matches!(task, Task::Kernel(body) if body.writes.iter().any(is_part))) {
        return;
    }
    let mut finder = Finder::of(core, schedule);
    for id in finder.order.clone() {
        check_time();
        if let Some(update) = finder.kept_by(id).into_iter().find_map(|from| finder.update(id, from)) {
            finder.apply(update);
        }
    }
    let Finder { tasks, first, .. } = finder;
    let is_left = |task: &Task| !matches!(task, Task::Kernel(body) if body.writes.is_empty());
    schedule.updates = first;
    schedule.tasks = tasks.into_iter().filter(is_left).collect();
}

/// A joined value that lies in the memory of an earlier one.
struct Update {
    id: CoreId,
    first: CoreId,
    /// The kernels that write it, without what stays.
    bodies: BTreeMap<usize, Body>,
}

struct Finder<'a> {
    core: &'a Core,
    tasks: Vec<Task>,
    /// Joined values, in the order of their first writes.
    order: Vec<CoreId>,
    /// Tasks that read each value, and that write it.
    readers: BTreeMap<CoreId, BTreeSet<usize>>,
    writers: BTreeMap<CoreId, BTreeSet<usize>>,
    /// Values that are read once all tasks are done.
    leaving: BTreeSet<CoreId>,
    /// The value whose memory an update lies in, and what all lies there.
    first: BTreeMap<CoreId, CoreId>,
    sharing: BTreeMap<CoreId, Vec<CoreId>>,
}

impl Finder<'_> {
    fn of<'a>(core: &'a Core, schedule: &mut Schedule) -> Finder<'a> {
        let mut finder = Finder {
            core,
            tasks: vec![],
            order: vec![],
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            leaving: BTreeSet::new(),
            first: BTreeMap::new(),
            sharing: BTreeMap::new(),
        };
        let base = |id: CoreId| memory_view(core, &schedule.copied, id).base;
        finder.leaving.extend(core.output_values().chain(core.writes.iter().map(|(_, id)| *id)).map(base));
        for (at, task) in schedule.tasks.iter().enumerate() {
            match task {
                Task::Kernel(body) => finder.note(at, body),
                Task::Extern(call) => {
                    finder.writers.entry(*call).or_default().insert(at);
                    let op = &core.node(*call).op;
                    let read: Vec<CoreId> = op.operands().into_iter().map(base).collect();
                    read.iter().for_each(|id| {
                        finder.readers.entry(*id).or_default().insert(at);
                    });
                    // Torch keeps what it likes of them for the derivative.
                    if matches!(op, CoreOp::Extern(of) if &*of.op == TAPED) {
                        finder.leaving.insert(*call);
                        finder.leaving.extend(read);
                    }
                }
            }
        }
        finder.tasks = std::mem::take(&mut schedule.tasks);
        finder
    }

    fn note(&mut self, at: usize, body: &Body) {
        for (id, ..) in reads(body) {
            self.readers.entry(id).or_default().insert(at);
        }
        for write in &body.writes {
            let Some(id) = written(write) else { continue };
            self.writers.entry(id).or_default().insert(at);
            if matches!(write.root.place, Place::Part(_)) && !self.order.contains(&id) {
                self.order.push(id);
            }
        }
    }

    /// Where a value is made: by itself, or by a call.
    fn maker(&self, id: CoreId) -> CoreId {
        if let CoreOp::Result(call, _) = self.core.node(id).op { call } else { id }
    }

    fn bodies(&self, tasks: Option<&BTreeSet<usize>>) -> impl Iterator<Item = (usize, &Body)> {
        tasks.into_iter().flatten().filter_map(|at| match &self.tasks[*at] {
            Task::Kernel(body) => Some((*at, body)),
            Task::Extern(_) => None,
        })
    }

    /// Values of which a joined one has parts where they are, those with the most elements first.
    fn kept_by(&self, id: CoreId) -> Vec<CoreId> {
        let mut kept: BTreeMap<CoreId, i64> = BTreeMap::new();
        for (_, body) in self.bodies(self.writers.get(&id)) {
            for write in body.writes.iter().filter(|write| written(write) == Some(id)) {
                if let Some(from) = stays(body, write).filter(|from| !self.core.node(*from).op.is_input()) {
                    *kept.entry(from).or_default() += Dim::product(&body.loops).as_const().unwrap_or(1);
                }
            }
        }
        let mut kept: Vec<(CoreId, i64)> = kept.into_iter().collect();
        kept.sort_by_key(|(_, count)| -count);
        kept.into_iter().map(|(from, _)| from).collect()
    }

    /// How a joined value lies in the memory of an earlier one, if it can.
    fn update(&self, id: CoreId, from: CoreId) -> Option<Update> {
        let first = self.first.get(&from).copied().unwrap_or(from);
        let (wanted, held) = (Shape::of(self.core, id), Shape::of(self.core, first));
        let is_used = self.first.contains_key(&id) || self.sharing.contains_key(&id);
        if is_used || self.core.node(id).dtype != self.core.node(first).dtype || !held.has_room_of(&wanted) {
            return None;
        }
        let replaces = |body: &Body, write: &Write| written(write) != Some(id) || stays(body, write) != Some(from);
        let replacing =
            |body: &Body| body.with(body.writes.iter().filter(|write| replaces(body, write)).cloned().collect());
        let bodies: BTreeMap<usize, Body> =
            self.bodies(self.writers.get(&id)).map(|(at, body)| (at, replacing(body))).collect();
        let update = Update { id, first, bodies };
        let there = self.sharing.get(&first).cloned().unwrap_or_else(|| vec![first]);
        // Another update of the same value has replaced what this one keeps.
        let is_last = there.last() == Some(&from);
        (is_last && there.into_iter().all(|other| self.is_over(other, &update))).then_some(update)
    }

    /// Whether nothing reads or writes another value that lies there at a place that the update has replaced by then.
    fn is_over(&self, other: CoreId, update: &Update) -> bool {
        let maker = self.maker(other);
        if self.leaving.contains(&other) || self.leaving.contains(&maker) {
            return false;
        }
        let begun = |at: usize| update.writes().any(|(task, ..)| task <= at);
        let body = |at: usize| match &self.tasks[at] {
            Task::Kernel(body) => Some(update.bodies.get(&at).unwrap_or(body)),
            Task::Extern(_) => None,
        };
        let reads_over = |at: &usize| match body(*at) {
            Some(body) => reads(body).filter(|(id, ..)| *id == other).all(|(_, read, plain)| {
                update.writes().filter(|(task, ..)| task <= at).all(|(task, by, write)| {
                    let last = body.insts.iter().map(|inst| inst.level).max() == Some(by.insts[write.value].level);
                    apart(reach(body, read), reach(by, &write.at)) || task == *at && plain && last && *read == write.at
                })
            }),
            None => !begun(*at),
        };
        let writes_over = |at: &usize| match body(*at) {
            Some(body) => body.writes.iter().filter(|write| written(write) == Some(other)).all(|earlier| {
                let mut later = update.writes().filter(|(task, ..)| task <= at);
                later.all(|(_, by, write)| apart(reach(body, &earlier.at), reach(by, &write.at)))
            }),
            None => !begun(*at),
        };
        self.readers.get(&other).into_iter().flatten().all(reads_over)
            && self.writers.get(&maker).into_iter().flatten().all(writes_over)
    }

    fn apply(&mut self, update: Update) {
        let Update { id, first, bodies } = update;
        for (at, body) in bodies {
            if let Task::Kernel(before) = &self.tasks[at] {
                let gone = |tasks: Option<&mut BTreeSet<usize>>| tasks.is_some_and(|tasks| tasks.remove(&at));
                reads(before).for_each(|(read, ..)| {
                    gone(self.readers.get_mut(&read));
                });
                before.writes.iter().filter_map(written).for_each(|made| {
                    gone(self.writers.get_mut(&made));
                });
            }
            self.note(at, &body);
            self.tasks[at] = Task::Kernel(body);
        }
        self.first.insert(id, first);
        self.sharing.entry(first).or_insert_with(|| vec![first]).push(id);
    }
}

impl Update {
    /// What it replaces: the task, the kernel and the write.
    fn writes(&self) -> impl Iterator<Item = (usize, &Body, &Write)> {
        self.bodies.iter().flat_map(|(at, body)| {
            let own = body.writes.iter().filter(|write| written(write) == Some(self.id));
            own.map(move |write| (*at, body, write))
        })
    }
}

/// The value that a write makes, or a part of it.
fn written(write: &Write) -> Option<CoreId> {
    match &write.root.place {
        Place::Own => Some(write.root.node),
        Place::Part(part) => Some(part.joined),
        Place::Input(_) | Place::Stored(_) => None,
    }
}

/// The value of which a write copies elements to where they are in it.
fn stays(body: &Body, write: &Write) -> Option<CoreId> {
    match &body.insts[write.value].expr {
        Expr::Load(id, at) if *at == write.at => Some(*id),
        _ => None,
    }
}

/// What a kernel reads: the value, the address, and whether it does so at each point.
fn reads(body: &Body) -> impl Iterator<Item = (CoreId, &Affine, bool)> {
    body.insts.iter().filter_map(|inst| match &inst.expr {
        Expr::Load(id, at) => Some((*id, at, true)),
        Expr::LoadIf(_, id, at, _) => Some((*id, at, false)),
        _ => None,
    })
}

fn reach<'a>(body: &'a Body, at: &'a Affine) -> Reach<'a> {
    Reach { at, loops: &body.loops }
}
