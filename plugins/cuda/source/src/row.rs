//! Kernels with reductions, or with stages for whole rows: a team of threads does a row, stage by stage.
//!
//! Where blocks share a row, a launch ends with what each of its blocks found, in scratch memory, and all blocks of the next
//! one bring that together for themselves.

use crate::Functions;
use crate::entry::Entry;
use crate::joint::{Joined, operands};
use crate::place::{product, product_text};
use crate::reduction::Reduction;
use crate::schedule::{Along, MOST_SHARED, Schedule};
use crate::team;
use crate::vector::{Vector, loads};
use flambeau_c_text::{Text, name};
use flambeau_cuda_artifact::{Count, Launch};
use flambeau_plugin::kernel::{Access, Extent, Kernel, Role, Scope, Stage, ValueId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a number that a block found, in scratch memory.
const SLOT: u64 = 8;

/// Writes the functions of all launches.
pub fn write(kernel: &Kernel, name: &str, vector: &Vector, text: &mut Text) -> Functions {
    let schedule = Schedule::of(kernel, vector.width);
    let joined = Joined::of(kernel, &kept(kernel, vector, &schedule), MOST_SHARED as u64);
    let parts = parts(&joined.kernel, &schedule);
    let launches = parts.iter().enumerate().map(|(at, part)| {
        let name = if parts.len() == 1 { name.to_owned() } else { format!("{name}_{at}") };
        let with_rows = joined.kernel.stages[part.clone()].iter().any(|stage| stage.scope == Scope::Row);
        let splits = if with_rows { schedule.splits } else { 1 };
        let mut writer = Writer::begin(&joined, vector, text, &name, schedule, splits, part.clone());
        writer.rows();
        writer.entry.close();
        Launch { entry: name, threads: schedule.threads(), blocks: blocks(kernel, &schedule, splits) }
    });
    let launches = launches.collect();
    let factor = SLOT * u64::from(schedule.splits) * joined.numbers();
    let extents = kernel.dims[..kernel.outer].to_vec();
    let scratch = leaves(&joined, &schedule).then_some(Count { factor, extents, divisor: 1 });
    Functions { launches, scratch, joins: joined.joins() }
}

/// Whether blocks leave what they found for later launches.
fn leaves(joined: &Joined, schedule: &Schedule) -> bool {
    schedule.splits > 1 && joined.numbers() > 0
}

/// The stages of each launch.
fn parts(kernel: &Kernel, schedule: &Schedule) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, stage) in kernel.stages.iter().enumerate() {
        if at + 1 == kernel.stages.len() && (schedule.splits == 1 || stage.reduces.is_empty()) {
            break;
        }
        if schedule.splits > 1 && !stage.reduces.is_empty() {
            parts.push(start..at + 1);
            start = at + 1;
        }
    }
    if start < kernel.stages.len() {
        parts.push(start..kernel.stages.len());
    }
    parts
}

fn blocks(kernel: &Kernel, schedule: &Schedule, splits: u32) -> Count {
    let (rows, extents) = (u64::from(schedule.rows), kernel.dims[..kernel.outer].to_vec());
    match product(&extents) {
        Some(known) if splits > 1 && known > 0 => {
            Count { factor: (known as u64).div_ceil(rows) * u64::from(splits), extents: Vec::new(), divisor: 1 }
        }
        _ => Count { factor: 1, extents, divisor: rows },
    }
}

/// One launch.
struct Writer<'a> {
    entry: Entry<'a>,
    joined: &'a Joined,
    schedule: Schedule,
    /// Blocks of this launch that share a row.
    splits: u32,
    /// Its stages: of those before it only values are needed.
    part: Range<usize>,
    /// Values that they use, and values that those are computed from.
    needed: BTreeSet<ValueId>,
    /// Elements of a row, if known.
    length: Option<i64>,
    /// Whether the last block has threads without a row.
    idle: bool,
}

