//! Torch's type promotion: the dtype of an op over tensors and Python numbers, by category (dimensioned tensors before
//! 0-dim tensors before numbers). Source of the rules: PyTorch's documentation page "Tensor Attributes", type promotion.

use flambeau_ir::kernel::DType;

/// Bool, integer, float, complex: a higher one wins over dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Bool,
    Integer,
    Float,
    Complex,
}

pub(crate) fn category(dtype: DType) -> Category {
    match dtype {
        DType::Bool => Category::Bool,
        d if d.is_complex() => Category::Complex,
        d if d.is_float() => Category::Float,
        _ => Category::Integer,
    }
}

/// The common type of two dtypes of equal standing.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    use DType as D;
    if a == b {
        return a;
    }
    let (low, high) = if category(a) <= category(b) { (a, b) } else { (b, a) };
    if category(low) < category(high) {
        // A float or integer does not widen a type of a higher category, except that complex types keep its precision.
        return match (high, low) {
            (D::C32, D::F32 | D::Bf16) => D::C64,
            (D::C32 | D::C64, D::F64) => D::C128,
            _ => high,
        };
    }
    match category(a) {
        Category::Bool => D::Bool,
        Category::Integer => promote_integers(a, b),
        Category::Float => match (a, b) {
            (D::F16, D::Bf16) | (D::Bf16, D::F16) => D::F32,
            _ if a.size() >= b.size() => a,
            _ => b,
        },
        Category::Complex => {
            if a.size() >= b.size() {
                a
            } else {
                b
            }
        }
    }
}

fn promote_integers(a: DType, b: DType) -> DType {
    use DType as D;
    match (a, b) {
        (D::U8, D::I8) | (D::I8, D::U8) => D::I16,
        _ if a.size() >= b.size() => a,
        _ => b,
    }
}

/// Collects the operands of one op.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promotion {
    dimensioned: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
}

impl Promotion {
    fn join(slot: &mut Option<DType>, dtype: DType) {
        *slot = Some(slot.map_or(dtype, |d| promote(d, dtype)));
    }

    /// Adds a tensor.
    pub fn tensor(&mut self, dtype: DType, ndim: usize) {
        Self::join(if ndim == 0 { &mut self.zero_dim } else { &mut self.dimensioned }, dtype);
    }

    /// Adds a Python number, whose dtype is `Bool`, `I64`, the default dtype or its complex form.
    pub fn number(&mut self, dtype: DType) {
        Self::join(&mut self.number, dtype);
    }

    /// The result; `None` with no operands.
    pub fn result(self) -> Option<DType> {
        combine(self.dimensioned, combine(self.zero_dim, self.number))
    }
}

/// The higher-standing type, unless the lower-standing one is of a higher category.
fn combine(higher: Option<DType>, lower: Option<DType>) -> Option<DType> {
    let (Some(h), Some(l)) = (higher, lower) else { return higher.or(lower) };
    Some(match (category(h), category(l)) {
        (Category::Float, Category::Complex) => complex_of(h),
        (high, low) if low > high => promote(h, l),
        _ => h,
    })
}

/// The complex type with parts of this float type.
pub(crate) fn complex_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 => DType::C32,
        DType::F64 => DType::C128,
        _ => DType::C64,
    }
}

/// The type of a complex type's parts; other types unchanged.
pub(crate) fn real_of(dtype: DType) -> DType {
    match dtype {
        DType::C32 => DType::F16,
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        d => d,
    }
}
