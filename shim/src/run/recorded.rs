//! A plan that is recorded as one graph of its device, for `mode="reduce-overhead"`: when it is run as it is, recorded, or
//! replayed. `flambeau/_recording.py` does the last two with torch.
//!
//! A recording reads the addresses that it was made with. Inputs that lie where they lay in the call before, as parameters do,
//! are read where they are, as long as they lie there; what lies elsewhere each time is copied. All calls of a size but
//! the first two are replays, then.

use super::native::NativeBody;
use crate::guard::{Kept, Slot as Input};
use crate::process::counters;
use crate::process::say;
use crate::python::gil::{GilCell, Shared, interned};
use crate::run::{Failure, Outputs, failure};
use flambeau_ir::plan::Plan;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};
use std::rc::Rc;

/// Sizes that are remembered. Of more, those that nothing was recorded for are forgotten first.
const MOST_CASES: usize = 16;

/// Recordings of one size in which what lies elsewhere may yet come to lie still; after them it is copied for good.
const TRIES: u32 = 2;

/// Recordings of one size.
const MOST_TRIES: u32 = 8;

/// A plan, and what was recorded of it.
pub struct RecordedBody {
    body: Shared<NativeBody>,
    /// The kind of graph that the device has: a class.
    graph: Py<PyAny>,
    cases: GilCell<Vec<Case>>,
}

/// What is known of calls with certain sizes.
struct Case {
    symbols: Vec<i64>,
    /// Where each input lay in the latest call that was run.
    places: Rc<[Place]>,
    recordings: u32,
    recording: Option<Recording>,
    /// Nothing is recorded any more.
    refused: bool,
}

/// Where a recording reads an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where it lies: at this address.
    There(usize),
    /// In a copy.
    Copy,
}

#[derive(Clone)]
struct Recording {
    made: Shared<Py<PyAny>>,
    places: Rc<[Place]>,
}

/// What becomes of a call.
enum Next {
    /// The plan runs.
    Run,
    /// The plan runs, and is recorded for the next calls, whose inputs are read there.
    Record(Rc<[Place]>),
    /// A recording is replayed.
    Replay(Recording),
}

/// The kind of graph that a plan is recorded as, where its device has one and a replay does the same as a run.
pub fn graph(py: Python<'_>, body: &NativeBody, plan: &Plan) -> Option<Py<PyAny>> {
    let device = plan.device.to_string();
    let kinds = py.import("flambeau._recording").and_then(|module| module.getattr("GRAPHS")).ok()?;
    let graph = kinds.cast::<PyDict>().ok()?.get_item(device.split(':').next()?).ok()??;
    if body.does_nothing() || plan.inputs.is_empty() || !plan.objects.is_empty() {
        return None;
    }
    if body.commits() {
        unrecorded(py, "changes", "it changes what is there before and after it, or draws random numbers");
        return None;
    }
    Some(graph.unbind())
}

impl RecordedBody {
    /// Nothing is recorded yet.
    pub fn new(body: NativeBody, graph: Py<PyAny>) -> RecordedBody {
        RecordedBody { body: Shared::new(body), graph, cases: GilCell::default() }
    }

    /// Runs the plan or a recording of it, and gives its outputs. `values` live until Python runs, as they are in `kept`.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Input],
        kept: &Kept,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let addresses = self.body.addresses(values).map_err(Failure::Before)?;
        let (next, outdated) = self.next(py, symbols, &addresses);
        // May run Python, so not while the cases are borrowed.
        drop(outdated);
        let inputs: Vec<Input> =
            kept.iter().map(|kept| Input::new(kept.as_ref().map_or(std::ptr::null_mut(), Py::as_ptr))).collect();
        match next {
            Next::Run => self.body.run(py, &inputs, symbols, outputs),
            Next::Replay(recording) => {
                if self.replay(py, &recording, kept, symbols, outputs)? {
                    return Ok(());
                }
                self.body.run(py, &inputs, symbols, outputs)
            }
            Next::Record(places) => {
                self.body.run(py, &inputs, symbols, outputs)?;
                self.record(py, kept, symbols, places)
            }
        }
    }

    /// What becomes of a call whose inputs lie there; and a recording that is of no use any more.
    fn next(&self, py: Python<'_>, symbols: &[i64], addresses: &[usize]) -> (Next, Option<Recording>) {
        let mut cases = self.cases.borrow(py);
        let Some(case) = cases.iter_mut().find(|case| case.symbols == symbols) else {
            if cases.len() == MOST_CASES {
                let Some(unused) = cases.iter().position(|case| case.recording.is_none()) else {
                    return (Next::Run, None);
                };
                cases.remove(unused);
            }
            cases.push(Case::new(symbols, addresses));
            return (Next::Run, None);
        };
        case.next(py, addresses)
    }

    /// Whether the recording could be replayed.
    fn replay(
        &self,
        py: Python<'_>,
        recording: &Recording,
        kept: &Kept,
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<bool, Failure> {
        let inputs: Vec<_> = copied(&recording.places).map(|index| kept[index].as_ref()).collect();
        let made = recording.made.bind(py);
        let given = PyList::new(py, inputs).and_then(|inputs| made.call_method1(interned!(py, "replay"), (inputs,)));
        let given = given.map_err(|error| failure(py, error, false))?;
        if let Ok(given) = given.cast::<PyList>() {
            outputs.extend(given.iter().map(Bound::unbind));
            counters::bump(py, "replays");
            return Ok(true);
        }
        let outdated = made.call_method0(interned!(py, "is_outdated")).and_then(|outdated| outdated.is_truthy());
        if outdated.map_err(|error| failure(py, error, false))? {
            let forgotten = self.with_case(py, symbols, |case| case.recording.take());
            drop(forgotten);
        }
        Ok(false)
    }

    /// Records the plan for calls like this one, which was served. Where that fails calls go on to be run.
    fn record(&self, py: Python<'_>, kept: &Kept, symbols: &[i64], places: Rc<[Place]>) -> Result<(), Failure> {
        let inputs = &kept[..self.body.inputs()];
        let make = || -> PyResult<Option<Py<PyAny>>> {
            let inputs = PyList::new(py, inputs.iter().map(Option::as_ref))?;
            let callable = Callable { body: self.body.clone(), symbols: symbols.to_vec() };
            let plan = PyCFunction::new_closure(py, None, None, move |args, _| callable.call(args))?;
            let record = py.import("flambeau._recording")?.getattr("record")?;
            let made = record.call1((&self.graph, plan, inputs, copied(&places).collect::<Vec<_>>()))?;
            Ok((!made.is_none()).then(|| made.unbind()))
        };
        match make() {
            Ok(Some(made)) => {
                counters::bump(py, "recordings");
                let recording = Recording { made: Shared::new(made), places };
                let old = self.with_case(py, symbols, |case| {
                    case.recordings += 1;
                    case.recording.replace(recording)
                });
                drop(old);
            }
            // Another thread records just now.
            Ok(None) => {}
            Err(error) if error.is_instance_of::<PyException>(py) => {
                unrecorded(py, "failed", &error.to_string());
                self.with_case(py, symbols, |case| case.refused = true);
            }
            Err(error) => return Err(Failure::After(error)),
        }
        Ok(())
    }

    fn with_case<T>(&self, py: Python<'_>, symbols: &[i64], change: impl FnOnce(&mut Case) -> T) -> Option<T> {
        self.cases.borrow(py).iter_mut().find(|case| case.symbols == symbols).map(change)
    }
}