impl<'a> Writer<'a> {
    fn begin(
        joined: &'a Joined,
        vector: &'a Vector,
        text: &'a mut Text,
        name: &str,
        schedule: Schedule,
        splits: u32,
        part: Range<usize>,
    ) -> Self {
        let kernel = &joined.kernel;
        let more: &[&str] = if leaves(joined, &schedule) { &["char *scratch"] } else { &[] };
        let entry = Entry::begin(kernel, vector, text, name, schedule.threads(), more);
        let length = product(&kernel.dims[kernel.outer..]);
        let rows = product(&kernel.dims[..kernel.outer]);
        let idle = rows.is_none_or(|rows| rows % i64::from(schedule.rows) != 0);
        let needed = needed(joined, &part);
        Writer { entry, joined, schedule, splits, part, needed, length, idle }
    }

    /// All rows of this block.
    fn rows(&mut self) {
        let kernel = self.entry.kernel;
        let Schedule { along, rows, lanes, .. } = self.schedule;
        team::declare(&mut self.entry, &self.joined.all_reductions(), &self.schedule);
        let c = self.entry.index.ctype();
        let (row, lane) = match along {
            Along::Row => (format!("threadIdx.x / {lanes}"), format!("threadIdx.x % {lanes}")),
            Along::Points => (format!("threadIdx.x % {rows}"), format!("threadIdx.x / {rows}")),
        };
        self.entry.line(&format!("const int own_row = {row}, lane = {lane};"));
        self.entry.line(&format!("const {c} rows = {};", product_text(&kernel.dims[..kernel.outer])));
        let splits = self.splits;
        let groups = if rows > 1 { format!("(rows + {}) / {rows}", rows - 1) } else { "rows".to_owned() };
        let units = if splits > 1 { format!("{groups} * {splits}") } else { groups };
        self.entry.line("#pragma unroll 1");
        self.entry.open(&format!("for ({c} unit = blockIdx.x; unit < {units}; unit += ({c})gridDim.x)"));
        let mut group = "unit".to_owned();
        if splits > 1 {
            self.entry.line(&format!("const {c} split = unit % {splits};"));
            group = format!("unit / {splits}");
        }
        if self.idle {
            // Threads without a row of their own go along with the last one, and write nothing.
            self.entry.line(&format!("const bool owns = {group} * {rows} + own_row < rows;"));
            self.entry.line(&format!("const {c} row = owns ? {group} * {rows} + own_row : rows - 1;"));
        } else if rows > 1 {
            self.entry.line(&format!("const {c} row = {group} * {rows} + own_row;"));
        } else {
            self.entry.line(&format!("const {c} row = {group};"));
        }
        let names: Vec<String> = (0..kernel.outer).map(|dim| format!("i{dim}")).collect();
        for line in self.entry.index.divided("row", &names, &kernel.dims[..kernel.outer]) {
            self.entry.line(&line);
        }
        self.cache();
        for at in 0..self.part.end {
            self.stage(at);
        }
        if team::waits(&self.schedule) {
            self.entry.line("__syncthreads();");
        }
        self.entry.close();
    }

    /// Reads what several stages need, if there is room for it in registers.
    fn cache(&mut self) {
        let (kernel, vector) = (self.entry.kernel, self.entry.vector);
        self.entry.cached = kept(kernel, vector, &self.schedule);
        if let Some(turns) = turns(kernel, vector, &self.schedule).filter(|_| !self.entry.cached.is_empty()) {
            self.entry.declare_cached(turns);
            self.elements(Entry::fill);
        }
    }

    fn stage(&mut self, at: usize) {
        let stage = &self.entry.kernel.stages[at];
        match stage.scope {
            Scope::Outer => {
                let needed = &self.needed;
                self.entry.outside(stage, |id| needed.contains(&id));
                for (reduction, from) in self.joined.known(at).filter(|(found, _)| needed.contains(&found.id)) {
                    let result = format!("result({}, {})", reduction.kept_in(), name(from));
                    self.entry.define(reduction.id, reduction.dtype, &result);
                }
                if self.part.contains(&at) && !stage.stores.is_empty() {
                    self.store_outside(stage);
                }
            }
            Scope::Row if at < self.part.start => self.found_before(at),
            Scope::Row => self.row_stage(at),
        }
    }

