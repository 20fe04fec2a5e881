//! Frames that compiled code reaches through plain Python - below a graph break, or below a function that runs eagerly -
//! are compiled as frames of their own: a PEP 523 hook finds them. It is set only while such Python runs, and forwards to
//! the hook that was there before.

use crate::call::entry::{self, Entry};
use crate::call::table::Table;
use crate::process::thread::{self, Search, Thread};
use crate::python::code;
use crate::python::gil::GilCell;
use crate::python::hook::{self, Hook, Off};
use crate::python::layout::{self, InterpreterFrame};
use crate::python::raw::Raw;
use flambeau_ir::code::{Code, Origin, is_disabled};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCode;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::OnceLock;

/// `CO_OPTIMIZED | CO_NEWLOCALS`: a function's code, not a module's or a class body's.
const CO_FUNCTION: i32 = 0x1 | 0x2;
/// `CO_VARARGS` and `CO_VARKEYWORDS`.
const CO_GATHERS: [i32; 2] = [0x4, 0x8];

/// Beyond this nesting depth we stop looking for frames to compile. A frame that the hook is called for takes C's stack and
/// counts against the limit for that, others do not: programs may recurse deeper than the hook could.
const DEEPEST: u32 = 300;

thread_local! {
    /// Frames of this thread that the hook runs.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, this thread's frames are looked at for ones to compile, or (from [`Discovery::pause`]) not.
pub struct Discovery<'a> {
    here: &'a Thread,
    outer: Search,
    _hook: Option<Hook>,
    /// The table that is to know what came of it, and what the thread had looked at and found when it began.
    searches: Option<(Python<'a>, &'a GilCell<Table>, [u64; 2])>,
}

/// What came of looking for frames below those of one table. To look at a frame costs several times what calling it does, so
/// that where many are looked at in vain, again and again, most calls do without.
#[derive(Debug, Default)]
pub struct Searches {
    /// Those in vain since something was found.
    in_vain: u32,
    /// Calls to do without.
    skip: u32,
}

impl Searches {
    /// Looking at fewer frames than this costs nothing that is noticed.
    const FEW: u64 = 32;
    /// So many in vain in a row, and one call in as many looks again.
    const MANY: u32 = 16;

    fn is_due(&mut self) -> bool {
        let due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        due
    }

    fn note(&mut self, looked: u64, found: u64) {
        match (looked, found) {
            (_, 1..) => self.in_vain = 0,
            (Self::FEW.., 0) => self.in_vain = (self.in_vain + 1).min(Self::MANY),
            _ => {}
        }
        if self.in_vain == Self::MANY {
            self.skip = Self::MANY - 1;
        }
    }
}

impl<'a> Discovery<'a> {
    /// Looks for frames to compile with `entry`, which has to outlive this, below a frame of `table`, where that is due. The
    /// next frame of code `known` is none.
    pub fn start(
        py: Python<'a>,
        here: &'a Thread,
        entry: &Entry,
        table: &'a GilCell<Table>,
        known: Raw,
    ) -> Discovery<'a> {
        if !table.borrow(py).searches.is_due() {
            return Discovery::pause(here);
        }
        let hook = layout::can_end_frames(py).then(|| Hook::set(py, eval));
        let entry = (&raw const *entry).cast();
        let outer = here.search.replace(Search { entry, known });
        let searches = Some((py, table, [here.looked.get(), here.found.get()]));
        Discovery { here, outer, _hook: hook, searches }
    }

    /// Looks for nothing: compiled code runs.
    pub fn pause(here: &'a Thread) -> Discovery<'a> {
        Discovery { here, outer: here.search.replace(Search::NOTHING), _hook: None, searches: None }
    }
}

impl Drop for Discovery<'_> {
    fn drop(&mut self) {
        self.here.search.set(self.outer);
        if let Some((py, table, [looked, found])) = self.searches {
            table.borrow(py).searches.note(self.here.looked.get() - looked, self.here.found.get() - found);
        }
    }
}

/// The evaluator while frames are looked for.
extern "C" fn eval(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, throws: c_int) -> Raw {
    thread::with(|here| eval_here(here, thread, frame, throws))
}

fn eval_here(here: &Thread, thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, throws: c_int) -> Raw {
    let search = here.search.get();
    if search.entry.is_null() || throws != 0 {
        return run(thread, frame, throws);
    }
    here.looked.set(here.looked.get() + 1);
    // SAFETY: CPython gives a live frame with the GIL held. The entry outlives the search.
    let found = unsafe {
        let code = (*frame).code;
        if code == search.known && !flambeau_ir::mutated!("known_code_discovered") {
            here.search.set(Search { known: null_mut(), ..search });
            return run(thread, frame, throws);
        }
        match Kind::of(code) {
            // The arguments are in the first slots when a frame begins.
            Kind::Candidate(count) if (*frame).locals.is_null() => {
                let slots = std::slice::from_raw_parts((*frame).slots.as_ptr(), count);
                Python::attach(|py| (*search.entry.cast::<Entry>()).discovered(py, here, (*frame).function, slots))
            }
            Kind::Candidate(_) | Kind::Through => Err(None),
            Kind::Whole => {
                let _pause = Discovery::pause(here);
                return run(thread, frame, throws);
            }
        }
    };
    match found {
        // SAFETY: the frame has not begun; candidates have an argument and return something.
        Ok(value) => unsafe { layout::end_frame(thread, frame, value) },
        Err(None) => run(thread, frame, throws),
        Err(Some(failed)) => {
            let result = run(thread, frame, throws);
            Python::attach(|py| entry::say_failed(py, &failed, result))
        }
    }
}

