//! Sine, cosine and tangent of f32: reduction by pi / 2, polynomials, choice by quadrant.
//!
//! Sine and cosine of numbers that are not far from zero are computed in f32, with the part of the reduction that f32 rounds off
//! as a correction: `x - n * first part of pi / 2` is exact there. The rest is computed in f64. Up to 2^30 the reduction is Cody and Waite's in two parts. Above it is Payne and Hanek's: the bits of 2 / pi that matter
//! for the argument's exponent times its mantissa, in fixed point modulo 4; no f32 comes nearer than 2^-32 to a multiple.
//! The polynomials are fits made as those in `math.rs`.

use super::Math;
use crate::text::{Elem, def, run};
use flambeau_plugin::kernel::Unary;

/// (sin(r) / r - 1) / r^2 in r^2 <= (pi / 4)^2.
const SIN: [f64; 4] =
    [2.723_757_724_117_723_2e-06, -0.000_198_399_895_773_847, 0.008_333_331_691_203_202, -0.166_666_666_633_737_41];
/// (cos(r) - 1 + r^2 / 2) / r^4 there.
const COS: [f64; 4] =
    [-2.729_065_239_797_453e-07, 2.480_051_928_594_030_4e-05, -0.001_388_888_751_862_250_8, 0.041_666_666_663_919_334];
/// The first 256 bits of 2 / pi.
const TWO_OVER_PI: [u64; 4] =
    [0xa2f9_836e_4e44_1529, 0xfc27_57d1_f534_ddc0, 0xdb62_9599_3c43_9041, 0xfe51_63ab_debb_c561];
/// What pi / 2 has beyond f64.
const PI_2_REST: f64 = 6.123_233_995_736_766e-17;
/// Adding it rounds to a whole number, whose last bits are then those of the sum.
pub const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Where the first reduction ends.
const FAR: f64 = 1_073_741_824.0;

/// pi / 2 in three parts of f32.
const PI_2_PARTS: [f64; 3] = [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8, -1.715_124_510_005_881_9e-15];
/// Adding it rounds an f32 to a whole number, as [`ROUNDER`] does an f64.
const SINGLE_ROUNDER: f64 = 12_582_912.0;
/// Where the reduction in f32 ends.
const NEAR: f64 = 32_768.0;

