//! What is found in a kernel before it is emitted: steps with one rounding, values that are computed once, cheaper functions.

pub mod horner;
pub mod near_one;
pub mod rows;
