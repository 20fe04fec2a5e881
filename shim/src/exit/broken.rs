//! A frame that ended in a graph break: what runs in plain Python, and which resume function takes up the frame.
//!
//! The frame's graph ran and its effects are replayed, so nothing here may run twice: a failure is raised as eager code
//! would raise it.

use crate::python::gil::GilCell;
use crate::python::hook::Off;
use crate::python::raw::Raw;
use flambeau_ir::code::CodeHash;
use flambeau_ir::exit::{Break, BuildId, Catch, Resume, Then};
use pyo3::exceptions::{PyIndexError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFunction, PyTuple};
use std::ptr::null_mut;

/// What a broken frame left: only what it needs to go on, so that everything else is freed when eager code would free it.
pub struct Broken {
    action: (Py<PyAny>, Py<PyAny>),
    then: Live,
    catch: Option<(Point, u32)>,
}

/// [`Then`] with its objects.
enum Live {
    Return,
    Resume(Point),
    Branch { yes: Point, no: Point },
    Iterate { body: Point, done: Point },
}

/// A resume function and its state.
struct Point {
    function: Py<PyAny>,
    state: Py<PyAny>,
    frames: CodeHash,
}

/// How a call goes on after a break.
pub enum Onward {
    /// The call's value.
    Value(Py<PyAny>),
    /// A resume function is to be called.
    Next(Next),
}

/// A call `function(state, value)` that takes up a frame.
pub struct Next {
    /// A Python function.
    pub function: Py<PyAny>,
    /// As [`Resume::frames`].
    pub frames: CodeHash,
    args: [Py<PyAny>; 2],
    /// The value is an exception and its context: the function raises it.
    raises: bool,
}

impl Next {
    /// The function.
    pub fn function(&self) -> Raw {
        self.function.as_ptr()
    }

    /// The arguments, alive while this is.
    pub fn args(&self) -> [Raw; 2] {
        [self.args[0].as_ptr(), self.args[1].as_ptr()]
    }

    /// Calls it as plain Python.
    pub fn call(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        call_plain(py, &self.function, self.args, self.raises)
    }
}

/// Calls a resume function with its state and value, which it `raises` or not, as plain Python, which holds them by itself from
/// then on. Below the hook of frames callers hold the arguments of the functions they call until these return: it is off where
/// that would be seen.
fn call_plain(py: Python<'_>, function: &Py<PyAny>, args: [Py<PyAny>; 2], raises: bool) -> PyResult<Py<PyAny>> {
    let _unhooked = if frees_visibly(py, &args) { Off::if_set(py) } else { None };
    let [state, mut value] = args;
    if raises {
        // A handler may let go of the exception, and with it of all that its traceback holds.
        let exception = Handed::new(value.bind(py).cast_exact::<PyTuple>()?, py.None());
        value = Bound::new(py, exception)?.into_any().unbind();
    }
    let borrowed = value.as_ptr();
    let handed = Handed::new(state.bind(py).cast_exact::<PyTuple>()?, value);
    drop(state);
    let handed = Bound::new(py, handed)?;
    let stack = [null_mut(), handed.as_ptr(), borrowed];
    // SAFETY: live objects; the slot before the arguments may be used by the callee.
    unsafe {
        let count = 2 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        let result = ffi::PyObject_Vectorcall(function.as_ptr(), stack.as_ptr().add(1), count, null_mut());
        Py::from_owned_ptr_or_err(py, result)
    }
}

/// Whether the program would see that the caller of a resume function holds what it handed over: an object with a finalizer,
/// or one that is watched by a weak reference and that only a frame further in holds.
fn frees_visibly(py: Python<'_>, args: &[Py<PyAny>; 2]) -> bool {
    // SAFETY: live objects.
    unsafe {
        args.iter().any(|arg| holds_finalizer(arg.as_ptr()))
            || holds_watched_further_in(py, args[0].as_ptr(), args[1].as_ptr())
    }
}

