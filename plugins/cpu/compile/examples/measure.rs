//! Times compilation and launches of typical kernels, or of those in a file (postcard of `Vec<Kernel>`), through the
//! built plug-in: `measure DIRECTORY_OF_PLUGINS [FILE] [THREADS]`.
#![expect(unsafe_code, reason = "compiled kernels are called")]

#[path = "../src/tests/build.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod build;
#[path = "../src/tests/norms.rs"]
mod norms;

use build::{Builder, consts};
use flambeau_plugin::kernel::{Access, Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary, ValueId};
use flambeau_plugin::{CompileLibrary, LaunchLibrary};
use norms::binary;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::c_void;
use std::path::PathBuf;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("the directory of the plug-ins"));
    let file = arguments.next().filter(|f| f != "-");
    let threads: u32 = arguments.next().map_or(1, |t| t.parse().expect("a number of threads"));
    let open = Instant::now();
    let compiler = CompileLibrary::open(&directory.join("libflambeau_cpu_compile.so")).expect("opens");
    let launcher = LaunchLibrary::open(&directory.join("libflambeau_cpu_launch.so")).expect("opens");
    println!("opened in {:?}", open.elapsed());
    let target = std::env::var("TARGET").unwrap_or_else(|_| launcher.description().devices[0].targets[0].to_string());
    let kernels = match file {
        Some(file) => postcard::from_bytes(&std::fs::read(file).expect("readable")).expect("kernels"),
        None => typical(),
    };
    let scalars = vec![64_i64; 64];
    println!("{:40} {:>9} {:>7} {:>11} {:>9} {:>8}", "kernel", "compile", "bytes", "run", "GB/s", "ps/point");
    for kernel in &kernels {
        let mut best = f64::MAX;
        let mut artifact = Vec::new();
        for _ in 0..3 {
            let start = cpu_seconds();
            artifact = match compiler.compile(std::slice::from_ref(kernel), &target).expect("compiles").remove(0) {
                Ok(artifact) => artifact,
                Err(why) => {
                    println!("{:40} {why}", kernel.name);
                    continue;
                }
            };
            best = best.min(cpu_seconds() - start);
        }
        let executable = launcher.load(&artifact, 0).expect("loads");
        let (mut memory, traffic) = buffers(kernel, &scalars);
        let pointers: Vec<*mut c_void> = memory.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let mut run = f64::MAX;
        let started = Instant::now();
        let mut count = 0;
        while count < 5 || (started.elapsed().as_secs_f64() < 0.2 && count < 10_000) {
            let start = cpu_seconds();
            // SAFETY: `buffers` sized each buffer for all that the kernel reaches.
            let status =
                unsafe { executable.launch(pointers.as_ptr(), scalars.as_ptr(), std::ptr::null_mut(), threads) };
            assert_eq!(status, 0);
            run = run.min(cpu_seconds() - start);
            count += 1;
        }
        let points: f64 = kernel.dims.iter().map(|d| value(*d, &scalars) as f64).product();
        println!(
            "{:40.40} {:6.2} ms {:7} {:8.2} us {:9.1} {:8.1}",
            kernel.name,
            best * 1e3,
            artifact.len(),
            run * 1e6,
            traffic / run / 1e9,
            run * 1e12 / points
        );
    }
}

/// Time of this thread, so that a busy machine disturbs less.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn value(extent: Extent, scalars: &[i64]) -> i64 {
    match extent {
        Extent::Const(c) => c,
        Extent::Scalar(i) => scalars[i as usize],
    }
}

fn accesses(kernel: &Kernel) -> impl Iterator<Item = &Access> {
    kernel.stages.iter().flat_map(|stage| {
        let loads = stage.insts.iter().filter_map(|i| match &i.op {
            Op::Load(a) | Op::LoadIf { access: a, .. } => Some(a),
            _ => None,
        });
        loads.chain(stage.stores.iter().map(|s| &s.access))
    })
}

