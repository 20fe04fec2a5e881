//! Kernels compiled, run and compared with a scalar reference: all operations, types, edge values, strides, tails.
#![expect(unsafe_code, reason = "compiled kernels are called")]

mod build;
mod elementwise;
mod loops;
mod norms;
mod reference;

use crate::llvm::Generator;
use flambeau_cpu_artifact::Isa;
use flambeau_cpu_launch::Cpu as Launch;
use flambeau_plugin::export::LaunchBackend;
use flambeau_plugin::kernel::{DType, Kernel};
use reference::{Buffer, to_f64};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;

thread_local! {
    static GENERATORS: RefCell<HashMap<&'static str, Generator>> = RefCell::default();
}

/// Instruction sets that this machine runs.
fn isas() -> Vec<Isa> {
    let description = Launch::describe().unwrap();
    description.devices[0].targets.iter().map(|t| Isa::from_target(t.as_str()).unwrap()).collect()
}

fn compile(kernel: &Kernel, isa: Isa) -> Vec<u8> {
    GENERATORS.with_borrow_mut(|generators| {
        let generator = generators.entry(isa.target()).or_insert_with(|| Generator::new(isa).unwrap());
        crate::compile(kernel, isa, generator).unwrap_or_else(|e| panic!("{}: {e}", kernel.name))
    })
}

/// Runs a compiled kernel.
fn run(artifact: &[u8], buffers: &mut [Buffer], scalars: &[i64], threads: u32) {
    let executable = Launch::load(artifact, 0).unwrap();
    let pointers: Vec<*mut c_void> = buffers.iter_mut().map(|b| b.bytes.as_mut_ptr().cast()).collect();
    // SAFETY: the tests' buffers hold what the kernel's accesses reach, as the reference checks by indexing.
    let status =
        unsafe { Launch::launch(&executable, pointers.as_ptr(), scalars.as_ptr(), std::ptr::null_mut(), threads) };
    assert_eq!(status, 0);
}

/// Distance in units in the last place; 0 for equal values and for two NaNs.
fn ulps(dtype: DType, a: u64, b: u64) -> u64 {
    if !dtype.is_float() {
        return a.abs_diff(b);
    }
    let (x, y) = (to_f64(dtype, a), to_f64(dtype, b));
    if (x.is_nan() && y.is_nan()) || (x == y && x.is_sign_negative() == y.is_sign_negative()) {
        return 0;
    }
    if x.is_nan() || y.is_nan() || x.is_sign_negative() != y.is_sign_negative() {
        return u64::MAX;
    }
    let sign = 1_u64 << (dtype.size() * 8 - 1);
    (a & !sign).abs_diff(b & !sign)
}

/// Runs reference and compiled kernel on copies of `buffers`, and compares all of memory.
fn check(kernel: &Kernel, buffers: &[Buffer], scalars: &[i64], tolerance: u64) {
    let mut expected = buffers.to_vec();
    reference::run(kernel, &mut expected, scalars);
    for isa in isas() {
        let artifact = compile(kernel, isa);
        for threads in [1, 2] {
            let mut found = buffers.to_vec();
            run(&artifact, &mut found, scalars, threads);
            for (p, (want, got)) in expected.iter().zip(&found).enumerate() {
                for i in 0..want.len() as i64 {
                    let (w, g) = (want.get(i), got.get(i));
                    assert!(
                        ulps(want.dtype, w, g) <= tolerance,
                        "{} on {}: buffer {p}[{i}] is {g:#x} ({}) for {w:#x} ({}); inputs {:x?}",
                        kernel.name,
                        isa.target(),
                        to_f64(want.dtype, g),
                        to_f64(want.dtype, w),
                        buffers.iter().filter(|b| b.len() as i64 > i).map(|b| b.get(i)).collect::<Vec<_>>(),
                    );
                }
            }
        }
    }
}