/// # Safety
/// A live object, GIL held.
unsafe fn holds_finalizer(object: Raw) -> bool {
    // SAFETY: the caller's promise; what a tuple holds lives as long.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if class == &raw mut ffi::PyTuple_Type {
            return (0..ffi::PyTuple_GET_SIZE(object)).any(|i| holds_finalizer(ffi::PyTuple_GET_ITEM(object, i)));
        }
        (*class).tp_finalize.is_some() && ffi::PyType_GetFlags(class) & ffi::Py_TPFLAGS_HEAPTYPE != 0
    }
}

/// Whether the state of one of the frames that the frame with this state called is what holds an object with weak references:
/// nobody does but the states, and the call for the value that it resumes with.
///
/// # Safety
/// Live objects, GIL held.
unsafe fn holds_watched_further_in(py: Python<'_>, mut state: Raw, value: Raw) -> bool {
    // SAFETY: the caller's promise; what a tuple holds lives as long. A state ends with the resume function of the next frame
    // and its state, if there is one.
    unsafe {
        let mut held = vec![value];
        let mut outermost = None;
        while ffi::PyTuple_CheckExact(state) != 0 {
            let size = ffi::PyTuple_GET_SIZE(state);
            let items = (0..size).map(|i| ffi::PyTuple_GET_ITEM(state, i));
            held.extend(items);
            if size < 2 || !crate::python::code::is_resume_function(py, ffi::PyTuple_GET_ITEM(state, size - 2)) {
                break;
            }
            outermost = outermost.or(Some(held.len()));
            state = ffi::PyTuple_GET_ITEM(state, size - 1);
        }
        let is_held_here = |object: Raw| {
            let places = held.iter().filter(|other| **other == object).count();
            usize::try_from(ffi::Py_REFCNT(object)).is_ok_and(|count| count <= places)
        };
        let further_in = outermost.map_or(&[][..], |end| &held[end..]);
        further_in.iter().any(|object| crate::python::raw::has_weak_references(*object) && is_held_here(*object))
    }
}

/// A tuple that a resume function is handed where it runs as plain Python (its state; an exception and its context): it
/// reads each item once. Each is given away then, so that only the frame holds it; with the last one goes what holds the
/// other argument for the caller.
#[pyclass(frozen, module = "flambeau._native")]
struct Handed {
    items: GilCell<Vec<Option<Py<PyAny>>>>,
    value: GilCell<Option<Py<PyAny>>>,
}

impl Handed {
    fn new(state: &Bound<'_, PyTuple>, value: Py<PyAny>) -> Handed {
        let items = state.iter().map(|item| Some(item.unbind())).collect();
        Handed { items: GilCell::new(items), value: GilCell::new(Some(value)) }
    }
}

#[pymethods]
impl Handed {
    fn __getitem__(&self, py: Python<'_>, index: usize) -> PyResult<Py<PyAny>> {
        let (item, last) = {
            let mut items = self.items.borrow(py);
            (items.get_mut(index).and_then(Option::take), items.iter().all(Option::is_none))
        };
        if last {
            // The frame has its own reference.
            let value = self.value.borrow(py).take();
            drop(value);
        }
        item.ok_or_else(|| PyIndexError::new_err("a resume function read an item of its state twice"))
    }
}

impl Point {
    fn of(resume: Resume, py: Python<'_>, made: &[Py<PyAny>]) -> Point {
        let at = |id: BuildId| made[id.0 as usize].clone_ref(py);
        Point { function: at(resume.function), state: at(resume.state), frames: resume.frames }
    }

    fn with(self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Onward> {
        if !self.function.bind(py).is_instance_of::<PyFunction>() {
            return Err(PySystemError::new_err("a graph break goes on with what is no function"));
        }
        Ok(Onward::Next(Next {
            function: self.function,
            frames: self.frames,
            args: [self.state, value],
            raises: false,
        }))
    }
}

impl Broken {
    /// From the objects that the exit made.
    pub fn new(py: Python<'_>, end: &Break, made: &[Py<PyAny>]) -> Broken {
        let at = |id: BuildId| made[id.0 as usize].clone_ref(py);
        let point = |resume: Resume| Point::of(resume, py, made);
        Broken {
            action: (at(end.action.0), at(end.action.1)),
            then: match end.then {
                Then::Return => Live::Return,
                Then::Resume(resume) => Live::Resume(point(resume)),
                Then::Branch { yes, no } => Live::Branch { yes: point(yes), no: point(no) },
                Then::Iterate { body, done } => Live::Iterate { body: point(body), done: point(done) },
            },
            catch: end.catch.map(|Catch { resume, frames }| (point(resume), frames)),
        }
    }

