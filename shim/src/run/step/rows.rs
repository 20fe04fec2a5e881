//! Rows of a table that indices name, and checks of a truth: calls that cost torch more than what they do.

use super::regs::Regs;
use crate::run::step::ops::OpError;
use crate::torch::{Handle, Owned};
use flambeau_ir::code::Const;
use flambeau_ir::device::Runs;
use flambeau_ir::dim::Dim;
use flambeau_ir::kernel::DType;
use flambeau_ir::plan::{Plan, PlanArg, PlanStep, Reg};
use flambeau_ir::tensor::{Device, contiguous_strides};
use pyo3::exceptions::PyIndexError;
use std::collections::HashMap;

/// From this many elements on threads are worth waking, as torch does.
const MANY: i64 = 1 << 16;

/// What is known of registers before a step.
pub struct Known<'a> {
    /// How many elements they have.
    pub elements: &'a HashMap<u32, i64>,
    /// Their types.
    pub dtypes: &'a HashMap<u32, DType>,
}

/// `table[index]`, along the first dimension of the table.
pub struct Rows {
    table: usize,
    index: usize,
    /// A register with a tensor for the rows, or one for a new tensor.
    into: Result<usize, usize>,
    /// Type and device of the rows.
    kind: (DType, Device),
    /// Negative indices count from the end.
    wraps: bool,
}

/// The register of a truth that a step checks, on the host.
pub fn checked(plan: &Plan, at: usize, known: &Known<'_>) -> Option<usize> {
    let PlanStep::Call { op, args, .. } = &plan.steps[at] else { return None };
    let [PlanArg::Reg(truth)] = args[..] else { return None };
    let fits = &**op == "aten::_assert_async" && on_host(plan) && known.dtypes.get(&truth.0) == Some(&DType::Bool);
    fits.then_some(truth.0 as usize)
}

/// Raises what torch's call does, unless it holds.
pub fn check(regs: &mut Regs<'_>, truth: usize) -> Result<(), OpError> {
    // SAFETY: a tensor of bools on the host, of one element.
    if unsafe { *regs.data(truth)?.cast::<u8>() } == 0 {
        return Err(OpError::Checked("Expected Tensor with single nonzero value, but got zero".into()));
    }
    Ok(())
}

fn on_host(plan: &Plan) -> bool {
    plan.device.known().is_some_and(|kind| kind.runs == Runs::OnHost)
}

impl Rows {
    /// From a call of torch that picks few rows, if all is known that has to be.
    pub fn of(plan: &Plan, at: usize, known: &Known<'_>) -> Option<Rows> {
        let PlanStep::Call { op, overload, args, results } = &plan.steps[at] else { return None };
        let (table, index, out, wraps) = match (&**op, &**overload, &args[..]) {
            ("aten::embedding", "default", [PlanArg::Reg(table), PlanArg::Reg(index), ..]) => {
                (table, index, None, false)
            }
            (
                "aten::index_select",
                "out",
                [PlanArg::Reg(table), PlanArg::Const(Const::Int(0)), PlanArg::Reg(index), PlanArg::Reg(out)],
            ) => (table, index, Some(out), false),
            ("aten::index", "Tensor", [PlanArg::Reg(table), PlanArg::List(indices)]) => match &indices[..] {
                [PlanArg::Reg(index), rest @ ..] if rest.iter().all(|arg| *arg == PlanArg::Const(Const::None)) => {
                    (table, index, None, true)
                }
                _ => return None,
            },
            _ => return None,
        };
        let (into, count) = match (out, &results[..]) {
            (Some(out), []) => (Ok(out.0 as usize), *known.elements.get(&out.0)?),
            (None, [made]) => (Err(made.0 as usize), new_rows(&plan.steps[at + 1..], *made)?),
            _ => return None,
        };
        let (dtype, of_index) = (*known.dtypes.get(&table.0)?, known.dtypes.get(&index.0)?);
        let fits = on_host(plan) && *of_index == DType::I64 && !dtype.is_complex() && count < MANY;
        let (table, index) = (table.0 as usize, index.0 as usize);
        fits.then_some(Rows { table, index, into, kind: (dtype, plan.device), wraps })
    }

