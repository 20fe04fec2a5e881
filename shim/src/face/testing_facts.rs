//! For tests: the guards of a callable's compiled frames as data, and which of them a call's arguments fulfil.

use crate::call::callable;
use crate::call::table::Table;
use flambeau_ir::text;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Value, json};

/// A JSON list of frames: which code they are for (0: the function itself), and each guard's kind, source and text. For
/// frames of the function itself also whether it holds now for these arguments.
#[pyfunction]
#[pyo3(signature = (compiled, *args))]
pub fn guards(compiled: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<String> {
    let py = compiled.py();
    let entry = callable::entry_of(py, compiled)
        .ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("expected a Compiled object"))?;
    let function = compiled.getattr("__wrapped__")?;
    let code = function.getattr("__code__")?;
    // SAFETY: a live code object.
    let signature = unsafe { Table::signature(entry.root(), py, code.as_ptr(), &entry.backend) }.0;
    let pointers: Vec<_> = args.iter().map(|a| a.as_ptr()).collect();
    let bound = signature.and_then(|signature| {
        // SAFETY: as many live objects as are said; the function's code is the signature's.
        unsafe { signature.bind(function.as_ptr().cast(), pointers.as_ptr(), pointers.len(), std::ptr::null_mut()) }
    });
    let slots = bound.as_ref().map_or::<&[*mut ffi::PyObject], _>(&[], |bound| &bound.slots);
    let mut tables = 0;
    let mut frames = Vec::new();
    entry.each_table(py, &mut |table| {
        for frame in &table.frames {
            let holds = (tables == 0).then(|| frame.installed.facts(py, function.as_ptr(), slots));
            let program = &frame.installed.frame().guards;
            let guards = program.guards.iter().enumerate().map(|(i, guard)| {
                let kind = format!("{:?}", guard.kind);
                json!({
                    "kind": kind.split(|c: char| !c.is_alphanumeric()).next(),
                    "path": program.sources.path(guard.source),
                    "text": text::guard(program, guard),
                    "holds": holds.as_ref().map(|holds| holds[i]),
                })
            });
            frames.push(json!({ "code": tables, "guards": guards.collect::<Vec<_>>() }));
        }
        tables += 1;
    });
    Ok(Value::Array(frames).to_string())
}
