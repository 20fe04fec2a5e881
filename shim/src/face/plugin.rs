//! `flambeau._native.Plugin`: both halves of a plug-in in one process, as `flambeau plugin check` runs them in a worker.

use flambeau_plugin::abi::{MEMORY_OWN, MemoryTable, Region};
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::load::Executable;
use flambeau_plugin::{CompileLibrary, Description, LaunchLibrary, reference};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ffi::c_void;
use std::path::PathBuf;

/// The two halves of a back end.
#[pyclass(frozen)]
pub struct Plugin {
    compile: CompileLibrary,
    launch: LaunchLibrary,
}

fn parsed(kernel: &str) -> PyResult<Kernel> {
    serde_json::from_str(kernel).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn described(half: &Description) -> Value {
    let texts = |texts: &[abi_stable::std_types::RString]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let devices = half.devices.iter().map(|d| json!({ "name": d.name.as_str(), "targets": texts(&d.targets) }));
    json!({
        "name": half.name.as_str(), "version": half.version.as_str(), "kernel_ir": half.kernel_ir,
        "memory": half.memory, "targets": texts(&half.targets), "devices": devices.collect::<Vec<_>>(),
    })
}

#[pymethods]
impl Plugin {
    /// Opens both files; a `RuntimeError` says which cannot be used and why.
    #[new]
    fn new(compile: PathBuf, launch: PathBuf) -> PyResult<Plugin> {
        let failed = |error: flambeau_plugin::LoadError| PyRuntimeError::new_err(error.to_string());
        let compile = CompileLibrary::open(&compile).map_err(failed)?;
        Ok(Plugin { compile, launch: LaunchLibrary::open(&launch).map_err(failed)? })
    }

    /// What the halves say of themselves, their capabilities, and all that there is, as JSON.
    fn describe(&self) -> String {
        let half = |description, capabilities| {
            let mut said = described(description);
            said["capabilities"] = json!(capabilities);
            said
        };
        json!({
            "compile": half(self.compile.description(), self.compile.capabilities()),
            "launch": half(self.launch.description(), self.launch.capabilities()),
            "all": reference::capabilities(),
        })
        .to_string()
    }

    /// What of a kernel (as JSON) is not in the table of capabilities; `None` if all is.
    fn refusal(&self, kernel: &str) -> PyResult<Option<String>> {
        Ok(self.compile.capabilities().check(&parsed(kernel)?).err())
    }

    /// The artifact of a kernel; a `RuntimeError` says why there is none.
    fn compile(&self, py: Python<'_>, kernel: &str, target: &str) -> PyResult<Cow<'static, [u8]>> {
        let kernel = parsed(kernel)?;
        let compiled = py.detach(|| self.compile.compile(&[kernel], target)).map_err(PyRuntimeError::new_err)?;
        match <[_; 1]>::try_from(compiled) {
            Ok([artifact]) => Ok(artifact.map_err(PyRuntimeError::new_err)?.into()),
            Err(many) => Err(PyRuntimeError::new_err(format!("it answered one kernel with {} artifacts", many.len()))),
        }
    }

    /// An artifact made executable; a `RuntimeError` says why it cannot be.
    fn load(&self, artifact: &[u8], device: u32) -> PyResult<PluginKernel> {
        let executable = self.launch.load(artifact, device).map_err(PyRuntimeError::new_err)?;
        Ok(PluginKernel { executable, library: self.launch.clone(), device })
    }
}

/// A kernel that can be launched.
#[pyclass(frozen)]
pub struct PluginKernel {
    executable: Executable,
    library: LaunchLibrary,
    device: u32,
}

#[pymethods]
impl PluginKernel {
    /// Runs it and waits for it. Of each buffer: where its memory begins, bytes from there to element 0, bytes in all.
    fn launch(
        &self,
        py: Python<'_>,
        buffers: Vec<(usize, u64, u64)>,
        scalars: Vec<i64>,
        stream: usize,
        threads: u32,
    ) -> PyResult<()> {
        py.detach(|| match self.library.memory() {
            Some(table) if self.library.description().memory == MEMORY_OWN => {
                self.launch_elsewhere(table, &buffers, &scalars, threads)
            }
            _ => {
                let address = |(start, offset, _): &(usize, u64, u64)| start + *offset as usize;
                let pointers: Vec<*mut c_void> =
                    buffers.iter().map(|buffer| std::ptr::with_exposed_provenance_mut(address(buffer))).collect();
                let stream = std::ptr::with_exposed_provenance_mut(stream);
                // SAFETY: the kit passes live tensors that hold what the kernel reaches.
                self.status(unsafe { self.executable.launch(pointers.as_ptr(), scalars.as_ptr(), stream, threads) })
            }
        })
        .map_err(PyRuntimeError::new_err)
    }
}

impl PluginKernel {
    fn status(&self, status: i32) -> Result<(), String> {
        if status == 0 { Ok(()) } else { Err(self.library.explain(status)) }
    }

    /// In the back end's own memory: brings the buffers there and back.
    fn launch_elsewhere(
        &self,
        table: &MemoryTable,
        buffers: &[(usize, u64, u64)],
        scalars: &[i64],
        threads: u32,
    ) -> Result<(), String> {
        let mut regions = Vec::new();
        let mut run = || {
            for (start, offset, bytes) in buffers {
                let mut memory = std::ptr::null_mut();
                let host = std::ptr::with_exposed_provenance_mut(*start);
                // SAFETY: a live tensor's memory, left alone until it is exported to.
                self.status(unsafe { (table.import)(self.device, host, *bytes, &raw mut memory) })?;
                regions.push((Region { memory, offset: *offset, bytes: bytes - offset }, host, *bytes));
            }
            let pointers: Vec<*mut c_void> =
                regions.iter_mut().map(|(region, ..)| (&raw mut *region).cast::<c_void>()).collect();
            // SAFETY: as in `launch`; regions are what such a back end takes.
            let status =
                unsafe { self.executable.launch(pointers.as_ptr(), scalars.as_ptr(), std::ptr::null_mut(), threads) };
            self.status(status)?;
            // SAFETY (both): made above, with so many bytes.
            regions.iter().try_for_each(|(region, host, bytes)| {
                self.status(unsafe { (table.export)(region.memory, *host, *bytes) })
            })?;
            self.status(unsafe { (table.synchronize)(self.device) })
        };
        let done = run();
        // SAFETY: made above, and not used again.
        regions.iter().for_each(|(region, ..)| unsafe { (table.release)(region.memory) });
        done
    }
}
