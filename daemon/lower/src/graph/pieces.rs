//! Joined values that are only read element by element have no memory: what is computed of them is computed piece by piece,
//! each of other parts. `x * c + cat((-b, a)) * s` is two pieces, a sum of rolled tensors is a large one and its edges.

use crate::graph::layout::LaidOut;
use flambeau_core::graph::{Core, CoreId, CoreNode, CoreOp};
use flambeau_core::rebuild::{GONE, rebuild};
use flambeau_ir::dim::Dim;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most pieces of a value.
const MOST: usize = 27;
/// Pieces beyond the kernels that they save.
const MORE: usize = 2;

/// Indices in the middle of each dimension where a new piece begins.
type Cuts = Vec<BTreeSet<i64>>;
/// First index and size in each dimension.
type Piece = Vec<(i64, i64)>;

/// The graph without such values.
pub fn divide(laid_out: LaidOut) -> LaidOut {
    let core = &laid_out.core;
    let has = |is: fn(&CoreOp) -> bool| core.nodes().iter().any(|node| is(&node.op));
    // What is read of an input that is written to in the middle is read where the program does.
    if !has(|op| matches!(op, CoreOp::Join(..))) || has(|op| op.before().is_some()) {
        return laid_out;
    }
    let mut whole: BTreeSet<CoreId> = laid_out.once.clone();
    let plan = loop {
        let plan = Plan::of(core, &whole);
        let too_many = plan.too_many(core);
        if too_many.is_empty() {
            break plan;
        }
        whole.extend(too_many);
    };
    if plan.made.is_empty() {
        return laid_out;
    }
    let mut found = HashMap::new();
    let (new, map) = rebuild(core, |new, map, id| {
        // The memory of an input may be written to without being read.
        let is_dead = !plan.uses.is_live(id) && !core.node(id).op.is_input();
        if is_dead || plan.divided.contains_key(&id) {
            return Some(GONE);
        }
        let cuts = plan.made.get(&id)?;
        Some(Making { old: core, new, map, plan: &plan, whole: &whole, found: &mut found }.made(id, cuts))
    });
    let once = laid_out.once.iter().map(|id| map[id.0 as usize]).filter(|id| *id != GONE).collect();
    LaidOut { core: new, once }
}

/// What reads each value.
struct Uses {
    users: Vec<Vec<CoreId>>,
    /// Leaves the graph.
    kept: BTreeSet<CoreId>,
}

impl Uses {
    fn of(core: &Core) -> Uses {
        let mut kept: BTreeSet<CoreId> = core.writes.iter().map(|(_, id)| *id).collect();
        kept.extend(core.output_values());
        let mut users = vec![Vec::new(); core.nodes().len()];
        let mut uses = Uses { users: Vec::new(), kept };
        for id in core.ids().rev() {
            let op = &core.node(id).op;
            let runs = matches!(op, CoreOp::Extern(call) if call.order.is_some());
            if runs {
                uses.kept.insert(id);
            }
            if uses.kept.contains(&id) || !users[id.0 as usize].is_empty() {
                op.operands().iter().for_each(|operand| users[operand.0 as usize].push(id));
            }
        }
        uses.users = users;
        uses
    }

    fn is_live(&self, id: CoreId) -> bool {
        self.kept.contains(&id) || !self.users(id).is_empty()
    }

    fn users(&self, id: CoreId) -> &[CoreId] {
        &self.users[id.0 as usize]
    }
}

fn is_by_element(op: &CoreOp) -> bool {
    matches!(op, CoreOp::Unary(..) | CoreOp::Binary(..) | CoreOp::Select(..) | CoreOp::Cast(_) | CoreOp::Copy(_))
}

fn fixed(sizes: &[Dim]) -> Option<Vec<i64>> {
    sizes.iter().map(Dim::as_const).collect()
}

/// A part of fixed places, or the same value.
fn is_part(op: &CoreOp) -> bool {
    matches!(op, CoreOp::Slice(_, _, Dim::Const(_), 1) | CoreOp::Copy(_))
}

struct Plan {
    uses: Uses,
    /// Values that are not in the new graph, and where pieces of them begin.
    divided: BTreeMap<CoreId, Cuts>,
    /// Values that are computed in pieces.
    made: BTreeMap<CoreId, Cuts>,
}

impl Plan {
    /// `whole`: values that stay as they are.
    fn of(core: &Core, whole: &BTreeSet<CoreId>) -> Plan {
        let mut plan = Plan { uses: Uses::of(core), divided: BTreeMap::new(), made: BTreeMap::new() };
        let open = plan.open(core, whole);
        for id in core.ids().filter(|id| plan.uses.is_live(*id)) {
            let node = core.node(id);
            let reads_divided = node.op.operands().iter().any(|o| plan.divided.contains_key(o));
            let is_join = matches!(node.op, CoreOp::Join(..));
            if !(reads_divided || is_join && open.contains(&id)) {
                continue;
            }
            let Some(cuts) = plan.cuts(core, id) else { continue };
            if open.contains(&id) && (is_join || reads_divided) {
                plan.divided.insert(id, cuts);
            } else {
                plan.made.insert(id, cuts);
            }
        }
        plan
    }

