//! Cells of recurrent nets: one step in time of a batch.

mod decompose;

use crate::registry::{OpDef, place::*};

const CELL: &str = "input:T, hx:T, w_ih:T, w_hh:T, b_ih:T=None, b_hh:T=None";

pub(crate) static OPS: &[OpDef] = &[
    OpDef::told("lstm_cell", "input:T, hx:TL, w_ih:T, w_hh:T, b_ih:T=None, b_hh:T=None", FN).derives(decompose::lstm),
    OpDef::told("gru_cell", CELL, FN).derives(decompose::gru),
    OpDef::told("rnn_tanh_cell", CELL, FN).derives(decompose::tanh),
    OpDef::told("rnn_relu_cell", CELL, FN).derives(decompose::relu),
];
