//! From torch calls to core graphs without effects, with convolutions laid out.

pub mod facts;
pub mod follow;
mod foreign;
pub mod functional;
mod gradients;
pub mod halves;
pub mod layout;
mod leaves;
pub mod long;
mod opaque;
pub mod pieces;
mod regions;
pub mod value;
mod writes;
