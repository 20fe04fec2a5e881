//! What a person reads in a profiler and in the text of a kernel, and which schedules kernels get.

#[path = "../../../cpu/compile/src/tests/build.rs"]
#[allow(dead_code, reason = "the CPU back end's tests use more of it")]
mod build;
mod joint;
#[path = "../../../cpu/compile/src/tests/norms.rs"]
mod norms;
mod rows;

use crate::schedule::{Along, Schedule};
use crate::source;
use flambeau_plugin::kernel::{
    Access, Binary, DType, Extent, Inst, Kernel, Op, Param, Reduce, ReduceOp, Role, Scope, Stage, Store, ValueId,
};

/// `out[i] = sum(in[i, j] + in[i, j])`, of elements that lie so far apart.
fn sums(dims: [Extent; 2], strides: [Extent; 2]) -> Kernel {
    let access = |param, strides: [Extent; 2]| Access { param, offset: Extent::Const(0), strides: strides.to_vec() };
    let (read, twice, total) = (ValueId(0), ValueId(1), ValueId(2));
    let insts = vec![
        Inst { id: read, dtype: DType::F32, op: Op::Load(access(0, strides)) },
        Inst { id: twice, dtype: DType::F32, op: Op::Binary(Binary::Add, read, read) },
    ];
    let reduces = vec![Reduce { id: total, dtype: DType::F32, op: ReduceOp::Sum, value: twice }];
    let stores = vec![Store { access: access(1, [Extent::Const(1), Extent::Const(0)]), value: total }];
    Kernel {
        name: "sum of x".to_owned(),
        params: [Role::In, Role::Out].map(|role| Param { dtype: DType::F32, role }).to_vec(),
        scalars: 2,
        dims: dims.to_vec(),
        outer: 1,
        stages: vec![
            Stage { scope: Scope::Row, insts, stores: vec![], reduces },
            Stage { scope: Scope::Outer, insts: vec![], stores, reduces: vec![] },
        ],
    }
}

fn rows(rows: i64, length: i64) -> Kernel {
    sums([rows, length].map(Extent::Const), [length, 1].map(Extent::Const))
}

fn schedule(kernel: &Kernel, width: usize) -> (Along, u32, u32, u32) {
    let Schedule { along, rows, lanes, splits } = Schedule::of(kernel, width);
    (along, rows, lanes, splits)
}

#[test]
fn threads_are_as_many_as_rows_ask_for() {
    let of_row = |length, width| schedule(&rows(100_000, length), width);
    assert_eq!(of_row(3, 1), (Along::Row, 32, 4, 1));
    assert_eq!(of_row(24, 4), (Along::Row, 16, 8, 1));
    assert_eq!(of_row(1000, 4), (Along::Row, 4, 32, 1));
    assert_eq!(of_row(4096, 4), (Along::Row, 1, 256, 1));
    assert_eq!(of_row(32_768, 4), (Along::Row, 1, 1024, 1));
    assert_eq!(of_row(100_000, 4), (Along::Row, 1, 512, 1));
    // Too few rows to have several in a block.
    assert_eq!(schedule(&rows(64, 1000), 4), (Along::Row, 1, 64, 1));
}

#[test]
fn few_long_rows_are_shared() {
    assert_eq!(schedule(&rows(1, 1 << 24), 4), (Along::Row, 1, 512, 256));
    assert_eq!(schedule(&rows(8, 1 << 24), 4), (Along::Row, 1, 512, 33));
    assert_eq!(schedule(&rows(1, 40_000), 4), (Along::Row, 1, 512, 4));
    assert_eq!(schedule(&rows(1, 30_000), 4).3, 1);
    assert_eq!(schedule(&rows(200, 1 << 24), 4).3, 1);
    let mut changing = rows(1, 1 << 24);
    changing.params[1].role = Role::InOut;
    assert_eq!(schedule(&changing, 4).3, 1, "what one block writes, others might still read");
}

