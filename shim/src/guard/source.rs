//! Reading sources: each step of a path, from one object to the next, without running user code.

use crate::python::code;
use crate::python::consts;
use crate::python::gil::GilOnce;
use crate::python::layout::cached::{self, Kept};
use crate::python::layout::{deque, iterators, parts};
use crate::python::paths::import_helper;
use crate::python::raw::{self, Raw};
use crate::python::thread_local;
use flambeau_ir::code::Const;
use flambeau_ir::source::{CallKey, SourceId, SourceTable, Step};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr::null_mut;

/// A step with its names and keys made into Python objects.
pub enum Read {
    /// Argument slot.
    Arg(usize),
    /// The called function.
    Function,
    /// The function's builtins.
    Builtins,
    /// `sys.modules[name]`.
    SysModule(Key),
    /// Instance dict.
    Dict,
    /// What a `threading.local` holds for this thread.
    ThreadDict,
    /// Dict item.
    Item(Key),
    /// Dict key by position.
    KeyAt(usize),
    /// Dict value by position of its key.
    ValueAt(usize),
    /// List or tuple item.
    Index(usize),
    /// Raw slot; null if empty.
    Slot(Py<PyAny>),
    /// Type.
    Class,
    /// Type attribute.
    TypeAttr(Py<PyAny>),
    /// MRO entry.
    Mro(usize),
    /// A closure cell of a function.
    Closure(usize),
    /// `.grad` of a leaf.
    Grad(Grad),
    /// A pointer-sized field of an object of the kind that the test accepts; null reads as `None` where the flag is set.
    Field(fn(Raw) -> bool, usize, bool),
    /// A pointer-sized field of an object of exactly the type at this address, never null.
    Part(usize, usize),
    /// `__self__` of a bound method or built-in.
    Receiver,
    /// The next items of an iterator, at most so many.
    Ahead(usize),
    /// A container that an iterator draws from.
    DrawnFrom(usize),
    /// A constant of a function's code.
    CodeConst(usize),
    /// What a context variable gives; whether its own default counts.
    ContextValue(bool),
    /// What an `lru_cache` keeps for a call.
    Cached(Cached),
}

