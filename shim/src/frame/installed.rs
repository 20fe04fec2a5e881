//! A compiled frame made ready in this process. `callable` keeps a list of them per code object.

use crate::describe::leaves::{self, Place, Size};
use crate::exit::{self, Codes, Ending, Given, Left, Made, Plain};
use crate::frame::breaks::{Kind, Noted};
use crate::frame::dropped::Dropped;
use crate::frame::indices;
use crate::guard::{Kept, Passed, Program, Roots};
use crate::python::raw::Raw;
use crate::run::Failure;
use crate::run::Outputs;
use crate::run::eager::EagerBody;
use crate::run::fx::FxBody;
use crate::run::native::NativeBody;
use crate::run::recorded;
use crate::run::recorded::RecordedBody;
use crate::run::training::TrainingBody;
use crate::torch::ambient::AutocastOff;
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Graph, NodeOp};
use flambeau_ir::guard::{Guard, GuardKind, TensorGuard};
use flambeau_ir::plan::{Body, CompiledFrame};
use flambeau_ir::source::{SourceId, Step};
use flambeau_ir::{text, verify};
use flambeau_wire::from_daemon::Delivery;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What installation needs from the callable it is for.
pub struct InstallContext<'a> {
    /// Code objects of the functions that the callable's frames make.
    pub codes: &'a Codes,
    /// `f(gm, example_inputs)`, for [`flambeau_ir::plan::Body::Fx`].
    pub fx_backend: Option<Py<PyAny>>,
    /// Directories that hold launch halves of plug-ins, best first.
    pub plugin_dirs: Vec<PathBuf>,
    /// Whether plans are to be recorded and replayed where their device can.
    pub records: bool,
}

/// Why a run gave no value.
pub enum RunError {
    /// Raise this: the commit point is passed, or eager would raise the same.
    Python(PyErr),
    /// Nothing visible happened yet: run the original code. One line saying why, for counters.
    Fallback(String),
    /// As `Fallback`: an op raised this.
    Raised(String),
    /// As `Fallback`: a call behind the commit point may raise.
    MayRaise(&'static str),
    /// As `Fallback`: an int of the call, or what becomes of it, has more than 64 bits.
    LargeInt,
    /// Torch did other than the frame was compiled for: do not use it again. Raise the error, or without one run the
    /// original code.
    Wrong(String, Option<PyErr>),
}

/// A compiled frame with resolved callables, loaded kernels and pinned guards.
pub struct Installed {
    frame: Arc<CompiledFrame>,
    program: Program,
    slots: Slots,
    body: Run,
    ending: Ending,
    /// Whether autocast is on where it is called; its graph has the casts.
    autocasts: bool,
    /// Gradients that are given up before the body runs.
    dropped: Dropped,
    /// The result, if the exit does nothing but return it.
    plain: Option<Plain>,
    /// Runs that ended in its graph break.
    broken: Cell<u64>,
    /// The function and the arguments that it was made ready for.
    owners: Owners,
}

/// The objects of a call, told again later.
struct Owners {
    function: Owner,
    args: Vec<Owner>,
}

/// One object of a call. Only modules get a weak reference: programs can see it (`weakref.getweakrefcount`), torch does not
/// swap tensors that have one, and types of C may die with one (`typing.ParamSpecArgs` does). Of others the address has to
/// do: a later object at the same place makes an int symbolic that need not be, no more.
enum Owner {
    Weak(Py<PyAny>),
    At { object: usize, class: usize },
}

impl Owner {
    /// # Safety
    /// A live object or null.
    unsafe fn new(py: Python<'_>, object: Raw) -> Owner {
        // SAFETY: the caller's promise; it gives a new reference, or none and an error that is cleared.
        unsafe {
            if object.is_null() {
                return Owner::At { object: 0, class: 0 };
            }
            if leaves::is_module(py, object) {
                let made = Py::from_owned_ptr_or_opt(py, ffi::PyWeakref_NewRef(object, std::ptr::null_mut()));
                ffi::PyErr_Clear();
                if let Some(weak) = made {
                    return Owner::Weak(weak);
                }
            }
            Owner::At { object: object as usize, class: ffi::Py_TYPE(object) as usize }
        }
    }

    /// # Safety
    /// A live object.
    unsafe fn is(&self, now: Raw) -> bool {
        // SAFETY: the caller's promise; what the weak reference gives is only compared.
        unsafe {
            match self {
                Owner::Weak(weak) => {
                    let mut held = std::ptr::null_mut();
                    ffi::compat::PyWeakref_GetRef(weak.as_ptr(), &raw mut held);
                    ffi::Py_XDECREF(held);
                    held == now
                }
                Owner::At { object, class } => (*object, *class) == (now as usize, ffi::Py_TYPE(now) as usize),
            }
        }
    }
}

impl Owners {
    fn new(py: Python<'_>, function: Raw, args: &[Raw]) -> Owners {
        // SAFETY: the caller's objects are alive.
        let owner = |object: &Raw| unsafe { Owner::new(py, *object) };
        Owners { function: owner(&function), args: args.iter().map(owner).collect() }
    }

