//! Virtual subclasses of abstract classes: where there are none, `isinstance` goes by inheritance alone.

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;

/// When a fact about registered classes was last seen to hold: it is looked at again only when something was registered
/// anywhere, which `abc` counts.
#[derive(Default)]
struct Seen(Cell<Option<u64>>);

impl Seen {
    fn or(&self, py: Python<'_>, look: impl FnOnce() -> PyResult<bool>) -> bool {
        let Ok(now) = count(py) else { return false };
        if self.0.get() == Some(now) {
            return true;
        }
        let holds = look().unwrap_or(false);
        if holds {
            self.0.set(Some(now));
        }
        holds
    }
}

/// That no class is registered with an abstract class or with one of its subclasses.
#[derive(Default)]
pub struct NoRegistered {
    seen: Seen,
}

impl NoRegistered {
    /// Whether it holds of the abstract class `class`.
    pub fn holds(&self, py: Python<'_>, class: Raw) -> bool {
        // SAFETY: a live object.
        let class = unsafe { Bound::from_borrowed_ptr(py, class) };
        self.seen.or(py, || any_registered(&class).map(|any| !any))
    }
}

/// That a class is not registered with an abstract class or with one of its subclasses.
#[derive(Default)]
pub struct NotRegistered {
    /// The classes that it was seen to hold of; numbers, as the fact keeps no class alive.
    of: Cell<(usize, usize)>,
    seen: Seen,
}

impl NotRegistered {
    /// Whether it holds of the class `class` and the abstract class `with`.
    pub fn holds(&self, py: Python<'_>, class: Raw, with: Raw) -> bool {
        let of = (class as usize, with as usize);
        if self.of.replace(of) != of {
            self.seen.0.set(None);
        }
        // SAFETY: live objects.
        let (class, with) = unsafe { (Bound::from_borrowed_ptr(py, class), Bound::from_borrowed_ptr(py, with)) };
        self.seen.or(py, || registered_with(&class, &with).map(|found| !found))
    }
}

/// `abc.get_cache_token()`
fn count(py: Python<'_>) -> PyResult<u64> {
    static TOKEN: GilOnce<Py<PyAny>> = GilOnce::new();
    let token =
        TOKEN.get_or_try_init(py, || Ok::<_, PyErr>(py.import("_abc")?.getattr("get_cache_token")?.unbind()))?;
    token.bind(py).call0()?.extract()
}

/// Whether a class is registered with an abstract class or with one of its subclasses, or one of these decides with a
/// `__subclasshook__` of its own. Runs no user code.
pub fn any_registered(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    walk(class, &mut |_| Ok(true))
}

/// Whether `class` is registered with the abstract class `with`, or with a subclass of that; true as well where code of users
/// decides, which is not run. What `with` and its like themselves say in a `__subclasshook__` is the caller's to know.
pub fn registered_with(class: &Bound<'_, PyAny>, with: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: callers pass a live type.
    let mro = unsafe { Bound::from_borrowed_ptr(class.py(), (*class.as_ptr().cast::<ffi::PyTypeObject>()).tp_mro) };
    walk(with, &mut |registered| mro.contains(registered))
}

/// Whether `found` says so of a class that is registered with an abstract class or with one of its subclasses, or one of these
/// is beyond what can be said without running code.
fn walk(class: &Bound<'_, PyAny>, found: &mut dyn FnMut(&Bound<'_, PyAny>) -> PyResult<bool>) -> PyResult<bool> {
    let py = class.py();
    let types = py.import("builtins")?.getattr("type")?;
    let dump = py.import("_abc")?.getattr("_get_dump")?;
    let abc_meta = py.import("abc")?.getattr("ABCMeta")?;
    let mut waiting = vec![class.clone()];
    let mut first = true;
    while let Some(class) = waiting.pop() {
        // SAFETY: a live type; its dict is read raw.
        let (hook, module) = unsafe {
            let name = crate::python::gil::interned!(py, "__subclasshook__");
            let hook = crate::python::raw::dict_get(crate::python::raw::type_dict(class.as_ptr()), name.as_ptr());
            (hook, crate::python::raw::class_names(class.as_ptr()).0)
        };
        // The library's own go by methods, as those above them do.
        if !first && !hook.is_null() && module != "collections.abc" {
            return Ok(true);
        }
        first = false;
        let (registry, ..): (Bound<'_, PyAny>, Py<PyAny>, Py<PyAny>, Py<PyAny>) = dump.call1((&class,))?.extract()?;
        for reference in registry.try_iter()? {
            let registered = reference?.call0()?;
            if registered.is_none() {
                continue;
            }
            if found(&registered)? {
                return Ok(true);
            }
            match Checks::of(&registered, &abc_meta) {
                Checks::Registered => waiting.push(registered),
                Checks::Bases => {}
                Checks::Own => return Ok(true),
            }
        }
        // SAFETY: as above.
        if unsafe { names_its_subclasses(py, class.as_ptr()) } {
            return Ok(true);
        }
        for below in types.call_method1("__subclasses__", (&class,))?.try_iter()? {
            let below = below?;
            if Checks::of(&below, &abc_meta) == Checks::Own {
                return Ok(true);
            }
            waiting.push(below);
        }
    }
    Ok(false)
}

/// Whether `class.__subclasses__` is another one than that of `type`.
///
/// # Safety
/// A live type.
unsafe fn names_its_subclasses(py: Python<'_>, class: Raw) -> bool {
    let name = crate::python::gil::interned!(py, "__subclasses__");
    // SAFETY: types that are ready; the look-ups run no code.
    unsafe {
        let own = crate::python::raw::type_lookup(class, name.as_ptr());
        let (owner, _) = crate::python::raw::type_lookup_where(ffi::Py_TYPE(class).cast(), name.as_ptr());
        !own.is_null() || !std::ptr::eq(owner, (&raw mut ffi::PyType_Type).cast())
    }
}

/// What the metaclass of a class goes by when it is asked for subclasses.
#[derive(PartialEq)]
enum Checks {
    /// Inheritance alone, as `type` does.
    Bases,
    /// What is registered, as `ABCMeta` does.
    Registered,
    /// Code of its own.
    Own,
}

impl Checks {
    fn of(class: &Bound<'_, PyAny>, abc_meta: &Bound<'_, PyAny>) -> Self {
        // SAFETY: a live object whose type is ready; the look-up runs no code.
        let (owner, _) = unsafe {
            let name = crate::python::gil::interned!(class.py(), "__subclasscheck__");
            crate::python::raw::type_lookup_where(ffi::Py_TYPE(class.as_ptr()).cast(), name.as_ptr())
        };
        if owner.is_null() || owner == (&raw mut ffi::PyType_Type).cast() {
            return Self::Bases;
        }
        // Those of protocols say nothing here unless they are meant for run time: these have a hook.
        // SAFETY: a live type.
        if owner == abc_meta.as_ptr() || unsafe { crate::python::raw::class_names(owner) }.0 == "typing" {
            return Self::Registered;
        }
        Self::Own
    }
}