    /// Values that are read in pieces only, where that is no more work.
    fn open(&self, core: &Core, whole: &BTreeSet<CoreId>) -> BTreeSet<CoreId> {
        let (mut open, cheap) = (BTreeSet::new(), self.cheap(core));
        for id in core.ids().rev() {
            let (node, users) = (core.node(id), self.uses.users(id));
            let stays = users.is_empty() || self.uses.kept.contains(&id) || whole.contains(&id);
            if stays || fixed(&node.sizes).is_none_or(|sizes| sizes.contains(&0)) {
                continue;
            }
            let by_element = |user: &CoreId| is_by_element(&core.node(*user).op);
            let fits = match &node.op {
                // A part of a join is written where it belongs unless that is read in pieces too.
                CoreOp::Join(parts, _) => {
                    let all = users.iter().all(|user| {
                        let op = &core.node(*user).op;
                        is_by_element(op) || open.contains(user) && (is_part(op) || matches!(op, CoreOp::Join(..)))
                    });
                    all && (self.reads(core, id) == 1 || parts.iter().all(|part| cheap[part.0 as usize]))
                }
                op if is_part(op) => users.iter().all(|user| {
                    let CoreNode { op, sizes, .. } = core.node(*user);
                    let joins = matches!(op, CoreOp::Join(..)) && fixed(sizes).is_some();
                    is_by_element(op) || joins || is_part(op) && open.contains(user)
                }),
                op => is_by_element(op) && users.len() == 1 && users.iter().all(by_element),
            };
            if fits {
                open.insert(id);
            }
        }
        open
    }

    /// How often a value is read, through parts of it.
    fn reads(&self, core: &Core, id: CoreId) -> usize {
        let of = |user: &CoreId| if is_part(&core.node(*user).op) { self.reads(core, *user) } else { 1 };
        self.uses.users(id).iter().map(of).sum()
    }

    /// Of each value, whether to compute it twice costs no more than to read it twice.
    fn cheap(&self, core: &Core) -> Vec<bool> {
        let mut cheap: Vec<bool> = Vec::with_capacity(core.nodes().len());
        for id in core.ids() {
            let op = &core.node(id).op;
            let is_read = op.is_input() || matches!(op, CoreOp::Result(..) | CoreOp::Const(_));
            cheap.push(match op {
                op if op.is_view() || matches!(op, CoreOp::Join(..)) => {
                    op.operands().iter().all(|of| cheap[of.0 as usize])
                }
                op => is_read || is_by_element(op) && self.uses.users(id).len() > 1,
            });
        }
        cheap
    }

    /// Where pieces of a value begin, as those of what it reads do; `None` for sizes that are not fixed.
    fn cuts(&self, core: &Core, id: CoreId) -> Option<Cuts> {
        let node = core.node(id);
        let sizes = fixed(&node.sizes)?;
        let mut cuts: Cuts = vec![BTreeSet::new(); sizes.len()];
        let of = |id: CoreId, along: usize, shift: i64, cuts: &mut Cuts| {
            for (d, at) in self.divided.get(&id).into_iter().flatten().enumerate() {
                cuts[d].extend(at.iter().map(|at| at + if along == d { shift } else { 0 }));
            }
        };
        match &node.op {
            CoreOp::Join(parts, dim) => {
                let (dim, mut from) = (*dim as usize, 0);
                for part in parts {
                    of(*part, dim, from, &mut cuts);
                    from += fixed(&core.node(*part).sizes)?[dim];
                    cuts[dim].insert(from);
                }
            }
            CoreOp::Slice(id, dim, start, _) => of(*id, *dim as usize, -start.as_const()?, &mut cuts),
            op => op.operands().into_iter().for_each(|id| of(id, 0, 0, &mut cuts)),
        }
        for (size, cuts) in sizes.iter().zip(&mut cuts) {
            cuts.retain(|at| (1..*size).contains(at));
        }
        Some(cuts)
    }

    /// Joined values that would make more pieces than they save kernels.
    fn too_many(&self, core: &Core) -> BTreeSet<CoreId> {
        let mut found = BTreeSet::new();
        for (id, cuts) in &self.made {
            let mut joined = BTreeSet::new();
            self.read_by(core, *id, &mut joined);
            joined.retain(|id| matches!(core.node(*id).op, CoreOp::Join(..)));
            let parts = |id: &CoreId| core.node(*id).op.operands().len();
            let before = joined.iter().map(parts).sum::<usize>() + 1;
            let pieces = cuts.iter().map(|at| at.len() + 1).fold(1, usize::saturating_mul);
            if pieces > MOST.min(before + MORE) {
                found.extend(joined);
            }
        }
        found
    }

