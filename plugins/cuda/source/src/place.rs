//! Where elements are in memory: indices and addresses as text, in 32 bits where constants say that they fit.

use flambeau_plugin::kernel::{Access, Extent, Kernel};
use flambeau_plugin::simplify::accesses;

/// Indices and addresses up to here leave room for a loop's last step in an `int`.
const MOST: i64 = 1 << 30;

/// The type of all indices of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
}

impl Index {
    /// The smallest that does.
    pub fn of(kernel: &Kernel) -> Index {
        let fits = |reach: Option<i64>| reach.is_some_and(|reach| reach <= MOST);
        // Those that are empty divide nothing.
        let dims: Vec<Extent> = kernel.dims.iter().copied().filter(|size| *size != Extent::Const(0)).collect();
        let small = fits(product(&dims)) && accesses(kernel).all(|access| fits(reach(access, &kernel.dims)));
        if small { Index::Int } else { Index::Long }
    }

    /// In C.
    pub fn ctype(self) -> &'static str {
        match self {
            Index::Int => "int",
            Index::Long => "long",
        }
    }

    /// Declarations of the indices of dimensions from one that counts all their points: `names[i]` has the size `sizes[i]`.
    pub fn divided(self, count: &str, names: &[String], sizes: &[Extent]) -> Vec<String> {
        let c = self.ctype();
        let mut lines = Vec::new();
        let mut rest = count.to_owned();
        for (at, (name, size)) in names.iter().zip(sizes).enumerate().rev() {
            let size = extent(*size);
            if at == 0 {
                lines.push(format!("const {c} {name} = {rest};"));
                continue;
            }
            let more = format!("{name}_rest");
            match self {
                Index::Int => lines.push(format!("const int {more} = {rest} / {size}, {name} = {rest} % {size};")),
                Index::Long => lines
                    .push(format!("const long {more} = quotient({rest}, {size}), {name} = {rest} - {more} * {size};")),
            }
            rest = more;
        }
        lines
    }
}

/// The product of sizes that are all known; those beyond 64 bits are not.
pub fn product(extents: &[Extent]) -> Option<i64> {
    extents.iter().try_fold(1_i64, |product, extent| match extent {
        Extent::Const(size) => product.checked_mul(*size),
        Extent::Scalar(_) => None,
    })
}

/// `ceil(a / b)` of numbers that are not negative.
pub fn div_up(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// As an expression.
pub fn extent(extent: Extent) -> String {
    match extent {
        Extent::Const(size) => format!("{size}"),
        Extent::Scalar(at) => format!("s{at}"),
    }
}

/// The product of sizes as an expression.
pub fn product_text(extents: &[Extent]) -> String {
    let factors: Vec<String> = extents.iter().map(|e| extent(*e)).collect();
    match product(extents) {
        Some(size) => format!("{size}"),
        None => factors.join(" * "),
    }
}

/// The place of an element in its buffer: `index` names the index of a dimension.
pub fn place(access: &Access, index: impl Fn(usize) -> String) -> String {
    let steps = access.strides.iter().enumerate().filter(|(_, stride)| **stride != Extent::Const(0));
    let steps = steps.map(|(dim, stride)| match stride {
        Extent::Const(1) => index(dim),
        other => format!("{} * {}", extent(*other), index(dim)),
    });
    let offset = (access.offset != Extent::Const(0)).then(|| extent(access.offset));
    let sum = offset.into_iter().chain(steps).collect::<Vec<_>>().join(" + ");
    if sum.is_empty() { "0".to_owned() } else { sum }
}

/// How far from the buffer's element 0 an access goes at most, in elements to either side.
fn reach(access: &Access, dims: &[Extent]) -> Option<i64> {
    let known = |extent: Extent| match extent {
        Extent::Const(size) => Some(size),
        Extent::Scalar(_) => None,
    };
    access.strides.iter().zip(dims).try_fold(known(access.offset)?.checked_abs()?, |reach, (stride, size)| {
        reach.checked_add(known(*stride)?.checked_abs()?.checked_mul(known(*size)?)?)
    })
}
