//! The snapshot of a frame: what it can reach, described raw, to a bounded depth.
//!
//! [`describe`] turns one object into data, [`tensor`] tensors, [`prefetch`] decides how far to go unasked.

pub mod describe;
mod prefetch;
pub mod tensor;

use crate::describe::leaves::Dynamic;
use crate::python::code;
use crate::python::raw::Raw;
use crate::torch::ambient;
use describe::Describer;
use flambeau_ir::frame::{DynamicDim, DynamicOf, TraceOptions};
use flambeau_wire::from_client::Snapshot;
use pyo3::ffi;
use pyo3::prelude::*;

/// Describes a frame about to run. `args` are in `localsplus` order, null where absent.
pub fn take(
    describer: &mut Describer<'_>,
    function: Raw,
    args: &[Raw],
    mut options: TraceOptions,
    dynamic: &[Dynamic],
) -> PyResult<Snapshot> {
    let py = describer.py();
    // SAFETY: a live Python function, which has code.
    let code = unsafe { code::encode(py, (*function.cast::<ffi::PyFunctionObject>()).func_code) };
    describer.resumes = code.is_some_and(|code| code.is_resume());
    let function_id = describer.root(function);
    let arg_ids: Vec<_> = args.iter().map(|arg| (!arg.is_null()).then(|| describer.root(*arg))).collect();
    // SAFETY: a function's builtins dict is alive while the function is; `function` is a Python function.
    let builtins = unsafe { (*function.cast::<ffi::PyFunctionObject>()).func_builtins };
    let builtins_id = describer.namespace(builtins);
    let marks = dynamic.iter().map(|d| {
        let of = match d.dim {
            // Deep in the arguments it may lie beyond what is described of them.
            Some(dim) => DynamicOf::Size(describer.root(d.object), dim),
            None => DynamicOf::Int(d.place.clone()),
        };
        DynamicDim { of, min: d.min, max: d.max, marked: d.marked }
    });
    options.dynamic_dims.extend(marks);
    describer.drain();
    Ok(Snapshot {
        function: function_id,
        args: arg_ids,
        builtins: builtins_id,
        ambient: ambient::capture(py)?,
        options,
        described: describer.take(),
    })
}