/// Runs a frame as it is.
fn run(thread: *mut ffi::PyThreadState, frame: *mut InterpreterFrame, throws: c_int) -> Raw {
    let depth = DEPTH.get();
    let off = (depth >= DEEPEST).then(Off::new);
    DEPTH.set(depth + 1);
    let value = hook::before()(thread, frame, throws);
    DEPTH.set(depth);
    drop(off);
    value
}

/// What is done with a frame, by its code.
#[derive(Clone, Copy)]
enum Kind {
    /// It and all it calls run as they are.
    Whole,
    /// It runs as it is; those it calls are looked at.
    Through,
    /// It may be compiled; it has so many arguments, at least one, those that gather others included.
    Candidate(usize),
}

impl Kind {
    /// Kept with the code object once known.
    unsafe fn of(code: Raw) -> Kind {
        let index = extra_index();
        let mut kept: *mut c_void = null_mut();
        // SAFETY: a live code object; the index is ours, what it holds is a number.
        unsafe {
            if index < 0 || layout::code_extra(code, index, &raw mut kept) != 0 {
                return Kind::Through;
            }
            match kept.addr() {
                0 => {}
                1 => return Kind::Whole,
                2 => return Kind::Through,
                more => return Kind::Candidate(more - 3),
            }
            let kind = Python::attach(|py| Kind::read(py, code)).unwrap_or(Kind::Through);
            let number = match kind {
                Kind::Whole => 1,
                Kind::Through => 2,
                Kind::Candidate(count) => 3 + count,
            };
            if layout::set_code_extra(code, index, ptr::without_provenance_mut(number)) != 0 {
                ffi::PyErr_Clear();
            }
            kind
        }
    }

    unsafe fn read(py: Python<'_>, code: Raw) -> PyResult<Kind> {
        // SAFETY: a live code object.
        let code = unsafe { Bound::from_borrowed_ptr(py, code) }.cast_into::<PyCode>()?;
        let file: String = code.getattr("co_filename")?.extract()?;
        let qualified: String = code.getattr("co_qualname")?.extract()?;
        let flags: i32 = code.getattr("co_flags")?.extract()?;
        let own = std::path::Path::new(&file).starts_with(crate::process::settings::package());
        if Origin::of(&file) == Origin::Whole || is_disabled(&qualified, &file) {
            return Ok(Kind::Whole);
        }
        let variables: Vec<String> = code.getattr("co_varnames")?.extract()?;
        let names: Vec<String> = code.getattr("co_names")?.extract()?;
        // Comprehensions and the thin functions of breaks have such variables.
        let made = variables.first().is_some_and(|name| name.starts_with('.'))
            || names.last().is_some_and(|name| name == Code::RESUME_NAME);
        let is_function = flags & CO_FUNCTION == CO_FUNCTION && flags & code::SUSPENDS == 0;
        if !is_function || made || own || Origin::of(&file) != Origin::User {
            return Ok(Kind::Through);
        }
        let count = |name: &str| code.getattr(name)?.extract::<usize>();
        let gathers = CO_GATHERS.iter().filter(|flag| flags & **flag != 0).count();
        let count = count("co_argcount")? + count("co_kwonlyargcount")? + gathers;
        Ok(if count == 0 { Kind::Through } else { Kind::Candidate(count) })
    }
}

fn extra_index() -> ffi::Py_ssize_t {
    static INDEX: OnceLock<ffi::Py_ssize_t> = OnceLock::new();
    // SAFETY: called with the GIL held; -1 means that no index was left.
    *INDEX.get_or_init(|| unsafe { layout::new_code_extra(keep) } as ffi::Py_ssize_t)
}

/// Nothing to free.
unsafe extern "C" fn keep(_: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::Searches;

    fn due(searches: &mut Searches, calls: u32, found: u64) -> usize {
        let is_due = |_: &u32| {
            let due = searches.is_due();
            if due {
                searches.note(100, found);
            }
            due
        };
        (0..calls).filter(is_due).count()
    }

    #[test]
    fn searches_in_vain_become_rare_until_one_finds_something() {
        let mut searches = Searches::default();
        assert_eq!(due(&mut searches, 16, 0), 16);
        assert_eq!(due(&mut searches, 160, 0), 10);
        assert_eq!(due(&mut searches, 17, 1), 2);
        assert_eq!(due(&mut searches, 17, 0), 16);
    }
}
