//! Reads of raw object state. Nothing here runs user code: no descriptors, no `__getattr__`, no `__eq__`, no `__hash__`
//! beyond those of exact built-in types. All pointers are borrowed unless said otherwise.

use crate::python::gil::GilOnce;
use crate::python::layout;
use flambeau_ir::guard::Collection;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char};
use std::ptr;

/// A Python object, borrowed.
pub type Raw = *mut ffi::PyObject;

unsafe extern "C" {
    fn _PyObject_GetDictPtr(object: Raw) -> *mut Raw;
    fn _PyType_Lookup(class: *mut ffi::PyTypeObject, name: Raw) -> Raw;
    fn _PyDict_GetItem_KnownHash(dict: Raw, key: Raw, hash: ffi::Py_hash_t) -> Raw;
}

/// `type(object)`.
///
/// # Safety
/// `object` is a live object and the GIL is held; so for every function of this module.
pub unsafe fn class_of(object: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { ffi::Py_TYPE(object).cast() }
}

/// Whether there are weak references to an object; not asked of types.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn has_weak_references(object: Raw) -> bool {
    // SAFETY: where the class says, seen from the object, the list of weak references begins. From 3.12 on that is before it.
    unsafe {
        let at = (*ffi::Py_TYPE(object)).tp_weaklistoffset;
        at != 0 && ffi::PyType_Check(object) == 0 && !object.byte_offset(at).cast::<Raw>().read().is_null()
    }
}

/// The instance `__dict__`, or null if there is none (yet). That of a type is its own dict.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn instance_dict(object: Raw) -> Raw {
    // SAFETY: a live object; the returned slot belongs to it.
    unsafe {
        if ffi::PyType_Check(object) != 0 {
            return type_dict(object);
        }
        let slot = _PyObject_GetDictPtr(object);
        if slot.is_null() { ptr::null_mut() } else { *slot }
    }
}

/// As [`instance_dict`]. Functions and objects of subclasses of built-in types get theirs if they have none yet, as the
/// first look at it would make it: whether something has looked is no fact of the program.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn attributes(object: Raw) -> Raw {
    // SAFETY: the caller's promise; the new dict is kept by the object.
    unsafe {
        if ffi::PyType_Check(object) != 0 {
            return type_dict(object);
        }
        let slot = _PyObject_GetDictPtr(object);
        if slot.is_null() {
            return ptr::null_mut();
        }
        if (*slot).is_null() && makes_its_dict_late(object) {
            ffi::Py_XDECREF(ffi::PyObject_GenericGetDict(object, ptr::null_mut()));
            ffi::PyErr_Clear();
        }
        *slot
    }
}

/// Whether objects of this kind get their `__dict__` when it is first asked for. Tensors are left out: they are many, and
/// few have attributes.
///
/// # Safety
/// As [`class_of`].
unsafe fn makes_its_dict_late(object: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::PyFunction_Check(object) != 0
            || ffi::PyDict_Check(object) != 0
            || ffi::PyList_Check(object) != 0
            || ffi::PyTuple_Check(object) != 0
            || ffi::PyLong_Check(object) != 0
            || ffi::PyFloat_Check(object) != 0
            || ffi::PyUnicode_Check(object) != 0
            || ffi::PyAnySet_Check(object) != 0
    }
}

/// Where the instance `__dict__` is kept, or null if instances have none. An inline one is made a dict first. That of a
/// built-in type may be kept elsewhere.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn instance_dict_slot(object: Raw) -> *mut Raw {
    // SAFETY: the caller's promise.
    unsafe { _PyObject_GetDictPtr(object) }
}

/// Whether it is a function's field of annotations, whose getter makes a dict of what the compiler left there.
///
/// # Safety
/// As [`class_of`]; `name` is an exact str.
unsafe fn is_annotations(object: Raw, name: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::PyFunction_Check(object) != 0
            && ffi::PyUnicode_CompareWithASCIIString(name, c"__annotations__".as_ptr()) == 0
    }
}

