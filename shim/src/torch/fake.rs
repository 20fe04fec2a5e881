//! Output metadata of torch calls through torch's fake tensors (`flambeau._fake`), imported at the first such question.

use crate::process::counters;
use crate::process::say;
use flambeau_ir::code::Const;
use flambeau_ir::device::DeviceKind;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{Target, ValueMeta};
use flambeau_ir::guard::Ambient;
use flambeau_ir::oracle::{AnswerValue, QueryArg};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::tensor::TensorMeta;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

type Refusal = (ReasonCode, String);

/// What calling `target` on tensors with this metadata would return.
pub fn call(
    py: Python<'_>,
    target: &Target,
    args: &[QueryArg],
    kwargs: &[(String, QueryArg)],
    ambient: &Ambient,
) -> Result<AnswerValue, Refusal> {
    counters::bump(py, "fake_tensor_calls");
    let refused = |e: PyErr| (ReasonCode::OpUnknown, e.to_string());
    let fake = py.import("flambeau._fake").map_err(refused)?;
    let (method, name) = match target {
        Target::Function(path) => (false, path),
        Target::Method(name) => (true, name),
    };
    say::log("trace", || format!("no rule for {name}: asked torch's fake tensors"));
    let state = PyDict::new(py);
    let fill = || -> PyResult<()> {
        state.set_item("grad_enabled", ambient.grad_enabled)?;
        state.set_item("inference_mode", ambient.inference_mode)?;
        let autocast: Vec<_> = DeviceKind::running().map(|kind| kind.name).zip(ambient.autocast).collect();
        state.set_item("autocast", autocast)?;
        state.set_item("default_dtype", ambient.default_dtype)
    };
    fill().map_err(refused)?;
    let args: Vec<Bound<'_, PyAny>> = args.iter().map(|a| argument(py, &fake, a)).collect::<Result<_, _>>()?;
    let keywords = PyDict::new(py);
    for (key, value) in kwargs {
        keywords.set_item(key, argument(py, &fake, value)?).map_err(refused)?;
    }
    let args = PyTuple::new(py, args).map_err(refused)?;
    let outcome = fake.call_method1("call", (method, &**name, args, keywords, state)).map_err(refused)?;
    let (kind, value): (String, Bound<'_, PyAny>) = outcome.extract().map_err(refused)?;
    let no_metadata = || (ReasonCode::OpUnknown, format!("{name} returned what has no metadata"));
    match kind.as_str() {
        "same" => value.extract().map(AnswerValue::Same).map_err(refused),
        "value" => meta(&value).map(AnswerValue::Meta).ok_or_else(no_metadata),
        "fresh" => {
            let (value, schema): (Bound<'_, PyAny>, Option<String>) = value.extract().map_err(refused)?;
            meta(&value).map(|meta| AnswerValue::Fresh(meta, schema)).ok_or_else(no_metadata)
        }
        "written" => {
            let (value, places): (Bound<'_, PyAny>, Vec<u32>) = value.extract().map_err(refused)?;
            meta(&value).map(|meta| AnswerValue::Written(meta, places)).ok_or_else(no_metadata)
        }
        "unknown" => Err((ReasonCode::OpUnknown, format!("{name}: {value}"))),
        "no_fake_kernel" => Err((ReasonCode::NoFakeKernel, format!("{name}: {value}"))),
        "data_dependent" => Err((ReasonCode::DataDependentValue, format!("{name}: {value}"))),
        _ => Err((ReasonCode::Shape, format!("{name}: {value}"))),
    }
}

fn argument<'py>(py: Python<'py>, fake: &Bound<'py, PyAny>, arg: &QueryArg) -> Result<Bound<'py, PyAny>, Refusal> {
    let refused = |e: PyErr| (ReasonCode::OpUnknown, e.to_string());
    let items = |items: &[QueryArg]| items.iter().map(|a| argument(py, fake, a)).collect::<Result<Vec<_>, Refusal>>();
    match arg {
        QueryArg::Tensor(meta) => {
            let fixed = |dims: &[Dim]| -> Result<Vec<i64>, Refusal> {
                let fixed: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
                fixed.ok_or_else(|| (ReasonCode::DynamicShape, "an op without a shape rule".to_owned()))
            };
            let object = |value: Const| crate::python::consts::to_object(py, &value).map_err(refused);
            let (dtype, device) = (object(Const::Dtype(meta.dtype))?, object(Const::Device(meta.device))?);
            let parts = (fixed(&meta.sizes)?, fixed(&meta.strides)?, dtype, device, meta.requires_grad);
            fake.call_method1("tensor", parts).map_err(refused)
        }
        QueryArg::Const(value) => crate::python::consts::to_object(py, value).map_err(refused),
        QueryArg::List(list) => Ok(PyList::new(py, items(list)?).map_err(refused)?.into_any()),
        QueryArg::Tuple(tuple) => Ok(PyTuple::new(py, items(tuple)?).map_err(refused)?.into_any()),
    }
}

/// Metadata of what `flambeau._fake.call` gave: `("tensor", sizes, strides, dtype, device, requires_grad)`,
/// `("tuple", [...])` or `("const", value)`.
fn meta(value: &Bound<'_, PyAny>) -> Option<ValueMeta> {
    let parts = value.cast::<PyTuple>().ok()?;
    let kind: String = parts.get_item(0).ok()?.extract().ok()?;
    match kind.as_str() {
        "tensor" => {
            let dims = |i: usize| -> Option<Vec<Dim>> {
                Some(parts.get_item(i).ok()?.extract::<Vec<i64>>().ok()?.into_iter().map(Dim::Const).collect())
            };
            let dtype = parts.get_item(3).ok()?;
            Some(ValueMeta::Tensor(TensorMeta {
                dtype: crate::python::consts::dtype(value.py(), dtype.as_ptr())?,
                device: crate::python::consts::device(&parts.get_item(4).ok()?)?,
                sizes: dims(1)?,
                strides: dims(2)?,
                requires_grad: parts.get_item(5).ok()?.extract().ok()?,
            }))
        }
        "tuple" => {
            let items = parts.get_item(1).ok()?;
            let items = items.cast::<PyList>().ok()?;
            Some(ValueMeta::Tuple(items.iter().map(|item| meta(&item)).collect::<Option<_>>()?))
        }
        _ => Some(ValueMeta::Const(crate::python::consts::from_code_const(&parts.get_item(1).ok()?)?)),
    }
}