    /// One thread writes, after all have read.
    fn store_outside(&mut self, stage: &Stage) {
        let params = &self.entry.kernel.params;
        let changes = stage.stores.iter().any(|store| params[store.access.param as usize].role == Role::InOut);
        if changes && self.schedule.lanes > 1 {
            self.entry.line(if team::waits(&self.schedule) { "__syncthreads();" } else { "__syncwarp();" });
        }
        let condition = self.first_of_row();
        self.entry.open(&format!("if ({condition}{})", if self.splits > 1 { " && split == 0" } else { "" }));
        self.entry.store_outside(stage);
        self.entry.close();
    }

    /// True in one thread for each row.
    fn first_of_row(&self) -> &'static str {
        if self.idle { "owns && lane == 0" } else { "lane == 0" }
    }

    fn row_stage(&mut self, at: usize) {
        let stage = &self.entry.kernel.stages[at];
        let reductions = self.joined.reductions(at);
        self.entry.start(&reductions);
        self.elements(|entry, turn| entry.elements(stage, &reductions, turn));
        team::total(&mut self.entry, &reductions, &self.schedule);
        if self.schedule.splits > 1 && !reductions.is_empty() {
            self.entry.open(&format!("if ({})", self.first_of_row()));
            for reduction in &reductions {
                let slot = self.slot(reduction, "split");
                self.entry.line(&format!("{slot} = {};", reduction.kept_in()));
            }
            self.entry.close();
        }
    }

    /// What the blocks of an earlier launch found, as far as this one uses it.
    fn found_before(&mut self, at: usize) {
        let mut reductions = self.joined.reductions(at);
        reductions.retain(|reduction| self.needed.contains(&reduction.id));
        if reductions.is_empty() {
            return;
        }
        self.entry.start(&reductions);
        let (splits, lanes) = (self.schedule.splits, self.schedule.lanes);
        self.entry.open(&format!("for (int part = lane; part < {splits}; part += {lanes})"));
        for reduction in &reductions {
            let slot = self.slot(reduction, "part");
            self.entry.line(&reduction.add(&slot));
        }
        self.entry.close();
        team::total(&mut self.entry, &reductions, &self.schedule);
    }

    /// Where a block leaves what it found.
    fn slot(&self, reduction: &Reduction, split: &str) -> String {
        let all = self.joined.all_reductions();
        let before = all.iter().take_while(|other| other.id != reduction.id);
        let first = before.map(Reduction::numbers).sum::<u64>() * u64::from(self.schedule.splits);
        let place = match reduction.numbers() {
            1 => format!("({first}l + {split}) * rows + row"),
            many => format!("{first}l * rows + {many}l * ({split} * rows + row)"),
        };
        format!("*({} *)(scratch + {SLOT}l * ({place}))", reduction.kept_type())
    }

    /// Does something for the elements of the row that are this thread's, whose indices are declared.
    fn elements(&mut self, body: impl FnOnce(&mut Entry<'a>, &str)) {
        let kernel = self.entry.kernel;
        let c = self.entry.index.ctype();
        let width = self.entry.vector.width as i64;
        let step = i64::from(self.schedule.lanes) * width;
        let length = product_text(&kernel.dims[kernel.outer..]);
        let owns = self.idle;
        let turns = turns(kernel, self.entry.vector, &self.schedule);
        if let (Some(turns), Some(known)) = (turns, self.length) {
            let within = if known % step == 0 { None } else { Some(format!("element < {length}")) };
            let condition = owns.then(|| "owns".to_owned()).into_iter().chain(within).collect::<Vec<_>>().join(" && ");
            self.entry.line("#pragma unroll");
            self.entry.open(&format!("for (int turn = 0; turn < {turns}; turn++)"));
            self.entry.line(&format!("const {c} element = lane * {width} + turn * {step};"));
            if !condition.is_empty() {
                self.entry.open(&format!("if ({condition})"));
            }
            self.entry.indices("element");
            body(&mut self.entry, "turn");
            if !condition.is_empty() {
                self.entry.close();
            }
            self.entry.close();
            return;
        }
        self.entry.open("");
        let (begin, mut end) = if self.splits > 1 {
            let (splits, more) = (self.splits, i64::from(self.splits) * width - 1);
            self.entry
                .line(&format!("const {c} share = ({length} + {more}) / {} * {width};", i64::from(splits) * width));
            self.entry.line(&format!("const {c} share_end = least((split + 1) * share, {length});"));
            ("split * share + ".to_owned(), "share_end".to_owned())
        } else {
            (String::new(), length)
        };
        if owns {
            self.entry.line(&format!("const {c} row_end = owns ? {end} : 0;"));
            "row_end".clone_into(&mut end);
        }
        let first = format!("{begin}lane * {width}");
        self.entry.line("#pragma unroll 4");
        self.entry.open(&format!("for ({c} element = {first}; element < {end}; element += {step})"));
        self.entry.indices("element");
        body(&mut self.entry, "");
        self.entry.close();
        self.entry.close();
    }
}