/// Torch's getters for `.grad`.
#[derive(Clone, Copy)]
pub struct Grad(&'static [Py<PyAny>; 2]);

impl Grad {
    /// Those of the class of all tensors.
    pub fn new(py: Python<'_>) -> PyResult<Grad> {
        static GETTERS: GilOnce<[Py<PyAny>; 2]> = GilOnce::new();
        let find = || {
            let class = crate::python::paths::resolve(py, "torch._C.TensorBase")?;
            Ok::<_, PyErr>([class.getattr("is_leaf")?.unbind(), class.getattr("grad")?.unbind()])
        };
        GETTERS.get_or_try_init(py, find).map(Grad)
    }

    /// What `.grad` gives; `None` if the object is no tensor or no leaf, of which torch warns.
    ///
    /// # Safety
    /// A live object, GIL held; its class is one of torch's, whose getters run no user code.
    pub unsafe fn of(&self, py: Python<'_>, object: Raw) -> Option<Py<PyAny>> {
        // SAFETY: getset descriptors of tensors, called on a tensor; what they give is a new reference or null.
        unsafe {
            let get = |getter: &Py<PyAny>| {
                let read = (*ffi::Py_TYPE(getter.as_ptr())).tp_descr_get?;
                Py::<PyAny>::from_owned_ptr_or_opt(py, read(getter.as_ptr(), object, raw::class_of(object)))
            };
            if !crate::torch::Torch::get(py).is_ok_and(|torch| torch.is_tensor(object)) {
                return None;
            }
            let [is_leaf, grad] = self.0;
            let found = if get(is_leaf)?.as_ptr() == ffi::Py_True() { get(grad) } else { None };
            if found.is_none() {
                ffi::PyErr_Clear();
            }
            found
        }
    }
}

/// Torch's getters for the hooks on a tensor's gradient.
#[derive(Clone, Copy)]
pub struct Hooks(&'static [Py<PyAny>; 2]);

impl Hooks {
    /// Those of the class of all tensors.
    pub fn new(py: Python<'_>) -> PyResult<Hooks> {
        static GETTERS: GilOnce<[Py<PyAny>; 2]> = GilOnce::new();
        let find = || {
            let class = crate::python::paths::resolve(py, "torch._C.TensorBase")?;
            let get = |name| class.getattr(name).map(Bound::unbind);
            Ok::<_, PyErr>([get("_backward_hooks")?, get("_post_accumulate_grad_hooks")?])
        };
        GETTERS.get_or_try_init(py, find).map(Hooks)
    }

    /// Whether there are any; `None` if the object is no tensor.
    ///
    /// # Safety
    /// A live object, GIL held; its class is one of torch's, whose getters run no user code.
    pub unsafe fn any(&self, py: Python<'_>, object: Raw) -> Option<bool> {
        // SAFETY: getset descriptors of tensors, called on a tensor; what they give is `None`, a dict, or null.
        unsafe {
            if !crate::torch::Torch::get(py).is_ok_and(|torch| torch.is_tensor(object)) {
                return None;
            }
            let mut any = false;
            for getter in self.0 {
                let read = (*ffi::Py_TYPE(getter.as_ptr())).tp_descr_get?;
                let hooks = read(getter.as_ptr(), object, raw::class_of(object));
                let Some(hooks) = Py::<PyAny>::from_owned_ptr_or_opt(py, hooks) else {
                    ffi::PyErr_Clear();
                    return None;
                };
                let hooks = hooks.as_ptr();
                any |= hooks != ffi::Py_None() && (ffi::PyDict_Check(hooks) == 0 || ffi::PyDict_Size(hooks) > 0);
            }
            Some(any)
        }
    }
}

/// A call of a function with an `lru_cache`.
pub struct Cached {
    call: cached::Call,
    /// The sources of the objects among its arguments.
    objects: Vec<u32>,
}

impl Cached {
    /// With these arguments.
    pub fn new(py: Python<'_>, key: &CallKey<SourceId>) -> PyResult<Cached> {
        let (call, objects) = cached::Call::new(py, key)?;
        Ok(Cached { call, objects: objects.into_iter().map(|source| source.0).collect() })
    }

    /// Whether `function` keeps no result; with `room`, that is certain and so many more fit in.
    pub fn is_missing(&self, py: Python<'_>, values: &mut Values<'_>, function: Raw, room: Option<u32>) -> bool {
        match (self.look_up(py, values, function), room) {
            (Kept::Nothing(free), Some(room)) => free >= room,
            (Kept::Nothing(_) | Kept::Unclear, None) => cached::is_cached(py, function),
            _ => false,
        }
    }

    /// What `function` keeps.
    fn look_up(&self, py: Python<'_>, values: &mut Values<'_>, function: Raw) -> Kept {
        let objects: Vec<Raw> = self.objects.iter().map(|source| values.get(py, *source)).collect();
        // SAFETY: `function` and the objects are live as long as the call's arguments.
        unsafe { cached::look_up(py, function, &self.call, &objects) }
    }
}

/// A dict key of exact built-in type, with its hash.
pub struct Key {
    /// The object.
    pub object: Py<PyAny>,
    hash: ffi::Py_hash_t,
    /// Whether it is a str.
    exact_str: bool,
}

impl Key {
    /// The key's object; a constant that cannot be a key fails.
    pub fn new(py: Python<'_>, value: &Const) -> PyResult<Key> {
        let object = consts::to_object(py, value)?;
        if let Const::Str(_) = value {
            let mut raw = object.clone().into_ptr();
            // SAFETY: an exact str, exchanged for the interned one.
            unsafe { ffi::PyUnicode_InternInPlace(&raw mut raw) };
            // SAFETY: the reference that interning returned.
            let object = unsafe { Py::from_owned_ptr(py, raw) };
            // SAFETY: a str's hash runs no user code.
            let hash = unsafe { ffi::PyObject_Hash(object.as_ptr()) };
            return Ok(Key { object, hash, exact_str: true });
        }
        let hash = object.hash()?;
        Ok(Key { object: object.unbind(), hash, exact_str: false })
    }

    /// The value in `dict` under this key, or null. A dict that holds keys of other than exact built-in type is searched
    /// for a key of the same type and value, so that no user `__eq__` runs.
    ///
    /// # Safety
    /// `dict` is a live dict or an instance of a subclass, GIL held.
    pub unsafe fn get(&self, dict: Raw) -> Raw {
        unsafe extern "C" {
            fn _PyDict_GetItem_KnownHash(dict: Raw, key: Raw, hash: ffi::Py_hash_t) -> Raw;
        }
        // SAFETY: with only exact built-in keys in the dict, comparing runs no user code.
        unsafe {
            if (self.exact_str && raw::has_only_str_keys(dict)) || has_only_plain_keys(dict) {
                let value = _PyDict_GetItem_KnownHash(dict, self.object.as_ptr(), self.hash);
                if value.is_null() && !ffi::PyErr_Occurred().is_null() {
                    ffi::PyErr_Clear();
                }
                return value;
            }
            let (mut position, mut key, mut value) = (0, null_mut(), null_mut());
            while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
                if same_plain(key, self.object.as_ptr()) {
                    return value;
                }
            }
            null_mut()
        }
    }
}

unsafe fn has_only_plain_keys(dict: Raw) -> bool {
    let (mut position, mut key, mut value) = (0, null_mut(), null_mut());
    // SAFETY: nothing runs between two steps.
    unsafe {
        while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
            if !is_plain(key) {
                return false;
            }
        }
    }
    true
}

