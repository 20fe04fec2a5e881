//! Small kernels on inputs alone - the coefficients of a net's normalisations - run before all else: at the start of a call
//! the client knows where its inputs lie, and once it let other threads run it has to look again.

use crate::nest::body::{Body, Place};
use crate::nest::group::{Schedule, Task};
use crate::plan::arena::SMALL;
use crate::plan::memory::loaded;
use flambeau_core::graph::Core;
use flambeau_ir::dim::Dim;

/// Bytes of the results of all of them together, which are kept until they are used.
const ALL: i64 = 1 << 18;

/// Moves those kernels to the front where calls of torch stand before them.
pub fn hoist(core: &Core, schedule: &mut Schedule) {
    if !schedule.tasks.iter().any(|task| matches!(task, Task::Extern(_))) {
        return;
    }
    let mut room = ALL;
    let (mut early, mut rest) = (Vec::new(), Vec::new());
    for task in schedule.tasks.drain(..) {
        match bytes(core, &task).filter(|bytes| *bytes <= room) {
            Some(bytes) => {
                room -= bytes;
                early.push(task);
            }
            None => rest.push(task),
        }
    }
    early.append(&mut rest);
    schedule.tasks = early;
}

/// Bytes that such a kernel makes; `None` of other tasks.
fn bytes(core: &Core, task: &Task) -> Option<i64> {
    let Task::Kernel(body) = task else { return None };
    reads_inputs_alone(core, body).then_some(())?;
    let made = body.writes.iter().map(|write| {
        let node = core.node(write.root.node);
        let count = Dim::product(&node.sizes).as_const()?;
        let bytes = count.checked_mul(node.dtype.size() as i64)?;
        (write.root.place == Place::Own && bytes <= SMALL).then_some(bytes)
    });
    made.sum()
}

fn reads_inputs_alone(core: &Core, body: &Body) -> bool {
    let written = |i: u32| core.writes.iter().any(|(input, _)| *input == i);
    let mut read = loaded(body).map(|id| core.input(id)).peekable();
    read.peek().is_some() && read.all(|input| input.is_some_and(|i| !written(i)))
}