impl Math<'_> {
    /// Sine, cosine or tangent of an f32.
    pub fn trig(&mut self, op: Unary, x: &str) -> String {
        if op == Unary::Tan {
            return self.trig_in_double(op, x);
        }
        let (ty, magnitude, limit) = (self.ty, self.intrinsic("fabs", x), self.c(NEAR));
        let far = self.compare("ogt", &magnitude, &limit);
        let any = self.any(&far);
        let (double, single, done) = (self.text.fresh("double"), self.text.fresh("single"), self.text.fresh("turned"));
        run!(self.text, "br i1 {any}, label %{double}, label %{single}");
        self.text.enter(&double);
        let slow = self.trig_in_double(op, x);
        let after = self.text.block();
        run!(self.text, "br label %{done}");
        self.text.enter(&single);
        let fast = self.trig_in_single(op, x);
        let before = self.text.block();
        run!(self.text, "br label %{done}");
        self.text.enter(&done);
        def!(self.text, "phi {ty} [ {slow}, %{after} ], [ {fast}, %{before} ]")
    }

    /// Whether any lane is true.
    pub fn any(&mut self, lanes: &str) -> String {
        match self.ty.lanes {
            1 => lanes.to_owned(),
            count => {
                let bools = self.ty.with(Elem::I1);
                def!(self.text, "call i1 @llvm.vector.reduce.or.v{count}i1({bools} {lanes})")
            }
        }
    }

    /// Sine or cosine for |x| <= 2^15.
    fn trig_in_single(&mut self, op: Unary, x: &str) -> String {
        let (ty, int) = (self.ty, self.ty.with(Elem::I32));
        let (inverse, rounder) = (self.c(std::f64::consts::FRAC_2_PI), self.c(SINGLE_ROUNDER));
        let sum = self.fma(x, &inverse, &rounder);
        let n = self.sub(&sum, &rounder);
        let [first, second, third] = PI_2_PARTS.map(|part| self.c(-part));
        let exact = self.fma(&n, &first, x);
        let product = self.mul(&n, &second);
        let r = self.add(&exact, &product);
        // What r lacks: the rounding errors of the product and of the sum, and the third part.
        let negative = self.neg(&product);
        let rest = self.fma(&n, &second, &negative);
        let rest = self.fma(&n, &third, &rest);
        let taken = self.sub(&r, &exact);
        let (kept, more) = (self.sub(&r, &taken), self.sub(&product, &taken));
        let lost = self.sub(&exact, &kept);
        let lost = self.add(&lost, &more);
        let rest = self.add(&rest, &lost);
        let z = self.mul(&r, &r);
        let p = self.poly(&z, &SIN);
        let cube = self.mul(&r, &z);
        let tail = self.fma(&cube, &p, &rest);
        let sin = self.add(&r, &tail);
        let (half, one) = (self.c(0.5), self.c(1.0));
        let halved = self.mul(&half, &z);
        let near = self.sub(&one, &halved);
        let lost = self.sub(&one, &near);
        let lost = self.sub(&lost, &halved);
        let q = self.poly(&z, &COS);
        let (square, turned) = (self.mul(&z, &z), self.mul(&r, &rest));
        let lost = self.sub(&lost, &turned);
        let tail = self.fma(&square, &q, &lost);
        let cos = self.add(&near, &tail);
        let quadrant = def!(self.text, "bitcast {ty} {sum} to {int}");
        let quadrant = self.of_sine(op, &quadrant);
        let y = self.turned(&quadrant, &sin, &cos);
        if op == Unary::Cos {
            return y;
        }
        let zero = self.c(0.0);
        let none = self.compare("oeq", x, &zero);
        self.select(&none, x, &y)
    }

    fn trig_in_double(&mut self, op: Unary, x: &str) -> String {
        let (ty, wide) = (self.ty, self.ty.with(Elem::F64));
        let (quadrant, r) = self.reduce_trig(x);
        let mut math = Math { text: self.text, ty: wide, isa: self.isa };
        let y = math.on_quadrant(op, &quadrant, &r);
        let y = def!(self.text, "fptrunc {wide} {y} to {ty}");
        let magnitude = self.intrinsic("fabs", x);
        let (inf, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let finite = self.compare("olt", &magnitude, &inf);
        self.select(&finite, &y, &nan)
    }

    /// The function of `quadrant * pi / 2 + r`.
    fn on_quadrant(&mut self, op: Unary, quadrant: &str, r: &str) -> String {
        let (ty, int) = (self.ty, self.ty.with(Elem::I64));
        let one = self.c(1.0);
        let z = self.mul(r, r);
        let p = self.poly(&z, &SIN);
        let p = self.fma(&z, &p, &one);
        let sin = self.mul(r, &p);
        let q = self.poly(&z, &COS);
        let minus_half = self.c(-0.5);
        let q = self.fma(&z, &q, &minus_half);
        let cos = self.fma(&z, &q, &one);
        let quadrant = self.of_sine(op, quadrant);
        if op == Unary::Tan {
            let odd = def!(self.text, "trunc {int} {quadrant} to {}", ty.with(Elem::I1));
            let minus_cos = self.neg(&cos);
            let above = self.select(&odd, &minus_cos, &sin);
            let below = self.select(&odd, &sin, &cos);
            return self.div(&above, &below);
        }
        self.turned(&quadrant, &sin, &cos)
    }

    /// The quadrant of which the function is the sine: the cosine is the sine one quadrant on.
    fn of_sine(&mut self, op: Unary, quadrant: &str) -> String {
        let int = self.ty.with(self.ty.elem.to_int());
        match op {
            Unary::Cos => def!(self.text, "add {int} {quadrant}, {}", int.int(1)),
            _ => quadrant.to_owned(),
        }
    }

    /// The sine in this quadrant of what has this sine and cosine in the first.
    fn turned(&mut self, quadrant: &str, sin: &str, cos: &str) -> String {
        let (ty, int) = (self.ty, self.ty.with(self.ty.elem.to_int()));
        let odd = def!(self.text, "trunc {int} {quadrant} to {}", ty.with(Elem::I1));
        let y = self.select(&odd, cos, sin);
        let half_turns = def!(self.text, "lshr {int} {quadrant}, {}", int.int(1));
        let sign = def!(self.text, "shl {int} {half_turns}, {}", int.int(i64::from(ty.elem.bits()) - 1));
        let bits = def!(self.text, "bitcast {ty} {y} to {int}");
        let bits = def!(self.text, "xor {int} {bits}, {sign}");
        def!(self.text, "bitcast {int} {bits} to {ty}")
    }

    /// Whole quarter turns (as i64, modulo 4) and the rest in radians (as f64). Far arguments are rare: their reduction is
    /// skipped where no lane has one.
    fn reduce_trig(&mut self, x: &str) -> (String, String) {
        let (ty, wide, int) = (self.ty, self.ty.with(Elem::F64), self.ty.with(Elem::I64));
        let bools = ty.with(Elem::I1);
        let (near_quadrant, near_rest) = self.reduce_near(x);
        let magnitude = self.intrinsic("fabs", x);
        let limit = self.c(FAR);
        let far = self.compare("ogt", &magnitude, &limit);
        let any = self.any(&far);
        let (before, reduce, done) = (self.text.block(), self.text.fresh("far"), self.text.fresh("reduced"));
        run!(self.text, "br i1 {any}, label %{reduce}, label %{done}");
        self.text.enter(&reduce);
        let (quadrant, rest) = self.reduce_far(x);
        let quadrant = def!(self.text, "select {bools} {far}, {int} {quadrant}, {int} {near_quadrant}");
        let rest = def!(self.text, "select {bools} {far}, {wide} {rest}, {wide} {near_rest}");
        run!(self.text, "br label %{done}");
        self.text.enter(&done);
        let quadrant = def!(self.text, "phi {int} [ {near_quadrant}, %{before} ], [ {quadrant}, %{reduce} ]");
        let rest = def!(self.text, "phi {wide} [ {near_rest}, %{before} ], [ {rest}, %{reduce} ]");
        (quadrant, rest)
    }

    /// For |x| <= 2^30.
    fn reduce_near(&mut self, x: &str) -> (String, String) {
        let (ty, wide, int) = (self.ty, self.ty.with(Elem::F64), self.ty.with(Elem::I64));
        let x = def!(self.text, "fpext {ty} {x} to {wide}");
        let mut math = Math { text: self.text, ty: wide, isa: self.isa };
        let (inverse, rounder) = (math.c(std::f64::consts::FRAC_2_PI), math.c(ROUNDER));
        let sum = math.fma(&x, &inverse, &rounder);
        let n = math.sub(&sum, &rounder);
        let (high, low) = (math.c(-std::f64::consts::FRAC_PI_2), math.c(-PI_2_REST));
        let r = math.fma(&n, &high, &x);
        let r = math.fma(&n, &low, &r);
        (def!(self.text, "bitcast {wide} {sum} to {int}"), r)
    }

    /// For finite |x| > 2^30.
    fn reduce_far(&mut self, x: &str) -> (String, String) {
        let (ty, wide, int) = (self.ty, self.ty.with(Elem::F64), self.ty.with(Elem::I64));
        let narrow = ty.with(Elem::I32);
        let bits = def!(self.text, "bitcast {ty} {x} to {narrow}");
        let bits = def!(self.text, "sext {narrow} {bits} to {int}");
        let sign = def!(self.text, "ashr {int} {bits}, {}", int.int(63));
        let fraction = def!(self.text, "and {int} {bits}, {}", int.int(0x7f_ffff));
        let mantissa = def!(self.text, "or {int} {fraction}, {}", int.int(0x80_0000));
        let exponent = def!(self.text, "lshr {int} {bits}, {}", int.int(23));
        let exponent = def!(self.text, "and {int} {exponent}, {}", int.int(255));
        // x = mantissa 2^e with e = exponent - 150; bits before number e - 2 of 2 / pi make whole turns.
        let skipped = def!(self.text, "sub {int} {exponent}, {}", int.int(152));
        let second = def!(self.text, "icmp ugt {int} {skipped}, {}", int.int(63));
        let bools = ty.with(Elem::I1);
        let word = |this: &mut Self, at: usize| {
            let [late, early] = [at + 1, at].map(|i| int.int(TWO_OVER_PI[i] as i64));
            def!(this.text, "select {bools} {second}, {int} {late}, {int} {early}")
        };
        let (first, middle, last) = (word(self, 0), word(self, 1), word(self, 2));
        let window = |this: &mut Self, high: &str, low: &str| {
            def!(this.text, "call {int} @llvm.fshl.{}({int} {high}, {int} {low}, {int} {skipped})", int.suffix())
        };
        let (high, low) = (window(self, &first, &middle), window(self, &middle, &last));
        let low = def!(self.text, "lshr {int} {low}, {}", int.int(32));
        let product = def!(self.text, "mul {int} {mantissa}, {high}");
        let rest = def!(self.text, "mul {int} {mantissa}, {low}");
        let rest = def!(self.text, "lshr {int} {rest}, {}", int.int(32));
        // Quarter turns modulo 4, with 62 bits after the point.
        let turns = def!(self.text, "add {int} {product}, {rest}");
        let nearest = def!(self.text, "add {int} {turns}, {}", int.int(1 << 61));
        let quadrant = def!(self.text, "lshr {int} {nearest}, {}", int.int(62));
        let whole = def!(self.text, "shl {int} {quadrant}, {}", int.int(62));
        let part = def!(self.text, "sub {int} {turns}, {whole}");
        let [quadrant, part] = [quadrant, part].map(|value| {
            let flipped = def!(self.text, "xor {int} {value}, {sign}");
            def!(self.text, "sub {int} {flipped}, {sign}")
        });
        let part = def!(self.text, "sitofp {int} {part} to {wide}");
        let mut math = Math { text: self.text, ty: wide, isa: self.isa };
        let unit = math.c(std::f64::consts::FRAC_PI_2 / f64::exp2(62.0));
        (quadrant, math.mul(&part, &unit))
    }
}
