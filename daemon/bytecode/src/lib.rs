//! CPython code objects to one instruction set.
