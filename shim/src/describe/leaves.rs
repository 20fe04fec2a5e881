//! Tensors and ints among a call's arguments, also inside containers (`*args`, `**kwargs`, the state of a resume function):
//! their sizes tell what to make symbolic when a call recompiles, and whether a failed compile is worth another try.

use crate::python::code;
use crate::python::consts;
use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use crate::torch::Torch;
use flambeau_ir::source::Step;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::ptr::null_mut;

/// More items of one container are not looked at.
const LARGEST: isize = 64;

/// More leaves of one call are not looked at.
const MOST: usize = 256;

/// Containers deeper than this are leaves. The state of a resume function nests once per frame that was inlined.
const DEEPEST: usize = 32;

/// Where a leaf is, from a root.
pub type Place = Vec<Step>;

/// What was seen at a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// A tensor's sizes.
    Tensor(Vec<i64>),
    /// An int.
    Int(i64),
}

/// A size to treat as symbolic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dynamic {
    /// The tensor or int. Alive during the call.
    pub object: Raw,
    /// Where it is.
    pub place: Place,
    /// Which dimension; `None` for an int.
    pub dim: Option<u32>,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// `mark_dynamic` says so; else it was seen to vary.
    pub marked: bool,
}

/// The objects of a call, with their places.
///
/// # Safety
/// Live objects or nulls, under the GIL.
pub unsafe fn of(py: Python<'_>, args: &[Raw]) -> Vec<(Place, Raw)> {
    let mut walk = Walk { py, place: Place::new(), leaves: Vec::new() };
    for (slot, arg) in args.iter().enumerate().filter(|(_, a)| !a.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { walk.within(Step::Arg(slot as u32), *arg) };
    }
    walk.leaves
}

/// Whether there is a tensor or a module among the objects of a call.
///
/// # Safety
/// As [`of`].
pub unsafe fn has_tensors(py: Python<'_>, args: &[Raw]) -> bool {
    let Ok(torch) = Torch::get(py) else { return false };
    // SAFETY: the caller's promise.
    unsafe { of(py, args).into_iter().any(|(_, object)| torch.is_plain_tensor(object) || is_module(py, object)) }
}

/// Whether it is an `nn.Module`.
///
/// # Safety
/// A live object.
pub unsafe fn is_module(py: Python<'_>, object: Raw) -> bool {
    static MODULE: GilOnce<Py<PyAny>> = GilOnce::new();
    let module = MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("torch.nn")?.getattr("Module")?.unbind()));
    // SAFETY: the caller's promise; subtype tests read the method resolution order only.
    module.is_ok_and(|class| unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object), class.as_ptr().cast()) != 0 })
}

struct Walk<'py> {
    py: Python<'py>,
    place: Place,
    leaves: Vec<(Place, Raw)>,
}

impl Walk<'_> {
    unsafe fn within(&mut self, step: Step, object: Raw) {
        self.place.push(step);
        // SAFETY: the caller's promise.
        unsafe { self.object(object) };
        self.place.pop();
    }

    unsafe fn object(&mut self, object: Raw) {
        if self.leaves.len() >= MOST {
            return;
        }
        let inside = self.place.len() > 1;
        // SAFETY: exact container types are read in place; nothing that could change them runs.
        unsafe {
            if self.place.len() > DEEPEST {
                self.leaves.push((self.place.clone(), object));
            } else if ffi::PyTuple_CheckExact(object) != 0 {
                for i in 0..ffi::PyTuple_GET_SIZE(object).min(LARGEST) {
                    self.within(Step::Index(i as u32), ffi::PyTuple_GET_ITEM(object, i));
                }
            } else if ffi::PyList_CheckExact(object) != 0 {
                for i in 0..ffi::PyList_GET_SIZE(object).min(LARGEST) {
                    self.within(Step::Index(i as u32), ffi::PyList_GET_ITEM(object, i));
                }
            } else if ffi::PyDict_CheckExact(object) != 0 {
                self.dict(object);
            } else if let Some(contents) = raw::cell_contents(object) {
                if !contents.is_null() {
                    self.within(Step::CellContents, contents);
                }
            } else if inside && code::is_resume_function(self.py, object) {
                let closure = (*object.cast::<ffi::PyFunctionObject>()).func_closure;
                let cells = if closure.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(closure) };
                for i in 0..cells.min(LARGEST) {
                    self.within(Step::Closure(i as u32), ffi::PyTuple_GET_ITEM(closure, i));
                }
            } else {
                self.leaves.push((self.place.clone(), object));
            }
        }
    }

    unsafe fn dict(&mut self, dict: Raw) {
        let (mut position, mut key, mut value) = (0, null_mut(), null_mut());
        let mut left = LARGEST;
        // SAFETY: nothing that could change the dict runs between two steps.
        unsafe {
            while left > 0 && ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
                left -= 1;
                if let Some(key) = consts::from_object(&Bound::from_borrowed_ptr(self.py, key)) {
                    self.within(Step::Item(key), value);
                }
            }
        }
    }
}