/// Whether the object's type compares and hashes without user code.
unsafe fn is_plain(object: Raw) -> bool {
    // SAFETY: a live object.
    unsafe {
        let class = ffi::Py_TYPE(object);
        class == &raw mut ffi::PyUnicode_Type
            || class == &raw mut ffi::PyLong_Type
            || class == &raw mut ffi::PyBool_Type
            || class == &raw mut ffi::PyFloat_Type
            || class == &raw mut ffi::PyComplex_Type
            || class == &raw mut ffi::PyBytes_Type
            || class == &raw mut ffi::PyType_Type
            || object == ffi::Py_None()
            || class == &raw mut ffi::PyFunction_Type
            || (class == &raw mut ffi::PyTuple_Type
                && (0..ffi::PyTuple_GET_SIZE(object)).all(|i| is_plain(ffi::PyTuple_GET_ITEM(object, i))))
            || ffi::PyType_GetFlags(class) & ffi::Py_TPFLAGS_HEAPTYPE == 0
                && raw::tp_name(class.cast()) == "torch.device"
    }
}

/// Equality of two objects if both are of the same plain type.
unsafe fn same_plain(a: Raw, b: Raw) -> bool {
    // SAFETY: plain types compare without user code.
    unsafe {
        a == b
            || (ffi::Py_TYPE(a) == ffi::Py_TYPE(b)
                && is_plain(a)
                && is_plain(b)
                && ffi::PyObject_RichCompareBool(a, b, ffi::Py_EQ) == 1)
    }
}

/// The steps of a table, ready to be read.
pub fn compile(py: Python<'_>, table: &SourceTable) -> PyResult<Vec<(Option<u32>, Read)>> {
    let mut steps = Vec::with_capacity(table.nodes().len());
    for node in table.nodes() {
        // One item more than the frame draws: guards may say that there is none.
        if let (Some(base), Step::Index(i)) = (node.base, &node.step)
            && let Some((_, Read::Ahead(most))) = steps.get_mut(base.0 as usize)
        {
            *most = (*most).max(*i as usize + 2);
        }
        steps.push((node.base.map(|b| b.0), read(py, &node.step)?));
    }
    Ok(steps)
}

