//! What the threads of a row found, brought together: all of them have it then, and it is the same every time.

use crate::entry::Entry;
use crate::reduction::{Kind, Reduction};
use crate::schedule::{Along, Schedule};

/// Threads of a warp.
const WARP: u32 = 32;

/// Declares the memory that the threads of a block share for it.
pub fn declare(entry: &mut Entry<'_>, reductions: &[Reduction], schedule: &Schedule) {
    if !waits(schedule) {
        return;
    }
    let slots = if schedule.along == Along::Row { schedule.lanes / WARP } else { schedule.threads() };
    for reduction in reductions {
        entry.line(&format!("__shared__ {} t{}[{slots}];", reduction.kept_type(), reduction.id.0));
    }
}

/// Whether the threads of a row are of several warps, and so wait for each other at barriers.
pub fn waits(schedule: &Schedule) -> bool {
    schedule.lanes > 1 && (schedule.along == Along::Points || schedule.lanes > WARP)
}

/// Makes of what each thread found of these the whole row's, and defines the values that are known then.
pub fn total(entry: &mut Entry<'_>, reductions: &[Reduction], schedule: &Schedule) {
    if reductions.is_empty() {
        return;
    }
    match schedule.along {
        Along::Row => {
            within_warp(entry, reductions, schedule.lanes.min(WARP));
            if schedule.lanes > WARP {
                between_warps(entry, reductions, schedule.lanes / WARP);
            }
        }
        Along::Points if schedule.lanes > 1 => between_lanes(entry, reductions, schedule),
        Along::Points => {}
    }
    if schedule.along == Along::Row && schedule.lanes > 1 {
        agree(entry, reductions, schedule.lanes.min(WARP));
    }
    for reduction in reductions.iter().filter(|reduction| matches!(reduction.kind, Kind::Plain(_))) {
        entry.define(reduction.id, reduction.dtype, &reduction.kept_in());
    }
}

/// Of so many neighbouring threads of a warp.
fn within_warp(entry: &mut Entry<'_>, reductions: &[Reduction], threads: u32) {
    if threads == 1 {
        return;
    }
    entry.line("#pragma unroll");
    entry.open(&format!("for (int bits = {}; bits > 0; bits /= 2)", threads / 2));
    for reduction in reductions {
        entry.line(&reduction.add(&format!("across({}, bits)", reduction.kept_in())));
    }
    entry.close();
}

/// Of +0 and -0 each of these threads of a warp has the one that it found itself, and sums that were added in its order: they
/// take the first one's.
fn agree(entry: &mut Entry<'_>, reductions: &[Reduction], threads: u32) {
    for reduction in reductions.iter().filter(|reduction| reduction.may_differ()) {
        let kept = reduction.kept_in();
        entry.line(&format!("{kept} = first({kept}, {threads});"));
    }
}

/// Of the warps of a block, whose threads all have their warp's.
fn between_warps(entry: &mut Entry<'_>, reductions: &[Reduction], warps: u32) {
    entry.open(&format!("if (threadIdx.x % {WARP} == 0)"));
    for reduction in reductions {
        entry.line(&format!("t{}[threadIdx.x / {WARP}] = {};", reduction.id.0, reduction.kept_in()));
    }
    entry.close();
    entry.line("__syncthreads();");
    for reduction in reductions {
        entry.line(&format!("{} = t{}[threadIdx.x % {warps}];", reduction.kept_in(), reduction.id.0));
    }
    within_warp(entry, reductions, warps);
}

/// Of threads that lie as far apart as a block has rows.
fn between_lanes(entry: &mut Entry<'_>, reductions: &[Reduction], schedule: &Schedule) {
    for reduction in reductions {
        entry.line(&format!("t{}[threadIdx.x] = {};", reduction.id.0, reduction.kept_in()));
    }
    entry.line("__syncthreads();");
    for reduction in reductions {
        entry.line(&format!("{} = t{}[own_row];", reduction.kept_in(), reduction.id.0));
    }
    entry.open(&format!("for (int other = 1; other < {}; other++)", schedule.lanes));
    for reduction in reductions {
        entry.line(&reduction.add(&format!("t{}[other * {} + own_row]", reduction.id.0, schedule.rows)));
    }
    entry.close();
}
