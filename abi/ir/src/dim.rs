//! Sizes: a constant, or an expression over symbols. Every size, stride and offset in the project is a [`Dim`].

use crate::bounds::Items;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Names one symbolic integer of a trace; its definition is in [`crate::plan::Symbol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SymId(pub u32);

/// A size, stride or offset in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dim {
    /// Known at compile time.
    Const(i64),
    /// Computed at call time; never a constant polynomial.
    Expr(#[serde(deserialize_with = "crate::bounds::nested")] Box<Poly>),
}

/// A polynomial in canonical form: sum of coefficient times product of sorted atoms. No zero coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Terms")]
pub struct Poly {
    terms: BTreeMap<Vec<Atom>, i64>,
}

/// Most terms of a polynomial. Larger ones have no value: what is computed with them would take for ever.
const MAX_TERMS: usize = 1024;
/// Most atoms of a term.
const MAX_FACTORS: usize = 256;

/// A polynomial as it was sent.
#[derive(Deserialize)]
struct Terms {
    terms: BTreeMap<Items<Atom>, i64>,
}

impl TryFrom<Terms> for Poly {
    type Error = &'static str;

    /// What is computed with polynomials, and when they are equal, rests on their form.
    fn try_from(Terms { terms }: Terms) -> Result<Poly, Self::Error> {
        let terms: BTreeMap<Vec<Atom>, i64> = terms.into_iter().map(|(atoms, c)| (atoms.0, c)).collect();
        let sound = |(atoms, c): (&Vec<Atom>, &i64)| *c != 0 && atoms.len() <= MAX_FACTORS && atoms.is_sorted();
        if terms.len() > MAX_TERMS || terms.keys().all(Vec::is_empty) || !terms.iter().all(sound) {
            return Err("a size that is not in its canonical form");
        }
        Ok(Poly { terms })
    }
}

/// What polynomials are made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Atom {
    /// A symbol.
    Sym(SymId),
    /// Division rounding down, as Python's `//`.
    FloorDiv(Dim, Dim),
    /// Remainder with the divisor's sign, as Python's `%`.
    Mod(Dim, Dim),
    /// The larger.
    Max(Dim, Dim),
    /// The smaller.
    Min(Dim, Dim),
}

impl From<i64> for Dim {
    fn from(v: i64) -> Self {
        Dim::Const(v)
    }
}

impl Poly {
    fn of(dim: &Dim) -> Poly {
        match dim {
            Dim::Const(0) => Poly::default(),
            Dim::Const(c) => Poly { terms: BTreeMap::from([(vec![], *c)]) },
            Dim::Expr(p) => (**p).clone(),
        }
    }

    fn known(dim: &Dim) -> Option<Poly> {
        (*dim != Dim::too_large()).then(|| Poly::of(dim))
    }

    /// `None` where the coefficient outgrows an `i64`, or the polynomial its bounds.
    fn add_term(&mut self, atoms: Vec<Atom>, coefficient: i64) -> Option<()> {
        let small = atoms.len() <= MAX_FACTORS;
        let entry = self.terms.entry(atoms).or_insert(0);
        *entry = entry.checked_add(coefficient)?;
        (small && self.terms.len() <= MAX_TERMS).then_some(())
    }

    fn sum(left: &Dim, right: &Dim) -> Option<Poly> {
        let mut sum = Poly::known(left)?;
        for (atoms, c) in Poly::known(right)?.terms {
            sum.add_term(atoms, c)?;
        }
        Some(sum)
    }

    fn product(left: &Dim, right: &Dim) -> Option<Poly> {
        let (left, right) = (Poly::known(left)?, Poly::known(right)?);
        let mut product = Poly::default();
        for (a, ca) in &left.terms {
            for (b, cb) in &right.terms {
                let mut atoms = a.clone();
                atoms.extend(b.iter().cloned());
                atoms.sort();
                product.add_term(atoms, ca.checked_mul(*cb)?)?;
            }
        }
        Some(product)
    }