    /// Whether a place of another call begins at the same object.
    fn holds(&self, place: &Place, function: Raw, args: &[Raw]) -> bool {
        let (owner, now) = match place.first() {
            Some(Step::Arg(i)) => (self.args.get(*i as usize), args.get(*i as usize).copied()),
            Some(Step::Function) => (Some(&self.function), Some(function)),
            _ => return false,
        };
        // SAFETY: the caller's objects are alive.
        owner.zip(now).is_some_and(|(owner, now)| !now.is_null() && unsafe { owner.is(now) })
    }
}

enum Run {
    Eager(EagerBody),
    Fx(FxBody),
    Native(NativeBody),
    Training(TrainingBody),
    Recorded(RecordedBody),
}

impl Run {
    fn commits(&self) -> bool {
        match self {
            Run::Eager(body) => body.commits(),
            Run::Fx(body) => body.commits(),
            Run::Native(body) => body.commits(),
            Run::Training(body) => body.commits(),
            // Only what can be taken back is recorded.
            Run::Recorded(_) => false,
        }
    }
}

// SAFETY: all that is not `Send` or `Sync` in it are cells, which are only touched with the GIL held.
unsafe impl Send for Installed {}
// SAFETY: as above.
unsafe impl Sync for Installed {}

/// Sources of values that a run reads, and the slot of each.
struct Slots {
    order: Vec<u32>,
    by_source: HashMap<u32, usize>,
}

impl Slots {
    fn of(frame: &CompiledFrame) -> Slots {
        let mut slots = Slots { order: Vec::new(), by_source: HashMap::new() };
        match &frame.body {
            Body::Eager(graph) | Body::Fx(graph) => placeholders(graph).for_each(|s| slots.add(s)),
            Body::Native(plan) => plan.sources().for_each(|s| slots.add(s)),
            Body::Training(training) => training.forward.sources().for_each(|s| slots.add(s)),
        }
        exit::sources(&frame.exit).chain(indices::sources(&frame.indices)).for_each(|s| slots.add(s));
        slots
    }

    fn add(&mut self, source: SourceId) {
        let next = self.order.len();
        if *self.by_source.entry(source.0).or_insert(next) == next {
            self.order.push(source.0);
        }
    }
}

impl From<Failure> for Box<RunError> {
    #[cold]
    fn from(failure: Failure) -> Self {
        Box::new(match failure {
            Failure::Before(why) => RunError::Fallback(why),
            Failure::Raised(why) => RunError::Raised(why),
            Failure::After(error) => RunError::Python(error),
            Failure::Wrong(what, error) => RunError::Wrong(what, error),
        })
    }
}

fn fallback(why: &str) -> RunError {
    RunError::Fallback(why.into())
}

/// What guards say of a source's tensor.
fn tensor_guard(frame: &CompiledFrame, source: SourceId) -> Option<TensorGuard> {
    let mut guards = frame.guards.guards.iter().filter(|guard| guard.source == source);
    guards.find_map(|guard| if let GuardKind::Tensor(of) = &guard.kind { Some(of.clone()) } else { None })
}

fn placeholders(graph: &Graph) -> impl Iterator<Item = SourceId> {
    graph.nodes.iter().filter_map(|node| match node.op {
        NodeOp::Placeholder(source) => Some(source),
        NodeOp::Call { .. } => None,
    })
}

impl Installed {
    /// Makes a delivery ready and checks its guards by value on this call; no user code runs.
    pub fn install(
        py: Python<'_>,
        delivery: Delivery,
        function: &Bound<'_, PyAny>,
        args: &[*mut pyo3::ffi::PyObject],
        context: &InstallContext<'_>,
    ) -> Result<Installed, String> {
        let frame = delivery.frame;
        verify::frame(&frame, args.len()).map_err(|damage| damage.to_string())?;
        let slots = Slots::of(&frame);
        let slot = |source: SourceId| slots.by_source[&source.0];
        // SAFETY: a live object.
        let resumed = unsafe { crate::python::code::is_resume_function(py, function.as_ptr()) };
        let program = Program::new(py, &frame.guards, &frame.symbols, &slots.order, resumed)?;
        let body = match &frame.body {
            Body::Eager(graph) => Run::Eager(EagerBody::new(py, graph, &slot)?),
            Body::Native(plan) => {
                let guard = |source| tensor_guard(&frame, source);
                let body = NativeBody::new(py, plan, &delivery.artifacts, &context.plugin_dirs, &slot, &guard, false)?;
                match context.records.then(|| recorded::graph(py, &body, plan)).flatten() {
                    Some(graph) => Run::Recorded(RecordedBody::new(body, graph)),
                    None => Run::Native(body),
                }
            }
            Body::Training(training) => {
                let guard = |source| tensor_guard(&frame, source);
                let load = |plan: &_,
                            slot: &dyn Fn(SourceId) -> usize,
                            guard: &dyn Fn(SourceId) -> Option<TensorGuard>,
                            owns| {
                    NativeBody::new(py, plan, &delivery.artifacts, &context.plugin_dirs, slot, guard, owns)
                };
                Run::Training(TrainingBody::new(py, training, &slot, &guard, &load)?)
            }
            // There is nothing for a back end to compile.
            Body::Fx(graph) if graph.calls() == 0 => Run::Eager(EagerBody::new(py, graph, &slot)?),
            Body::Fx(graph) => {
                let backend = context.fx_backend.as_ref().ok_or("the callable has no back end for graphs")?;
                Run::Fx(FxBody::new(graph, backend.clone_ref(py), &slot))
            }
        };
        let ending = Ending::new(py, &frame.exit, function, context.codes, &slot)?;
        let plain = ending.plain(py);
        let owners = Owners::new(py, function.as_ptr(), args);
        let is_on = |guard: &Guard| matches!(&guard.kind, GuardKind::Ambient(ambient) if ambient.autocasts());
        let autocasts = frame.guards.guards.iter().any(is_on);
        let dropped = Dropped::new(&frame.exit, &frame.guards.sources, &|s| slots.by_source.get(&s.0).copied());
        Ok(Installed { frame, program, slots, body, autocasts, dropped, ending, plain, broken: Cell::new(0), owners })
    }

