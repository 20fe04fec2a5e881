//! Memory layouts as eager torch chooses them: contiguity predicates, the strides of pointwise results, and what
//! `preserve_format` means. Source: the behaviour of torch's `TensorIterator` ("Computing output strides") and
//! `TensorImpl` on strided tensors; checked case by case against torch by `tests/replay.rs`.

use crate::ShapeEnv;
use flambeau_ir::dim::Dim;
use flambeau_ir::guard::Relation;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};

/// Decisions about sizes; constants are decided here, the rest by the trace.
pub(crate) struct Sizes<'a>(pub &'a mut dyn ShapeEnv);

impl Sizes<'_> {
    pub fn decide(&mut self, relation: Relation, a: &Dim, b: &Dim) -> bool {
        let Some(d) = a.sub(b).as_const() else { return self.0.decide(relation, a, b) };
        match relation {
            Relation::Eq => d == 0,
            Relation::Ne => d != 0,
            Relation::Lt => d < 0,
            Relation::Le => d <= 0,
            Relation::Gt => d > 0,
            Relation::Ge => d >= 0,
        }
    }

    pub fn eq(&mut self, a: &Dim, b: &Dim) -> bool {
        self.decide(Relation::Eq, a, b)
    }

    pub fn lt(&mut self, a: &Dim, b: &Dim) -> bool {
        self.decide(Relation::Lt, a, b)
    }

    pub fn is(&mut self, a: &Dim, value: i64) -> bool {
        self.eq(a, &Dim::Const(value))
    }

    pub fn same(&mut self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| self.eq(x, y))
    }

    pub fn is_empty(&mut self, sizes: &[Dim]) -> bool {
        sizes.iter().any(|s| self.is(s, 0))
    }
}

/// Dimension orders, fastest first, of the channels-last formats.
const CHANNELS_LAST_2D: [usize; 4] = [1, 3, 2, 0];
const CHANNELS_LAST_3D: [usize; 5] = [1, 4, 3, 2, 0];

/// A memory format that an op may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Contiguous,
    Preserve,
    ChannelsLast,
    ChannelsLast3d,
}

impl Format {
    pub fn parse(name: &str) -> Option<Format> {
        Some(match name {
            "contiguous_format" => Format::Contiguous,
            "preserve_format" => Format::Preserve,
            "channels_last" => Format::ChannelsLast,
            "channels_last_3d" => Format::ChannelsLast3d,
            _ => return None,
        })
    }

    fn order(self) -> &'static [usize] {
        match self {
            Format::ChannelsLast => &CHANNELS_LAST_2D,
            Format::ChannelsLast3d => &CHANNELS_LAST_3D,
            _ => &[],
        }
    }
}

fn follows_order(env: &mut Sizes, sizes: &[Dim], strides: &[Dim], order: impl Iterator<Item = usize>) -> bool {
    let mut expected = Dim::Const(1);
    for d in order {
        if env.is(&sizes[d], 1) {
            continue;
        }
        if !env.eq(&strides[d], &expected) {
            return false;
        }
        expected = expected.mul(&sizes[d]);
    }
    true
}

pub(crate) fn is_contiguous(env: &mut Sizes, sizes: &[Dim], strides: &[Dim]) -> bool {
    env.is_empty(sizes) || follows_order(env, sizes, strides, (0..sizes.len()).rev())
}

pub(crate) fn is_contiguous_in(env: &mut Sizes, sizes: &[Dim], strides: &[Dim], format: Format) -> bool {
    match format {
        Format::Contiguous | Format::Preserve => is_contiguous(env, sizes, strides),
        _ => {
            let order = format.order();
            sizes.len() == order.len() && follows_order(env, sizes, strides, order.iter().copied())
        }
    }
}

/// Dense, without overlap or gaps, in some order of dimensions.
pub(crate) fn is_dense(env: &mut Sizes, sizes: &[Dim], strides: &[Dim]) -> bool {
    if is_contiguous(env, sizes, strides) {
        return true;
    }
    let mut order: Vec<usize> = Vec::with_capacity(sizes.len());
    for d in 0..sizes.len() {
        if !env.lt(&sizes[d], &Dim::Const(2)) {
            let mut at = order.len();
            while at > 0 && env.lt(&strides[d], &strides[order[at - 1]]) {
                at -= 1;
            }
            order.insert(at, d);
        }
    }
    follows_order(env, sizes, strides, order.into_iter())
}

/// Whether strides look like channels-last, as `suggest_memory_format` sees it.
fn looks_channels_last(env: &mut Sizes, sizes: &[Dim], strides: &[Dim], order: &[usize]) -> bool {
    if env.is(&strides[1], 0) {
        return false;
    }
    let mut min = Dim::Const(0);
    for &d in order {
        if env.is(&sizes[d], 0) || env.lt(&strides[d], &min) || d == 0 && env.eq(&min, &strides[1]) {
            return false;
        }
        min = if env.lt(&Dim::Const(1), &sizes[d]) { strides[d].mul(&sizes[d]) } else { strides[d].clone() };
    }
    true
}

pub(crate) fn suggest_format(env: &mut Sizes, sizes: &[Dim], strides: &[Dim]) -> Format {
    match sizes.len() {
        4 if looks_channels_last(env, sizes, strides, &CHANNELS_LAST_2D) => Format::ChannelsLast,
        5 if looks_channels_last(env, sizes, strides, &CHANNELS_LAST_3D) => Format::ChannelsLast3d,
        _ => Format::Contiguous,
    }
}

