//! Tensors and ints directly among a call's arguments (and inside `*args` and `**kwargs`): their sizes tell what to make
//! symbolic when a call recompiles, and whether a failed compile is worth another try.

use crate::raw::{self, Raw};
use crate::torch_abi::Torch;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// More items of one container are not looked at.
const LARGEST: isize = 64;

/// Where a leaf is: argument slot, and position inside a tuple, list or dict there.
pub type Place = (u32, u32);

/// A position that means the slot itself.
pub const ITSELF: u32 = u32::MAX;

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
}

/// The objects of a call, with their places.
///
/// # Safety
/// Live objects or nulls, under the GIL.
pub unsafe fn of(args: &[Raw]) -> Vec<(Place, Raw)> {
    let mut leaves = Vec::new();
    for (slot, arg) in args.iter().enumerate().filter(|(_, a)| !a.is_null()) {
        let slot = slot as u32;
        // SAFETY: exact container types are read in place.
        unsafe {
            if ffi::PyTuple_CheckExact(*arg) != 0 {
                let size = ffi::PyTuple_GET_SIZE(*arg).min(LARGEST);
                leaves.extend((0..size).map(|i| ((slot, i as u32), ffi::PyTuple_GET_ITEM(*arg, i))));
            } else if ffi::PyList_CheckExact(*arg) != 0 {
                let size = ffi::PyList_GET_SIZE(*arg).min(LARGEST);
                leaves.extend((0..size).map(|i| ((slot, i as u32), ffi::PyList_GET_ITEM(*arg, i))));
            } else if ffi::PyDict_CheckExact(*arg) != 0 {
                let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
                let mut i = 0;
                while i < LARGEST && ffi::PyDict_Next(*arg, &raw mut position, &raw mut key, &raw mut value) != 0 {
                    leaves.push(((slot, i as u32), value));
                    i += 1;
                }
            } else {
                leaves.push(((slot, ITSELF), *arg));
            }
        }
    }
    leaves
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
    seen: BTreeMap<Place, Size>,
    vary: BTreeSet<(Place, Option<u32>)>,
}

impl History {
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
                    self.vary.insert((*place, None));
                }
                (Some(Size::Tensor(before)), Size::Tensor(sizes)) if before.len() == sizes.len() => {
                    for dim in (0..sizes.len()).filter(|d| before[*d] != sizes[*d]) {
                        self.vary.insert((*place, Some(dim as u32)));
                    }
                }
                _ => {}
            }
            // Zero and one are compiled for themselves, as their broadcasting differs.
            let mut push = |dim: Option<u32>, value: i64| {
                if value >= 2 && self.vary.contains(&(*place, dim)) {
                    dynamic.push(Dynamic { object: *object, place: *place, dim, min: 2, max: i64::MAX });
                }
            };
            match &now {
                Size::Int(value) => push(None, *value),
                Size::Tensor(sizes) => sizes.iter().enumerate().for_each(|(d, s)| push(Some(d as u32), *s)),
            }
            self.seen.insert(*place, now);
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
            marks.push(Dynamic { object: *object, place: *place, dim: Some(dim), min, max });
        }
    }
    marks
}

/// Key of a tensor's `__dict__` that holds its marks: `{dim: (min, max)}`.
pub const MARK: &str = "_flambeau_dynamic";