    fn into_dim(mut self) -> Dim {
        self.terms.retain(|_, c| *c != 0);
        match self.terms.len() {
            0 => Dim::Const(0),
            1 if self.terms.contains_key(&vec![]) => Dim::Const(self.terms[&vec![]]),
            _ => Dim::Expr(Box::new(self)),
        }
    }

    /// Whether each coefficient divided by `divisor` is a whole number that an `i64` holds.
    fn is_multiple_of(&self, divisor: i64) -> bool {
        self.terms.values().all(|c| c.checked_rem(divisor) == Some(0))
    }

    /// The terms: atoms multiplied, and their coefficient.
    pub fn terms(&self) -> impl Iterator<Item = (&[Atom], i64)> {
        self.terms.iter().map(|(a, c)| (a.as_slice(), *c))
    }
}

impl Dim {
    /// Most atoms of an expression over ints that a trace keeps symbolic: each operation may multiply them.
    pub const MAX_ATOMS: usize = 64;

    /// Whether the expression is small enough to be computed with.
    pub fn is_handy(&self) -> bool {
        let mut left = Self::MAX_ATOMS;
        self.spend(&mut left)
    }

    fn spend(&self, left: &mut usize) -> bool {
        let Dim::Expr(poly) = self else { return true };
        poly.terms.keys().flatten().all(|atom| {
            *left = left.saturating_sub(1);
            *left > 0
                && match atom {
                    Atom::Sym(_) => true,
                    Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                        a.spend(left) && b.spend(left)
                    }
                }
        })
    }

    /// The dimension that is one symbol.
    pub fn sym(id: SymId) -> Dim {
        Dim::atom(Atom::Sym(id))
    }

    fn atom(atom: Atom) -> Dim {
        Dim::Expr(Box::new(Poly { terms: BTreeMap::from([(vec![atom], 1)]) }))
    }

    /// What has no value: [`Dim::eval`] never gives one.
    fn too_large() -> Dim {
        Dim::atom(Atom::FloorDiv(Dim::Const(1), Dim::Const(0)))
    }

    /// The constant, if it is one.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            Dim::Expr(_) => None,
        }
    }

    /// True if it is the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// Sum.
    #[must_use]
    pub fn add(&self, other: &Dim) -> Dim {
        Poly::sum(self, other).map_or_else(Dim::too_large, Poly::into_dim)
    }

    /// Difference.
    #[must_use]
    pub fn sub(&self, other: &Dim) -> Dim {
        self.add(&other.mul(&Dim::Const(-1)))
    }

    /// Product.
    #[must_use]
    pub fn mul(&self, other: &Dim) -> Dim {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return a.checked_mul(*b).map_or_else(Dim::too_large, Dim::Const);
        }
        Poly::product(self, other).map_or_else(Dim::too_large, Poly::into_dim)
    }

    /// Python's `self // other`. Exact quotients are simplified: `(6*s) // 3 = 2*s`.
    #[must_use]
    pub fn floor_div(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(1)) => return self.clone(),
            (Dim::Const(i64::MIN), Dim::Const(-1)) => return Dim::too_large(),
            (Dim::Const(a), Dim::Const(b)) if *b != 0 => return Dim::Const(floor_div(*a, *b)),
            (Dim::Expr(p), Dim::Const(b)) if p.is_multiple_of(*b) => {
                let terms = p.terms.iter().map(|(a, c)| (a.clone(), c / b)).collect();
                return Poly { terms }.into_dim();
            }
            (a, b) if a == b => return Dim::Const(1),
            (Dim::Expr(p), Dim::Expr(q)) => {
                if let Some(exact) = divide_by_monomial(p, q) {
                    return exact;
                }
            }
            _ => {}
        }
        Dim::atom(Atom::FloorDiv(self.clone(), other.clone()))
    }

    /// Python's `self % other`.
    #[must_use]
    pub fn modulo(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(1)) => return Dim::Const(0),
            (_, Dim::Const(-1)) => return Dim::Const(0),
            (Dim::Const(a), Dim::Const(b)) if *b != 0 => return Dim::Const(a - floor_div(*a, *b) * b),
            (Dim::Expr(p), Dim::Const(b)) if p.is_multiple_of(*b) => return Dim::Const(0),
            (a, b) if a == b => return Dim::Const(0),
            _ => {}
        }
        Dim::atom(Atom::Mod(self.clone(), other.clone()))
    }

    /// The larger.
    #[must_use]
    pub fn max(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(*a.max(b)),
            (a, b) if a == b => a.clone(),
            _ => Dim::atom(Atom::Max(self.clone(), other.clone())),
        }
    }

    /// The smaller.
    #[must_use]
    pub fn min(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(*a.min(b)),
            (a, b) if a == b => a.clone(),
            _ => Dim::atom(Atom::Min(self.clone(), other.clone())),
        }
    }

    /// Product of `dims`; 1 if empty.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::Const(1), |acc, d| acc.mul(d))
    }

    /// The value when `symbol` gives each symbol's value. `None` for a division by zero, and where the computation leaves
    /// the range of an `i64`: Python's ints have none.
    pub fn eval(&self, symbol: &impl Fn(SymId) -> i64) -> Option<i64> {
        let Dim::Expr(poly) = self else {
            return self.as_const();
        };
        let mut sum = 0_i64;
        for (atoms, c) in &poly.terms {
            let mut product = *c;
            for atom in atoms {
                product = product.checked_mul(atom.eval(symbol)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// With expressions in place of atoms, innermost first.
    #[must_use]
    pub fn replace(&self, atom: &impl Fn(&Atom) -> Option<Dim>) -> Dim {
        let Dim::Expr(poly) = self else { return self.clone() };
        let mut sum = Dim::Const(0);
        for (atoms, c) in &poly.terms {
            sum = sum.add(&atoms.iter().fold(Dim::Const(*c), |product, of| product.mul(&of.replace(atom))));
        }
        sum
    }

    /// What it tells that it is 0: an atom, the last symbol if there is one, and what that is.
    pub fn solve(&self) -> Option<(Atom, Dim)> {
        let Dim::Expr(poly) = self else { return None };
        let of = |atom: &Atom, c: i64| {
            let rest = self.sub(&Dim::atom(atom.clone()).mul(&Dim::Const(c)));
            let whole = Poly::of(&rest).is_multiple_of(c) && (c.abs() == 1 || rest.as_const().is_some());
            let value = rest.mul(&Dim::Const(-1)).floor_div(&Dim::Const(c));
            (whole && !rest.has(atom) && value != Dim::too_large()).then(|| (atom.clone(), value))
        };
        let mut alone =
            poly.terms.iter().filter_map(|(atoms, c)| if let [one] = &atoms[..] { Some((one, *c)) } else { None });
        let is_symbol = |(atom, _): &(&Atom, i64)| matches!(atom, Atom::Sym(_));
        let symbol = alone.clone().filter(is_symbol).rev().find_map(|(atom, c)| of(atom, c));
        symbol.or_else(|| alone.find_map(|(atom, c)| of(atom, c)))
    }

    fn has(&self, wanted: &Atom) -> bool {
        let Dim::Expr(poly) = self else { return false };
        poly.terms.keys().flatten().any(|atom| {
            atom == wanted
                || match atom {
                    Atom::Sym(_) => false,
                    Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                        a.has(wanted) || b.has(wanted)
                    }
                }
        })
    }

    /// Calls `visit` with every symbol in it.
    pub fn symbols(&self, visit: &mut impl FnMut(SymId)) {
        let Dim::Expr(poly) = self else { return };
        for atom in poly.terms.keys().flatten() {
            match atom {
                Atom::Sym(s) => visit(*s),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.symbols(visit);
                    b.symbols(visit);
                }
            }
        }
    }
}

impl Atom {
    fn replace(&self, atom: &impl Fn(&Atom) -> Option<Dim>) -> Dim {
        let inside = match self {
            Atom::Sym(_) => Dim::atom(self.clone()),
            Atom::FloorDiv(a, b) => a.replace(atom).floor_div(&b.replace(atom)),
            Atom::Mod(a, b) => a.replace(atom).modulo(&b.replace(atom)),
            Atom::Max(a, b) => Dim::max(&a.replace(atom), &b.replace(atom)),
            Atom::Min(a, b) => Dim::min(&a.replace(atom), &b.replace(atom)),
        };
        let Dim::Expr(poly) = &inside else { return inside };
        match poly.terms.first_key_value() {
            Some((atoms, 1)) if atoms.len() == 1 && poly.terms.len() == 1 => atom(&atoms[0]).unwrap_or(inside),
            _ => inside,
        }
    }

    fn eval(&self, symbol: &impl Fn(SymId) -> i64) -> Option<i64> {
        Some(match self {
            Atom::Sym(s) => symbol(*s),
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) => {
                let (a, b) = (a.eval(symbol)?, b.eval(symbol)?);
                if b == 0 || (a == i64::MIN && b == -1) {
                    return None;
                }
                let quotient = floor_div(a, b);
                // The remainder fits where the product does not.
                if matches!(self, Atom::Mod(..)) { a.wrapping_sub(quotient.wrapping_mul(b)) } else { quotient }
            }
            Atom::Max(a, b) => a.eval(symbol)?.max(b.eval(symbol)?),
            Atom::Min(a, b) => a.eval(symbol)?.min(b.eval(symbol)?),
        })
    }
}

