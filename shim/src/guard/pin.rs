//! Pins: what a successful check by value leaves behind, so that the next one with the same root reads almost nothing.
//!
//! A pin is a list of words of memory and what they held. Dict version tags, type version tags, type pointers, dict pointers,
//! list sizes, code pointers are all words. They are compared in order from the root down, and each is read only after
//! those before it have shown that the object it lies in is alive and the same: a dict whose tag is unchanged still holds
//! (and keeps alive) the same values, and no two states of any dicts or types share a tag. So a pin needs no reference to
//! anything that it describes, and keeps nothing alive but constants and code objects.

use super::Slot;
use super::class::version_tag;
use super::fact::{Fact, Other};
use super::order;
use super::setters;
use super::source::{Read, Values, function_closure};
use super::tensor::TensorFact;
use crate::python::layout;
use crate::python::raw::{self, Raw};
use crate::torch::Torch;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::rc::Rc;

/// One word of memory.
struct Word {
    address: *const u64,
    expected: u64,
    /// Index into [`Pin::dicts`] if it is a dict's version tag, else `NO_DICT`.
    dict: u32,
}

const NO_DICT: u32 = u32::MAX;

/// `Py_TPFLAGS_IMMUTABLETYPE`: neither the type nor the type of its instances can be changed.
const IMMUTABLE: std::ffi::c_ulong = 1 << 8;

/// What was read of one dict: enough to accept a new version of it in which that is the same.
struct DictReads {
    dict: Raw,
    /// Sources of its items that were read, or facts that it lacks a key, and the value (null for a lacking key).
    items: Vec<(ItemKey, Raw)>,
    /// Its order, length or keys as a whole were read.
    whole: bool,
}

#[derive(Clone, Copy)]
enum ItemKey {
    /// The key of this source's step.
    Source(u32),
    /// The key of this fact.
    Fact(usize),
}

/// When a word changes.
#[derive(Clone, Copy)]
enum Changes {
    /// It is the version tag of the dict with this index.
    Dict(u32),
    /// Only when the clock goes on.
    WithDicts,
    /// At any time.
    Alone,
}

/// The pinned state of one root.
pub struct Pin {
    root: Raw,
    words: Vec<Word>,
    /// Those that can change while the clock stands still: addresses and what they held.
    beside_dicts: Vec<(*const u64, u64)>,
    dicts: Vec<DictReads>,
    /// What [`setters::clock`] was when all words were last found to hold.
    held_at: Option<u64>,
    /// Tensor facts, checked on every call.
    tensors: Vec<PinnedTensor>,
    /// Facts that no word can stand for.
    others: Vec<(Raw, usize)>,
    /// Values for slots, but for those of `tensors`.
    values: Vec<(usize, Raw)>,
    /// Constants and code objects that were compared by value: their addresses must not be reused.
    held: Vec<Py<PyAny>>,
}

/// A tensor whose words torch may change at any time.
struct PinnedTensor {
    object: Raw,
    /// Its class; that one's state is a word of its own.
    class: Raw,
    fact: Rc<TensorFact>,
    /// The slot that it is wanted in, else `NO_SLOT`.
    slot: usize,
}

const NO_SLOT: usize = usize::MAX;

/// What pins of a program share.
pub struct Shape<'a> {
    /// All steps.
    pub steps: &'a [(Option<u32>, Read)],
    /// All facts.
    pub facts: &'a [(u32, Fact)],
}

impl Pin {
    /// The root it is for.
    pub fn root(&self) -> Raw {
        self.root
    }

    /// Whether nothing changed; slots are filled then. The root is alive and at [`Pin::root`].
    pub fn holds(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        shape: &Shape<'_>,
        values: &mut Values<'_>,
        slots: &mut [Slot],
    ) -> bool {
        let now = (self.dicts.len() >= layout::FEW_DICTS).then(|| setters::clock(py));
        // While it stands still, the tags of dicts hold without a look at them.
        let unchanged =
            now.is_some() && (now == self.held_at || flambeau_ir::mutated!("stale_pin") && self.held_at.is_some());
        // SAFETY: the words before each one hold, so the object that it lies in is alive (see the module's text).
        let hold = if unchanged {
            self.beside_dicts.iter().all(|(word, expected)| unsafe { word.read() } == *expected)
        } else {
            self.words_hold(shape)
        };
        if !hold {
            return false;
        }
        self.held_at = now;
        for pinned in &self.tensors {
            let object = pinned.object;
            // SAFETY: all words hold, so these objects are alive.
            let data = unsafe {
                if raw::class_of(object) != pinned.class {
                    return false;
                }
                pinned.fact.metadata(py, torch, object)
            };
            let Some(data) = data else { return false };
            if let Some(slot) = slots.get_mut(pinned.slot) {
                *slot = Slot { object, data };
            }
        }
        self.values.iter().for_each(|(slot, value)| slots[*slot] = Slot::new(*value));
        self.others.iter().all(|(value, fact)| shape.facts[*fact].1.holds(py, torch, *value, values))
    }