/// Strides of a fresh tensor in this format. `None` if it does not fit the number of dimensions.
pub(crate) fn strides_in(sizes: &[Dim], format: Format) -> Option<Vec<Dim>> {
    if matches!(format, Format::Contiguous | Format::Preserve) {
        return Some(contiguous_strides(sizes));
    }
    let order = format.order();
    if sizes.len() != order.len() {
        return None;
    }
    let mut strides = vec![Dim::Const(1); sizes.len()];
    let mut next = Dim::Const(1);
    for &d in order {
        strides[d] = next.clone();
        next = next.mul(&sizes[d]);
    }
    Some(strides)
}

/// Strides of `clone()` and `empty_like` under `preserve_format`.
pub(crate) fn preserved(env: &mut Sizes, t: &TensorMeta) -> Vec<Dim> {
    if is_dense(env, &t.sizes, &t.strides) { t.strides.clone() } else { inferred_dense(env, &t.sizes, &t.strides) }
}

/// Dense strides in the dimension order of a tensor with gaps or overlap.
fn inferred_dense(env: &mut Sizes, sizes: &[Dim], strides: &[Dim]) -> Vec<Dim> {
    let operand = Operand { sizes: sizes.to_vec(), strides: strides.to_vec() };
    let order = sorted_order(env, sizes, &[operand.strides]);
    packed(sizes, &order)
}

/// One input of a pointwise op, as broadcasting sees it.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub sizes: Vec<Dim>,
    pub strides: Vec<Dim>,
}

/// The strides of a pointwise result over these inputs (in order; Python numbers count as 0-dim tensors), whose common
/// shape is `sizes`.
pub(crate) fn pointwise_strides(env: &mut Sizes, sizes: &[Dim], operands: &[Operand]) -> Vec<Dim> {
    let mixed = operands.iter().any(|o| o.sizes.is_empty()) && !sizes.is_empty();
    let same_shape = !mixed && operands.iter().all(|o| env.same(&o.sizes, sizes));
    if same_shape && let Some(strides) = same_shape_strides(env, sizes, operands) {
        return strides;
    }
    let expanded: Vec<Vec<Dim>> = operands.iter().map(|o| expanded_strides(env, o, sizes)).collect();
    let order = sorted_order(env, sizes, &expanded);
    if order.iter().rev().copied().eq(0..sizes.len()) {
        return contiguous_strides(sizes);
    }
    packed(sizes, &order)
}

fn same_shape_strides(env: &mut Sizes, sizes: &[Dim], operands: &[Operand]) -> Option<Vec<Dim>> {
    if operands.iter().all(|o| is_contiguous(env, sizes, &o.strides)) {
        return Some(contiguous_strides(sizes));
    }
    if operands.iter().all(|o| is_contiguous_in(env, sizes, &o.strides, Format::ChannelsLast)) {
        return strides_in(sizes, Format::ChannelsLast);
    }
    let (first, rest) = operands.split_first()?;
    let one_layout = is_dense(env, sizes, &first.strides) && rest.iter().all(|o| env.same(&o.strides, &first.strides));
    one_layout.then(|| first.strides.clone())
}

fn expanded_strides(env: &mut Sizes, operand: &Operand, sizes: &[Dim]) -> Vec<Dim> {
    let missing = sizes.len() - operand.sizes.len();
    let mut strides = vec![Dim::Const(0); missing];
    for (d, stride) in operand.strides.iter().enumerate() {
        let broadcast = env.is(&operand.sizes[d], 1) && !env.is(&sizes[missing + d], 1);
        strides.push(if broadcast { Dim::Const(0) } else { stride.clone() });
    }
    strides
}

/// Dimensions from fastest to slowest: by the operands' strides, first operand first, ties by size and then by position;
/// insertion sort, since comparisons may be ambiguous.
fn sorted_order(env: &mut Sizes, sizes: &[Dim], operands: &[Vec<Dim>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    for i in 1..order.len() {
        let mut moving = i;
        for before in (0..i).rev() {
            match out_of_order(env, sizes, operands, order[before], order[moving]) {
                Some(true) => {
                    order.swap(before, moving);
                    moving = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order
}

/// Whether dimension `a` belongs after `b`; `None` if no operand tells.
fn out_of_order(env: &mut Sizes, sizes: &[Dim], operands: &[Vec<Dim>], a: usize, b: usize) -> Option<bool> {
    for strides in operands {
        let (sa, sb) = (&strides[a], &strides[b]);
        if env.is(sa, 0) || env.is(sb, 0) {
            continue;
        }
        if env.lt(sa, sb) {
            return Some(false);
        }
        if !env.eq(sa, sb) || env.lt(&sizes[b], &sizes[a]) {
            return Some(true);
        }
    }
    None
}

/// Strides of a gap-free tensor whose dimensions have this order, fastest first.
fn packed(sizes: &[Dim], order: &[usize]) -> Vec<Dim> {
    let mut strides = vec![Dim::Const(1); sizes.len()];
    let mut next = Dim::Const(1);
    for &d in order {
        strides[d] = next.clone();
        next = next.mul(&sizes[d]);
    }
    strides
}