/// Where the member descriptor `name` of `object`'s type keeps its object; `None` if it keeps none.
///
/// # Safety
/// As [`class_of`]; `name` is an exact str.
pub unsafe fn object_member(object: Raw, name: Raw) -> Option<*mut Raw> {
    // SAFETY: a member descriptor's definition gives the offset of a field in instances of its type.
    unsafe {
        if is_annotations(object, name) {
            return Some(&raw mut (*object.cast::<ffi::PyFunctionObject>()).func_annotations);
        }
        let descriptor = type_lookup(class_of(object), name);
        if descriptor.is_null() || ffi::Py_TYPE(descriptor) != &raw mut ffi::PyMemberDescr_Type {
            return None;
        }
        let member = (*descriptor.cast::<ffi::PyMemberDescrObject>()).d_member.cast::<ffi::PyMemberDef>();
        let is_object = (*member).type_code == ffi::Py_T_OBJECT_EX || (*member).type_code == 6;
        is_object.then(|| object.byte_offset((*member).offset).cast())
    }
}

/// The class of `class.__mro__` whose own dict has `name` (an exact str), and the value there; nulls if none has.
///
/// # Safety
/// As [`class_of`]; `class` is a type.
pub unsafe fn type_lookup_where(class: Raw, name: Raw) -> (Raw, Raw) {
    // SAFETY: `tp_mro` of a ready type is a tuple of types, each with a dict.
    unsafe {
        let mro = (*class.cast::<ffi::PyTypeObject>()).tp_mro;
        if !mro.is_null() {
            for i in 0..ffi::PyTuple_GET_SIZE(mro) {
                let base = ffi::PyTuple_GET_ITEM(mro, i);
                let value = dict_get(type_dict(base), name);
                if !value.is_null() {
                    return (base, value);
                }
            }
        }
        (ptr::null_mut(), ptr::null_mut())
    }
}

/// Whether looking up a name in a class runs no user code: the keys of its dict and of its bases' are strs. A class can be
/// made with others, whose `__eq__` is asked where hashes collide.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn has_plain_names(class: Raw) -> bool {
    // SAFETY: as there.
    unsafe {
        let mro = (*class.cast::<ffi::PyTypeObject>()).tp_mro;
        let count = if mro.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(mro) };
        (0..count).all(|i| {
            let dict = type_dict(ffi::PyTuple_GET_ITEM(mro, i));
            dict.is_null() || has_only_str_keys(dict)
        })
    }
}

/// What `_PyType_Lookup` finds (uses the type's method cache), or null.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn type_lookup(class: Raw, name: Raw) -> Raw {
    // SAFETY: the caller's promise; the function sets no exception for exact str names.
    unsafe { _PyType_Lookup(class.cast(), name) }
}

/// The type's own dict.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn type_dict(class: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { layout::type_dict(class) }
}

/// Where a dict has the number of its state, which no other state of any dict has but for flags of the same dict.
///
/// # Safety
/// As [`class_of`]; `dict` is a dict or a subclass.
pub unsafe fn dict_version(dict: Raw) -> *const u64 {
    // SAFETY: the caller's promise.
    unsafe { &raw const (*dict.cast::<layout::Dict>()).version }
}

/// Whether the dict's key table has only ever held exact strs.
///
/// # Safety
/// As [`dict_version`].
pub unsafe fn has_only_str_keys(dict: Raw) -> bool {
    // SAFETY: a dict always has a key table.
    unsafe { (*(*dict.cast::<layout::Dict>()).keys).kind != 0 }
}

/// `dict.get(key)` for a key of exact built-in immutable type, or null. A key in the dict whose `__eq__` is user code and
/// whose hash collides would run it; dicts that hold keys of other than exact built-in types are filtered by callers.
///
/// # Safety
/// As [`class_of`]; `dict` is a dict or a subclass.
pub unsafe fn dict_get(dict: Raw, key: Raw) -> Raw {
    // SAFETY: the caller's promise; an error (unhashable key) is cleared.
    unsafe {
        if dict.is_null() {
            return ptr::null_mut();
        }
        let hash = ffi::PyObject_Hash(key);
        if hash == -1 {
            ffi::PyErr_Clear();
            return ptr::null_mut();
        }
        let value = _PyDict_GetItem_KnownHash(dict, key, hash);
        if value.is_null() && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        value
    }
}