    fn words_hold(&mut self, shape: &Shape<'_>) -> bool {
        for word in &mut self.words {
            // SAFETY: as in `holds`.
            let found = unsafe { word.address.read() };
            if found != word.expected {
                let Some(reads) = self.dicts.get(word.dict as usize) else { return false };
                // It may be another dict than the one that was pinned, at the address of that one: it is to be watched, too, and
                // its tag says so.
                // SAFETY: it is alive.
                word.expected = unsafe {
                    if !reads.hold(shape) || !layout::watch(reads.dict) {
                        return false;
                    }
                    word.address.read()
                };
            }
        }
        true
    }
}

impl DictReads {
    /// Whether a changed dict still says what was read of it. It is alive.
    fn hold(&self, shape: &Shape<'_>) -> bool {
        !self.whole
            && self.items.iter().all(|(key, expected)| {
                let key = match key {
                    ItemKey::Source(source) => match &shape.steps[*source as usize].1 {
                        Read::Item(key) => key,
                        _ => return false,
                    },
                    ItemKey::Fact(fact) => match &shape.facts[*fact].1 {
                        Fact::NoItem(key) => key,
                        _ => return false,
                    },
                };
                // SAFETY: a live dict, GIL held.
                unsafe { key.get(self.dict) == *expected || flambeau_ir::mutated!("stale_items_of_pinned_dicts") }
            })
    }
}

/// Makes a pin of values that have just been checked, with no Python run since.
pub struct Pinner<'a> {
    shape: Shape<'a>,
    pin: Pin,
    seen: HashSet<usize>,
    /// Objects that are the same while the clock stands still.
    same: HashSet<usize>,
    dict_index: HashMap<usize, u32>,
    failed: bool,
}

impl<'a> Pinner<'a> {
    /// For a root; `shape` is the program's.
    pub fn new(shape: Shape<'a>, root: Raw) -> Self {
        let pin = Pin {
            root,
            words: Vec::new(),
            beside_dicts: Vec::new(),
            dicts: Vec::new(),
            held_at: None,
            tensors: Vec::new(),
            others: Vec::new(),
            values: Vec::new(),
            held: Vec::new(),
        };
        Pinner { shape, pin, seen: HashSet::new(), same: HashSet::new(), dict_index: HashMap::new(), failed: false }
    }

    /// Adds a source: how its value was reached. Sources come parents first.
    pub fn source(&mut self, source: u32, base: Raw, value: Raw) {
        let (_, read) = &self.shape.steps[source as usize];
        if base.is_null() || value.is_null() {
            self.failed = true;
            return;
        }
        // SAFETY: the step has just been read from the live object `base`, so it is of the kind that the step reads.
        unsafe {
            self.class(base);
            match read {
                Read::Dict => self.instance_dict(base, value),
                Read::Item(_) => {
                    self.dict(base, Some((ItemKey::Source(source), value)));
                    self.same.insert(value as usize);
                }
                Read::KeyAt(_) | Read::ValueAt(_) => self.dict(base, None),
                // Items of other sequences do not lie at a place of their own.
                Read::Index(_) if ffi::PyTuple_Check(base) == 0 && ffi::PyList_Check(base) == 0 => self.failed = true,
                Read::Index(i) => self.item(base, *i, value),
                Read::Class => {}
                Read::TypeAttr(_) | Read::Mro(_) => self.tag(base),
                Read::Closure(i) => {
                    let closure = function_closure(base);
                    self.field(base, offset_of!(ffi::PyFunctionObject, func_closure));
                    self.class(closure);
                    self.item(closure, *i, value);
                }
                Read::Field(_, offset, _) | Read::Part(_, offset) => self.field(base, *offset),
                Read::Slot(name) => self.slot(base, name.as_ptr(), value),
                Read::Receiver if ffi::PyCFunction_Check(base) != 0 => {
                    self.field(base, offset_of!(ffi::PyCFunctionObject, m_self));
                }
                Read::Receiver => self.field(base, std::mem::size_of::<ffi::PyObject>() + 8),
                Read::Arg(_)
                | Read::Function
                | Read::Builtins
                | Read::SysModule(_)
                | Read::ThreadDict
                | Read::Grad(_)
                | Read::Ahead(_)
                | Read::DrawnFrom(_)
                | Read::CodeConst(_)
                | Read::ContextValue(_)
                | Read::Cached(_) => self.failed = true,
            }
        }
    }

