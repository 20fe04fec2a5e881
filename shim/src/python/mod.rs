//! What reads CPython: raw objects and their layouts, code, constants, paths of objects, lines, the hook of frames. Nothing
//! here knows torch or flambeau, and nothing runs user code.

pub mod bind;
pub mod code;
pub mod consts;
pub mod gil;
pub mod hook;
pub mod layout;
pub mod lines;
pub mod observers;
pub mod paths;
pub mod pure;
pub mod raw;
pub mod structure;
pub mod thread_local;
pub mod view;
