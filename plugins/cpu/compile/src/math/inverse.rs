//! Inverse trigonometric functions of f32 in f32, hyperbolic ones of f32 in f64.

use super::Math;
use crate::text::{Elem, def};
use flambeau_plugin::kernel::Unary;

/// (atan(x) / x - 1) / x^2 in x^2 <= 1.
const ATAN: [f64; 10] = [
    0.001_488_691_939_304_759_7,
    -0.009_144_629_760_592_396,
    0.026_305_001_110_062_377,
    -0.048_960_514_027_090_67,
    0.070_319_142_500_299_66,
    -0.089_318_267_773_813_15,
    0.110_882_616_287_351_59,
    -0.142_840_037_947_345_3,
    0.199_999_493_211_418_9,
    -0.333_333_330_810_732_5,
];
/// (asin(x) / x - 1) / x^2 in x^2 <= 1 / 4.
const ASIN: [f64; 6] = [
    0.033_690_847_202_830_12,
    0.017_149_238_357_677_253,
    0.031_100_662_735_494_57,
    0.044_599_401_528_512_18,
    0.075_000_945_434_974_24,
    0.166_666_663_374_309_08,
];
/// pi / 2 as an f32, and what that lacks.
const PI_2: [f64; 2] = [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8];
/// Beyond this e^x is no f32 any more, but still an f64.
const LARGE: f64 = 200.0;