    /// Adds a fact that holds of `value`.
    pub fn fact(&mut self, py: Python<'_>, index: usize, value: Raw) {
        // SAFETY: the fact holds of the live object `value`, so it is of the kind that the fact is about.
        unsafe {
            match &self.shape.facts[index].1 {
                // Their objects do not change.
                Fact::Type(_) | Fact::TupleField(_) => self.class(value),
                Fact::IsClass(_) | Fact::NoTypeAttr(_) => self.tag(value),
                Fact::Equals(_) => self.hold(py, value),
                Fact::BaseEquals(_) => {
                    self.class(value);
                    self.pin.others.push((value, index));
                }
                // The others are pinned with it.
                Fact::Is(_) | Fact::Same(Other::Source(_)) | Fact::NotSame(Other::Source(_)) => {}
                Fact::Function(_) => {
                    self.class(value);
                    self.field(value, offset_of!(ffi::PyFunctionObject, func_code));
                    self.field(value, offset_of!(ffi::PyFunctionObject, vectorcall));
                    self.hold(py, (*value.cast::<ffi::PyFunctionObject>()).func_code);
                }
                Fact::MethodOf(_) => {
                    self.class(value);
                    self.field(value, offset_of!(ffi::PyCFunctionObject, m_ml));
                }
                Fact::Tensor(fact) => {
                    let class = raw::class_of(value);
                    self.tag(class);
                    self.pin.tensors.push(PinnedTensor { object: value, class, fact: fact.clone(), slot: NO_SLOT });
                }
                Fact::Len(_) if ffi::PyDict_Check(value) != 0 => {
                    self.class(value);
                    self.dict(value, None);
                }
                Fact::Len(_) if ffi::PyAnySet_Check(value) == 0 => {
                    self.class(value);
                    self.size(value);
                }
                Fact::Keys(_) | Fact::NoKey(..) => {
                    self.class(value);
                    self.dict(value, None);
                }
                Fact::NoItem(_) => {
                    self.class(value);
                    self.dict(value, Some((ItemKey::Fact(index), std::ptr::null_mut())));
                }
                Fact::EmptyCell => {
                    self.class(value);
                    self.field(value, std::mem::size_of::<ffi::PyObject>());
                }
                Fact::Same(_)
                | Fact::NotSame(_)
                | Fact::NoKeyIn(..)
                | Fact::NotRegisteredIn(..)
                | Fact::Distinct(_)
                | Fact::Disjoint(_)
                | Fact::Ambient(_)
                | Fact::Relation(..) => self.failed = true,
                // They are looked at again in each call.
                _ => {
                    self.class(value);
                    self.pin.others.push((value, index));
                }
            }
        }
    }

    /// Adds a value for a slot.
    pub fn value(&mut self, slot: usize, value: Raw) {
        let mut tensors = self.pin.tensors.iter_mut();
        match tensors.find(|pinned| pinned.object == value && pinned.slot == NO_SLOT) {
            Some(pinned) => pinned.slot = slot,
            None => self.pin.values.push((slot, value)),
        }
    }

    /// The pin, unless something cannot be pinned.
    pub fn finish(mut self) -> Option<Pin> {
        // Classes of tensors are compared with the rest of them.
        let class =
            |pinned: &PinnedTensor| pinned.object.wrapping_byte_add(offset_of!(ffi::PyObject, ob_type)).cast_const();
        let classes: HashSet<*const u64> = self.pin.tensors.iter().map(|pinned| class(pinned).cast()).collect();
        self.pin.words.retain(|word| !classes.contains(&word.address));
        self.pin.beside_dicts.retain(|(address, _)| !classes.contains(address));
        if self.failed { None } else { Some(self.pin) }
    }

    unsafe fn word(&mut self, address: *const u64, changes: Changes) {
        if self.seen.insert(address as usize) {
            // SAFETY: the callers give addresses of aligned words of live objects.
            let expected = unsafe { address.read() };
            let dict = if let Changes::Dict(dict) = changes { dict } else { NO_DICT };
            self.pin.words.push(Word { address, expected, dict });
            if matches!(changes, Changes::Alone) {
                self.pin.beside_dicts.push((address, expected));
            }
        }
    }

    unsafe fn field(&mut self, object: Raw, offset: usize) {
        // SAFETY: as below.
        unsafe { self.field_of(object, offset, false) }
    }