fn read(py: Python<'_>, step: &Step) -> PyResult<Read> {
    let name = |s: &str| pyo3::types::PyString::intern(py, s).into_any().unbind();
    let function = |field| Read::Field(is_function, field, true);
    Ok(match step {
        Step::Arg(i) => Read::Arg(*i as usize),
        Step::Function => Read::Function,
        Step::SysModule(name) => {
            import_helper(py, name);
            Read::SysModule(Key::new(py, &Const::Str(name.clone()))?)
        }
        Step::Builtins => Read::Builtins,
        Step::Dict => Read::Dict,
        Step::ThreadDict => Read::ThreadDict,
        Step::Item(key) => Read::Item(Key::new(py, key)?),
        Step::Key(i) => Read::KeyAt(*i as usize),
        Step::Value(i) => Read::ValueAt(*i as usize),
        Step::Index(i) => Read::Index(*i as usize),
        Step::Slot(s) => Read::Slot(name(s)),
        Step::Class => Read::Class,
        Step::TypeAttr(s) => Read::TypeAttr(name(s)),
        Step::Mro(i) => Read::Mro(*i as usize),
        Step::Closure(i) => Read::Closure(*i as usize),
        Step::Grad => Read::Grad(Grad::new(py)?),
        Step::Ahead => Read::Ahead(1),
        Step::DrawnFrom(i) => Read::DrawnFrom(*i as usize),
        Step::ContextValue { own_default } => Read::ContextValue(*own_default),
        Step::CodeConst(i) => Read::CodeConst(*i as usize),
        Step::Cached(key) => Read::Cached(Cached::new(py, key)?),
        Step::Globals => function(std::mem::offset_of!(ffi::PyFunctionObject, func_globals)),
        Step::FunctionName => function(std::mem::offset_of!(ffi::PyFunctionObject, func_name)),
        Step::QualName => function(std::mem::offset_of!(ffi::PyFunctionObject, func_qualname)),
        Step::TypeName => Read::Field(is_heap_type, std::mem::offset_of!(ffi::PyHeapTypeObject, ht_name), true),
        Step::TypeQualName => Read::Field(is_heap_type, std::mem::offset_of!(ffi::PyHeapTypeObject, ht_qualname), true),
        Step::ModuleName => function(std::mem::offset_of!(ffi::PyFunctionObject, func_module)),
        Step::Defaults => function(std::mem::offset_of!(ffi::PyFunctionObject, func_defaults)),
        Step::KwDefaults => function(std::mem::offset_of!(ffi::PyFunctionObject, func_kwdefaults)),
        Step::CellContents => Read::Field(is_cell, HEAD, false),
        Step::MethodFunc => Read::Field(is_method, HEAD, false),
        Step::Receiver => Read::Receiver,
        Step::PropertyGet => Read::Field(is_property, HEAD, true),
        Step::PropertySet => Read::Field(is_property, HEAD + WORD, true),
        Step::PropertyDelete => Read::Field(is_property, HEAD + 2 * WORD, true),
        Step::Wrapped => Read::Field(is_wrapper, HEAD, false),
        Step::Original => Read::Field(crate::process::compiled::is_compiled, crate::process::compiled::FUNCTION, false),
        Step::Uncached => Read::Field(cached::has_cache, cached::function(py), false),
        Step::Part(of, at) => Read::Part(parts::class(py, *of)?, parts::offset(*at)),
    })
}

/// The step to a tensor's `.grad`, through torch's own getter.
/// A function's closure tuple, or null.
///
/// # Safety
/// A live Python function.
pub unsafe fn function_closure(function: Raw) -> Raw {
    // SAFETY: the caller's promise.
    unsafe { (*function.cast::<ffi::PyFunctionObject>()).func_closure }
}

/// What a cell holds, or null.
///
/// # Safety
/// A live cell.
pub unsafe fn cell_contents(cell: Raw) -> Raw {
    // SAFETY: a cell is a head and one pointer.
    unsafe { *cell.byte_add(HEAD).cast::<Raw>() }
}

const HEAD: usize = std::mem::size_of::<ffi::PyObject>();
const WORD: usize = std::mem::size_of::<usize>();

macro_rules! exact {
    ($($name:ident: $($class:ident)|+;)*) => {$(
        pub(super) fn $name(object: Raw) -> bool {
            // SAFETY: called with live objects only.
            let class = unsafe { ffi::Py_TYPE(object) };
            $(class == &raw mut $class)||+
        }
    )*};
}

unsafe extern "C" {
    static mut PyCell_Type: ffi::PyTypeObject;
    static mut PyMethod_Type: ffi::PyTypeObject;
    static mut PyStaticMethod_Type: ffi::PyTypeObject;
    static mut PyClassMethod_Type: ffi::PyTypeObject;
}
use ffi::{PyFunction_Type, PyProperty_Type};

exact! {
    is_function: PyFunction_Type;
    is_cell: PyCell_Type;
    is_method: PyMethod_Type;
    is_wrapper: PyStaticMethod_Type | PyClassMethod_Type;
}