/// `p / q` when `q` is one term that divides every term of `p`.
fn divide_by_monomial(p: &Poly, q: &Poly) -> Option<Dim> {
    let (divisor, coefficient) = q.terms().next().filter(|_| q.terms.len() == 1)?;
    let mut quotient = Poly::default();
    for (atoms, c) in p.terms() {
        if c.checked_rem(coefficient) != Some(0) {
            return None;
        }
        let mut rest = atoms.to_vec();
        for atom in divisor {
            let at = rest.iter().position(|a| a == atom)?;
            rest.remove(at);
        }
        quotient.add_term(rest, c / coefficient);
    }
    Some(quotient.into_dim())
}

fn floor_div(a: i64, b: i64) -> i64 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && ((a < 0) != (b < 0)) && !crate::mutated!("dim_floor_division") { q - 1 } else { q }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dim::Expr(poly) = self else {
            return write!(f, "{}", self.as_const().unwrap_or_default());
        };
        for (i, (atoms, c)) in poly.terms().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            let factors: Vec<String> = atoms.iter().map(ToString::to_string).collect();
            match (factors.is_empty(), c) {
                (true, _) => write!(f, "{c}")?,
                (false, 1) => f.write_str(&factors.join("*"))?,
                (false, _) => write!(f, "{c}*{}", factors.join("*"))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Sym(s) => write!(f, "s{}", s.0),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s() -> Dim {
        Dim::sym(SymId(0))
    }

    #[test]
    fn expressions_that_grow_are_not_handy() {
        let mut dim = s();
        let mut steps = 0;
        while dim.is_handy() {
            dim = dim.mul(&dim).add(&dim).modulo(&Dim::Const(7));
            steps += 1;
        }
        assert!((3..7).contains(&steps), "{steps}");
        assert!(Dim::Const(5).is_handy() && s().add(&Dim::Const(1)).is_handy());
    }

    #[test]
    fn canonical_forms_are_equal() {
        assert_eq!(s().add(&s()), s().mul(&Dim::Const(2)));
        assert_eq!(s().sub(&s()), Dim::Const(0));
        assert_eq!(s().mul(&Dim::Const(6)).floor_div(&Dim::Const(3)), s().mul(&Dim::Const(2)));
        assert_eq!(s().mul(&Dim::Const(12)).floor_div(&s()), Dim::Const(12));
    }

    #[test]
    fn equalities_tell_what_things_are() {
        let (a, b) = (s(), Dim::sym(SymId(1)));
        let n = Dim::Const;
        let tells = |dim: Dim| dim.solve().map(|(atom, value)| (Dim::atom(atom), value));
        assert_eq!(tells(a.sub(&n(3))), Some((a.clone(), n(3))));
        assert_eq!(tells(a.sub(&b)), Some((b.clone(), a.clone())));
        assert_eq!(tells(a.mul(&a).sub(&b).add(&n(1))), Some((b.clone(), a.mul(&a).add(&n(1)))));
        assert_eq!(tells(a.mul(&n(2)).sub(&n(10))), Some((a.clone(), n(5))));
        assert_eq!(tells(a.mul(&n(2)).sub(&n(5))), None);
        assert_eq!(tells(a.mul(&n(2)).sub(&b.mul(&n(3)))), None);
        assert_eq!(tells(a.mul(&b).sub(&n(12))), None);
        let half = a.floor_div(&n(2));
        assert_eq!(tells(half.sub(&n(1))), Some((half.clone(), n(1))));
        assert_eq!(tells(half.sub(&a)), Some((half.clone(), a.clone())));
        let by = |atom: &Atom| (*atom == Atom::Sym(SymId(1))).then(|| a.add(&n(1)));
        assert_eq!(b.mul(&a).floor_div(&b).replace(&by), a);
        let next = a.add(&n(1));
        assert_eq!(Dim::max(&b.modulo(&n(2)), &b).replace(&by), Dim::max(&next.modulo(&n(2)), &next));
        let by = |atom: &Atom| (Dim::atom(atom.clone()) == half).then_some(n(1));
        assert_eq!(half.mul(&b).add(&half).replace(&by), b.add(&n(1)));
    }

    #[test]
    fn evaluates_as_python() {
        let at = |v| move |_| v;
        assert_eq!(s().floor_div(&Dim::Const(2)).eval(&at(-3)), Some(-2));
        assert_eq!(s().modulo(&Dim::Const(4)).eval(&at(-3)), Some(1));
        assert_eq!(Dim::Const(7).floor_div(&s()).eval(&at(0)), None);
        assert_eq!(s().mul(&s()).eval(&at(1 << 31)), Some(1 << 62));
        assert_eq!(s().mul(&s()).eval(&at(1 << 32)), None);
        assert_eq!(s().add(&Dim::Const(1)).eval(&at(i64::MAX)), None);
        let large = s().mul(&Dim::Const(1 << 40)).mul(&Dim::Const(1 << 40));
        assert_eq!(large.eval(&at(1)), None);
        assert_eq!(large.sub(&large).eval(&at(1)), None);
    }

    #[test]
    fn the_smallest_number_is_divided_by_minus_one() {
        let (least, minus) = (s().mul(&Dim::Const(i64::MIN)), Dim::Const(-1));
        assert_eq!(least.floor_div(&minus).eval(&|_| 1), None);
        assert_eq!(least.floor_div(&s().mul(&minus)).eval(&|_| 1), None);
        assert_eq!(least.modulo(&minus), Dim::Const(0));
        assert_eq!(Dim::Const(i64::MIN).floor_div(&minus).eval(&|_| 1), None);
        assert_eq!(Dim::Const(i64::MIN).modulo(&minus), Dim::Const(0));
    }

    #[test]
    fn only_canonical_forms_are_decoded() {
        let encoded = postcard::to_stdvec(&s().add(&Dim::Const(3))).unwrap();
        assert_eq!(postcard::from_bytes(&encoded), Ok(s().add(&Dim::Const(3))));
        for terms in [vec![], vec![(vec![], 5)], vec![(vec![Atom::Sym(SymId(1))], 0)]] {
            let odd = Poly { terms: terms.into_iter().collect() };
            let encoded = postcard::to_stdvec(&Dim::Expr(Box::new(odd))).unwrap();
            assert!(postcard::from_bytes::<Dim>(&encoded).is_err());
        }
    }

    #[test]
    fn prints() {
        assert_eq!(s().mul(&Dim::Const(2)).add(&Dim::Const(1)).to_string(), "1+2*s0");
    }
}
