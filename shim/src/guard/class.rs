//! Classes by name, remembering the last type that matched by its version tag.

use crate::python::raw::{self, Raw};
use flambeau_ir::guard::ClassRef;
use pyo3::ffi;
use std::cell::Cell;

/// A class's names, and the last type found to have them.
pub struct ClassFact {
    class: ClassRef,
    seen: Cell<(usize, u32)>,
}

impl ClassFact {
    /// Nothing seen yet.
    pub fn new(class: &ClassRef) -> Self {
        ClassFact { class: class.clone(), seen: Cell::new((0, 0)) }
    }

    /// Whether these are the names of a built-in type.
    pub fn is_builtin(&self, name: &str) -> bool {
        *self.class.module == *"builtins" && *self.class.qualname == *name
    }

    /// Whether `class` has these names.
    ///
    /// # Safety
    /// A live type, GIL held.
    pub unsafe fn holds(&self, class: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let tag = version_tag(class);
            if tag != 0 && self.seen.get() == (class as usize, tag) {
                return true;
            }
            let (module, qualname) = raw::class_names(class);
            let same = module == *self.class.module
                && qualname == *self.class.qualname
                && !raw::has_stale_new(pyo3::Python::assume_attached(), class);
            if same {
                self.seen.set((class as usize, tag));
            }
            same
        }
    }
}

/// A number that no other state of any type has, or zero if the type has none now.
///
/// # Safety
/// A live type, GIL held.
pub unsafe fn version_tag(class: Raw) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*class.cast::<ffi::PyTypeObject>()).tp_version_tag }
}
