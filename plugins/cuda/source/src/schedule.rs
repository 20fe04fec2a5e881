//! Which threads do which rows, by what constants say of sizes and strides.

use crate::place::{div_up, product};
use crate::vector::loads;
use flambeau_plugin::kernel::{Access, Extent, Kernel, Role, Scope};
use flambeau_plugin::simplify::accesses;

/// Elements of a row that a thread keeps in registers, at most.
const KEPT: i64 = 32;

/// Blocks that fill a large device.
const FULL: i64 = 132;

/// Elements of a row that are worth a block of their own.
const WORTH: i64 = 8192;

/// Numbers of up to eight bytes that a block has the memory to share from each of its threads.
pub const MOST_SHARED: usize = 20;

/// Along what neighbouring threads lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Along the row.
    Row,
    /// Along the points: each does another row.
    Points,
}

/// How a block does rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// See there.
    pub along: Along,
    /// Rows of a block; a power of two.
    pub rows: u32,
    /// Threads of a row; a power of two. Along the row, more than a warp only where the block has one row.
    pub lanes: u32,
    /// Blocks that share a row.
    pub splits: u32,
}

impl Schedule {
    /// For threads that do so many neighbouring elements at once.
    pub fn of(kernel: &Kernel, width: usize) -> Schedule {
        let rows = product(&kernel.dims[..kernel.outer]);
        let length = product(&kernel.dims[kernel.outer..]);
        if kernel.stages.iter().all(|stage| stage.scope == Scope::Outer) {
            return Schedule { along: Along::Points, rows: 128, lanes: 1, splits: 1 };
        }
        let mut schedule = if width == 1 && lie_along_points(kernel) {
            Schedule::along_points(rows, length)
        } else {
            Schedule::along_row(rows, length, width as i64)
        };
        if divides(kernel) {
            schedule.splits = schedule.splits(rows, length);
        }
        schedule
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.rows * self.lanes
    }

    /// How often a thread goes over the elements of a row whose length is known, if they may be kept in registers.
    pub fn turns(&self, length: Option<i64>, width: usize) -> Option<i64> {
        let step = i64::from(self.lanes) * width as i64;
        let turns = div_up(length.filter(|length| *length > 0 && self.splits == 1)?, step);
        (turns * width as i64 <= KEPT).then_some(turns)
    }

    /// Registers that a thread may keep elements in: half of what it has, and no more than blocks side by side leave.
    pub fn registers(&self) -> i64 {
        i64::from(32_768 / self.threads()).min(2 * KEPT)
    }

    fn along_points(rows: Option<i64>, length: Option<i64>) -> Schedule {
        let rows = power(rows.unwrap_or(32), 32);
        let lanes = power(length.unwrap_or(64), 256 / rows);
        Schedule { along: Along::Points, rows: 256 / lanes, lanes, splits: 1 }
    }

    fn along_row(rows: Option<i64>, length: Option<i64>, width: i64) -> Schedule {
        let (rows_of_block, lanes) = match length {
            None => (1, 256),
            Some(length) => {
                let steps = div_up(length, width);
                let many = rows.is_none_or(|rows| rows >= 4 * FULL);
                if steps <= 32 || (length <= 1024 && many) {
                    let lanes = power(steps, 32);
                    (128 / lanes, lanes)
                } else if length <= 1024 * KEPT {
                    (1, power(div_up(length, KEPT / 2), 1024).max(64))
                } else {
                    (1, 512)
                }
            }
        };
        Schedule { along: Along::Row, rows: rows_of_block, lanes, splits: 1 }
    }

    /// Blocks for a row, where there are few rows and they are long.
    fn splits(self, rows: Option<i64>, length: Option<i64>) -> u32 {
        let Some(blocks) = rows.map(|rows| div_up(rows, i64::from(self.rows)).max(1)).filter(|b| *b < FULL) else {
            return 1;
        };
        let worth = match self.along {
            Along::Row if length.is_some_and(|length| length <= 1024 * KEPT) => return 1,
            Along::Row => WORTH,
            Along::Points => WORTH / i64::from(self.rows),
        };
        let parts = length.map_or(64, |length| length / worth);
        parts.min(2 * FULL / blocks).clamp(1, 256) as u32
    }
}

/// The least power of two that is as large, between 1 and `most`.
fn power(size: i64, most: u32) -> u32 {
    (size.clamp(1, i64::from(most)) as u32).next_power_of_two()
}

/// Whether neighbours in memory belong to different rows.
pub fn lie_along_points(kernel: &Kernel) -> bool {
    let reduces: usize = kernel.stages.iter().map(|stage| stage.reduces.len()).sum();
    let Some(point) = kernel.outer.checked_sub(1).filter(|_| reduces <= MOST_SHARED) else { return false };
    let near = |access: &&Access, dim: usize| access.strides[dim] == Extent::Const(1);
    let read = || kernel.stages.iter().filter(|stage| stage.scope == Scope::Row).flat_map(loads);
    let points = read().filter(|access| near(access, point)).count();
    let rows = read().filter(|access| (kernel.outer..kernel.dims.len()).any(|dim| near(access, dim))).count();
    points > rows
}

/// Whether blocks may share a row: what they all compute for it must not be changed by the one that writes.
fn divides(kernel: &Kernel) -> bool {
    let once = |access: &Access| access.strides[kernel.outer..].iter().all(|stride| *stride == Extent::Const(0));
    let changed = |access: &Access| kernel.params[access.param as usize].role == Role::InOut;
    !accesses(kernel).any(|access| changed(access) && once(access))
}
