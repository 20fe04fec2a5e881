//! Powers of f32, computed in f64 as `2^(y log2 |x|)`; the cases apart are those of C99's annex F.

use crate::math::Math;
use crate::text::{Elem, def};
use crate::trig::ROUNDER;

/// (2^r - 1) / r on |r| <= 1/2.
const EXP2: [f64; 7] = [
    1.529_732_377_856_141_2e-05,
    0.000_154_614_447_217_735_11,
    0.001_333_350_238_611_812_2,
    0.009_618_056_678_466_632,
    0.055_504_108_839_096_39,
    0.240_226_509_222_890_3,
    0.693_147_180_559_945_3,
];
/// log2((1 + s) / (1 - s)) / s in s^2 <= 0.0295.
const LOG2: [f64; 6] = [
    0.282_889_342_091_039_66,
    0.319_906_517_941_308_25,
    0.412_209_230_600_956_93,
    0.577_077_942_600_206_8,
    0.961_796_694_112_454_2,
    2.885_390_081_777_850_4,
];

impl Math<'_> {
    /// `x^y` of f32.
    pub fn power(&mut self, x: &str, y: &str) -> String {
        self.both_in_double(x, y, |wide, x, y| wide.wide_power(x, y))
    }

    fn wide_power(&mut self, x: &str, y: &str) -> String {
        let (zero, one, half) = (self.c(0.0), self.c(1.0), self.c(0.5));
        let (inf, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let size = self.intrinsic("fabs", x);
        let log = self.short_log2(&size);
        let product = self.mul(y, &log);
        let power = self.short_exp2(&product);
        // 1^y is 1 even for infinite y, where the product is NaN.
        let is_one = self.compare("oeq", &size, &one);
        let is_nan = self.compare("uno", y, y);
        let unit = self.select(&is_nan, y, &one);
        let power = self.select(&is_one, &unit, &power);
        let odd = self.is_odd(y, &half);
        let signed = self.copysign(&power, x);
        let power = self.select(&odd, &signed, &power);
        // A finite negative number to a finite power that is not whole.
        let whole = self.intrinsic("trunc", y);
        let broken = self.compare("one", y, &whole);
        let root = self.select(&broken, &nan, &power);
        let below = self.compare("olt", x, &zero);
        let finite = self.compare("olt", &size, &inf);
        let root = self.select(&finite, &root, &power);
        let power = self.select(&below, &root, &power);
        let is_one = self.compare("oeq", x, &one);
        let power = self.select(&is_one, &one, &power);
        let no_power = self.compare("oeq", y, &zero);
        self.select(&no_power, &one, &power)
    }

    /// log2 of an f32 that is not negative, to a relative 2^-45.
    fn short_log2(&mut self, x: &str) -> String {
        let (ty, int) = (self.ty, self.ty.with(Elem::I64));
        let bits = def!(self.text, "bitcast {ty} {x} to {int}");
        let root = std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64;
        let above = def!(self.text, "sub {int} {bits}, {}", int.int(root));
        let k = def!(self.text, "ashr {int} {above}, {}", int.int(52));
        let exponent = def!(self.text, "shl {int} {k}, {}", int.int(52));
        let m = def!(self.text, "sub {int} {bits}, {exponent}");
        let m = def!(self.text, "bitcast {int} {m} to {ty}");
        let k = def!(self.text, "sitofp {int} {k} to {ty}");
        let one = self.c(1.0);
        let (above, below) = (self.sub(&m, &one), self.add(&m, &one));
        let s = self.div(&above, &below);
        let z = self.mul(&s, &s);
        let p = self.poly(&z, &LOG2);
        let y = self.fma(&s, &p, &k);
        self.log_edges(x, &y)
    }

    /// 2^t as an f32 needs it, to a relative 2^-33; beyond f32's range the result is.
    fn short_exp2(&mut self, t: &str) -> String {
        let (ty, int) = (self.ty, self.ty.with(Elem::I64));
        let t = self.at_most(t, 160.0);
        let t = self.at_least(&t, -160.0);
        // The sum's last bits are the whole part.
        let (rounder, one) = (self.c(ROUNDER), self.c(1.0));
        let sum = self.add(&t, &rounder);
        let n = self.sub(&sum, &rounder);
        let r = self.sub(&t, &n);
        let p = self.poly(&r, &EXP2);
        let p = self.fma(&r, &p, &one);
        let bits = def!(self.text, "bitcast {ty} {p} to {int}");
        let whole = def!(self.text, "bitcast {ty} {sum} to {int}");
        let exponent = def!(self.text, "shl {int} {whole}, {}", int.int(52));
        let scaled = def!(self.text, "add {int} {bits}, {exponent}");
        def!(self.text, "bitcast {int} {scaled} to {ty}")
    }

    /// Whether a number is whole and not twice a whole one.
    fn is_odd(&mut self, y: &str, half: &str) -> String {
        let (zero, one) = (self.c(0.0), self.c(1.0));
        let halved = self.mul(y, half);
        let (whole, whole_half) = (self.intrinsic("trunc", y), self.intrinsic("trunc", &halved));
        let (is_whole, is_twice) = (self.compare("oeq", y, &whole), self.compare("oeq", &halved, &whole_half));
        let odd = self.select(&is_twice, &zero, &one);
        let odd = self.select(&is_whole, &odd, &zero);
        self.compare("ogt", &odd, &zero)
    }
}
