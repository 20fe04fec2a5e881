//! Kernels through the NVRTC of the test environment: what its PTX and cubins have to have. No GPU is asked for. What kernels
//! compute is checked by `tests/e2e/test_cuda_source.py`.

#[path = "../../../cpu/compile/src/tests/build.rs"]
#[allow(dead_code, reason = "the CPU back end's tests use more of it")]
mod build;
#[path = "../../../cpu/compile/src/tests/norms.rs"]
mod norms;
#[path = "../../source/src/tests/rows.rs"]
mod rows;

use crate::nvrtc::Nvrtc;
use build::{Builder, consts};
use flambeau_cuda_artifact::{Header, decode};
use flambeau_cuda_source::source;
use flambeau_plugin::kernel::{Access, Binary, DType, Extent, Kernel, Op, ReduceOp, Role, Scope, Unary};
use norms::{layer_norm, softmax};
use object::{Object, ObjectSymbol};
use rows::{logsumexp, variance};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// That of the test environment, which `cargo xtask` sets up: torch comes with it.
static NVRTC: LazyLock<Nvrtc> = LazyLock::new(|| {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/lib");
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let packages = below(python.clone()).flat_map(|version| below(version.join("site-packages/nvidia")));
    let folders = packages.map(|package| package.join("lib"));
    let named = folders.filter(|f| below(f.clone()).any(|file| file.to_string_lossy().contains("/libnvrtc.so.")));
    let folder = named.min().unwrap_or_else(|| panic!("no NVRTC below {}", python.display()));
    Nvrtc::find(folder.as_os_str()).unwrap()
});

/// What became of a kernel.
struct Compiled {
    header: Header,
    ptx: String,
    /// What the assembler said of registers and memory.
    log: String,
}

fn compiled(kernel: &Kernel) -> Compiled {
    let source = source(kernel, "sm_90").unwrap();
    let program = NVRTC.compile_with(&source.text, "sm_90", &["--ptxas-options=-v"]).unwrap();
    Compiled { header: source.header, ptx: program.ptx().unwrap(), log: program.log().unwrap() }
}

impl Compiled {
    /// The PTX of the fast launches, one after the other.
    fn fast(&self) -> Vec<&str> {
        let launches = &self.header.fast.as_ref().expect("there is a fast form").launches;
        launches.iter().map(|launch| self.entry(&launch.entry)).collect()
    }

    fn entry(&self, name: &str) -> &str {
        let start = self.ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no {name}"));
        let text = &self.ptx[start..];
        let end = text[1..].find(".entry ").map_or(text.len(), |end| end + 1);
        &text[..end]
    }

    /// Nothing of a thread is in memory: neither arrays nor what registers did not hold.
    fn assert_in_registers(&self) {
        assert!(!self.ptx.contains(".local"), "{}", self.ptx);
        let spills = self.log.lines().filter(|line| line.contains("spill"));
        let kept = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        let entries = self.ptx.matches(".entry ").count();
        assert_eq!(spills.filter(|line| line.contains(kept)).count(), entries, "{}", self.log);
    }
}

/// Instructions that begin so, with a predicate or without.
fn count(ptx: &str, instruction: &str) -> usize {
    let name = |line: &str| line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default().to_owned();
    ptx.lines().filter(|line| name(line).starts_with(instruction)).count()
}

/// Instructions that do arithmetic in f64.
fn doubles(ptx: &str) -> usize {
    ptx.lines().filter(|line| line.contains(".f64") && !line.trim_start().starts_with(".reg")).count()
}

/// `out = exp(a + b)` in f32, of buffers of this type.
fn pointwise(dtype: DType, dims: &[Extent], a: &[i64], b: &[i64], out: &[i64]) -> Kernel {
    let mut k = Builder::new("exp(a+b)", dims.to_vec(), 0);
    k.kernel.scalars = 1;
    let params = [Role::In, Role::In, Role::Out].map(|role| k.param(dtype, role));
    k.stage(Scope::Row);
    let v = [(params[0], a), (params[1], b)].map(|(param, strides)| {
        let v = k.load(param, strides);
        k.inst(DType::F32, Op::Cast(v))
    });
    let sum = k.inst(DType::F32, Op::Binary(Binary::Add, v[0], v[1]));
    let raised = k.inst(DType::F32, Op::Unary(Unary::Exp, sum));
    let result = k.inst(dtype, Op::Cast(raised));
    k.store(params[2], out, result);
    k.kernel
}

