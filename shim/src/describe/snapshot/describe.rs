//! One object at a time: raw slots as `ir::object::Object`. Runs no user code.

use super::tensor::TensorReader;
use crate::guard::order;
use crate::python::code;
use crate::python::consts;
use crate::python::layout::{deque, iterators, parts};
use crate::python::raw::{self, Raw};
use crate::python::{paths, pure, thread_local};
use flambeau_ir::code::{Code, CodeHash};
use flambeau_ir::object::{
    ClassDesc, Described, FunctionDesc, MOST_AHEAD, ObjId, Object, ObjectData, PrefetchedItem, PrefetchedLookup,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PySet, PyString};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr;
use std::sync::Arc;

/// Dicts with more entries are sent as namespaces.
const LARGEST_DICT: usize = 2048;
/// Longer lists, tuples and sets are opaque.
const LARGEST_SEQUENCE: usize = 16384;
/// Prefetching stops at this many objects; questions still describe more.
const LARGEST_PREFETCH: usize = 40_000;

/// Names objects, keeps them alive, and describes each once.
pub struct Describer<'py> {
    py: Python<'py>,
    ids: HashMap<usize, ObjId>,
    handles: Vec<Py<PyAny>>,
    /// By id: described already or waiting.
    reached: Vec<bool>,
    /// Dicts that are module or type namespaces, whatever their size.
    namespaces: HashSet<ObjId>,
    queue: VecDeque<(ObjId, u8)>,
    out: Described,
    codes: HashSet<CodeHash>,
    items: HashSet<(ObjId, Arc<str>)>,
    lookups: HashSet<(ObjId, Arc<str>)>,
    /// Tuples count for no depth: they are the states of inlined frames, one in the other.
    pub(super) resumes: bool,
    /// Iterators are told by their next items.
    pub tells_items_ahead: bool,
    pub(super) tensors: TensorReader,
    pub(super) prefetch: super::prefetch::Prefetch,
}

/// How far below a root objects are described unasked.
const ROOT_DEPTH: u8 = 6;

impl<'py> Describer<'py> {
    /// Knows nothing yet.
    pub fn new(py: Python<'py>) -> Self {
        Describer {
            py,
            ids: HashMap::new(),
            handles: Vec::new(),
            reached: Vec::new(),
            namespaces: HashSet::new(),
            queue: VecDeque::new(),
            out: Described::default(),
            codes: HashSet::new(),
            items: HashSet::new(),
            lookups: HashSet::new(),
            resumes: false,
            tells_items_ahead: true,
            tensors: TensorReader::default(),
            prefetch: super::prefetch::Prefetch::default(),
        }
    }

