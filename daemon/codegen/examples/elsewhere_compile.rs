//! The compile half of a back end whose memory is its own. The template's, in the same folder, does the work.

#[path = "faulty/own_file.rs"]
mod own_file;

use flambeau_plugin::abi::MEMORY_OWN;
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{CompileLibrary, Description};

struct Elsewhere;

fn template() -> Result<CompileLibrary, String> {
    CompileLibrary::open(&own_file::path().with_file_name("libflambeau_template_compile.so")).map_err(|e| e.to_string())
}

impl CompileBackend for Elsewhere {
    fn describe() -> Result<Description, String> {
        Ok(Description { name: own_file::name().into(), memory: MEMORY_OWN, ..template()?.description().clone() })
    }

    fn compile(kernels: &[Kernel], target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        template()?.compile(kernels, target)
    }
}

flambeau_plugin::export_compile_half!(Elsewhere);