#[test]
fn pointwise_kernels_move_sixteen_bytes_at_once_without_divisions() {
    let dims = consts(&[4096, 1024]);
    for (dtype, width) in [(DType::F32, 4), (DType::Bf16, 8), (DType::F16, 8)] {
        let compiled = compiled(&pointwise(dtype, &dims, &[1024, 1], &[1024, 1], &[1024, 1]));
        let fast = compiled.fast()[0];
        assert_eq!(compiled.header.fast.as_ref().unwrap().alignments, [16; 3]);
        assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "ld.global")), (2, 2), "{fast}");
        assert_eq!((count(fast, "st.global.v4"), count(fast, "st.global")), (1, 1), "{fast}");
        assert_eq!(count(fast, "ex2"), width, "{fast}");
        for ptx in [fast, compiled.entry(&compiled.header.plain[0].entry)] {
            let divisions = ["div.s", "div.u", "rem.", "mul.hi", "mul.wide.u"].map(|name| count(ptx, name));
            assert_eq!(divisions, [0; 5], "{ptx}");
            assert_eq!(doubles(ptx), 0, "{ptx}");
        }
        compiled.assert_in_registers();
    }
}

#[test]
fn sizes_that_are_not_known_are_no_reason_for_single_elements() {
    let dims = [Extent::Scalar(0)];
    let compiled = compiled(&pointwise(DType::F32, &dims, &[1], &[1], &[1]));
    let fast = compiled.fast()[0];
    assert_eq!(compiled.header.fast.as_ref().unwrap().multiples, [(0, 4)]);
    assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "st.global.v4"), count(fast, "div.")), (2, 1, 0), "{fast}");
}

#[test]
fn what_is_read_for_all_neighbours_is_read_once() {
    // A bias for each column, and a scale for each row.
    let dims = consts(&[4096, 1024]);
    let compiled = compiled(&pointwise(DType::F32, &dims, &[0, 1], &[1, 0], &[1024, 1]));
    let fast = compiled.fast()[0];
    assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "ld.global.nc.f32")), (1, 1), "{fast}");
}

#[test]
fn only_what_nothing_writes_is_read_past_the_coherent_cache() {
    let mut k = Builder::new("in place", consts(&[4096]), 0);
    let x = k.param(DType::F32, Role::InOut);
    k.stage(Scope::Row);
    let v = k.load(x, &[1]);
    let doubled = k.inst(DType::F32, Op::Binary(Binary::Add, v, v));
    k.store(x, &[1], doubled);
    let compiled = compiled(&k.kernel);
    let fast = compiled.fast()[0];
    assert_eq!((count(fast, "ld.global.v4"), count(fast, "ld.global.nc")), (1, 0), "{fast}");
}

#[test]
fn short_rows_are_read_once_by_a_warp() {
    let compiled = compiled(&softmax(Extent::Const(4096), Extent::Const(768)));
    let fast = compiled.fast()[0];
    // 768 elements of 32 threads, four at once.
    assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "ld.global")), (6, 6), "{fast}");
    assert_eq!((count(fast, "st.global.v4"), count(fast, "st.global")), (6, 6), "{fast}");
    // Five steps for each of both reductions, and which of two zeros is the greatest.
    assert_eq!((count(fast, "shfl.sync.bfly"), count(fast, "shfl.sync.idx"), count(fast, "bar")), (10, 1, 0), "{fast}");
    assert_eq!(doubles(fast), 0, "{fast}");
    compiled.assert_in_registers();
}