/// A property, or an object of a class derived from it.
fn is_property(object: Raw) -> bool {
    // SAFETY: called with live objects only.
    unsafe { ffi::PyObject_TypeCheck(object, &raw mut PyProperty_Type) != 0 }
}

/// A class that Python code can rename.
fn is_heap_type(object: Raw) -> bool {
    // SAFETY: called with live objects only.
    unsafe { ffi::PyType_Check(object) != 0 && ffi::PyType_GetFlags(object.cast()) & ffi::Py_TPFLAGS_HEAPTYPE != 0 }
}

/// The roots of one call, borrowed.
#[derive(Clone, Copy)]
pub struct Roots<'a> {
    /// The called function.
    pub function: Raw,
    /// `localsplus` order, null where absent.
    pub args: &'a [Raw],
}

/// Values of sources during one check, read as needed.
pub struct Values<'a> {
    steps: &'a [(Option<u32>, Read)],
    roots: &'a Roots<'a>,
    /// Empty until the first read.
    table: Vec<Option<Raw>>,
    /// New references that reading made, which keep values alive.
    made: &'a mut Vec<Py<PyAny>>,
}

impl<'a> Values<'a> {
    /// Nothing read yet. What reading makes is kept alive in `made`.
    pub fn new(steps: &'a [(Option<u32>, Read)], roots: &'a Roots<'a>, made: &'a mut Vec<Py<PyAny>>) -> Self {
        Values { steps, roots, table: Vec::new(), made }
    }

    /// The source's value, borrowed; null if the path leads nowhere.
    pub fn get(&mut self, py: Python<'_>, source: u32) -> Raw {
        let (base, read) = &self.steps[source as usize];
        if base.is_none() {
            return self.root(read);
        }
        if self.table.is_empty() {
            self.table = vec![None; self.steps.len()];
        }
        if let Some(value) = self.table[source as usize] {
            return value;
        }
        let value = match base {
            None => self.root(read),
            Some(base) => {
                let base = self.get(py, *base);
                if base.is_null() { null_mut() } else { self.step(py, base, read) }
            }
        };
        self.table[source as usize] = Some(value);
        value
    }

    /// Whether a source can be read before the facts about those on its path are known: torch's getters run user code of
    /// tensors of other classes than a guard before them allows.
    pub fn stands_alone(&self, source: u32) -> bool {
        let (base, read) = &self.steps[source as usize];
        !matches!(read, Read::Grad(_)) && base.is_none_or(|base| self.stands_alone(base))
    }

    /// As [`Values::get`], without a note of it: for one value of many.
    pub fn once(&mut self, py: Python<'_>, source: u32) -> Raw {
        let steps = self.steps;
        let (base, read) = &steps[source as usize];
        let Some(base) = base else { return self.root(read) };
        let base = self.once(py, *base);
        if base.is_null() { null_mut() } else { self.step(py, base, read) }
    }

    fn root(&self, read: &Read) -> Raw {
        // SAFETY: the roots are live; `PyImport_GetModuleDict` is borrowed from the interpreter.
        unsafe {
            match read {
                Read::Arg(i) => self.roots.args.get(*i).copied().unwrap_or(null_mut()),
                Read::Function => self.roots.function,
                Read::Builtins if is_function(self.roots.function) => {
                    (*self.roots.function.cast::<ffi::PyFunctionObject>()).func_builtins
                }
                Read::SysModule(name) => {
                    let modules = ffi::PyImport_GetModuleDict();
                    if modules.is_null() || ffi::PyDict_Check(modules) == 0 { null_mut() } else { name.get(modules) }
                }
                _ => null_mut(),
            }
        }
    }