#[test]
fn sizes_that_are_not_known_get_a_schedule_for_all_of_them() {
    let dims = [Extent::Scalar(0), Extent::Scalar(1)];
    assert_eq!(schedule(&sums(dims, [Extent::Scalar(1), Extent::Const(1)]), 4), (Along::Row, 1, 256, 1));
    assert_eq!(schedule(&sums(dims, [Extent::Const(1), Extent::Scalar(0)]), 1), (Along::Points, 32, 8, 1));
    let one = [Extent::Const(1), Extent::Scalar(1)];
    assert_eq!(schedule(&sums(one, [Extent::Const(0), Extent::Const(1)]), 4), (Along::Row, 1, 256, 64));
}

#[test]
fn columns_are_read_along_the_points() {
    let columns = |length, columns| sums([columns, length].map(Extent::Const), [1, columns].map(Extent::Const));
    assert_eq!(schedule(&columns(64, 100_000), 1), (Along::Points, 32, 8, 1));
    assert_eq!(schedule(&columns(2, 100_000), 1), (Along::Points, 128, 2, 1));
    assert_eq!(schedule(&columns(1 << 20, 6), 1), (Along::Points, 8, 32, 256));
}

/// The functions of a program, without what stands before them.
fn functions(kernel: &Kernel) -> String {
    let text = source(kernel, "sm_90").unwrap().text;
    text[text.find("extern \"C\"").unwrap()..].to_owned()
}

#[test]
fn blocks_go_on_where_a_grid_ends() {
    let text = functions(&rows(8, 1 << 24));
    assert!(text.contains("for (int unit = blockIdx.x; unit < rows * 33; unit += (int)gridDim.x) {"), "{text}");
    let columns = sums([100, 1 << 20].map(Extent::Const), [1, 100].map(Extent::Const));
    assert!(functions(&columns).contains("unit < (rows + 31) / 32 * 66; "), "{}", functions(&columns));
}

#[test]
fn indices_have_32_bits_where_constants_say_that_they_fit() {
    let of_type = |kernel: &Kernel, c: &str| functions(kernel).contains(&format!("const {c} i1 = element;"));
    assert!(of_type(&rows(1000, 1000), "int"));
    assert!(of_type(&rows(1 << 20, 1 << 11), "long"));
    // A few elements, far apart; and none, of many rows.
    assert!(of_type(&sums([2, 3].map(Extent::Const), [1 << 31, 1].map(Extent::Const)), "long"));
    assert!(of_type(&rows(1 << 40, 0), "long"));
    assert!(of_type(&sums([Extent::Scalar(0), Extent::Const(5)], [5, 1].map(Extent::Const)), "long"));
}

#[test]
fn text_of_a_row_kernel() {
    let expected = "\
extern \"C\" __global__ void __launch_bounds__(128) fused_sum_of_x(\
const float *__restrict__ p0, float *p1, const long s0, const long s1) {
    const int own_row = threadIdx.x / 8, lane = threadIdx.x % 8;
    const int rows = 1000;
#pragma unroll 1
    for (int unit = blockIdx.x; unit < (rows + 15) / 16; unit += (int)gridDim.x) {
        const bool owns = unit * 16 + own_row < rows;
        const int row = owns ? unit * 16 + own_row : rows - 1;
        const int i0 = row;
        float a2 = as_float(0x0u);
#pragma unroll
        for (int turn = 0; turn < 1; turn++) {
            const int element = lane * 1 + turn * 8;
            if (owns && element < 7) {
                const int i1 = element;
                const float v0 = p0[7 * i0 + i1];
                const float v1 = (float)(v0 + v0);
                a2 = (float)(v1 + a2);
            }
        }
#pragma unroll
        for (int bits = 4; bits > 0; bits /= 2) {
            a2 = (float)(across(a2, bits) + a2);
        }
        const float v2 = a2;
        if (owns && lane == 0) {
            p1[i0] = v2;
        }
    }
}
";
    assert_eq!(functions(&rows(1000, 7)), expected);
}
