//! What tests of hostile bytes need of the client: a message is taken as the connection would hand it on, in this process.

use crate::exit::Codes;
use crate::frame::installed::{InstallContext, Installed};
use crate::guard::Passed;
use crate::process::fence::fence;
use flambeau_wire::frame;
use flambeau_wire::from_client::FromClient;
use flambeau_wire::from_daemon::{Delivery, FromDaemon};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// A body with the prefix that it has on the wire.
#[pyfunction]
fn seal<'py>(py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = [&[0; frame::PREFIX][..], body].concat();
    frame::seal(&mut bytes).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}

fn deliveries(message: FromDaemon) -> Vec<Delivery> {
    match message {
        FromDaemon::Candidates { frames, .. } => frames,
        FromDaemon::Compiled { delivery, .. } => vec![*delivery],
        _ => vec![],
    }
}

/// Takes a daemon's message: decodes it, makes its frames ready for this call of `function` and checks their guards.
/// Gives how far it came: `changed`, `malformed`, `other`, `refused: why`, `unfit`, `fit`, or `panic: what`, which is a
/// bug.
#[pyfunction]
fn take(
    py: Python<'_>,
    message: &[u8],
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    plugin_dirs: Vec<std::path::PathBuf>,
) -> String {
    let Some((prefix, body)) = message.split_first_chunk::<{ frame::PREFIX }>() else { return "malformed".into() };
    let decoded = match fence(|| frame::decode::<FromDaemon>(prefix, body)) {
        Ok(Ok(decoded)) => decoded,
        Ok(Err(frame::FrameError::Changed)) => return "changed".into(),
        Ok(Err(_)) => return "malformed".into(),
        Err(text) => return format!("panic: {text}"),
    };
    let pointers: Vec<_> = args.iter().map(|arg| arg.as_ptr()).collect();
    let mut came = "other".to_owned();
    for delivery in deliveries(decoded) {
        let codes = Codes::default();
        let plugin_dirs = plugin_dirs.clone();
        let context = InstallContext { codes: &codes, fx_backend: None, plugin_dirs, records: false };
        let made = fence(|| {
            let installed = Installed::install(py, delivery, function, &pointers, &context)?;
            Ok::<_, String>(installed.check(py, function.as_ptr(), &pointers, &mut Passed::default()).is_ok())
        });
        came = match made {
            Ok(Ok(true)) => return "fit".into(),
            Ok(Ok(false)) => "unfit".into(),
            Ok(Err(why)) => format!("refused: {why}"),
            Err(text) => return format!("panic: {text}"),
        };
    }
    came
}

/// What kind of message a client's body is, for those who record sessions.
#[pyfunction]
fn kind_of_request(body: &[u8]) -> Option<&'static str> {
    Some(match postcard::from_bytes(body).ok()? {
        FromClient::Hello(_) => "hello",
        FromClient::Lookup { .. } => "lookup",
        FromClient::Compile { .. } => "compile",
        FromClient::Lower { .. } => "lower",
        FromClient::Answers { .. } => "answers",
        FromClient::Cancel(_) => "cancel",
        FromClient::GuardFailures { .. } => "guard_failures",
        FromClient::Admin { .. } => "admin",
    })
}

fn request(body: &[u8]) -> PyResult<FromClient> {
    postcard::from_bytes(body).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

fn body<'py>(py: Python<'py>, message: &FromClient) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = postcard::to_stdvec(message).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}

/// The look-up for what a compile request asks for.
#[pyfunction]
fn lookup_of<'py>(py: Python<'py>, compile: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let FromClient::Compile { request, key, plugin, .. } = request(compile)? else {
        return Err(PyRuntimeError::new_err("no compile request"));
    };
    body(py, &FromClient::Lookup { request, key, plugin })
}

/// A compile request for another version of torch: under a key of its own.
#[pyfunction]
fn with_torch<'py>(py: Python<'py>, compile: &[u8], torch: &str) -> PyResult<Bound<'py, PyBytes>> {
    let mut message = request(compile)?;
    if let FromClient::Compile { key, .. } = &mut message {
        torch.clone_into(&mut key.torch);
    }
    body(py, &message)
}

/// A greeting that names another cache folder.
#[pyfunction]
fn hello_for<'py>(py: Python<'py>, hello: &[u8], cache_dir: std::path::PathBuf) -> PyResult<Bound<'py, PyBytes>> {
    let mut message = request(hello)?;
    if let FromClient::Hello(hello) = &mut message {
        hello.settings.cache_dir = cache_dir;
    }
    body(py, &message)
}

/// Hashes of the frames, with their artifacts, that a daemon's message brings.
#[pyfunction]
fn frames_of<'py>(py: Python<'py>, message: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let decoded = message.split_first_chunk::<{ frame::PREFIX }>().map(|(prefix, body)| frame::decode(prefix, body));
    let Some(Ok(decoded)) = decoded else { return Err(PyRuntimeError::new_err("no message")) };
    let hash = |delivery: &Delivery| blake3::hash(&postcard::to_stdvec(delivery).unwrap_or_default());
    Ok(deliveries(decoded).iter().map(|delivery| PyBytes::new(py, hash(delivery).as_bytes())).collect())
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(seal, module)?)?;
    module.add_function(wrap_pyfunction!(take, module)?)?;
    module.add_function(wrap_pyfunction!(lookup_of, module)?)?;
    module.add_function(wrap_pyfunction!(with_torch, module)?)?;
    module.add_function(wrap_pyfunction!(hello_for, module)?)?;
    module.add_function(wrap_pyfunction!(frames_of, module)?)?;
    module.add_function(wrap_pyfunction!(kind_of_request, module)?)
}
