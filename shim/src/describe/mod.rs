//! Objects as data for the daemon: the snapshot of a frame, answers to questions about more, and which ints and sizes of it
//! are to be symbolic.

pub mod answer;
pub mod evaluate;
pub mod leaves;
pub mod probe;
pub mod snapshot;