    /// Copies them.
    pub fn run(&self, regs: &mut Regs<'_>) -> Result<(), OpError> {
        let (table, index) = (regs.handle(self.table)?, regs.handle(self.index)?);
        // SAFETY: live handles of strided tensors.
        let ((sizes, strides), (index_sizes, index_strides)) = unsafe { (layout(regs, table), layout(regs, index)) };
        let (Some((&rows, sizes)), Some((&apart, strides))) = (sizes.split_first(), strides.split_first()) else {
            return Err(OpError::Native("rows of a tensor without dimensions".into()));
        };
        let (dtype, device) = self.kind;
        let item = dtype.size() as isize;
        let into = match self.into {
            Ok(into) => into,
            Err(made) => {
                let sizes: Vec<i64> = index_sizes.iter().chain(sizes).copied().collect();
                let dims: Vec<Dim> = sizes.iter().copied().map(Dim::Const).collect();
                let strides: Vec<i64> = contiguous_strides(&dims).iter().filter_map(Dim::as_const).collect();
                regs.own(made, Owned::empty(regs.torch, &sizes, &strides, dtype, device)?);
                made
            }
        };
        let places = places(sizes, strides);
        let is_packed = places.iter().zip(0..).all(|(place, at)| *place == at);
        let (from, numbers) = (regs.data(self.table)?.cast::<u8>(), regs.data(self.index)?.cast::<i64>());
        let mut to = regs.data(into)?.cast::<u8>();
        for place in self::places(index_sizes, index_strides) {
            // SAFETY: the index's own element.
            let number = unsafe { *numbers.offset(place) };
            let row = if self.wraps && number < 0 { number + rows } else { number };
            if !(0..rows).contains(&row) {
                let text = format!("index {number} is out of bounds for dimension 0 with size {rows}");
                return Err(OpError::Python(PyIndexError::new_err(text)));
            }
            // SAFETY: a row of the table; the rows' tensor is contiguous and has room for as many as there are indices.
            unsafe {
                let from = from.offset((row * apart) as isize * item);
                if is_packed {
                    std::ptr::copy_nonoverlapping(from, to, places.len() * dtype.size());
                    to = to.add(places.len() * dtype.size());
                    continue;
                }
                for place in &places {
                    std::ptr::copy_nonoverlapping(from.offset(place * item), to, dtype.size());
                    to = to.add(dtype.size());
                }
            }
        }
        Ok(())
    }
}

/// How many elements the steps after a call expect of what it made, if that lies row after row.
fn new_rows(steps: &[PlanStep], made: Reg) -> Option<i64> {
    let expected = steps.iter().find_map(|step| match step {
        PlanStep::Expect { reg, sizes, strides, .. } if *reg == made => Some((sizes, strides)),
        _ => None,
    });
    let (sizes, _) = expected.filter(|(sizes, strides)| **strides == contiguous_strides(sizes))?;
    sizes.iter().map(Dim::as_const).product()
}

/// # Safety
/// A live handle of a strided tensor.
unsafe fn layout<'a>(regs: &Regs<'_>, handle: Handle) -> (&'a [i64], &'a [i64]) {
    // SAFETY: as above.
    unsafe { (regs.torch.sizes(handle), regs.torch.strides(handle)) }
}

/// Where the elements lie, in row-major order.
fn places(sizes: &[i64], strides: &[i64]) -> Vec<isize> {
    let mut places = vec![0];
    for (size, stride) in sizes.iter().zip(strides) {
        places = places.iter().flat_map(|place| (0..*size).map(move |i| place + (i * stride) as isize)).collect();
    }
    places
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_follow_strides() {
        assert_eq!(super::places(&[2, 3], &[1, 2]), [0, 2, 4, 1, 3, 5]);
        assert_eq!(super::places(&[], &[]), [0]);
        assert!(super::places(&[2, 0], &[4, 1]).is_empty());
    }
}
