//! What has to hold before a body runs that could not be taken back where a call of it raised: indices within their dimensions.

use crate::guard::Passed;
use crate::torch::{Handle, Torch};
use flambeau_ir::plan::{IndexCheck, Term};
use flambeau_ir::source::SourceId;
use pyo3::prelude::*;

/// The sources of the tensors that the checks read.
pub fn sources(checks: &[IndexCheck]) -> impl Iterator<Item = SourceId> {
    checks.iter().flat_map(|check| &check.numbers).filter_map(|term| match term {
        Term::Tensor(source) => Some(*source),
        _ => None,
    })
}

/// Whether all the checks surely hold for a call. `slot` gives the place of a source among its values.
pub fn hold(py: Python<'_>, checks: &[IndexCheck], passed: &Passed, slot: &dyn Fn(SourceId) -> Option<usize>) -> bool {
    let Ok(torch) = Torch::get(py) else { return false };
    let symbol = |id: flambeau_ir::dim::SymId| passed.symbols.get(id.0 as usize).copied().unwrap_or(-1);
    let mut tensor = |source| {
        let object = slot(source).and_then(|slot| passed.values().get(slot))?.object;
        // SAFETY: guards say that it is a tensor of 64-bit integers on the CPU; it lives as long as nothing runs.
        (!object.is_null()).then(|| unsafe { range(torch, torch.handle(object)) })?
    };
    checks.iter().all(|check| check.holds(&mut tensor, &symbol))
}

/// The least and the greatest number that a tensor holds.
///
/// # Safety
/// A live handle of a strided tensor of 64-bit integers on the CPU.
unsafe fn range(torch: &Torch, tensor: Handle) -> Option<(i64, i64)> {
    // SAFETY: the caller's promise; sizes and strides say where the numbers are.
    unsafe {
        if !(1..=IndexCheck::MOST_NUMBERS).contains(&torch.numel(tensor)) {
            return None;
        }
        let data = torch.data(tensor).cast::<i64>();
        let mut places = vec![0_isize];
        for (size, stride) in torch.sizes(tensor).iter().zip(torch.strides(tensor)) {
            let along = |place: &isize| (0..*size).map(move |i| *place + (i * stride) as isize).collect::<Vec<_>>();
            places = places.iter().flat_map(along).collect();
        }
        let numbers = places.iter().map(|place| *data.offset(*place));
        numbers.fold(None, |range: Option<(i64, i64)>, number| {
            let (least, greatest) = range.unwrap_or((number, number));
            Some((least.min(number), greatest.max(number)))
        })
    }
}
