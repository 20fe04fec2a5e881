//! Whether the addresses of two accesses to one buffer never meet.

use crate::nest::affine::{Affine, at_least};
use flambeau_ir::dim::Dim;

/// The addresses that an access goes through while each loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    /// The address.
    pub at: &'a Affine,
    /// Extents of the loops.
    pub loops: &'a [Dim],
}

/// True if no address is in both. False where that cannot be told.
pub fn apart(a: Reach<'_>, b: Reach<'_>) -> bool {
    let ranges = a.at.range(a.loops).zip(b.at.range(b.loops));
    if ranges.is_some_and(|(a, b)| is_above(&a.0, &b.1) || is_above(&b.0, &a.1)) {
        return true;
    }
    let (Some(p), Some(q)) = (Steps::of(a), Steps::of(b)) else { return false };
    p.apart(&q)
}

fn is_above(a: &Dim, b: &Dim) -> bool {
    at_least(&a.sub(&Dim::Const(1)), b)
}

/// A sum of multiples: `offset + sum(step * 0..count)`. An unknown count is [`i64::MAX`].
#[derive(Clone, Debug)]
struct Steps {
    offset: i64,
    terms: Vec<(i64, i64)>,
}

impl Steps {
    fn of(reach: Reach<'_>) -> Option<Steps> {
        let term = |(l, step): &(usize, Dim)| {
            let count = reach.loops[*l].as_const().unwrap_or(i64::MAX);
            Some((step.as_const().filter(|step| *step > 0)?, count))
        };
        let terms = reach.at.terms.iter().map(term).collect::<Option<_>>()?;
        Some(Steps { offset: reach.at.offset.as_const()?, terms })
    }

    fn most(&self) -> Option<i64> {
        self.terms.iter().try_fold(self.offset, |sum, (step, count)| sum.checked_add(step.checked_mul(count - 1)?))
    }

    /// True if no number is a sum of both.
    fn apart(&self, other: &Steps) -> bool {
        let above = |a: &Steps, b: &Steps| b.most().is_some_and(|most| most < a.offset);
        if above(self, other) || above(other, self) {
            return true;
        }
        let steps = || self.terms.iter().chain(&other.terms).map(|(step, _)| *step);
        let common = steps().fold(0, gcd);
        let difference = self.offset.abs_diff(other.offset) as i64;
        if common == 0 || difference % common != 0 {
            return difference != 0;
        }
        // Numbers of two digits are apart if one of their digits is.
        let mut bases: Vec<i64> = steps().filter(|step| *step > 1).collect();
        bases.sort_unstable();
        bases.dedup();
        bases.into_iter().rev().any(|base| {
            let Some(((high, low), (other_high, other_low))) = self.digits(base).zip(other.digits(base)) else {
                return false;
            };
            low.apart(&other_low) || high.apart(&other_high)
        })
    }

    /// As `base * high + low` with `low` from 0 to `base - 1`; `None` if what is less than `base` may carry, or nothing is.
    fn digits(&self, base: i64) -> Option<(Steps, Steps)> {
        let (high, low): (Vec<_>, Vec<_>) = self.terms.iter().partition(|(step, _)| step % base == 0);
        let low = Steps { offset: self.offset.rem_euclid(base), terms: low };
        let high = high.into_iter().map(|(step, count)| (step / base, count)).collect();
        let high = Steps { offset: self.offset.div_euclid(base), terms: high };
        low.most().is_some_and(|most| most < base).then_some((high, low))
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address and the extents of its loops: one term a loop.
    fn access(offset: i64, terms: &[(i64, i64)]) -> (Affine, Vec<Dim>) {
        let strides = terms.iter().enumerate().map(|(l, (step, _))| (l, Dim::Const(*step))).collect();
        let loops = terms.iter().map(|(_, count)| Dim::Const(*count)).collect();
        (Affine { offset: Dim::Const(offset), terms: strides }, loops)
    }

    fn addresses(offset: i64, terms: &[(i64, i64)]) -> Vec<i64> {
        terms.iter().fold(vec![offset], |all, (step, count)| {
            (0..*count).flat_map(|i| all.iter().map(move |at| at + i * step).collect::<Vec<_>>()).collect()
        })
    }

    #[test]
    fn accesses_that_meet_are_never_apart() {
        let steps = [1, 2, 3, 6, 12];
        let shapes: Vec<Vec<(i64, i64)>> = steps
            .iter()
            .flat_map(|a| steps.iter().flat_map(move |b| (1..4).map(move |n| vec![(*a, n), (*b, 3)])))
            .collect();
        let mut told = 0;
        for (at, terms) in shapes.iter().enumerate() {
            for (other, others) in shapes.iter().enumerate().skip(at % 5).step_by(5) {
                for offset in 0..8 {
                    let (a, b) = (access(3, terms), access(offset, others));
                    let reach =
                        |(at, loops): &(Affine, Vec<Dim>)| apart(Reach { at, loops }, Reach { at: &b.0, loops: &b.1 });
                    let meet = addresses(3, terms).iter().any(|x| addresses(offset, others).contains(x));
                    assert!(!(reach(&a) && meet), "{at} {other} {offset}");
                    told += usize::from(reach(&a));
                }
            }
        }
        assert!(told > 1000);
    }

    #[test]
    fn columns_and_borders_of_a_matrix_are_apart() {
        let apart = |a: (Affine, Vec<Dim>), b: (Affine, Vec<Dim>)| {
            apart(Reach { at: &a.0, loops: &a.1 }, Reach { at: &b.0, loops: &b.1 })
        };
        let inside = access(9, &[(8, 6), (1, 6)]);
        assert!(apart(access(0, &[(8, 8)]), access(1, &[(8, 8)])));
        assert!(apart(access(0, &[(1, 8)]), inside.clone()));
        assert!(apart(access(15, &[(8, 6)]), inside.clone()));
        assert!(!apart(access(14, &[(8, 6)]), inside));
        assert!(apart(access(0, &[(8, 8), (2, 4)]), access(1, &[(8, 8), (2, 4)])));
    }
}