/// As [`dict_get`] in a namespace; null where other keys than strs are in it, whose comparison might run code.
///
/// # Safety
/// As [`dict_get`].
pub unsafe fn namespace_get(namespace: Raw, name: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { if has_only_str_keys(namespace) { dict_get(namespace, name) } else { ptr::null_mut() } }
}

/// The value of the member descriptor `name` of `object`'s type, as a *new* reference; null if it is empty or if there is no
/// such raw slot.
///
/// # Safety
/// As [`class_of`]; `name` is an exact str.
pub unsafe fn slot(object: Raw, name: Raw) -> Raw {
    // SAFETY: a member descriptor's `tp_descr_get` reads a struct member, the getter of annotations makes their dict.
    unsafe {
        if is_annotations(object, name) {
            return ffi::PyObject_GetAttr(object, name);
        }
        let descriptor = type_lookup(class_of(object), name);
        if descriptor.is_null() || ffi::Py_TYPE(descriptor) != &raw mut ffi::PyMemberDescr_Type {
            return ptr::null_mut();
        }
        let Some(get) = (*ffi::Py_TYPE(descriptor)).tp_descr_get else { return ptr::null_mut() };
        let value = get(descriptor, object, class_of(object));
        if value.is_null() {
            ffi::PyErr_Clear();
        }
        value
    }
}

/// Whether it is a context variable.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn is_context_variable(object: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyContextVar_CheckExact(object) != 0 }
}

/// What a context variable gives: its value in the current context, else its own default if that counts.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn context_value(py: Python<'_>, object: Raw, own_default: bool) -> Option<Py<PyAny>> {
    static NONE_SUCH: GilOnce<Py<PyAny>> = GilOnce::new();
    // SAFETY: the caller's promise; the value comes as a new reference.
    unsafe {
        if !is_context_variable(object) {
            return None;
        }
        let none_such = NONE_SUCH.get_or_init(py, || pyo3::types::PyList::empty(py).into_any().unbind());
        let default = if own_default { ptr::null_mut() } else { none_such.as_ptr() };
        let mut value = ptr::null_mut();
        if ffi::PyContextVar_Get(object, default, &raw mut value) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        Py::from_owned_ptr_or_opt(py, value).filter(|value: &Py<PyAny>| !value.is(none_such))
    }
}

/// What patterns take the instances of a class for; `None` where it is no class.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn collection(class: Raw) -> Option<Collection> {
    // `Py_TPFLAGS_SEQUENCE` and `Py_TPFLAGS_MAPPING` in CPython's `Include/object.h`.
    const SEQUENCE: std::ffi::c_ulong = 1 << 5;
    const MAPPING: std::ffi::c_ulong = 1 << 6;
    // SAFETY: a live object, which is a type where its flags are read.
    let flags = unsafe { (ffi::PyType_Check(class) != 0).then(|| ffi::PyType_GetFlags(class.cast())) }?;
    Some(match flags & (SEQUENCE | MAPPING) {
        SEQUENCE => Collection::Sequence,
        MAPPING => Collection::Mapping,
        _ => Collection::Neither,
    })
}

/// The UTF-8 of an exact or derived str; `None` for other objects and for lone surrogates.
///
/// # Safety
/// As [`class_of`]. The result lives as long as the object.
pub unsafe fn utf8<'a>(object: Raw) -> Option<&'a str> {
    // SAFETY: the buffer is cached in the str object.
    unsafe {
        if object.is_null() || ffi::PyUnicode_Check(object) == 0 {
            return None;
        }
        let mut size = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut size);
        if data.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), size as usize);
        Some(std::str::from_utf8_unchecked(bytes))
    }
}

/// `tp_name` of a type.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn tp_name<'a>(class: Raw) -> &'a str {
    // SAFETY: a C string that lives as long as the type.
    unsafe {
        let name: *const c_char = (*class.cast::<ffi::PyTypeObject>()).tp_name;
        CStr::from_ptr(name).to_str().unwrap_or("?")
    }
}