#[test]
fn rows_of_a_block_are_read_once() {
    let compiled = compiled(&softmax(Extent::Const(4096), Extent::Const(8192)));
    let (fast, launch) = (compiled.fast()[0], &compiled.header.fast.as_ref().unwrap().launches[0]);
    let reads = 8192 / 4 / launch.threads as usize;
    assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "ld.global")), (reads, reads), "{fast}");
    // One for each reduction, and one before the memory of the first is used again.
    assert_eq!(count(fast, "bar.sync"), 3, "{fast}");
    assert_eq!(doubles(fast), 0, "{fast}");
    compiled.assert_in_registers();
}

#[test]
fn the_longest_rows_that_are_kept_fit_into_registers() {
    let compiled = compiled(&softmax(Extent::Const(512), Extent::Const(32_768)));
    assert_eq!(count(compiled.fast()[0], "ld.global"), 8);
    compiled.assert_in_registers();
}

#[test]
fn norms_read_their_input_once() {
    let compiled = compiled(&layer_norm(Extent::Const(8192), 1024));
    let fast = compiled.fast()[0];
    // The row, and weight and bias once where they are used.
    assert_eq!((count(fast, "ld.global.nc.v4"), count(fast, "ld.global")), (24, 24), "{fast}");
    assert_eq!((count(fast, "st.global.v4"), count(fast, "bar"), doubles(fast)), (8, 0, 0), "{fast}");
    compiled.assert_in_registers();
}

/// The sum of each row, whose elements lie so far apart.
fn sums(rows: i64, length: i64, strides: &[i64]) -> Kernel {
    let mut k = Builder::new("sums", consts(&[rows, length]), 1);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let v = k.load(x, strides);
    let total = k.reduce(ReduceOp::Sum, DType::F32, v);
    k.stage(Scope::Outer);
    k.store(y, &[1, 0], total);
    k.kernel
}

#[test]
fn few_long_rows_are_divided_between_blocks() {
    let compiled = compiled(&sums(4, 1 << 22, &[1 << 22, 1]));
    let fast = compiled.header.fast.as_ref().unwrap();
    let blocks: Vec<u32> = fast.launches.iter().map(|launch| launch.grid(&[])).collect();
    assert_eq!(blocks, [264, 4]);
    let [parts, total] = compiled.fast()[..] else { panic!("{blocks:?}") };
    assert!(count(parts, "ld.global.nc.v4") >= 4, "several reads are on their way at once: {parts}");
    assert_eq!((count(total, "ld.global.nc"), doubles(parts), doubles(total)), (0, 0, 0), "{total}");
    assert_eq!(compiled.header.scratch.as_ref().unwrap().value(&[]), 8 * 264);
    compiled.assert_in_registers();
}

#[test]
fn sums_of_columns_read_neighbours_with_neighbouring_threads() {
    let kernel = sums(1024, 65536, &[1, 1024]);
    let source = source(&kernel, "sm_90").unwrap();
    assert!(source.header.fast.is_none());
    assert!(source.text.contains("own_row = threadIdx.x % 32, lane = threadIdx.x / 32;"), "{}", source.text);
    assert_eq!(source.header.plain.iter().map(|launch| launch.grid(&[])).collect::<Vec<_>>(), [256, 32]);
    let compiled = compiled(&kernel);
    assert_eq!(count(&compiled.ptx, "shfl"), 0);
    compiled.assert_in_registers();
}

/// Reads of 16 bytes in each fast launch of a kernel in f32: four for a buffer in a loop over long rows.
fn reads(kernel: &Kernel) -> Vec<usize> {
    let compiled = compiled(kernel);
    compiled.assert_in_registers();
    assert_eq!(doubles(&compiled.ptx), 0, "{}", compiled.ptx);
    let reads = compiled.fast().into_iter().map(|ptx| {
        assert_eq!(count(ptx, "ld.global.nc"), count(ptx, "ld.global.nc.v4"), "{ptx}");
        count(ptx, "ld.global.nc.v4")
    });
    reads.collect()
}

