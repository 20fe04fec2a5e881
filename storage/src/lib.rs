//! The compile cache: index and artifact files.