/// `(__module__, __qualname__)` of a type as raw slots say: the dict's `__module__` for heap types, `tp_name` for static ones.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn class_names(class: Raw) -> (String, String) {
    // SAFETY: `PyHeapTypeObject` starts with the type; its flag says so.
    unsafe {
        let flags = ffi::PyType_GetFlags(class.cast());
        if flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
            let key = ffi::PyUnicode_InternFromString(c"__module__".as_ptr());
            let module = dict_get(type_dict(class), key);
            ffi::Py_DECREF(key);
            let qualname = (*class.cast::<ffi::PyHeapTypeObject>()).ht_qualname;
            let module = utf8(module).unwrap_or("builtins").to_owned();
            return (module, utf8(qualname).unwrap_or_else(|| tp_name(class)).to_owned());
        }
        let full = tp_name(class);
        match full.rsplit_once('.') {
            Some((module, name)) => (module.to_owned(), name.to_owned()),
            None => ("builtins".to_owned(), full.to_owned()),
        }
    }
}

/// `__name__` of a type.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn class_name<'a>(class: Raw) -> &'a str {
    // SAFETY: as in `class_names`.
    unsafe {
        let full = tp_name(class);
        if ffi::PyType_GetFlags(class.cast()) & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
            return utf8((*class.cast::<ffi::PyHeapTypeObject>()).ht_name).unwrap_or(full);
        }
        full.rsplit_once('.').map_or(full, |(_, name)| name)
    }
}

/// CPython's `PyDescrObject`, which every descriptor of a C type starts with.
#[repr(C)]
struct Descriptor {
    base: ffi::PyObject,
    class: *mut ffi::PyTypeObject,
    name: Raw,
    qualname: Raw,
}

/// Whether the object is a method, slot-wrapper, class-method, getset or member descriptor.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn is_descriptor(object: Raw) -> bool {
    // SAFETY: a comparison of type addresses.
    unsafe { is_method_descriptor(object) || is_data_descriptor(object) }
}

/// Whether the object is a method, slot-wrapper or class-method descriptor.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn is_method_descriptor(object: Raw) -> bool {
    // SAFETY: a comparison of type addresses.
    unsafe {
        let class = ffi::Py_TYPE(object);
        class == &raw mut ffi::PyMethodDescr_Type
            || class == &raw mut ffi::PyWrapperDescr_Type
            || class == &raw mut ffi::PyClassMethodDescr_Type
    }
}

/// Whether the object is a getset or member descriptor.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn is_data_descriptor(object: Raw) -> bool {
    // SAFETY: a comparison of type addresses.
    unsafe {
        let class = ffi::Py_TYPE(object);
        class == &raw mut ffi::PyGetSetDescr_Type || class == &raw mut ffi::PyMemberDescr_Type
    }
}

/// `__objclass__` of a descriptor.
///
/// # Safety
/// [`is_descriptor`] holds.
pub unsafe fn descriptor_class(object: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { (*object.cast::<Descriptor>()).class.cast() }
}

/// `__name__` of a descriptor.
///
/// # Safety
/// [`is_descriptor`] holds.
pub unsafe fn descriptor_name(object: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { (*object.cast::<Descriptor>()).name }
}

/// `__name__` in a module's dict.
///
/// # Safety
/// `object` is a module.
pub unsafe fn module_name(object: Raw) -> Option<String> {
    // SAFETY: a module has a dict.
    unsafe {
        let key = ffi::PyUnicode_InternFromString(c"__name__".as_ptr());
        let name = dict_get(ffi::PyModule_GetDict(object), key);
        ffi::Py_DECREF(key);
        utf8(name).map(str::to_owned)
    }
}

/// `_PySet_NextEntry`: walks a set's table.
///
/// # Safety
/// `set` is a set or frozenset (or subclass) that does not change between calls; the pointers are valid.
pub unsafe fn set_next(set: Raw, position: *mut ffi::Py_ssize_t, key: *mut Raw, hash: *mut ffi::Py_hash_t) -> i32 {
    unsafe extern "C" {
        fn _PySet_NextEntry(
            set: Raw,
            position: *mut ffi::Py_ssize_t,
            key: *mut Raw,
            hash: *mut ffi::Py_hash_t,
        ) -> std::ffi::c_int;
    }
    // SAFETY: the caller's promise.
    unsafe { _PySet_NextEntry(set, position, key, hash) }
}

