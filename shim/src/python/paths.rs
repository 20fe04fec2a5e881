//! Trusted import paths: which object is what a path such as `torch.relu` names, and the reverse.
//!
//! An object has a path only if it *is* what the path names now. Python functions must besides come from a file of the
//! root itself, so that a patched-in function never passes for the original.

use crate::python::gil::GilOnce;
use crate::python::raw::{self, Raw};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyString, PyType};
use std::collections::HashMap;
use std::sync::Arc;

/// Modules whose built-in functions carry no usable `__module__`, or that are looked up by address anyway.
const TABLE_MODULES: &[&str] = &[
    "builtins",
    "math",
    "_operator",
    "itertools",
    "_functools",
    "_collections",
    "time",
    "torch",
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._sparse",
    "torch._C._nested",
    "torch._C",
    "torch._C._functorch",
    "flambeau._native",
];

/// Functions of other modules that are looked up by address.
const TABLE_FUNCTIONS: &[(&str, &str)] = &[
    ("posix", "fspath"),
    ("sys", "exc_info"),
    ("sys", "exception"),
    ("sys", "getrecursionlimit"),
    ("sys", "intern"),
    ("_warnings", "warn"),
    ("torch._C._autograd", "_profiler_enabled"),
];

/// Types whose own attributes (method descriptors, getsets, static functions) are looked up by address.
const TABLE_TYPES: &[(&str, &str)] = &[
    ("builtins", "object"),
    ("builtins", "type"),
    ("builtins", "int"),
    ("builtins", "bool"),
    ("builtins", "float"),
    ("builtins", "complex"),
    ("builtins", "str"),
    ("builtins", "bytes"),
    ("builtins", "tuple"),
    ("builtins", "list"),
    ("builtins", "dict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "slice"),
    ("builtins", "range"),
    ("builtins", "property"),
    ("builtins", "super"),
    ("builtins", "BaseException"),
    ("builtins", "zip"),
    ("builtins", "map"),
    ("builtins", "filter"),
    ("builtins", "enumerate"),
    ("builtins", "reversed"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("contextvars", "ContextVar"),
    ("types", "SimpleNamespace"),
    ("_thread", "_local"),
    ("torch", "Tensor"),
    ("torch._C", "_VariableFunctionsClass"),
    ("torch", "Size"),
    ("torch", "Generator"),
    ("torch", "device"),
    ("torch", "dtype"),
];

/// Roots whose classes and Python functions have paths.
const ROOTS: &[&str] = &[
    "builtins",
    "torch",
    "math",
    "operator",
    "_operator",
    "functools",
    "itertools",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "enum",
    "abc",
    "types",
    "typing",
    "inspect",
    "warnings",
    "logging",
    "numbers",
    "random",
    "time",
    "weakref",
    "sys",
    "os",
    "string",
    "re",
    "numpy",
    "flambeau",
    "_bisect",
    "_heapq",
    "_pickle",
    "_struct",
    "binascii",
    "cmath",
    "datetime",
    "unicodedata",
    "zlib",
];

/// Those of the roots that are modules of C, whose functions have paths.
const NATIVE_ROOTS: &[&str] = &["_bisect", "_heapq", "_pickle", "_struct", "binascii", "cmath", "unicodedata", "zlib"];

/// About as many objects as have paths in the tables.
const OBJECTS: usize = 6000;

struct Paths {
    by_address: HashMap<usize, Arc<str>>,
    /// What these paths named when the table was made; `torch.relu = mine` does not change what a graph calls.
    by_path: HashMap<Arc<str>, usize>,
    /// Keeps the addresses valid.
    objects: Vec<Py<PyAny>>,
    /// Directories that trusted Python functions come from.
    directories: Vec<String>,
}

fn paths(py: Python<'_>) -> &'static Paths {
    static PATHS: GilOnce<Paths> = GilOnce::new();
    PATHS.get_or_init(py, || Paths::load(py))
}

impl Paths {
    fn load(py: Python<'_>) -> Paths {
        let mut paths = Paths {
            by_address: HashMap::with_capacity(OBJECTS),
            by_path: HashMap::with_capacity(OBJECTS),
            objects: Vec::with_capacity(OBJECTS),
            directories: Vec::new(),
        };
        for name in TABLE_MODULES {
            if let Some(module) = import(py, name) {
                paths.add_all(&module.dict(), name, None);
            }
        }
        for (module, name) in TABLE_FUNCTIONS {
            if let Some(function) = import(py, module).and_then(|m| m.getattr(*name).ok()) {
                paths.by_address.insert(function.as_ptr() as usize, format!("{module}.{name}").into());
                paths.objects.push(function.unbind());
            }
        }
        for (module, name) in TABLE_TYPES {
            if let Some(class) = import(py, module).and_then(|m| m.getattr(*name).ok())
                && let Ok(class) = class.cast_into::<PyType>()
            {
                paths.add_type(py, &class, &format!("{module}.{name}"));
            }
        }
        let class_method = &raw mut ffi::PyClassMethodDescr_Type;
        for (i, object) in paths.objects.iter().enumerate() {
            // A class method is another object wherever it is read.
            if object.bind(py).get_type_ptr() != class_method
                && let Some(path) = paths.by_address.get(&(object.as_ptr() as usize))
            {
                paths.by_path.insert(path.clone(), i);
            }
        }
        for name in ["torch", "functools", "flambeau"] {
            if let Some(file) = import(py, name).and_then(|m| m.getattr("__file__").ok()?.extract::<String>().ok())
                && let Some((directory, _)) = file.rsplit_once('/')
            {
                paths.directories.push(format!("{directory}/"));
            }
        }
        paths
    }

    /// The attributes of a type and, for `torch.Tensor`, of the C type below it, but for those that the type replaces.
    fn add_type(&mut self, py: Python<'_>, class: &Bound<'_, PyType>, path: &str) {
        // SAFETY: a ready type has a dict.
        let dict_of = |class: Raw| unsafe { Bound::from_borrowed_ptr(py, raw::type_dict(class)) }.cast_into::<PyDict>();
        let Ok(own) = dict_of(class.as_ptr()) else { return };
        self.add_all(&own, path, None);
        for base in class.mro().iter().skip(1) {
            // SAFETY: an entry of an MRO is a type.
            let (module, _) = unsafe { raw::class_names(base.as_ptr()) };
            if module.starts_with("torch._C")
                && let Ok(dict) = dict_of(base.as_ptr())
            {
                self.add_all(&dict, path, Some(&own));
            }
        }
    }

    /// What a namespace holds, but for names that `replaced` has for something else.
    fn add_all(&mut self, dict: &Bound<'_, PyDict>, prefix: &str, replaced: Option<&Bound<'_, PyDict>>) {
        for (key, value) in dict.iter() {
            let Ok(name) = key.extract::<&str>() else { continue };
            if replaced.is_some_and(|names| names.contains(&key).unwrap_or(true)) {
                continue;
            }
            // A static method's function is what attribute access gives.
            // SAFETY: a live object.
            let is_static = unsafe { raw::tp_name(raw::class_of(value.as_ptr())) } == "staticmethod";
            let value = if is_static { value.getattr("__func__") } else { Ok(value) };
            let Ok(value) = value else { continue };
            // SAFETY: a live object.
            let Some(own_name) = (unsafe { builtin_name(value.as_ptr()) }) else {
                continue;
            };
            let known = self.by_address.get(&(value.as_ptr() as usize));
            // The path whose last part is the object's own name is preferred.
            let better = |path: &Arc<str>| own_name == name && path.rsplit('.').next() != Some(own_name);
            if known.is_none_or(better) {
                self.by_address.insert(value.as_ptr() as usize, [prefix, ".", name].concat().into());
                self.objects.push(value.unbind());
            }
        }
    }
}

/// Modules of this package that only traces and what they made name: most processes need none of them.
const HELPERS: &[&str] =
    &["flambeau._autocast", "flambeau._begun", "flambeau._pure", "flambeau._training", "flambeau.polyfills"];

/// Imports the helper that a module is, or is a part of.
pub fn import_helper(py: Python<'_>, name: &str) {
    let is_part = |helper: &str| name.strip_prefix(helper).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if let Some(helper) = HELPERS.iter().find(|helper| is_part(helper))
        && imported(py, helper).is_none()
    {
        // Where it fails, as it may while the interpreter ends, the module is missing.
        let _ = py.import(*helper);
    }
}

/// A module that was imported already. Nothing is imported that the user did not import, but helpers.
fn import<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyModule>> {
    import_helper(py, name);
    imported(py, name)
}

fn imported<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyModule>> {
    let key = PyString::intern(py, name);
    // SAFETY: the interpreter's module dict.
    let module =
        unsafe { Bound::from_borrowed_ptr_or_opt(py, raw::dict_get(ffi::PyImport_GetModuleDict(), key.as_ptr())) };
    module?.cast_into::<PyModule>().ok()
}

/// `__name__` of a built-in function, method descriptor or data descriptor; `None` for anything else.
///
/// # Safety
/// A live object, under the GIL.
unsafe fn builtin_name<'a>(object: Raw) -> Option<&'a str> {
    // SAFETY: the type test says which layout the object has.
    unsafe {
        if ffi::PyCFunction_Check(object) != 0 {
            let method = (*object.cast::<ffi::PyCFunctionObject>()).m_ml;
            return std::ffi::CStr::from_ptr((*method).ml_name).to_str().ok();
        }
        if raw::is_descriptor(object) {
            return raw::utf8(raw::descriptor_name(object));
        }
        None
    }
}

/// The import path that names this very object in a trusted root, if one does.
pub fn path_of(py: Python<'_>, object: Raw) -> Option<Arc<str>> {
    if let Some(path) = paths(py).by_address.get(&(object as usize)) {
        return Some(path.clone());
    }
    // SAFETY: a live object; the type tests say which layout it has.
    unsafe {
        if ffi::PyType_Check(object) != 0 {
            let (module, qualname) = raw::class_names(object);
            return named(py, object, &module, &qualname);
        }
        if ffi::PyFunction_Check(object) != 0 {
            let function = object.cast::<ffi::PyFunctionObject>();
            let module = raw::utf8((*function).func_module)?;
            let qualname = raw::utf8((*function).func_qualname)?;
            trusted(module).then_some(())?;
            let code = Bound::from_borrowed_ptr(py, (*function).func_code);
            let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
            paths(py).directories.iter().any(|d| file.starts_with(d.as_str())).then_some(())?;
            return named(py, object, module, qualname);
        }
        if ffi::PyCFunction_Check(object) != 0 {
            let function = object.cast::<ffi::PyCFunctionObject>();
            if let Some(class) = made_by(object) {
                return path_of(py, class).map(|path| format!("{path}.__new__").into());
            }
            let (module, name) = (raw::utf8((*function).m_module)?, builtin_name(object)?);
            NATIVE_ROOTS.contains(&module).then_some(())?;
            return named(py, object, module, name);
        }
        if matches!(raw::tp_name(raw::class_of(object)), "numpy.ufunc" | "numpy._ArrayFunctionDispatcher") {
            // Attributes of types of C, which run no code of users.
            let name: String = Bound::from_borrowed_ptr(py, object).getattr("__name__").ok()?.extract().ok()?;
            return named(py, object, "numpy", &name);
        }
        if ffi::PyModule_Check(object) != 0 {
            let name = raw::module_name(object)?;
            let found = import(py, &name)?;
            return (trusted(&name) && found.as_ptr() == object).then(|| name.into());
        }
        torch_op(py, object)
    }
}

/// The type of C whose own `__new__` a built-in function is.
///
/// # Safety
/// A live built-in function, under the GIL.
unsafe fn made_by(function: Raw) -> Option<Raw> {
    // SAFETY: the caller's promise; a ready type has a dict.
    unsafe {
        let class = (*function.cast::<ffi::PyCFunctionObject>()).m_self;
        if class.is_null() || ffi::PyType_Check(class) == 0 || builtin_name(function) != Some("__new__") {
            return None;
        }
        let name = crate::python::gil::interned!(Python::assume_attached(), "__new__");
        (raw::dict_get(raw::type_dict(class), name.as_ptr()) == function).then_some(class)
    }
}

fn trusted(module: &str) -> bool {
    ROOTS.contains(&module.split('.').next().unwrap_or(module))
}

/// `module.qualname` if walking it gives the object.
fn named(py: Python<'_>, object: Raw, module: &str, qualname: &str) -> Option<Arc<str>> {
    if !trusted(module) || qualname.contains('<') {
        return None;
    }
    let mut value: Raw = import(py, module)?.as_ptr();
    for part in qualname.split('.') {
        let key = PyString::intern(py, part);
        // SAFETY: modules and types have the dicts read here; borrowed values live in them.
        value = unsafe {
            let dict = if ffi::PyType_Check(value) != 0 { raw::type_dict(value) } else { raw::instance_dict(value) };
            raw::dict_get(dict, key.as_ptr())
        };
        if value.is_null() {
            return None;
        }
    }
    (value == object).then(|| format!("{module}.{qualname}").into())
}

/// `torch.ops.aten.add.Tensor` for torch's op overload objects, `torch.ops.aten.add` for packets.
///
/// # Safety
/// A live object, under the GIL.
unsafe fn torch_op(py: Python<'_>, object: Raw) -> Option<Arc<str>> {
    // SAFETY: the caller's promise.
    let (class, dict) = unsafe { (raw::class_names(raw::class_of(object)), raw::instance_dict(object)) };
    if class.0 != "torch._ops" || dict.is_null() {
        return None;
    }
    // SAFETY: an instance dict.
    let dict = unsafe { Bound::from_borrowed_ptr(py, dict) }.cast_into::<PyDict>().ok()?;
    let text = |key: &str| dict.get_item(key).ok()??.extract::<String>().ok();
    let (namespace, name) = match class.1.as_str() {
        "OpOverload" => text("_name")?.split_once("::").map(|(n, o)| (n.to_owned(), o.to_owned()))?,
        "OpOverloadPacket" => {
            text("_qualified_op_name")?.split_once("::").map(|(n, o)| (n.to_owned(), o.to_owned()))?
        }
        _ => return None,
    };
    let path = match (class.1.as_str(), name.contains('.')) {
        ("OpOverload", false) => format!("torch.ops.{namespace}.{name}.default"),
        _ => format!("torch.ops.{namespace}.{name}"),
    };
    (resolve(py, &path).ok()?.as_ptr() == object).then(|| path.into())
}

/// The object that a path was given to (see [`path_of`]): what a class keeps under a name, not what reading it there gives.
/// Fails where the path names another object now, as after `torch.relu = mine`.
pub fn object_at<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let found = named_object(py, path)?;
    if path_of(py, found.as_ptr()).as_deref() == Some(path) {
        return Ok(found);
    }
    Err(pyo3::exceptions::PyLookupError::new_err(format!("{path} is not what it was")))
}

fn named_object<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let found = resolve(py, path)?;
    let Some((owner, name)) = path.rsplit_once('.') else { return Ok(found) };
    let owner = resolve(py, owner)?;
    let name = PyString::intern(py, name);
    // SAFETY: live objects; a type's look-up gives a borrowed reference that lives in the type.
    let raw = unsafe {
        if ffi::PyType_Check(owner.as_ptr()) == 0 {
            return Ok(found);
        }
        Bound::from_borrowed_ptr_or_opt(py, raw::type_lookup(owner.as_ptr(), name.as_ptr()))
    };
    match raw {
        // SAFETY: a live object.
        Some(raw) if unsafe { raw::is_descriptor(raw.as_ptr()) } => Ok(raw),
        _ => Ok(found),
    }
}

/// What a path names: the original of a built-in function or descriptor, else what is there now. The longest prefix that is
/// an imported module is its root; the rest are attributes.
pub fn resolve<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let paths = paths(py);
    if let Some(known) = paths.by_path.get(path) {
        return Ok(paths.objects[*known].bind(py).clone());
    }
    let mut end = path.len();
    let mut object = loop {
        match (import(py, &path[..end]), path[..end].rfind('.')) {
            (Some(module), _) => break module.into_any(),
            (None, Some(dot)) => end = dot,
            (None, None) => break py.import(&path[..end])?.into_any(),
        }
    };
    for part in path[end..].split('.').skip(1) {
        object = object.getattr(part)?;
    }
    Ok(object)
}
