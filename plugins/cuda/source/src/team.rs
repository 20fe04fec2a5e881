//! What the threads of a row found, brought together: all of them have it then, and it is the same every time.

use crate::entry::Entry;
use crate::schedule::{Along, Schedule};
use flambeau_c_text::{Dialect, cast, ctype};
use flambeau_plugin::kernel::{Reduce, ReduceOp};

/// Threads of a warp.
const WARP: u32 = 32;

/// Declares the memory that the threads of a block share for it.
pub fn declare(entry: &mut Entry<'_>, schedule: &Schedule) {
    if !waits(schedule) {
        return;
    }
    let slots = if schedule.along == Along::Row { schedule.lanes / WARP } else { schedule.threads() };
    let reduces: Vec<&Reduce> = entry.kernel.stages.iter().flat_map(|stage| &stage.reduces).collect();
    for reduce in reduces {
        let (kept, _) = Dialect::Cuda.accumulator(reduce.op, reduce.dtype);
        entry.line(&format!("__shared__ {} t{}[{slots}];", ctype(kept), reduce.id.0));
    }
}

/// Whether the threads of a row are of several warps, and so wait for each other at barriers.
pub fn waits(schedule: &Schedule) -> bool {
    schedule.lanes > 1 && (schedule.along == Along::Points || schedule.lanes > WARP)
}

/// Makes of what each thread found of these the whole row's, and defines their values.
pub fn total(entry: &mut Entry<'_>, reduces: &[Reduce], schedule: &Schedule) {
    if reduces.is_empty() {
        return;
    }
    match schedule.along {
        Along::Row => {
            within_warp(entry, reduces, schedule.lanes.min(WARP));
            if schedule.lanes > WARP {
                between_warps(entry, reduces, schedule.lanes / WARP);
            }
        }
        Along::Points if schedule.lanes > 1 => between_lanes(entry, reduces, schedule),
        Along::Points => {}
    }
    if schedule.along == Along::Row && schedule.lanes > 1 {
        agree(entry, reduces, schedule.lanes.min(WARP));
    }
    for reduce in reduces {
        let (kept, _) = Dialect::Cuda.accumulator(reduce.op, reduce.dtype);
        entry.define(reduce.id, reduce.dtype, &cast(kept, reduce.dtype, &kept_in(reduce)));
    }
}

/// Of so many neighbouring threads of a warp.
fn within_warp(entry: &mut Entry<'_>, reduces: &[Reduce], threads: u32) {
    if threads == 1 {
        return;
    }
    entry.line("#pragma unroll");
    entry.open(&format!("for (int bits = {}; bits > 0; bits /= 2)", threads / 2));
    for reduce in reduces {
        entry.add(reduce, &format!("across({}, bits)", kept_in(reduce)));
    }
    entry.close();
}

/// Of +0 and -0 each of these threads of a warp has the one that it found itself: they take the first one's.
fn agree(entry: &mut Entry<'_>, reduces: &[Reduce], threads: u32) {
    for reduce in reduces.iter().filter(|r| matches!(r.op, ReduceOp::Max | ReduceOp::Min) && r.dtype.is_float()) {
        let kept = kept_in(reduce);
        entry.line(&format!("{kept} = first({kept}, {threads});"));
    }
}

/// Of the warps of a block, whose threads all have their warp's.
fn between_warps(entry: &mut Entry<'_>, reduces: &[Reduce], warps: u32) {
    entry.open(&format!("if (threadIdx.x % {WARP} == 0)"));
    for reduce in reduces {
        entry.line(&format!("t{}[threadIdx.x / {WARP}] = {};", reduce.id.0, kept_in(reduce)));
    }
    entry.close();
    entry.line("__syncthreads();");
    for reduce in reduces {
        entry.line(&format!("{} = t{}[threadIdx.x % {warps}];", kept_in(reduce), reduce.id.0));
    }
    within_warp(entry, reduces, warps);
}

/// Of threads that lie as far apart as a block has rows.
fn between_lanes(entry: &mut Entry<'_>, reduces: &[Reduce], schedule: &Schedule) {
    for reduce in reduces {
        entry.line(&format!("t{}[threadIdx.x] = {};", reduce.id.0, kept_in(reduce)));
    }
    entry.line("__syncthreads();");
    for reduce in reduces {
        entry.line(&format!("{} = t{}[own_row];", kept_in(reduce), reduce.id.0));
    }
    entry.open(&format!("for (int other = 1; other < {}; other++)", schedule.lanes));
    for reduce in reduces {
        entry.add(reduce, &format!("t{}[other * {} + own_row]", reduce.id.0, schedule.rows));
    }
    entry.close();
}

/// The variable that a reduction is kept in.
pub fn kept_in(reduce: &Reduce) -> String {
    format!("a{}", reduce.id.0)
}
