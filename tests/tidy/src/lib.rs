//! Checks on the project itself: crate edges, file headers, file sizes.
