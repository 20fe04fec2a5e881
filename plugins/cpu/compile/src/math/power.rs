//! Powers as `2^(y log2 |x|)`: of f32 computed in f64, of f64 with a logarithm in two parts. The cases apart are those of C99's
//! annex F.

use super::Math;
use super::trig::ROUNDER;
use crate::text::{Elem, def};

/// (2^r - 1) / r on |r| <= 1/2.
const EXP2: [f64; 7] = [
    1.529_732_377_856_141_2e-05,
    0.000_154_614_447_217_735_11,
    0.001_333_350_238_611_812_2,
    0.009_618_056_678_466_632,
    0.055_504_108_839_096_39,
    0.240_226_509_222_890_3,
    std::f64::consts::LN_2,
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

/// atanh(s) / s = 1 + z / 3 + z^2 (1 / 5 + z / 7 + ...) of z = s^2 <= 0.0295: the last sum.
const ATANH: [f64; 11] = [
    1.0 / 25.0,
    1.0 / 23.0,
    1.0 / 21.0,
    1.0 / 19.0,
    1.0 / 17.0,
    1.0 / 15.0,
    1.0 / 13.0,
    1.0 / 11.0,
    1.0 / 9.0,
    1.0 / 7.0,
    1.0 / 5.0,
];
/// A third, and what is missing of it.
const THIRD: [f64; 2] = [1.0 / 3.0, 1.850_371_707_708_594e-17];
/// 2 / ln 2, and what is missing of it.
const TWICE_LOG2_E: [f64; 2] = [2.0 * std::f64::consts::LOG2_E, 4.071_054_748_186_206_6e-17];

impl Math<'_> {
    /// `x^y` of f32.
    pub fn power(&mut self, x: &str, y: &str) -> String {
        let (ty, wide) = (self.ty, self.ty.with(Elem::F64));
        let y = def!(self.text, "fpext {ty} {y} to {wide}");
        self.in_double(x, |wide, x| {
            let size = wide.intrinsic("fabs", x);
            let log = wide.short_log2(&size);
            let product = wide.mul(&y, &log);
            let power = wide.short_exp2(&product);
            wide.power_edges(x, &y, &power)
        })
    }

    /// `x^y` of f64.
    pub fn double_power(&mut self, x: &str, y: &str) -> String {
        let size = self.intrinsic("fabs", x);
        let (high, low) = self.double_log2(&size);
        let product = self.mul(y, &high);
        let negative = self.neg(&product);
        let rest = self.fma(y, &high, &negative);
        let rest = self.fma(y, &low, &rest);
        // Beyond the range of the result there may be no rest.
        let (bound, zero) = (self.c(1100.0), self.c(0.0));
        let reach = self.intrinsic("fabs", &product);
        let within = self.compare("olt", &reach, &bound);
        let rest = self.select(&within, &rest, &zero);
        let power = self.exp2(&product, Some(&rest));
        self.power_edges(x, y, &power)
    }

    /// log2 of an f64 that is not negative, as a sum, to a relative 2^-64.
    fn double_log2(&mut self, x: &str) -> (String, String) {
        let (k, f) = self.split_log(x);
        let (one, two) = (self.c(1.0), self.c(2.0));
        // s = f / (2 + f)
        let below = self.add(&f, &two);
        let without = self.sub(&below, &two);
        let missing = self.sub(&f, &without);
        let s = self.div(&f, &below);
        let negative = self.neg(&s);
        let rest = self.fma(&negative, &below, &f);
        let rest = self.fma(&negative, &missing, &rest);
        let s_low = self.div(&rest, &below);
        // z = s^2
        let (z, z_low) = self.double_mul((&s, &s_low), (&s, &s_low));
        // atanh(s) / s
        let third = THIRD.map(|part| self.c(part));
        let (t, t_low) = self.double_mul((&z, &z_low), (&third[0], &third[1]));
        let square = self.mul(&z, &z);
        let sum = self.poly(&z, &ATANH);
        let t_low = self.fma(&square, &sum, &t_low);
        let u = self.add(&one, &t);
        let without = self.sub(&u, &one);
        let missing = self.sub(&t, &without);
        let u_low = self.add(&missing, &t_low);
        let (v, v_low) = self.double_mul((&s, &s_low), (&u, &u_low));
        let unit = TWICE_LOG2_E.map(|part| self.c(part));
        let (w, w_low) = self.double_mul((&v, &v_low), (&unit[0], &unit[1]));
        // k + w, where k is 0 or larger.
        let sum = self.add(&k, &w);
        let without = self.sub(&sum, &k);
        let missing = self.sub(&w, &without);
        let rest = self.add(&missing, &w_low);
        let high = self.add(&sum, &rest);
        let without = self.sub(&high, &sum);
        let low = self.sub(&rest, &without);
        (self.log_edges(x, &high), low)
    }

    /// The product of two sums whose second parts are small.
    fn double_mul(&mut self, (a, a_low): (&str, &str), (b, b_low): (&str, &str)) -> (String, String) {
        let high = self.mul(a, b);
        let negative = self.neg(&high);
        let low = self.fma(a, b, &negative);
        let low = self.fma(a, b_low, &low);
        let low = self.fma(a_low, b, &low);
        (high, low)
    }

    /// The power, where `power` is that of the absolute value.
    fn power_edges(&mut self, x: &str, y: &str, power: &str) -> String {
        let (zero, one, half) = (self.c(0.0), self.c(1.0), self.c(0.5));
        let (inf, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let size = self.intrinsic("fabs", x);
        // 1^y is 1 even for infinite y, where the product is NaN.
        let is_one = self.compare("oeq", &size, &one);
        let is_nan = self.compare("uno", y, y);
        let unit = self.select(&is_nan, y, &one);
        let power = self.select(&is_one, &unit, power);
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