#[test]
fn long_rows_are_read_once_for_two_reductions() {
    let (rows, length) = (1000, 1 << 17);
    assert_eq!(reads(&sums(rows, length, &[length, 1])), [4]);
    assert_eq!(reads(&variance(rows, length, &[length, 1])), [4]);
    assert_eq!(reads(&logsumexp(rows, length)), [4]);
    assert_eq!(reads(&softmax(Extent::Const(rows), Extent::Const(length))), [8]);
    // Weight and bias are read with the row the second time.
    assert_eq!(reads(&layer_norm(Extent::Const(rows), length)), [4 + 12]);
}

#[test]
fn rows_that_blocks_share_are_read_once_for_two_reductions() {
    let (rows, length) = (32, 1 << 19);
    assert_eq!(reads(&variance(rows, length, &[length, 1])), [4, 0]);
    assert_eq!(reads(&logsumexp(rows, length)), [4, 0]);
    assert_eq!(reads(&softmax(Extent::Const(rows), Extent::Const(length))), [4, 4]);
    assert_eq!(reads(&layer_norm(Extent::Const(rows), length)), [4, 12]);
}

/// The same in f64.
fn wide(mut kernel: Kernel) -> Kernel {
    let wide = |dtype: &mut DType| {
        let narrow = *dtype == DType::F32;
        *dtype = if narrow { DType::F64 } else { *dtype };
        narrow
    };
    kernel.params.iter_mut().for_each(|param| _ = wide(&mut param.dtype));
    for stage in &mut kernel.stages {
        stage.reduces.iter_mut().for_each(|reduce| _ = wide(&mut reduce.dtype));
        for inst in &mut stage.insts {
            if let (true, Op::Const(bits)) = (wide(&mut inst.dtype), &mut inst.op) {
                *bits = f64::from(f32::from_bits(*bits as u32)).to_bits();
            }
        }
    }
    kernel
}

#[test]
fn long_rows_of_f64_are_read_once_for_two_reductions() {
    for kernel in [variance(32, 1 << 19, &[1 << 19, 1]), softmax(Extent::Const(32), Extent::Const(1 << 19))] {
        let kernel = wide(kernel);
        let compiled = compiled(&kernel);
        assert!(compiled.fast().len() == 2 && compiled.fast()[0].contains("add.rn.f64"), "{}", kernel.name);
        compiled.assert_in_registers();
    }
}

#[test]
fn exponentials_are_found_without_branches() {
    let compiled = compiled(&logsumexp(1000, 1 << 17));
    let fast = compiled.fast()[0];
    let end = fast.rfind("ld.global.nc.v4").unwrap();
    let steps = &fast[fast.find("ld.global.nc.v4").unwrap()..end];
    // Of three steps: for each of 8 elements, and for the sum so far.
    assert_eq!((count(steps, "ex2"), count(steps, "bra")), (3 * 9, 0), "{steps}");
}

#[test]
fn columns_are_read_once_for_their_variance() {
    let kernel = variance(1024, 65536, &[1, 1024]);
    let compiled = compiled(&kernel);
    compiled.assert_in_registers();
    let [parts, total] = [0, 1].map(|at| compiled.entry(&compiled.header.plain[at].entry));
    assert!(count(parts, "ld.global.nc.f32") >= 4 && compiled.header.plain.len() == 2, "{parts}");
    assert_eq!((count(total, "ld.global.nc"), doubles(&compiled.ptx)), (0, 0), "{total}");
    // Neither of the divisions whose result is rounded correctly takes many instructions for every element.
    assert_eq!(count(parts, "div.rn"), 0, "{parts}");
}