    /// Adds the values without memory that one is computed of.
    fn read_by(&self, core: &Core, id: CoreId, found: &mut BTreeSet<CoreId>) {
        for of in core.node(id).op.operands() {
            if self.divided.contains_key(&of) && found.insert(of) {
                self.read_by(core, of, found);
            }
        }
    }
}

struct Making<'a> {
    old: &'a Core,
    new: &'a mut Core,
    map: &'a [CoreId],
    plan: &'a Plan,
    whole: &'a BTreeSet<CoreId>,
    found: &'a mut HashMap<(CoreId, Piece), CoreId>,
}

impl Making<'_> {
    /// The value, its pieces joined.
    fn made(&mut self, id: CoreId, cuts: &Cuts) -> CoreId {
        let node = self.old.node(id);
        let sizes = fixed(&node.sizes).unwrap_or_default();
        let all: Piece = sizes.iter().map(|size| (0, *size)).collect();
        let made = self.joined(id, cuts, 0, &all);
        let mut top = self.new.node(made).clone();
        if !matches!(top.op, CoreOp::Join(..)) {
            return made;
        }
        top.strides.clone_from(&node.strides);
        self.new.add(top)
    }

    /// The pieces of a part from this dimension on.
    fn joined(&mut self, id: CoreId, cuts: &Cuts, dim: usize, part: &Piece) -> CoreId {
        let Some(dim) = (dim..cuts.len()).find(|d| !cuts[*d].is_empty()) else { return self.computed(id, part) };
        let ends = cuts[dim].iter().copied().chain([part[dim].1]);
        let (mut parts, mut from) = (Vec::new(), 0);
        for end in ends {
            let mut piece = part.clone();
            piece[dim] = (from, end - from);
            parts.push(self.joined(id, cuts, dim + 1, &piece));
            from = end;
        }
        let sizes = part.iter().map(|(_, size)| Dim::Const(*size)).collect();
        self.new.push(CoreOp::Join(parts, dim as u32), self.old.node(id).dtype, sizes)
    }

    /// A piece of a value, of those that are in the new graph a part.
    fn piece(&mut self, id: CoreId, piece: &Piece) -> CoreId {
        // What only this is computed of has no memory either.
        let alone = is_by_element(&self.old.node(id).op) && self.plan.uses.users(id).len() == 1;
        let kept = self.plan.uses.kept.contains(&id) || self.whole.contains(&id) || self.plan.made.contains_key(&id);
        if self.plan.divided.contains_key(&id) || alone && !kept {
            return self.computed(id, piece);
        }
        let mut at = self.map[id.0 as usize];
        for (dim, (start, size)) in piece.iter().enumerate() {
            let CoreNode { op, dtype, sizes, .. } = self.new.node(at);
            if sizes[dim].is(*size) {
                continue;
            }
            let (op, dtype, mut sizes) = (op.clone(), *dtype, sizes.clone());
            sizes[dim] = Dim::Const(*size);
            let op = if let CoreOp::Const(_) = op { op } else { CoreOp::Slice(at, dim as u32, Dim::Const(*start), 1) };
            at = self.new.push(op, dtype, sizes);
        }
        at
    }

    fn computed(&mut self, id: CoreId, piece: &Piece) -> CoreId {
        let key = (id, piece.clone());
        if let Some(found) = self.found.get(&key) {
            return *found;
        }
        let (old, moved) = (self.old, |dim: usize, by: i64| {
            let mut piece = piece.clone();
            piece[dim].0 += by;
            piece
        });
        let node = old.node(id);
        let made = match &node.op {
            CoreOp::Join(parts, dim) => {
                let (dim, mut from) = (*dim as usize, 0);
                let of = parts.iter().find(|part| {
                    let size = old.node(**part).sizes[dim].as_const().unwrap_or_default();
                    from += size;
                    piece[dim].0 < from
                });
                let of = *of.unwrap_or(&parts[0]);
                from -= old.node(of).sizes[dim].as_const().unwrap_or_default();
                self.piece(of, &moved(dim, -from))
            }
            CoreOp::Slice(of, dim, start, _) => {
                self.piece(*of, &moved(*dim as usize, start.as_const().unwrap_or_default()))
            }
            CoreOp::Copy(of) => self.piece(*of, piece),
            op => {
                let mut op = op.clone();
                for operand in op.operands_mut() {
                    *operand = self.piece(*operand, piece);
                }
                let made = self.new.push(op, node.dtype, piece.iter().map(|(_, size)| Dim::Const(*size)).collect());
                if old.is_again(id) {
                    self.new.note_again(made);
                }
                made
            }
        };
        self.found.insert(key, made);
        made
    }
}
