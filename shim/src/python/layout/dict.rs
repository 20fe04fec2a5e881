//! Parts of dicts as the versions that name them lay them out: `PyDictObject` and `PyDictKeysObject` of
//! `Include/internal/pycore_dict.h`, `PyODictObject` of `Objects/odictobject.c`.

use crate::python::raw::Raw;
use pyo3::ffi;
use std::mem::offset_of;

/// `PyDictObject`.
#[repr(C)]
pub struct Dict {
    base: ffi::PyObject,
    used: ffi::Py_ssize_t,
    /// A number that no other state of any dict has.
    pub version: u64,
    /// Never null.
    pub keys: *const Keys,
    /// Null unless other dicts have the same table of keys.
    pub values: *mut (),
}

/// The start of `PyDictKeysObject`.
#[repr(C)]
pub struct Keys {
    refcount: ffi::Py_ssize_t,
    log2_size: u8,
    log2_index_bytes: u8,
    /// 0 unless the table has only ever held exact strs.
    pub kind: u8,
}

/// `PyODictObject`, up to what is read.
#[repr(C)]
pub struct Ordered {
    dict: Dict,
    /// Null if there is none.
    pub first: *mut Node,
    last: *mut Node,
    fast_nodes: *mut (),
    fast_nodes_size: isize,
    resize_sentinel: *mut (),
    /// Counts changes of the order.
    pub state: u64,
}

/// `_odictnode`.
#[repr(C)]
pub struct Node {
    /// Borrowed.
    pub key: Raw,
    hash: ffi::Py_hash_t,
    /// Null after the last one.
    pub next: *mut Node,
}

const _: () = {
    assert!(offset_of!(Dict, version) == 24);
    assert!(offset_of!(Dict, keys) == 32);
    assert!(offset_of!(Keys, kind) == 10);
    assert!(offset_of!(Ordered, first) == 48);
    assert!(offset_of!(Ordered, state) == 88);
    assert!(offset_of!(Node, next) == 16);
};