/// Memory for each parameter, and the bytes that all of it has.
fn buffers(kernel: &Kernel, scalars: &[i64]) -> (Vec<Vec<u8>>, f64) {
    let mut sizes = vec![0_i64; kernel.params.len()];
    for access in accesses(kernel) {
        let steps = access.strides.iter().zip(&kernel.dims).map(|(s, d)| value(*s, scalars) * (value(*d, scalars) - 1));
        let last = value(access.offset, scalars) + steps.sum::<i64>() + 1;
        let size = &mut sizes[access.param as usize];
        *size = (*size).max(last);
    }
    let memory: Vec<Vec<u8>> = sizes
        .iter()
        .zip(&kernel.params)
        .map(|(n, p)| {
            let bytes = *n as usize * p.dtype.size();
            match p.dtype {
                DType::F32 => (0..*n as usize).flat_map(|i| (0.1 + (i % 97) as f32 * 0.01).to_le_bytes()).collect(),
                _ => vec![0; bytes],
            }
        })
        .collect();
    let traffic = memory.iter().map(Vec::len).sum::<usize>() as f64;
    (memory, traffic)
}

/// The kernel under a name that tells its size.
fn sized(kernel: Kernel, rows: i64, length: i64) -> Kernel {
    Kernel { name: format!("{}_{rows}_{length}", kernel.name), ..kernel }
}

fn softmax(rows: i64, length: i64) -> Kernel {
    sized(norms::softmax(Extent::Const(rows), Extent::Const(length)), rows, length)
}

fn layer_norm(rows: i64, length: i64) -> Kernel {
    sized(norms::layer_norm(Extent::Const(rows), length), rows, length)
}

fn typical() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for rows in [8, 64, 1024, 8192] {
        kernels.push(softmax(rows, 768));
        kernels.push(layer_norm(rows, 768));
    }
    kernels.push(softmax(12 * 197, 197));
    kernels.push(pointwise("add", &[2_000_000], |k, x| binary(k, Binary::Add, x, x)));
    kernels.push(pointwise("add_small", &[4096], |k, x| binary(k, Binary::Add, x, x)));
    for op in [Unary::Exp, Unary::Log, Unary::Tanh, Unary::Erf, Unary::Sigmoid, Unary::Log1p, Unary::Log2, Unary::Sqrt]
    {
        kernels.push(pointwise(&format!("{op:?}_4096"), &[4096], move |k, x| k.inst(DType::F32, Op::Unary(op, x))));
    }
    kernels.push(pointwise("hundred_ops", &[2_000_000], |k, x| {
        let mut y = x;
        for i in 0..50 {
            let c = k.f32(1.0 + i as f32 * 0.001);
            let product = binary(k, Binary::Mul, y, x);
            y = binary(k, Binary::Add, product, c);
        }
        y
    }));
    kernels.push(reduction("sum_rows", 1024, 768, false));
    kernels.push(reduction("sum_columns", 768, 1024, true));
    kernels.push(reduction("sum_all", 1, 2_000_000, false));
    kernels.push(transpose(1024, 768));
    kernels
}

fn pointwise(name: &str, dims: &[i64], f: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Kernel {
    let mut k = Builder::new(name, consts(dims), 0);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, &[1]);
    let r = f(&mut k, v);
    k.store(y, &[1], r);
    k.kernel
}

fn transpose(rows: i64, columns: i64) -> Kernel {
    let mut k = Builder::new("transpose", consts(&[rows, columns]), 0);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, &[1, rows]);
    k.store(y, &[columns, 1], v);
    k.kernel
}

fn reduction(name: &str, rows: i64, length: i64, strided: bool) -> Kernel {
    let mut k = Builder::new(name, consts(&[rows, length]), 1);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, &if strided { [1, rows] } else { [length, 1] });
    let total = k.reduce(ReduceOp::Sum, DType::F32, v);
    k.stage(Scope::Outer);
    k.store(y, &[1, 0], total);
    k.kernel
}