/// How often a thread goes over the elements of a row, if they may be kept in registers.
fn turns(kernel: &Kernel, vector: &Vector, schedule: &Schedule) -> Option<i64> {
    schedule.turns(product(&kernel.dims[kernel.outer..]), vector.width).filter(|_| !vector.short)
}

/// What several stages read and registers have room for.
fn kept(kernel: &Kernel, vector: &Vector, schedule: &Schedule) -> Vec<Access> {
    let Some(turns) = turns(kernel, vector, schedule) else { return Vec::new() };
    let mut room = schedule.registers();
    let fits = |access: &Access| {
        let each = kernel.params[access.param as usize].dtype.size().div_ceil(4) as i64;
        let registers = turns * vector.width as i64 * each;
        let fits = registers <= room;
        room -= if fits { registers } else { 0 };
        fits
    };
    let mut read = repeated(kernel);
    read.retain(fits);
    read
}

/// What several stages read of each element of a row.
fn repeated(kernel: &Kernel) -> Vec<Access> {
    let stages = || kernel.stages.iter().filter(|stage| stage.scope == Scope::Row);
    let along = |access: &&Access| access.strides[kernel.outer..].iter().any(|stride| *stride != Extent::Const(0));
    let mut found: Vec<Access> = Vec::new();
    for access in stages().flat_map(|stage| loads(stage).filter(along)) {
        let users = stages().filter(|stage| loads(stage).any(|other| other == access)).count();
        if users > 1 && !found.contains(access) {
            found.push(access.clone());
        }
    }
    found
}

/// Values that the stages of a launch use, and values that those are computed from.
fn needed(joined: &Joined, part: &Range<usize>) -> BTreeSet<ValueId> {
    let mut needed = BTreeSet::new();
    for (at, stage) in joined.kernel.stages[..part.end].iter().enumerate().rev() {
        if part.contains(&at) {
            needed.extend(stage.stores.iter().map(|store| store.value));
            needed.extend(stage.reduces.iter().map(|reduce| reduce.value));
        } else if stage.scope == Scope::Row {
            continue;
        }
        for inst in stage.insts.iter().rev() {
            if stage.scope == Scope::Row || needed.contains(&inst.id) {
                needed.extend(operands(&inst.op));
            }
        }
        needed.extend(
            joined.known(at).filter(|(found, _)| needed.contains(&found.id)).map(|(_, from)| from).collect::<Vec<_>>(),
        );
    }
    needed
}
