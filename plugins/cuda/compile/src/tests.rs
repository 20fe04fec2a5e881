//! Kernels through the NVRTC of the test environment: what its PTX and cubins have to have. No GPU is asked for.

use crate::nvrtc::Nvrtc;

#[path = "../../../cpu/compile/src/tests/build.rs"]
#[allow(dead_code)]
mod build;
#[path = "../../../cpu/compile/src/tests/norms.rs"]
#[allow(dead_code)]
mod norms;

use flambeau_cuda_source::source;
use std::sync::LazyLock;
use flambeau_plugin::kernel::*;

fn find() -> Nvrtc {
    let site = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.venv/lib");
    let _ = site;
    let folder = std::path::Path::new(site).join("python3.11/site-packages/nvidia/cu13/lib");
    Nvrtc::find(folder.as_os_str()).unwrap()
}
static NVRTC: LazyLock<Nvrtc> = LazyLock::new(find);

#[test]
fn look() {
    println!("{} {:?}", NVRTC.version(), NVRTC.targets());
    for kernel in [norms::softmax(Extent::Const(4096), Extent::Const(768)), norms::layer_norm(Extent::Const(4096), 1024)] {
        let s = source(&kernel, "sm_90").unwrap();
        let t = std::time::Instant::now();
        let p = NVRTC.compile_with(&s.text, "sm_90", &["--ptxas-options=-v"]).unwrap();
        println!("{:?}", t.elapsed());
        println!("{}", p.log().unwrap());
        println!("{}", p.ptx().unwrap());
        println!("{}", p.cubin().unwrap().len());
    }
}