impl Math<'_> {
    /// `turns * pi / 2 - x`
    fn less_than(&mut self, turns: f64, x: &str) -> String {
        let [high, low] = PI_2.map(|part| self.c(turns * part));
        let rest = self.sub(&high, x);
        self.add(&rest, &low)
    }

    /// For 0 <= x <= 1.
    fn atan_of_part(&mut self, x: &str) -> String {
        let z = self.mul(x, x);
        let (p, cube) = (self.poly(&z, &ATAN), self.mul(x, &z));
        self.fma(&cube, &p, x)
    }

    pub fn atan(&mut self, x: &str) -> String {
        let (size, one) = (self.intrinsic("fabs", x), self.c(1.0));
        let steep = self.compare("ogt", &size, &one);
        let turned = self.div(&one, &size);
        let part = self.select(&steep, &turned, &size);
        let flat = self.atan_of_part(&part);
        let other = self.less_than(1.0, &flat);
        let y = self.select(&steep, &other, &flat);
        self.copysign(&y, x)
    }

    /// The angle of the point (x, y), where zeros have signs.
    pub fn atan2(&mut self, y: &str, x: &str) -> String {
        let (wide, tall) = (self.intrinsic("fabs", x), self.intrinsic("fabs", y));
        let steep = self.compare("ogt", &tall, &wide);
        let (long, short) = (self.select(&steep, &tall, &wide), self.select(&steep, &wide, &tall));
        let (zero, one) = (self.c(0.0), self.c(1.0));
        let part = self.div(&short, &long);
        let sum = self.add(&long, &short);
        let (none, both) = (self.compare("oeq", &sum, &zero), self.compare("oeq", &short, &long));
        // Infinities too.
        let part = self.select(&both, &one, &part);
        let part = self.select(&none, &zero, &part);
        let flat = self.atan_of_part(&part);
        let other = self.less_than(1.0, &flat);
        let right = self.select(&steep, &other, &flat);
        let left = self.less_than(2.0, &right);
        let int = self.ty.with(self.ty.elem.to_int());
        let bits = def!(self.text, "bitcast {} {x} to {int}", self.ty);
        let is_left = def!(self.text, "icmp slt {int} {bits}, {}", int.int(0));
        let angle = self.select(&is_left, &left, &right);
        self.copysign(&angle, y)
    }

    /// Arc sine or arc cosine.
    pub fn arc(&mut self, op: Unary, x: &str) -> String {
        let (size, half, one) = (self.intrinsic("fabs", x), self.c(0.5), self.c(1.0));
        let steep = self.compare("ogt", &size, &half);
        let (square, rest) = (self.mul(x, x), self.sub(&one, &size));
        let rest = self.mul(&rest, &half);
        let z = self.select(&steep, &rest, &square);
        let root = self.intrinsic("sqrt", &z);
        let part = self.select(&steep, &root, &size);
        let (p, cube) = (self.poly(&z, &ASIN), self.mul(&part, &z));
        let angle = self.fma(&cube, &p, &part);
        let twice = self.add(&angle, &angle);
        if op == Unary::Asin {
            let other = self.less_than(1.0, &twice);
            let y = self.select(&steep, &other, &angle);
            return self.copysign(&y, x);
        }
        let signed = self.copysign(&angle, x);
        let (zero, near, far) = (self.c(0.0), self.less_than(1.0, &signed), self.less_than(2.0, &twice));
        let is_left = self.compare("olt", x, &zero);
        let other = self.select(&is_left, &far, &twice);
        self.select(&steep, &other, &near)
    }

    /// Hyperbolic functions and their inverses.
    pub fn hyperbolic(&mut self, op: Unary, x: &str) -> String {
        self.in_double(x, |math, x| {
            let (size, one, half) = (math.intrinsic("fabs", x), math.c(1.0), math.c(0.5));
            match op {
                Unary::Sinh => {
                    let near = math.at_most(&size, LARGE);
                    let grown = math.expm1(&near);
                    let above = math.add(&grown, &one);
                    let other = math.div(&grown, &above);
                    let sum = math.add(&grown, &other);
                    let y = math.mul(&sum, &half);
                    math.copysign(&y, x)
                }
                Unary::Cosh => {
                    let near = math.at_most(&size, LARGE);
                    let grown = math.exp(&near);
                    let other = math.div(&one, &grown);
                    let sum = math.add(&grown, &other);
                    math.mul(&sum, &half)
                }
                Unary::Asinh => {
                    let square = math.mul(x, x);
                    let under = math.add(&square, &one);
                    let root = math.intrinsic("sqrt", &under);
                    let below = math.add(&root, &one);
                    let more = math.div(&square, &below);
                    let above = math.add(&size, &more);
                    let (y, inf) = (math.log1p(&above), math.c(f64::INFINITY));
                    let infinite = math.compare("oeq", &size, &inf);
                    let y = math.select(&infinite, &inf, &y);
                    math.copysign(&y, x)
                }
                Unary::Acosh => {
                    let above = math.sub(x, &one);
                    let two = math.c(2.0);
                    let factor = math.add(&above, &two);
                    let square = math.mul(&above, &factor);
                    let root = math.intrinsic("sqrt", &square);
                    let sum = math.add(&above, &root);
                    let (y, nan) = (math.log1p(&sum), math.c(f64::NAN));
                    let outside = math.compare("olt", x, &one);
                    math.select(&outside, &nan, &y)
                }
                _ => {
                    let (twice, rest) = (math.add(&size, &size), math.sub(&one, &size));
                    let ratio = math.div(&twice, &rest);
                    let log = math.log1p(&ratio);
                    let y = math.mul(&half, &log);
                    math.copysign(&y, x)
                }
            }
        })
    }

    /// What is left of `a` after whole multiples of `b` are taken off, with the sign of `a`: exact. The quotient's first 28 bits
    /// at a time, computed in f64.
    pub fn fmod(&mut self, a: &str, b: &str) -> String {
        const BITS: i64 = !((1 << 25) - 1);
        const MOST: f64 = 268_435_456.0;
        let (ty, wide) = (self.ty, self.ty.with(Elem::F64));
        let (long, short) = (def!(self.text, "fpext {ty} {a} to {wide}"), def!(self.text, "fpext {ty} {b} to {wide}"));
        let mut math = Math { text: self.text, ty: wide, isa: self.isa };
        let (before, head, done) = (math.text.block(), math.text.fresh("divide"), math.text.fresh("divided"));
        crate::text::run!(math.text, "br label %{head}");
        math.text.enter(&head);
        let next = math.text.later();
        let rest = def!(math.text, "phi {wide} [ {long}, %{before} ], [ {next}, %{head} ]");
        let quotient = math.div(&rest, &short);
        let quotient = math.intrinsic("trunc", &quotient);
        let int = wide.with(Elem::I64);
        let bits = def!(math.text, "bitcast {wide} {quotient} to {int}");
        let bits = def!(math.text, "and {int} {bits}, {}", int.int(BITS));
        let first = def!(math.text, "bitcast {int} {bits} to {wide}");
        let negative = math.neg(&first);
        let left = math.fma(&negative, &short, &rest);
        math.text.resolve(next, &left);
        let (size, most) = (math.intrinsic("fabs", &quotient), math.c(MOST));
        let large = math.compare("oge", &size, &most);
        let again = math.any(&large);
        crate::text::run!(math.text, "br i1 {again}, label %{head}, label %{done}");
        math.text.enter(&done);
        let (size, inf) = (math.intrinsic("fabs", &short), math.c(f64::INFINITY));
        let (endless, far) = (math.compare("oeq", &size, &inf), math.intrinsic("fabs", &long));
        let finite = math.compare("olt", &far, &inf);
        let whole = def!(math.text, "and {} {endless}, {finite}", wide.with(Elem::I1));
        let left = math.select(&whole, &long, &left);
        let left = math.copysign(&left, &long);
        def!(self.text, "fptrunc {wide} {left} to {ty}")
    }

    /// As [`Math::fmod`], with the sign of `b`, as Python's `%`.
    pub fn remainder(&mut self, a: &str, b: &str) -> String {
        let (left, zero) = (self.fmod(a, b), self.c(0.0));
        let bools = self.ty.with(Elem::I1);
        let some = self.compare("une", &left, &zero);
        let (below, under) = (self.compare("olt", b, &zero), self.compare("olt", &left, &zero));
        let differ = def!(self.text, "xor {bools} {below}, {under}");
        let moves = def!(self.text, "and {bools} {some}, {differ}");
        let moved = self.add(&left, b);
        self.select(&moves, &moved, &left)
    }
}