/// The size of a leaf, if it has one.
///
/// # Safety
/// As [`of`].
unsafe fn size(py: Python<'_>, object: Raw) -> Option<Size> {
    // SAFETY: the type tests come first.
    unsafe {
        if ffi::PyLong_CheckExact(object) != 0 {
            let mut overflow = 0;
            let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
            return (overflow == 0).then_some(Size::Int(value));
        }
        let torch = Torch::get(py).ok()?;
        if !torch.is_plain_tensor(object) {
            return None;
        }
        Some(Size::Tensor(torch.sizes(torch.handle(object)).to_vec()))
    }
}

/// A hash of the types and sizes of a call's leaves.
///
/// # Safety
/// As [`of`].
pub unsafe fn fingerprint(py: Python<'_>, leaves: &[(Place, Raw)]) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    for (place, object) in leaves {
        // SAFETY: the caller's promise.
        unsafe {
            (place, ffi::Py_TYPE(*object) as usize, size(py, *object)).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Sizes seen by the compiles of one callable, and what they showed to vary.
#[derive(Debug, Default)]
pub struct History {
    seen: HashMap<Place, Size>,
    vary: HashSet<(Place, Option<u32>)>,
}

impl History {
    /// Takes note of a size in a compile, unless one was seen at its place.
    pub fn saw(&mut self, place: &Place, size: Size) {
        self.seen.entry(place.clone()).or_insert(size);
    }

    /// Takes the ints at these places for symbolic from the first compile on.
    pub fn expect(&mut self, places: impl IntoIterator<Item = Place>) {
        self.vary.extend(places.into_iter().map(|place| (place, None)));
    }

    /// Notes a call that is about to be compiled; gives what varies among the compiles so far, this one included.
    ///
    /// # Safety
    /// As [`of`].
    pub unsafe fn note(&mut self, py: Python<'_>, leaves: &[(Place, Raw)]) -> Vec<Dynamic> {
        let mut dynamic = Vec::new();
        for (place, object) in leaves {
            // SAFETY: the caller's promise.
            let Some(now) = (unsafe { size(py, *object) }) else { continue };
            match (self.seen.get(place), &now) {
                (Some(Size::Int(before)), Size::Int(value)) if before != value => {
                    self.vary.insert((place.clone(), None));
                }
                (Some(Size::Tensor(before)), Size::Tensor(sizes)) if before.len() == sizes.len() => {
                    for dim in (0..sizes.len()).filter(|d| before[*d] != sizes[*d]) {
                        self.vary.insert((place.clone(), Some(dim as u32)));
                    }
                }
                _ => {}
            }
            // Sizes zero and one are compiled for themselves, as their broadcasting differs.
            let mut push = |dim: Option<u32>, min: i64| {
                if self.vary.contains(&(place.clone(), dim)) {
                    let (object, place) = (*object, place.clone());
                    dynamic.push(Dynamic { object, place, dim, min, max: i64::MAX, marked: false });
                }
            };
            match &now {
                Size::Int(_) => push(None, i64::MIN),
                Size::Tensor(sizes) => {
                    sizes.iter().enumerate().filter(|(_, s)| **s >= 2).for_each(|(d, _)| push(Some(d as u32), 2));
                }
            }
            self.seen.insert(place.clone(), now);
        }
        dynamic
    }
}

/// What `flambeau.mark_dynamic` said about the tensors of a call.
///
/// # Safety
/// As [`of`].
pub unsafe fn marked(py: Python<'_>, leaves: &[(Place, Raw)]) -> Vec<Dynamic> {
    let key = pyo3::types::PyString::intern(py, MARK);
    let mut marks = Vec::new();
    for (place, object) in leaves {
        // SAFETY: the caller's promise; the dict of a plain tensor is read raw.
        let found = unsafe {
            let plain = Torch::get(py).is_ok_and(|torch| torch.is_plain_tensor(*object));
            let dict = if plain { raw::instance_dict(*object) } else { std::ptr::null_mut() };
            Bound::from_borrowed_ptr_or_opt(py, raw::dict_get(dict, key.as_ptr()))
        };
        let Some(dims) = found.and_then(|f| f.extract::<BTreeMap<u32, (i64, i64)>>().ok()) else { continue };
        for (dim, (min, max)) in dims {
            marks.push(Dynamic { object: *object, place: place.clone(), dim: Some(dim), min, max, marked: true });
        }
    }
    marks
}

/// Key of a tensor's `__dict__` that holds its marks: `{dim: (min, max)}`.
pub const MARK: &str = "_flambeau_dynamic";
