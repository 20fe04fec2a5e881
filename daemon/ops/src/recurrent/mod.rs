//! Cells of recurrent nets: one step in time of a batch.

mod decompose;

use crate::InferError;
use crate::registry::{OpDef, place::*};

const CELL: &str = "input:T, hx:T, w_ih:T, w_hh:T, b_ih:T=None, b_hh:T=None";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("lstm_cell", "input:T, hx:TL, w_ih:T, w_hh:T, b_ih:T=None, b_hh:T=None", |_| Err(InferError::Told), FN)
        .derives(decompose::lstm),
    OpDef::new("gru_cell", CELL, |_| Err(InferError::Told), FN).derives(decompose::gru),
    OpDef::new("rnn_tanh_cell", CELL, |_| Err(InferError::Told), FN).derives(decompose::tanh),
    OpDef::new("rnn_relu_cell", CELL, |_| Err(InferError::Told), FN).derives(decompose::relu),
];
