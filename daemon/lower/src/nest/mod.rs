//! Loop nests: which values share one, and what a point of it computes.

pub mod affine;
pub mod apart;
pub mod body;
mod collapse;
pub mod group;
pub mod joins;
mod narrow;
pub mod versions;