/// Functions that type objects made by a `class` statement share.
struct PythonClass {
    dealloc: usize,
    object_getattribute: usize,
    object_setattr: usize,
}

fn python_class(py: pyo3::Python<'_>) -> &'static PythonClass {
    use pyo3::prelude::*;
    static PROBE: crate::python::gil::GilOnce<PythonClass> = crate::python::gil::GilOnce::new();
    PROBE.get_or_init(py, || {
        let object = py.get_type::<pyo3::types::PyAny>();
        let probe = py.import("abc").and_then(|abc| abc.getattr("ABC"));
        let address = |name: &str| {
            let key = pyo3::types::PyString::intern(py, name);
            // SAFETY: `object` is a type.
            unsafe { dict_get(type_dict(object.as_ptr()), key.as_ptr()) as usize }
        };
        // SAFETY: `abc.ABC` is a class made by a `class` statement.
        let dealloc = probe
            .map_or(1, |p| unsafe { (*p.as_ptr().cast::<ffi::PyTypeObject>()).tp_dealloc.map_or(1, |f| f as usize) });
        PythonClass {
            dealloc,
            object_getattribute: address("__getattribute__"),
            object_setattr: address("__setattr__"),
        }
    })
}

/// Whether a `class` statement (or `type(...)`) made this type.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn is_python_class(py: pyo3::Python<'_>, class: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let object = class.cast::<ffi::PyTypeObject>();
        ffi::PyType_GetFlags(object) & ffi::Py_TPFLAGS_HEAPTYPE != 0
            && (*object).tp_dealloc.map_or(0, |f| f as usize) == python_class(py).dealloc
    }
}

/// Whether instances of a type of C have a `__dict__` and nothing else, which is read and stored as that of `object` is, as
/// those of `types.SimpleNamespace`.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn is_bare(class: Raw) -> bool {
    let generic =
        (ffi::PyObject_GenericGetAttr as *const () as usize, ffi::PyObject_GenericSetAttr as *const () as usize);
    let head = std::mem::size_of::<ffi::PyObject>();
    // SAFETY: a live type.
    unsafe {
        let class = &*class.cast::<ffi::PyTypeObject>();
        class.tp_dictoffset == head as isize
            && class.tp_basicsize as usize == head + std::mem::size_of::<Raw>()
            && class.tp_call.is_none()
            && class.tp_descr_get.is_none()
            && class.tp_descr_set.is_none()
            && (class.tp_getattro.map(|f| f as usize), class.tp_setattro.map(|f| f as usize))
                == (Some(generic.0), Some(generic.1))
    }
}

/// Whether calls of the class make instances by another function than its MRO says: a `__new__` that was deleted from a
/// class stays behind in its slot, which `object.__new__` and `object.__init__` ask when they count arguments.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn has_stale_new(py: pyo3::Python<'_>, class: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if !is_python_class(py, class) {
            return false;
        }
        let name = pyo3::types::PyString::intern(py, "__new__");
        let (owner, _) = type_lookup_where(class, name.as_ptr());
        let new = |class: Raw| (*class.cast::<ffi::PyTypeObject>()).tp_new.map_or(0, |f| f as usize);
        !owner.is_null() && owner == (&raw mut ffi::PyBaseObject_Type).cast() && new(class) != new(owner)
    }
}

/// Whether attribute reads on instances start at `object.__getattribute__` (a `__getattr__` may follow).
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn generic_getattr(py: pyo3::Python<'_>, class: Raw) -> bool {
    let name = pyo3::types::PyString::intern(py, "__getattribute__");
    // SAFETY: the caller's promise.
    unsafe { type_lookup(class, name.as_ptr()) as usize == python_class(py).object_getattribute }
}

