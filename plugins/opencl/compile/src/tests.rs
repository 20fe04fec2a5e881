//! Kernels compiled for this machine's first device, and run on it. What they compute is checked by `flambeau plugin check`.
#![expect(unsafe_code, reason = "compiled kernels are launched")]

use crate::{compile, source};
use flambeau_c_text::simplified;
use flambeau_opencl_device::{Device, Kernel as Loaded, artifact, devices};
use flambeau_plugin::kernel::{
    Access, Binary, DType, Extent, Inst, Kernel, Op, Param, Reduce, ReduceOp, Role, Scope, Stage, Store, ValueId,
};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

/// Held by tests that have the driver make files.
static ALONE: Mutex<()> = Mutex::new(());

fn device() -> &'static Device {
    &devices().expect("a driver is installed")[0]
}

/// `out[i, j] = in[i, j] + in[i, j]`, and with `reduces` `out[i, 0] = sum(in[i, j] + in[i, j])`.
fn doubled(rows: i64, columns: i64, reduces: bool) -> Kernel {
    let access = |param, last| Access {
        param,
        offset: Extent::Const(0),
        strides: vec![Extent::Const(columns), Extent::Const(last)],
    };
    let (read, twice, total) = (ValueId(0), ValueId(1), ValueId(2));
    let insts = vec![
        Inst { id: read, dtype: DType::F32, op: Op::Load(access(0, 1)) },
        Inst { id: twice, dtype: DType::F32, op: Op::Binary(Binary::Add, read, read) },
    ];
    let mut row = Stage { scope: Scope::Row, insts, stores: vec![], reduces: vec![] };
    let mut last = Stage { scope: Scope::Outer, insts: vec![], stores: vec![], reduces: vec![] };
    if reduces {
        row.reduces.push(Reduce { id: total, dtype: DType::F32, op: ReduceOp::Sum, value: twice });
        last.stores.push(Store { access: access(1, 0), value: total });
    } else {
        row.stores.push(Store { access: access(1, 1), value: twice });
    }
    Kernel {
        name: "doubled".to_owned(),
        params: [Role::In, Role::Out].map(|role| Param { dtype: DType::F32, role }).to_vec(),
        scalars: 0,
        dims: vec![Extent::Const(rows), Extent::Const(columns)],
        outer: 1,
        stages: vec![row, last],
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_loaded_artifact_has_all_the_code_that_launches_need() {
    let _alone = ALONE.lock().unwrap();
    for reduces in [false, true] {
        let (rows, columns) = (300, 1000);
        let bytes = compile(&doubled(rows, columns, reduces), device()).unwrap();
        let loaded = Loaded::load(device(), &bytes).unwrap();
        let folder = PathBuf::from(env::var_os("POCL_CACHE_DIR").unwrap());
        let before = files(&folder);
        assert!(!before.is_empty(), "the driver keeps its files elsewhere");
        let input: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32).collect();
        for threads in [1, 64] {
            let mut output = vec![0_f32; input.len()];
            let buffers = [input.as_ptr().cast_mut().cast(), output.as_mut_ptr().cast()];
            // SAFETY: the buffers are as large as the kernel's dimensions.
            assert_eq!(unsafe { loaded.launch(buffers.as_ptr(), [].as_ptr(), threads) }, 0);
            if reduces {
                let sum: f32 = input[columns as usize..2 * columns as usize].iter().map(|x| 2.0 * x).sum();
                assert_eq!(output[columns as usize], sum);
            } else {
                assert!(input.iter().zip(&output).all(|(x, y)| 2.0 * x == *y));
            }
        }
        assert_eq!(files(&folder), before, "a launch made the driver compile");
    }
}

#[test]
fn artifacts_of_another_device_and_damaged_ones_are_refused() {
    let _alone = ALONE.lock().unwrap();
    let bytes = compile(&doubled(3, 4, false), device()).unwrap();
    let (mut header, binary) = artifact::decode(&bytes).unwrap();
    header.target = "opencl-of-another-driver".to_owned();
    let error = Loaded::load(device(), &artifact::encode(header, binary)).err().unwrap();
    assert!(error.starts_with("the artifact is for opencl-of-another-driver, and this device is opencl-"), "{error}");
    let mut damaged = bytes.clone();
    let middle = bytes.len() - binary.len() / 2;
    damaged[middle] ^= 1;
    assert_eq!(Loaded::load(device(), &damaged).err().unwrap(), "the artifact's binary is damaged");
}

/// The source of a kernel without what stands before every kernel.
fn function(kernel: &Kernel) -> String {
    let text = source::program(&simplified(kernel).unwrap(), 1, device());
    text.split_once("__kernel ").unwrap().1.to_owned()
}

/// What a person reads in `POCL_CACHE_DIR`, or in a driver's log.
#[test]
fn source_of_a_row_kernel() {
    let function = function(&doubled(3, 4, true));
    let expected = "\
void run(__global const float *restrict p0, __global float *restrict p1, const long units, const long chunk) {
    long at = get_global_id(0) * chunk;
    const long end = min(at + chunk, units);
    while (at < end) {
        const long i0 = at;
        double a2 = as_double(0x0ul);
        for (long i1 = 0; i1 < 4L; i1++) {
            const float v0 = p0[4L * i0 + i1];
            const float v1 = (float)(v0 + v0);
            a2 = (double)((double)v1 + a2);
        }
        const float v2 = (float)a2;
        p1[4L * i0] = v2;
        at++;
    }
}
";
    assert_eq!(function, expected);
}

#[test]
fn source_of_a_kernel_whose_points_are_alike() {
    let function = function(&doubled(3, 4, false));
    let expected = "\
void run(__global const float *restrict p0, __global float *restrict p1, const long units, const long chunk) {
    long at = get_global_id(0) * chunk;
    const long end = min(at + chunk, units);
    while (at < end) {
        const long first = at;
        const long last = min(12L, first + (end - at));
        for (long i0 = first; i0 < last; i0++) {
            const float v0 = p0[i0];
            const float v1 = (float)(v0 + v0);
            p1[i0] = v1;
        }
        at += last - first;
    }
}
";
    assert_eq!(function, expected);
}