    /// Whether the frame may run for this call, whose values are then filled in; else the index of a failing guard. Runs no
    /// user code.
    ///
    /// `function` and `args` (`localsplus` order, null where absent) must be alive.
    pub fn check(
        &self,
        py: Python<'_>,
        function: *mut pyo3::ffi::PyObject,
        args: &[*mut pyo3::ffi::PyObject],
        passed: &mut Passed,
    ) -> Result<(), usize> {
        self.program.check(py, &Roots { function, args }, passed)
    }

    /// Whether the guard with this index holds for a call; true as well where that takes the others.
    pub fn may_hold(&self, py: Python<'_>, function: Raw, args: &[Raw], index: usize) -> bool {
        self.program.may_hold(py, &Roots { function, args }, index)
    }

    /// The tensors and ints that the guards are about, as this call has them: places, objects, and the sizes of the frame,
    /// where all are fixed. Of ints only those that one and the same object changed, and those that an iterator gives: another
    /// object's differ for good.
    pub fn sized(
        &self,
        py: Python<'_>,
        function: *mut pyo3::ffi::PyObject,
        args: &[*mut pyo3::ffi::PyObject],
    ) -> Vec<(Place, Py<PyAny>, Option<Size>)> {
        let program = &self.frame.guards;
        let found = self.program.sized(py, &Roots { function, args }).into_iter();
        let described = found.filter_map(|(index, object)| {
            let guard = &program.guards[index];
            let place = program.sources.path(guard.source);
            let size = match &guard.kind {
                GuardKind::Tensor(of) => of.sizes.iter().map(Dim::as_const).collect::<Option<_>>().map(Size::Tensor),
                GuardKind::Equals(Const::Int(value))
                    if place.contains(&Step::Ahead) || self.owners.holds(&place, function, args) =>
                {
                    Some(Size::Int(*value))
                }
                _ => return None,
            };
            Some((place, object, size))
        });
        described.collect()
    }

    /// Whether each guard holds for this call.
    #[cfg(feature = "testing")]
    pub fn facts(
        &self,
        py: Python<'_>,
        function: *mut pyo3::ffi::PyObject,
        args: &[*mut pyo3::ffi::PyObject],
    ) -> Vec<bool> {
        self.program.each(py, &Roots { function, args })
    }