    /// The value one step away from `base`, a live object; null if there is none.
    pub fn step(&mut self, py: Python<'_>, base: Raw, read: &Read) -> Raw {
        // SAFETY: `base` is live; each arm checks the kind of object that it reads from.
        unsafe {
            match read {
                Read::Slot(name) => self.own(py, raw::slot(base, name.as_ptr())),
                Read::Grad(getters) => self.own(py, getters.of(py, base).map_or(null_mut(), Py::into_ptr)),
                Read::Ahead(most) if iterators::is_known(base) => {
                    let items = iterators::ahead(&Bound::from_borrowed_ptr(py, base), *most);
                    self.own(py, items.map_or(null_mut(), Py::into_ptr))
                }
                Read::DrawnFrom(i) if iterators::is_known(base) => {
                    let mut found = iterators::drawn_from(&Bound::from_borrowed_ptr(py, base)).unwrap_or_default();
                    if *i < found.len() { self.own(py, found.swap_remove(*i).into_ptr()) } else { null_mut() }
                }
                Read::CodeConst(i) if is_function(base) => {
                    let constant = code::constant(&Bound::from_borrowed_ptr(py, base), *i);
                    self.own(py, constant.map_or(null_mut(), Py::into_ptr))
                }
                Read::ContextValue(own_default) => {
                    self.own(py, raw::context_value(py, base, *own_default).map_or(null_mut(), Py::into_ptr))
                }
                Read::Cached(call) => call.look_up(py, self, base).result(),
                _ => borrowed_step(base, read),
            }
        }
    }

    fn own(&mut self, py: Python<'_>, value: Raw) -> Raw {
        // SAFETY: `value` is a new reference or null (with or without an exception set).
        match unsafe { Py::<PyAny>::from_owned_ptr_or_opt(py, value) } {
            Some(object) => self.made.push(object),
            None => unsafe { ffi::PyErr_Clear() },
        }
        value
    }
}

/// Steps whose value is kept alive by what it is read from.
///
/// # Safety
/// `base` is live, GIL held.
pub unsafe fn borrowed_step(base: Raw, read: &Read) -> Raw {
    // SAFETY: each arm checks the kind of object that it reads from.
    unsafe {
        match read {
            Read::Dict => raw::attributes(base),
            Read::ThreadDict => thread_local::dict(base),
            Read::Item(key) if ffi::PyDict_Check(base) != 0 => key.get(base),
            Read::KeyAt(i) if ffi::PyDict_Check(base) != 0 => super::order::key_at(base, *i),
            Read::ValueAt(i) if ffi::PyDict_Check(base) != 0 => super::order::value_at(base, *i),
            Read::Index(i) => item(base, *i),
            Read::Class => raw::class_of(base),
            Read::TypeAttr(name) if ffi::PyType_Check(base) != 0 && raw::has_plain_names(base) => {
                raw::type_lookup(base, name.as_ptr())
            }
            Read::Mro(i) if ffi::PyType_Check(base) != 0 => {
                let mro = (*base.cast::<ffi::PyTypeObject>()).tp_mro;
                if mro.is_null() { null_mut() } else { item(mro, *i) }
            }
            Read::Closure(i) if is_function(base) => {
                let closure = (*base.cast::<ffi::PyFunctionObject>()).func_closure;
                if closure.is_null() { null_mut() } else { item(closure, *i) }
            }
            Read::Receiver if is_method(base) => *base.cast::<Raw>().byte_add(HEAD + WORD),
            Read::Receiver if ffi::PyCFunction_Check(base) != 0 => {
                let receiver = (*base.cast::<ffi::PyCFunctionObject>()).m_self;
                if receiver.is_null() { ffi::Py_None() } else { receiver }
            }
            Read::Field(accepts, offset, or_none) if accepts(base) => {
                let value = *base.cast::<Raw>().byte_add(*offset);
                if value.is_null() && *or_none { ffi::Py_None() } else { value }
            }
            Read::Part(class, offset) if ffi::Py_TYPE(base) as usize == *class => *base.cast::<Raw>().byte_add(*offset),
            _ => null_mut(),
        }
    }
}

/// An item of a list, tuple or deque, or null.
unsafe fn item(sequence: Raw, index: usize) -> Raw {
    // SAFETY: both macros are used on objects of their kind, within bounds.
    unsafe {
        let index = index as ffi::Py_ssize_t;
        if ffi::PyTuple_Check(sequence) != 0 {
            if index < ffi::PyTuple_GET_SIZE(sequence) { ffi::PyTuple_GET_ITEM(sequence, index) } else { null_mut() }
        } else if ffi::PyList_Check(sequence) != 0 {
            if index < ffi::PyList_GET_SIZE(sequence) { ffi::PyList_GET_ITEM(sequence, index) } else { null_mut() }
        } else if deque::is_deque(sequence) {
            deque::item(sequence, index as usize)
        } else {
            null_mut()
        }
    }
}