    /// Runs the action, and says how to go on. User code runs here.
    pub fn act(self, py: Python<'_>) -> PyResult<Onward> {
        match act(py, self.action)? {
            Ok(value) => self.then.with(py, value),
            Err(error) => match self.catch {
                Some((point, frames)) => Ok(match point.with(py, without_front(py, error, frames)?)? {
                    Onward::Next(next) => Onward::Next(Next { raises: true, ..next }),
                    value @ Onward::Value(_) => value,
                }),
                None => Err(error),
            },
        }
    }
}

/// Does what the trace could not: what it returned or raised. The rest of a frame takes its state over.
fn act(py: Python<'_>, (function, args): (Py<PyAny>, Py<PyAny>)) -> PyResult<PyResult<Py<PyAny>>> {
    let Ok(tuple) = args.bind(py).cast_exact::<PyTuple>() else {
        return Err(PySystemError::new_err("the action of a graph break has no arguments"));
    };
    // SAFETY: a live object.
    let is_rest = unsafe { crate::python::code::is_resume_function(py, function.as_ptr()) };
    if is_rest && let Ok((state, value)) = tuple.extract() {
        drop(args);
        return Ok(call_plain(py, &function, [state, value], false));
    }
    // SAFETY: a callable and the tuple of its arguments; a new reference or an exception comes back.
    let result = unsafe { Py::from_owned_ptr_or_err(py, ffi::PyObject_CallObject(function.as_ptr(), args.as_ptr())) };
    Ok(result)
}

impl Live {
    fn with(self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Onward> {
        let wrong = || PySystemError::new_err("the action of a graph break gave what its frame cannot go on with");
        match self {
            Live::Return => Ok(Onward::Value(value)),
            Live::Resume(point) => point.with(py, value),
            Live::Branch { yes, no } => {
                let taken = value.bind(py).cast_exact::<PyBool>().map_err(|_| wrong())?.is_true();
                (if taken { yes } else { no }).with(py, py.None())
            }
            Live::Iterate { done, .. } if value.is_none(py) => done.with(py, py.None()),
            Live::Iterate { body, .. } => {
                let item = value.bind(py).cast_exact::<PyTuple>().map_err(|_| wrong())?.get_item(0)?;
                body.with(py, item.unbind())
            }
        }
    }
}

/// The exception, with so many entries dropped from the front of its traceback, and its `__context__`.
fn without_front(py: Python<'_>, error: PyErr, frames: u32) -> PyResult<Py<PyAny>> {
    let value = error.into_value(py);
    let mut entry = value.bind(py).getattr(crate::python::gil::interned!(py, "__traceback__")).ok();
    let frames = if flambeau_ir::mutated!("thin_frames_in_traceback") { 0 } else { frames };
    for _ in 0..frames {
        entry = entry.and_then(|entry| entry.getattr(crate::python::gil::interned!(py, "tb_next")).ok());
    }
    let entry = entry.map_or_else(|| py.None(), Bound::unbind);
    // SAFETY: a live exception; a traceback or `None`.
    unsafe { ffi::PyException_SetTraceback(value.as_ptr(), entry.as_ptr()) };
    if flambeau_ir::mutated!("context_lost") {
        value.bind(py).setattr("__context__", py.None())?;
    }
    let context = value.bind(py).getattr(crate::python::gil::interned!(py, "__context__"))?;
    Ok(PyTuple::new(py, [value.bind(py).as_any(), &context])?.into_any().unbind())
}