    /// Runs the body and the exit, up to the action of a graph break. Nothing else ran since `passed` was filled in.
    pub fn run(
        &self,
        py: Python<'_>,
        passed: &mut Passed,
        function: *mut pyo3::ffi::PyObject,
        args: &[*mut pyo3::ffi::PyObject],
    ) -> Result<Left, Box<RunError>> {
        if !self.ending.fits(&passed.symbols) {
            return Err(RunError::LargeInt.into());
        }
        let slot = |source: SourceId| self.slots.by_source.get(&source.0).copied();
        if !self.frame.indices.is_empty() && !indices::hold(py, &self.frame.indices, passed, &slot) {
            return Err(RunError::MayRaise("an index may lie outside of its dimension").into());
        }
        let off = || self.autocasts.then(|| AutocastOff::new(py)).transpose().map_err(RunError::Python);
        match (&self.body, &self.plain) {
            (Run::Native(body), Some(Plain::Output(i))) => {
                let _off = off()?;
                let mut outputs = Outputs::new();
                body.run(py, passed.values(), &passed.symbols, &mut outputs)?;
                return Ok(Left::Value(outputs.swap_remove(*i)));
            }
            (Run::Native(body), Some(Plain::Object(object))) if body.does_nothing() => {
                return Ok(Left::Value(object.clone_ref(py)));
            }
            (Run::Native(body), Some(Plain::Value(slot))) if body.does_nothing() => {
                if let Some(value) = passed.value(py, *slot) {
                    return Ok(Left::Value(value));
                }
            }
            _ => {}
        }
        let mut values = Kept::new();
        passed.keep(py, &mut values);
        if !self.dropped.is_empty() {
            passed.release();
            self.dropped.give_up(py, &values).map_err(RunError::Python)?;
        }
        let symbols = &passed.symbols;
        if let Run::Fx(body) = &self.body
            && body.needs_compile(symbols)
        {
            let off = off()?;
            body.compile(py, &values, symbols)?;
            drop(off);
            // The back end is user code: what was checked before it may no longer hold.
            if self.check(py, function, args, &mut Passed::default()).is_err() {
                return Err(fallback("a guard no longer holds after the back end ran").into());
            }
        }
        let mut outputs = Outputs::new();
        let off = off()?;
        let ran = match &self.body {
            Run::Eager(body) => body.run(py, &values, symbols, &mut outputs),
            Run::Fx(body) => body.run(py, &values, symbols, &mut outputs),
            Run::Native(body) => body.run(py, passed.values(), symbols, &mut outputs),
            Run::Training(body) => body.run(py, passed.values(), &values, symbols, &mut outputs),
            Run::Recorded(body) => body.run(py, passed.values(), &values, symbols, &mut outputs),
        };
        drop(off);
        if let Err(Failure::Before(_) | Failure::Raised(_) | Failure::Wrong(_, None)) = &ran {
            self.dropped.stand_in(py, &values).map_err(RunError::Python)?;
        }
        ran?;
        if let Some(Plain::Output(i)) = self.plain {
            return Ok(Left::Value(outputs.swap_remove(i)));
        }
        let given = Given { values: &values, symbols, outputs: &outputs };
        let mut made = Made::new();
        self.ending.build(py, &given, &mut made).map_err(|error| {
            Box::new(if self.body.commits() { RunError::Python(error) } else { RunError::Fallback(error.to_string()) })
        })?;
        let left = self.ending.finish(py, &made).map_err(|error| Box::new(RunError::Python(error)))?;
        if matches!(left, Left::Broken(_)) {
            self.broken.set(self.broken.get() + 1);
        }
        Ok(left)
    }

    /// Whether a run changes anything that the user can see before it gives its value.
    pub fn changes(&self) -> bool {
        self.body.commits() || !self.frame.exit.effects.is_empty()
    }

    /// Whether the frame ends in a graph break.
    pub fn breaks(&self) -> bool {
        self.frame.exit.broken().is_some()
    }

    /// The graph break that the frame ends in, and how often it was reached.
    pub fn broken(&self) -> Option<Noted> {
        let end = self.frame.exit.broken()?;
        Some(Noted { reason: end.reason.clone(), kind: Kind::of(end), count: self.broken.get(), seconds: 0.0 })
    }

    /// As the daemon sent it.
    pub fn frame(&self) -> &CompiledFrame {
        &self.frame
    }

    /// Whether the guard with this index asks for one float.
    pub fn wants_float(&self, index: usize) -> bool {
        let guard = self.frame.guards.guards.get(index);
        guard.is_some_and(|guard| matches!(guard.kind, GuardKind::Equals(Const::Float(_) | Const::Complex(..))))
    }

    /// The guard with this index in words.
    pub fn explain_failure(&self, index: usize) -> String {
        let program = &self.frame.guards;
        match program.guards.get(index) {
            Some(guard) => format!("no longer so: {}", text::guard(program, guard)),
            None => match self.frame.symbols.get(index - program.guards.len()) {
                Some(symbol) => format!(
                    "{} of {} is outside {}..={}",
                    symbol.id.0,
                    program.sources.display(symbol.source),
                    symbol.min,
                    symbol.max
                ),
                None => "an unknown guard".into(),
            },
        }
    }
}