/// Whether attribute stores on instances go to `object.__setattr__`.
///
/// # Safety
/// As [`type_lookup_where`].
pub unsafe fn generic_setattr(py: pyo3::Python<'_>, class: Raw) -> bool {
    let name = pyo3::types::PyString::intern(py, "__setattr__");
    // SAFETY: the caller's promise.
    unsafe { type_lookup(class, name.as_ptr()) as usize == python_class(py).object_setattr }
}

/// The vectorcall of functions that C has not given another one (`PyFunction_SetVectorcall`): it runs their code.
fn code_runner(py: pyo3::Python<'_>) -> usize {
    static RUNNER: crate::python::gil::GilOnce<usize> = crate::python::gil::GilOnce::new();
    *RUNNER.get_or_init(py, || {
        let probe = py.eval(c"lambda: None", None, None);
        // SAFETY: a lambda is a function.
        probe.map_or(0, |f| unsafe {
            (*f.as_ptr().cast::<ffi::PyFunctionObject>()).vectorcall.map_or(0, |v| v as usize)
        })
    })
}

/// Whether a call of this function runs its code.
///
/// # Safety
/// A live Python function, GIL held.
pub unsafe fn runs_its_code(py: pyo3::Python<'_>, function: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*function.cast::<ffi::PyFunctionObject>()).vectorcall.map_or(0, |v| v as usize) == code_runner(py) }
}

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
    static mut PyCell_Type: ffi::PyTypeObject;
    fn PyMethod_Function(method: Raw) -> Raw;
    fn PyMethod_Self(method: Raw) -> Raw;
}

/// `__func__` and `__self__` of a bound method; `None` for other objects.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn method_parts(object: Raw) -> Option<(Raw, Raw)> {
    // SAFETY: the type test says which layout the object has.
    unsafe {
        (ffi::Py_TYPE(object) == &raw mut PyMethod_Type).then(|| (PyMethod_Function(object), PyMethod_Self(object)))
    }
}

/// What a closure cell holds (null if it is empty); `None` for other objects.
///
/// # Safety
/// As [`class_of`].
pub unsafe fn cell_contents(object: Raw) -> Option<Raw> {
    #[repr(C)]
    struct Cell {
        base: ffi::PyObject,
        contents: Raw,
    }
    // SAFETY: the type test says which layout the object has.
    unsafe { (ffi::Py_TYPE(object) == &raw mut PyCell_Type).then(|| (*object.cast::<Cell>()).contents) }
}

/// Whether this is `None`, or a number, `str` or `bytes` of an exact built-in type.
///
/// # Safety
/// A live object, GIL held.
pub unsafe fn is_plain_value(object: Raw) -> bool {
    // SAFETY: type tests.
    unsafe {
        object == ffi::Py_None()
            || ffi::PyLong_CheckExact(object) != 0
            || ffi::PyFloat_CheckExact(object) != 0
            || ffi::PyUnicode_CheckExact(object) != 0
            || ffi::PyBool_Check(object) != 0
            || ffi::PyBytes_CheckExact(object) != 0
            || ffi::PyComplex_CheckExact(object) != 0
    }
}

/// Whether looking `key` (of exact built-in immutable type) up in `dict` compares it with such keys only.
///
/// # Safety
/// `dict` is a dict that does not change meanwhile.
pub unsafe fn plain_keys(dict: Raw, key: Raw) -> bool {
    // SAFETY: the walk reads the table only.
    unsafe {
        if ffi::PyUnicode_CheckExact(key) != 0 && has_only_str_keys(dict) {
            return true;
        }
        let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
            let class = ffi::Py_TYPE(key);
            let built_in = ffi::PyUnicode_CheckExact(key) != 0
                || ffi::PyLong_CheckExact(key) != 0
                || ffi::PyBool_Check(key) != 0
                || ffi::PyFloat_CheckExact(key) != 0
                || ffi::PyBytes_CheckExact(key) != 0
                || ffi::PyType_Check(key) != 0 && class == &raw mut ffi::PyType_Type
                || key == ffi::Py_None()
                || (*class).tp_richcompare.is_none()
                || (*class).tp_richcompare.map(|f| f as usize)
                    == ffi::PyBaseObject_Type.tp_richcompare.map(|f| f as usize);
            if !built_in {
                return false;
            }
        }
        true
    }
}