    /// A field, which changes only when a dict does if `with_dicts`.
    unsafe fn field_of(&mut self, object: Raw, offset: usize, with_dicts: bool) {
        let changes = if with_dicts { Changes::WithDicts } else { Changes::Alone };
        // SAFETY: the callers give offsets of aligned words.
        unsafe { self.word(object.cast::<u8>().add(offset).cast(), changes) }
    }

    /// The object's type, and its state. The type of an object changes through a setter only, and not at all where it is one of
    /// C's, but for modules; which object is there changes only with a dict that keeps it, when another one takes its address.
    unsafe fn class(&mut self, object: Raw) {
        // SAFETY: a live object.
        unsafe {
            let immutable = (*ffi::Py_TYPE(object)).tp_flags & IMMUTABLE != 0 && ffi::PyModule_Check(object) == 0;
            let with_dicts = (immutable || setters::count()) && self.same.contains(&(object as usize));
            self.field_of(object, offset_of!(ffi::PyObject, ob_type), with_dicts);
            self.tag(raw::class_of(object));
        }
    }

    /// The type's state.
    unsafe fn tag(&mut self, class: Raw) {
        // SAFETY: a live type. The tag is 4 bytes; the 4 after it are padding, zeroed when the type was allocated.
        unsafe {
            let immutable = (*class.cast::<ffi::PyTypeObject>()).tp_flags & IMMUTABLE != 0;
            if version_tag(class) == 0 && raw::has_plain_names(class) {
                let name = crate::python::gil::interned!(Python::assume_attached(), "__class__");
                raw::type_lookup(class, name.as_ptr());
            }
            if version_tag(class) == 0 {
                self.failed = true;
                return;
            }
            self.field_of(class, offset_of!(ffi::PyTypeObject, tp_version_tag), immutable);
        }
    }

    unsafe fn size(&mut self, sequence: Raw) {
        // SAFETY: lists, tuples and deques have their size here.
        unsafe { self.field(sequence, offset_of!(ffi::PyVarObject, ob_size)) }
    }

    unsafe fn item(&mut self, sequence: Raw, index: usize, value: Raw) {
        // SAFETY: `value` has just been read from this place.
        unsafe {
            self.size(sequence);
            if ffi::PyTuple_Check(sequence) != 0 {
                let items = offset_of!(ffi::PyTupleObject, ob_item);
                self.field(sequence, items + index * std::mem::size_of::<Raw>());
            } else {
                self.field(sequence, offset_of!(ffi::PyListObject, ob_item));
                let items = (*sequence.cast::<ffi::PyListObject>()).ob_item;
                debug_assert_eq!(*items.add(index), value);
                self.word(items.add(index).cast(), Changes::Alone);
            }
        }
    }

    unsafe fn dict(&mut self, dict: Raw, read: Option<(ItemKey, Raw)>) {
        // SAFETY: a live dict.
        unsafe {
            // What moves in an order of one changes nothing.
            if order::is_ordered(dict) && read.is_none() && ffi::PyDict_Size(dict) > 1 {
                self.word(order::state(dict), Changes::Alone);
            }
            let next = self.pin.dicts.len() as u32;
            let at = *self.dict_index.entry(dict as usize).or_insert(next);
            if at == next {
                self.pin.dicts.push(DictReads { dict, items: Vec::new(), whole: false });
                self.failed |= !layout::watch(dict);
                self.word(raw::dict_version(dict), Changes::Dict(at));
            }
            let reads = &mut self.pin.dicts[at as usize];
            match read {
                Some(read) => reads.items.push(read),
                None => reads.whole = true,
            }
        }
    }

    unsafe fn instance_dict(&mut self, object: Raw, dict: Raw) {
        // SAFETY: the slot belongs to the live object and holds `dict`.
        unsafe {
            let slot = raw::instance_dict_slot(object);
            if slot.is_null() || *slot != dict {
                self.failed = true;
                return;
            }
            let steady = self.same.contains(&(object as usize)) && setters::count_dicts_of(object);
            self.word(slot.cast(), if steady { Changes::WithDicts } else { Changes::Alone });
            // Only a dict can be there; a new one at its address would be a change.
            self.same.insert(dict as usize);
        }
    }

    unsafe fn slot(&mut self, object: Raw, name: Raw, value: Raw) {
        // SAFETY: the value has just been read through this member descriptor.
        unsafe {
            match raw::object_member(object, name) {
                Some(address) if *address == value => self.word(address.cast(), Changes::Alone),
                _ => self.failed = true,
            }
        }
    }

    unsafe fn hold(&mut self, py: Python<'_>, object: Raw) {
        // SAFETY: a live object.
        if self.seen.insert(object as usize ^ 1) {
            self.pin.held.push(unsafe { Py::from_borrowed_ptr(py, object) });
        }
    }
}