#[test]
fn functions_of_f32_are_computed_in_f32() {
    use Unary::{Cos, Not, Sin, Tan};
    // These three reduce large arguments in f64.
    let known = Unary::ALL.into_iter().filter(|op| !matches!(op, Not | Unary::BitNot | Sin | Cos | Tan));
    let mut k = Builder::new("all", consts(&[64]), 0);
    let x = k.param(DType::F32, Role::In);
    let ops: Vec<(Unary, u32)> =
        known.map(|op| (op, k.param(if op.is_test() { DType::Bool } else { DType::F32 }, Role::Out))).collect();
    k.stage(Scope::Row);
    let v = k.load(x, &[1]);
    for (op, out) in ops {
        let dtype = k.kernel.params[out as usize].dtype;
        let result = k.inst(dtype, Op::Unary(op, v));
        k.store(out, &[1], result);
    }
    for op in Binary::ALL.into_iter().filter(|op| (*op as usize) < Binary::And as usize || op.is_comparison()) {
        let dtype = if op.is_comparison() { DType::Bool } else { DType::F32 };
        let out = k.param(dtype, Role::Out);
        let result = k.inst(dtype, Op::Binary(op, v, v));
        k.store(out, &[1], result);
    }
    let compiled = compiled(&k.kernel);
    assert_eq!(doubles(&compiled.ptx), 0);
}

#[test]
fn cubins_are_elf_files_of_their_architecture() {
    let kernel = pointwise(DType::Bf16, &consts(&[4096]), &[1], &[1], &[1]);
    for target in ["sm_75", "sm_80", "sm_90", "sm_100"] {
        let artifact = crate::compile(&kernel, target, &NVRTC).unwrap();
        let (header, cubin) = decode(&artifact).unwrap();
        assert_eq!(header.target, target);
        // EM_CUDA; in its flags the architecture is the second byte, or in older files the first one.
        assert_eq!((&cubin[..4], u16::from_le_bytes([cubin[18], cubin[19]])), (&b"\x7fELF"[..], 190));
        let number: u8 = target[3..].parse().unwrap();
        assert!(cubin[48..50].contains(&number), "{target}: {:?}", &cubin[48..52]);
        let file = object::File::parse(cubin).unwrap();
        for launch in header.plain.iter().chain(&header.fast.as_ref().unwrap().launches) {
            assert!(file.symbols().any(|symbol| symbol.name() == Ok(&launch.entry)), "{}", launch.entry);
        }
    }
}

#[test]
fn what_cannot_be_compiled_is_one_sentence() {
    let error = NVRTC.compile("__device__ void f() { g(); }", "sm_90").err().unwrap();
    assert!(
        error.contains("does not compile the kernel for sm_90: the program has errors: ") && error.contains("\"g\""),
        "{error}"
    );
    let error = NVRTC.compile("", "sm_1").err().unwrap();
    assert!(error.ends_with("it does not know an option: ") || error.contains("invalid value"), "{error}");
    let mut wild = softmax(Extent::Const(4), Extent::Const(4));
    wild.outer = 3;
    assert_eq!(crate::compile(&wild, "sm_90", &NVRTC).unwrap_err(), "3 outer dimensions of 2");
}

#[test]
fn a_machine_without_nvrtc_is_told_what_brings_it() {
    let empty = std::env::temp_dir().join("flambeau-no-nvrtc");
    let Err(error) = Nvrtc::find(empty.as_os_str()) else { return };
    assert!(
        error.starts_with("NVRTC, CUDA's run-time compiler, cannot be loaded (libnvrtc.so.13: cannot open"),
        "{error}"
    );
    assert!(error.ends_with("it comes with torch for CUDA; without that, `pip install nvidia-cuda-nvrtc` brings it"));
}

#[test]
fn conditional_reads_stay_conditional() {
    let mut k = Builder::new("padded", consts(&[4096]), 0);
    let (x, y) = (k.param(DType::F32, Role::In), k.param(DType::F32, Role::Out));
    k.stage(Scope::Row);
    let index = k.inst(DType::I64, Op::Index(0));
    let three = k.inst(DType::I64, Op::Const(3));
    let cond = k.inst(DType::Bool, Op::Binary(Binary::Ge, index, three));
    let other = k.f32(0.0);
    let access = Access { param: x, offset: Extent::Const(-3), strides: consts(&[1]) };
    let v = k.inst(DType::F32, Op::LoadIf { cond, access, other });
    k.store(y, &[1], v);
    let compiled = compiled(&k.kernel);
    let fast = compiled.fast()[0];
    assert_eq!((count(fast, "ld.global.nc"), count(fast, "st.global.v4")), (4, 1), "{fast}");
    assert!(fast.contains("bra"), "{fast}");
}