    /// The GIL token.
    pub fn py(&self) -> Python<'py> {
        self.py
    }

    /// The live object of an id, if it was given out.
    pub fn object(&self, id: ObjId) -> Option<Raw> {
        self.handles.get(id.0 as usize).map(Py::as_ptr)
    }

    /// The object's name, given out on first sight.
    pub fn id(&mut self, object: Raw) -> ObjId {
        let next = ObjId(self.handles.len() as u32);
        let id = *self.ids.entry(object as usize).or_insert(next);
        if id == next {
            // SAFETY: callers pass live objects; the handle keeps this one alive, so its address stays its own.
            self.handles.push(unsafe { Bound::from_borrowed_ptr(self.py, object) }.unbind());
            self.reached.push(false);
        }
        id
    }

    /// Names an object and describes it and what it reaches.
    pub fn root(&mut self, object: Raw) -> ObjId {
        self.reach(object, ROOT_DEPTH)
    }

    /// Names a dict that is asked for by key, and describes it as such.
    pub fn namespace(&mut self, dict: Raw) -> ObjId {
        let id = self.id(dict);
        self.namespaces.insert(id);
        self.want(id, 0);
        id
    }

    /// Names an object and has it described, children to `depth` levels.
    pub fn reach(&mut self, object: Raw, depth: u8) -> ObjId {
        let id = self.id(object);
        self.want(id, depth);
        id
    }

    /// Names an object; has it described if that is cheap or `depth` allows.
    fn child(&mut self, object: Raw, depth: u8) -> ObjId {
        let id = self.id(object);
        // SAFETY: a live object.
        let leaf = unsafe { is_leaf(object) };
        if depth > 0 || leaf {
            // SAFETY: as above.
            let state = self.resumes && unsafe { ffi::PyTuple_CheckExact(object) } != 0;
            self.want(id, if state { depth } else { depth.saturating_sub(1) });
        }
        id
    }

    fn want(&mut self, id: ObjId, depth: u8) {
        if !std::mem::replace(&mut self.reached[id.0 as usize], true) {
            self.queue.push_back((id, depth));
        }
    }

    /// Describes what waits. Past the limit, only names already promised by other descriptions stay undescribed.
    pub fn drain(&mut self) {
        while let Some((id, depth)) = self.queue.pop_front() {
            if self.out.objects.len() >= LARGEST_PREFETCH {
                self.reached[id.0 as usize] = false;
                continue;
            }
            let object = self.handles[id.0 as usize].as_ptr();
            // SAFETY: kept alive by its handle.
            let described = unsafe { self.describe(id, object, depth) };
            self.out.objects.push(described);
        }
    }

    /// What was described since the last call.
    pub fn take(&mut self) -> Described {
        std::mem::take(&mut self.out)
    }

    /// Answers `dict.get(key)` before it is asked; the value is described to `depth`.
    pub(super) fn prefetch_item(&mut self, dict: Raw, key: &Bound<'_, PyString>, depth: u8) -> Raw {
        // SAFETY: callers pass live namespaces.
        let value = unsafe {
            if !raw::has_only_str_keys(dict) {
                return std::ptr::null_mut();
            }
            raw::dict_get(dict, key.as_ptr())
        };
        let (dict, Ok(key)) = (self.id(dict), key.to_str()) else { return value };
        let key: Arc<str> = key.into();
        if self.items.insert((dict, key.clone())) {
            let value = (!value.is_null()).then(|| self.reach(value, depth));
            self.out.items.push(PrefetchedItem { dict, key, value });
        }
        value
    }

    /// Whether the item was answered already.
    pub(super) fn seen_item(&mut self, dict: Raw, key: &str) -> bool {
        let dict = self.id(dict);
        self.items.contains(&(dict, key.into()))
    }

    /// Answers a type look-up before it is asked.
    pub(super) fn prefetch_lookup(&mut self, class: Raw, name: &Bound<'_, PyString>, depth: u8) -> (Raw, Raw) {
        // SAFETY: callers pass live types.
        let (owner, value) = unsafe { raw::type_lookup_where(class, name.as_ptr()) };
        let (class, Ok(name)) = (self.id(class), name.to_str()) else { return (owner, value) };
        let name: Arc<str> = name.into();
        if self.lookups.insert((class, name.clone())) {
            let found = (!owner.is_null()).then(|| (self.reach(owner, 0), self.reach(value, depth)));
            self.out.lookups.push(PrefetchedLookup { class, name, found });
        }
        (owner, value)
    }

    /// Sends a code object's body once.
    pub(super) fn code(&mut self, code: &Arc<Code>) {
        if self.codes.insert(code.hash) {
            self.out.codes.push(code.clone());
        }
    }

    unsafe fn describe(&mut self, id: ObjId, object: Raw, depth: u8) -> Object {
        // SAFETY: a live object.
        let class = unsafe { raw::class_of(object) };
        let class_id = self.reach(class, 0);
        // SAFETY: as above.
        let data = unsafe { self.data(id, object, class, depth) };
        // SAFETY: as above.
        let mut dict = unsafe {
            match data {
                ObjectData::ThreadLocal => thread_local::dict(object),
                _ => raw::attributes(object),
            }
        };
        let path = match &data {
            ObjectData::Function(_)
            | ObjectData::Builtin { .. }
            | ObjectData::MethodDescriptor { .. }
            | ObjectData::DataDescriptor { .. }
            | ObjectData::Class(_)
            | ObjectData::Module(_)
            | ObjectData::Opaque
            | ObjectData::Instance => paths::path_of(self.py, object),
            _ => None,
        };
        if matches!(data, ObjectData::Const(_) | ObjectData::Tensor(_)) && path.is_none() {
            // A tensor's own attributes matter only where user code set some.
            // SAFETY: an instance dict is a dict.
            if !dict.is_null() && unsafe { ffi::PyDict_Size(dict) } == 0 {
                dict = ptr::null_mut();
            }
        }
        let dict = (!dict.is_null()).then(|| match &data {
            ObjectData::Module(_) | ObjectData::Class(_) => self.namespace(dict),
            ObjectData::Function(_) => self.child(dict, depth.min(1)),
            _ => self.child(dict, depth),
        });
        Object { id, class: class_id, path, dict, data }
    }

    /// # Safety
    /// `object` is alive and of type `class`.
    unsafe fn data(&mut self, id: ObjId, object: Raw, class: Raw, depth: u8) -> ObjectData {
        let py = self.py;
        // SAFETY: a live object.
        let bound = unsafe { Bound::from_borrowed_ptr(py, object) };
        // SAFETY: each branch tests the type first and then reads that type's fields, or calls built-in accessors of it.
        unsafe {
            if ffi::PyTuple_Check(object) != 0 {
                let size = ffi::PyTuple_GET_SIZE(object) as usize;
                return self
                    .sequence(size, |i| ffi::PyTuple_GET_ITEM(object, i), depth)
                    .map_or(ObjectData::Opaque, ObjectData::Tuple);
            }
            if ffi::PyList_Check(object) != 0 {
                let size = ffi::PyList_GET_SIZE(object) as usize;
                return self
                    .sequence(size, |i| ffi::PyList_GET_ITEM(object, i), depth)
                    .map_or(ObjectData::Opaque, ObjectData::List);
            }
            if ffi::PyDict_Check(object) != 0 {
                return self.dict(id, object, depth);
            }
            if let Some(value) = consts::from_object(&bound) {
                return ObjectData::Const(value);
            }
            if self.tensors.is_tensor(py, object) {
                return self
                    .tensors
                    .describe(py, object)
                    .map_or(ObjectData::Opaque, |t| ObjectData::Tensor(Box::new(t)));
            }
            if ffi::PyFunction_Check(object) != 0 {
                if !raw::runs_its_code(py, object) {
                    return ObjectData::Opaque;
                }
                return self.function(object, depth);
            }
            if ffi::PyType_Check(object) != 0 {
                return self.class(object);
            }
            if ffi::PyCFunction_Check(object) != 0 {
                return self.builtin(object, depth);
            }
            if raw::is_method_descriptor(object) || raw::is_data_descriptor(object) {
                let owner = self.reach(raw::descriptor_class(object), 0);
                let name: Arc<str> = raw::utf8(raw::descriptor_name(object)).unwrap_or_default().into();
                return if raw::is_method_descriptor(object) {
                    ObjectData::MethodDescriptor { owner, name }
                } else {
                    let member = ffi::Py_TYPE(object) == &raw mut ffi::PyMemberDescr_Type;
                    ObjectData::DataDescriptor { owner, name, member }
                };
            }
            if let Some((func, receiver)) = raw::method_parts(object) {
                let func = self.child(func, depth.max(1));
                return ObjectData::Method { func, receiver: self.child(receiver, depth.max(1)) };
            }
            if let Some(contents) = raw::cell_contents(object) {
                return ObjectData::Cell((!contents.is_null()).then(|| self.child(contents, depth.max(1))));
            }
            if ffi::PyModule_Check(object) != 0 {
                return ObjectData::Module(raw::module_name(object).unwrap_or_default().into());
            }
            if ffi::PyAnySet_Check(object) != 0 {
                return self.set(&bound, depth);
            }
            if let Some((of, parts)) = parts::of(self.py, object) {
                return ObjectData::Parts(of, parts.into_iter().map(|part| self.child(part, depth.max(1))).collect());
            }
            if let Some(data) = self.iterator(&bound, depth) {
                return data;
            }
            if let Some((maker, args)) = pure::type_of(self.py, object).and_then(|_| pure::made_of(&bound)) {
                return ObjectData::Made(maker, args);
            }
            if let Some(value) = consts::scalar_base(&bound, false) {
                return ObjectData::ConstSubclass(value);
            }
        }
        self.rarer(&bound, class, depth)
    }

    /// A built-in iterator, if its next items can be told.
    fn iterator(&mut self, iterator: &Bound<'py, PyAny>, depth: u8) -> Option<ObjectData> {
        if !self.tells_items_ahead || !iterators::is_known(iterator.as_ptr()) {
            return None;
        }
        let items = iterators::ahead(iterator, MOST_AHEAD + 1).ok()?;
        let drawn_from = iterators::drawn_from(iterator).ok()?;
        let ahead = self.child(items.as_ptr(), depth.max(2));
        let drawn_from = drawn_from.iter().map(|of| self.child(of.as_ptr(), 0)).collect();
        Some(ObjectData::Iterator { ahead, drawn_from })
    }

    /// # Safety
    /// A live deque.
    unsafe fn deque(&mut self, deque: &Bound<'py, PyAny>, depth: u8) -> ObjectData {
        let (object, longest) = (deque.as_ptr(), deque::longest(deque));
        // SAFETY: the caller's promise.
        let (size, item) = unsafe { (ffi::Py_SIZE(object) as usize, |i| deque::item(object, i as usize)) };
        let items = self.sequence(size, item, depth);
        items.map_or(ObjectData::Opaque, |items| ObjectData::Deque { items, longest })
    }

    /// Kinds recognised by the exact type's name.
    fn rarer(&mut self, object: &Bound<'py, PyAny>, class: Raw, depth: u8) -> ObjectData {
        // SAFETY: `class` is a live type.
        let (heap, name) = unsafe { (raw::is_python_class(self.py, class), raw::tp_name(class)) };
        // SAFETY: a live object, and a deque where it is one.
        if unsafe { deque::is_deque(object.as_ptr()) } {
            // SAFETY: as above.
            return unsafe { self.deque(object, depth) };
        }
        // SAFETY: a live object.
        if unsafe { thread_local::is_one(object.as_ptr()) } {
            // SAFETY: as above.
            let unread = unsafe { thread_local::dict(object.as_ptr()).is_null() };
            return if unread { ObjectData::Opaque } else { ObjectData::ThreadLocal };
        }
        // SAFETY: a live type.
        if heap || unsafe { raw::is_bare(class) } {
            // SAFETY: a live type.
            if unsafe { raw::has_plain_names(class) } {
                self.prefetch_lookup(class, crate::python::gil::interned!(self.py, "__getattribute__"), 0);
            }
            self.prefetch_instance(object.as_ptr(), class);
            return ObjectData::Instance;
        }
        let mut part = |name: &str| -> Option<ObjId> {
            let value = object.getattr(name).ok()?;
            (!value.is_none()).then(|| self.child(value.as_ptr(), depth.max(1)))
        };
        match name {
            "_collections._tuplegetter" | "collections._tuplegetter" => {
                crate::python::consts::tuple_field(object).map_or(ObjectData::Opaque, ObjectData::TupleField)
            }
            "property" => ObjectData::Property { get: part("fget"), set: part("fset"), delete: part("fdel") },
            "staticmethod" => part("__func__").map_or(ObjectData::Opaque, ObjectData::StaticMethod),
            "classmethod" => part("__func__").map_or(ObjectData::Opaque, ObjectData::ClassMethod),
            "flambeau._native.Compiled" if crate::process::compiled::is_compiled(object.as_ptr()) => {
                // SAFETY: the type says where it keeps its function; null once it was cleared.
                let function = unsafe { *object.as_ptr().byte_add(crate::process::compiled::FUNCTION).cast::<Raw>() };
                if function.is_null() {
                    ObjectData::Instance
                } else {
                    ObjectData::Compiled(self.child(function, depth))
                }
            }
            _ => ObjectData::Opaque,
        }
    }

    fn sequence(&mut self, size: usize, item: impl Fn(isize) -> Raw, depth: u8) -> Option<Vec<ObjId>> {
        (size <= LARGEST_SEQUENCE).then(|| (0..size).map(|i| self.child(item(i as isize), depth)).collect())
    }

    fn set(&mut self, set: &Bound<'py, PyAny>, depth: u8) -> ObjectData {
        let mut items: Vec<Py<PyAny>> = Vec::new();
        // Iterating through the base type's own iterator; a subclass's `__iter__` does not run.
        // SAFETY: `_PySet_NextEntry` reads the set's table; nothing changes it meanwhile.
        unsafe {
            let (mut position, mut key, mut hash) = (0, ptr::null_mut(), 0);
            while raw::set_next(set.as_ptr(), &raw mut position, &raw mut key, &raw mut hash) != 0 {
                items.push(Bound::from_borrowed_ptr(self.py, key).unbind());
            }
        }
        if items.len() > LARGEST_SEQUENCE {
            return ObjectData::Opaque;
        }
        let ids = items.iter().map(|item| self.child(item.as_ptr(), depth)).collect();
        if set.is_instance_of::<PyFrozenSet>() && !set.is_instance_of::<PySet>() {
            ObjectData::FrozenSet(ids)
        } else {
            ObjectData::Set(ids)
        }
    }

    unsafe fn dict(&mut self, id: ObjId, dict: Raw, depth: u8) -> ObjectData {
        // SAFETY: a dict or a subclass; `PyDict_Next` reads its table, and nothing changes it meanwhile.
        unsafe {
            if self.namespaces.contains(&id) || ffi::PyDict_Size(dict) as usize > LARGEST_DICT {
                return ObjectData::Namespace;
            }
            let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
            let mut items = Vec::with_capacity(ffi::PyDict_Size(dict) as usize);
            while ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) != 0 {
                items.push((key, value));
            }
            if order::is_ordered(dict) {
                let mut by_key: HashMap<Raw, Raw> = items.drain(..).collect();
                order::each_key(dict, |key| {
                    items.extend(by_key.remove(&key).map(|value| (key, value)));
                    true
                });
            }
            ObjectData::Dict(items.iter().map(|(k, v)| (self.child(*k, depth), self.child(*v, depth))).collect())
        }
    }

    unsafe fn function(&mut self, object: Raw, depth: u8) -> ObjectData {
        // SAFETY: a Python function; null fields are absent parts.
        unsafe {
            let function = object.cast::<ffi::PyFunctionObject>();
            let Some(code) = code::encode(self.py, (*function).func_code) else { return ObjectData::Opaque };
            let Some(name) = raw::utf8((*function).func_name) else { return ObjectData::Opaque };
            let Some(qualname) = raw::utf8((*function).func_qualname) else { return ObjectData::Opaque };
            self.code(&code);
            let closure = (*function).func_closure;
            let cells = if closure.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(closure) };
            let closure = (0..cells)
                .map(|i| self.reach(ffi::PyTuple_GET_ITEM(closure, i), depth.saturating_sub(1).max(1)))
                .collect();
            let optional = |me: &mut Self, part: Raw| (!part.is_null()).then(|| me.reach(part, 1));
            let defaults = optional(self, (*function).func_defaults);
            let kwdefaults = optional(self, (*function).func_kwdefaults);
            let globals = self.namespace((*function).func_globals);
            self.prefetch_function(function, &code, depth);
            ObjectData::Function(Box::new(FunctionDesc {
                code: code.hash,
                name: name.into(),
                qualname: qualname.into(),
                module: raw::utf8((*function).func_module).map(Into::into),
                defaults,
                kwdefaults,
                closure,
                globals,
            }))
        }
    }

    unsafe fn builtin(&mut self, object: Raw, depth: u8) -> ObjectData {
        // SAFETY: a built-in function object.
        unsafe {
            let function = object.cast::<ffi::PyCFunctionObject>();
            let name = std::ffi::CStr::from_ptr((*(*function).m_ml).ml_name).to_str().unwrap_or_default();
            let receiver = (*function).m_self;
            let receiver =
                (!receiver.is_null() && ffi::PyModule_Check(receiver) == 0).then(|| self.child(receiver, depth.max(1)));
            ObjectData::Builtin { name: name.into(), module: raw::utf8((*function).m_module).map(Into::into), receiver }
        }
    }

    unsafe fn class(&mut self, object: Raw) -> ObjectData {
        // SAFETY: a ready type.
        unsafe {
            let class = object.cast::<ffi::PyTypeObject>();
            let (module, qualname) = raw::class_names(object);
            let mro = (*class).tp_mro;
            let count = if mro.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(mro) };
            if count == 0 || ffi::PyTuple_GET_ITEM(mro, 0) != object || !raw::has_plain_names(object) {
                // Its metaclass has an `mro` of its own, or names in it are compared by user code.
                return ObjectData::Opaque;
            }
            if raw::has_stale_new(self.py, object) {
                return ObjectData::Opaque;
            }
            let mro = (0..count).map(|i| self.reach(ffi::PyTuple_GET_ITEM(mro, i), 0)).collect();
            self.prefetch_class(object);
            ObjectData::Class(Box::new(ClassDesc {
                module: module.into(),
                qualname: qualname.into(),
                name: raw::class_name(object).into(),
                mro,
                is_python: raw::is_python_class(self.py, object),
                generic_getattr: raw::generic_getattr(self.py, object),
                generic_setattr: raw::generic_setattr(self.py, object),
                has_dict: (*class).tp_dictoffset != 0,
            }))
        }
    }
}

/// Objects without parts worth a depth limit.
unsafe fn is_leaf(object: Raw) -> bool {
    // SAFETY: reads the type's flags and addresses.
    unsafe {
        let flags = ffi::PyType_GetFlags(ffi::Py_TYPE(object));
        let scalar = ffi::Py_TPFLAGS_LONG_SUBCLASS | ffi::Py_TPFLAGS_UNICODE_SUBCLASS | ffi::Py_TPFLAGS_BYTES_SUBCLASS;
        flags & scalar != 0
            || object == ffi::Py_None()
            || ffi::PyFloat_Check(object) != 0
            || ffi::PyType_Check(object) != 0
            || ffi::PyCFunction_Check(object) != 0
            || raw::is_descriptor(object)
            || ffi::PyModule_Check(object) != 0
    }
}