/// The plan with some sizes, as a Python function of a list of inputs that gives a list of outputs.
struct Callable {
    body: Shared<NativeBody>,
    symbols: Vec<i64>,
}

// SAFETY: as `Installed`: what is not `Send` in it are cells, which are only touched with the GIL held.
unsafe impl Send for Callable {}

impl Callable {
    fn call(&self, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyList>> {
        let py = args.py();
        let given = args.get_item(0)?.cast_into::<PyList>()?;
        let inputs: Vec<Input> = given.iter().map(|tensor| Input::new(tensor.as_ptr())).collect();
        let mut outputs = Outputs::new();
        match self.body.run(py, &inputs, &self.symbols, &mut outputs) {
            Ok(()) => Ok(PyList::new(py, outputs)?.unbind()),
            Err(Failure::After(error) | Failure::Wrong(_, Some(error))) => Err(error),
            Err(Failure::Before(why) | Failure::Raised(why) | Failure::Wrong(why, None)) => {
                Err(PyRuntimeError::new_err(why))
            }
        }
    }
}

impl Case {
    fn new(symbols: &[i64], addresses: &[usize]) -> Case {
        let places = addresses.iter().copied().map(Place::There).collect();
        Case { symbols: symbols.to_vec(), places, recordings: 0, recording: None, refused: false }
    }

    fn next(&mut self, py: Python<'_>, addresses: &[usize]) -> (Next, Option<Recording>) {
        if self.refused {
            return (Next::Run, None);
        }
        let outdated = match self.recording.take() {
            Some(recording) if moved(&recording.places, addresses).next().is_none() => {
                self.recording = Some(recording.clone());
                return (Next::Replay(recording), None);
            }
            outdated => outdated,
        };
        if self.recordings == MOST_TRIES {
            self.refused = true;
            unrecorded(py, "moves", "what it reads lies elsewhere too often, or torch's settings change");
            return (Next::Run, outdated);
        }
        // What moved once may stay there from now on, as parameters that were loaded anew do.
        let wait = outdated.is_some() && self.recordings < TRIES;
        let mut places = self.places.to_vec();
        for index in moved(&self.places, addresses) {
            places[index] = if wait { Place::There(addresses[index]) } else { Place::Copy };
        }
        self.places = places.into();
        (if wait { Next::Run } else { Next::Record(self.places.clone()) }, outdated)
    }
}

/// The inputs that lie elsewhere than they are read.
fn moved(places: &[Place], addresses: &[usize]) -> impl Iterator<Item = usize> {
    let differs = |(place, address): (&Place, &usize)| matches!(place, Place::There(there) if there != address);
    places.iter().zip(addresses).map(differs).enumerate().filter(|(_, differs)| *differs).map(|(index, _)| index)
}

/// The inputs that are copied.
fn copied(places: &[Place]) -> impl Iterator<Item = usize> {
    places.iter().enumerate().filter(|(_, place)| **place == Place::Copy).map(|(index, _)| index)
}

/// Says that a plan runs although it was to be recorded.
fn unrecorded(py: Python<'_>, reason: &str, text: &str) {
    counters::unrecorded(py, reason);
    say::log("graph", || format!("a plan is not recorded: {text}"));
}
