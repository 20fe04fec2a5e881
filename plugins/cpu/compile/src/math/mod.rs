//! Elementary functions as straight-line IR, for one element or a vector, in f32 and f64.
//!
//! The formulas are the classical ones: argument reduction and reconstruction as in Cephes (S. Moshier) and fdlibm
//! (Sun), error function through the exponent of a polynomial. The polynomials are our own Chebyshev fits (mpmath's
//! `chebyfit` of the remainder named beside each table), highest power first. Errors are measured in the tests.

#![expect(clippy::many_single_char_names, reason = "formulas have the letters of their literature")]

mod inverse;
mod power;
mod random;
mod trig;

use crate::text::{Elem, Text, Ty, def};
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::Unary;

/// (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2.
const EXP_32: [f64; 5] =
    [0.001_392_618_403_770_029_5, 0.008_363_178_931_176_662, 0.041_666_556_149_721_146, 0.166_665_762_662_887_57, 0.5];
/// The same in double precision.
const EXP_64: [f64; 11] = [
    2.091_468_696_808_687_6e-09,
    2.510_521_700_472_074_5e-08,
    2.755_727_364_311_03e-07,
    2.755_725_540_020_642_2e-06,
    2.480_158_732_554_774_3e-05,
    0.000_198_412_698_748_206_27,
    0.001_388_888_888_888_374_8,
    0.008_333_333_333_326_136,
    0.041_666_666_666_666_67,
    0.166_666_666_666_666_7,
    0.5,
];
/// (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1].
const LOG_32: [f64; 9] = [
    0.069_716_118_276_119_23,
    -0.114_797_338_843_345_64,
    0.116_854_198_276_996_61,
    -0.124_256_871_640_682_22,
    0.142_490_580_677_985_2,
    -0.166_678_026_318_550_1,
    0.200_007_155_537_605_29,
    -0.249_999_970_197_677_6,
    0.333_333_313_465_118_4,
];
/// (log((1+s)/(1-s)) - 2s) / s^3 in s^2 <= 0.0295.
const LOG_64: [f64; 8] = [
    0.130_867_576_669_520_7,
    0.132_687_605_620_367_24,
    0.153_862_401_724_478_38,
    0.181_817_956_314_982_43,
    0.222_222_223_917_947_27,
    0.285_714_285_708_032_53,
    0.400_000_000_000_008_8,
    0.666_666_666_666_666_6,
];
/// erf(x)/x - 1 in x^2 <= 0.85.
const ERF_SMALL_32: [f64; 7] = [
    8.387_074_194_615_707e-05,
    -0.000_814_708_124_380_558_7,
    0.005_201_456_137_001_514_4,
    -0.026_859_588_921_070_1,
    0.112_836_994_230_747_22,
    -0.376_126_348_972_320_56,
    0.128_379_166_126_251_22,
];
/// log(erfc(x)) on [0.92, 4].
const ERF_LARGE_32: [f64; 9] = [
    1.643_569_703_446_701_2e-06,
    -4.617_791_273_631_155_5e-05,
    0.000_597_743_492_107_838_4,
    -0.004_763_575_270_771_98,
    0.026_431_018_486_618_996,
    -0.110_094_480_216_503_14,
    -0.631_814_539_432_525_6,
    -1.130_237_579_345_703_1,
    0.000_320_441_526_127_979_16,
];

/// log2(erfc(x)) on [0, 5], so that erfc(x) is off by 1.5e-8 at most.
const ERF_NEAR_ONE_32: [f64; 9] = [
    -4.435_513_912_256_812_5e-05,
    0.000_436_960_753_195_964_06,
    -0.001_460_428_368_719_086_2,
    -0.000_825_098_808_059_939_6,
    0.028_301_836_383_215_914,
    -0.148_506_627_453_385_64,
    -0.918_409_818_175_801_9,
    -1.627_909_325_691_320_6,
    2.171_507_008_008_021_4e-08,
];
/// 2^r on |r| <= 1/2, off by 9.1e-8 of it at most.
const EXP2_SHORT_32: [f64; 6] = [
    0.001_326_472_683_865_654_4,
    0.009_671_512_665_326_731,
    0.055_507_337_444_447_68,
    0.240_222_420_848_154_46,
    0.693_146_977_598_333_1,
    1.0,
];

/// Builds expressions of one float type.
pub struct Math<'a> {
    pub text: &'a mut Text,
    pub ty: Ty,
    pub isa: Isa,
}

impl Math<'_> {
    fn single(&self) -> bool {
        self.ty.elem == Elem::F32
    }

    pub fn c(&self, value: f64) -> String {
        self.ty.float(value)
    }

    pub fn add(&mut self, a: &str, b: &str) -> String {
        def!(self.text, "fadd {} {a}, {b}", self.ty)
    }

    pub fn sub(&mut self, a: &str, b: &str) -> String {
        def!(self.text, "fsub {} {a}, {b}", self.ty)
    }

    pub fn mul(&mut self, a: &str, b: &str) -> String {
        def!(self.text, "fmul {} {a}, {b}", self.ty)
    }

    pub fn div(&mut self, a: &str, b: &str) -> String {
        def!(self.text, "fdiv {} {a}, {b}", self.ty)
    }

    pub fn neg(&mut self, a: &str) -> String {
        def!(self.text, "fneg {} {a}", self.ty)
    }

    /// `a * b + c`, rounded once.
    pub fn fma(&mut self, a: &str, b: &str, c: &str) -> String {
        let ty = self.ty;
        def!(self.text, "call {ty} @llvm.fma.{}({ty} {a}, {ty} {b}, {ty} {c})", ty.suffix())
    }

    /// An intrinsic of one operand: `sqrt`, `fabs`, `floor`, ...
    pub fn intrinsic(&mut self, name: &str, a: &str) -> String {
        let ty = self.ty;
        def!(self.text, "call {ty} @llvm.{name}.{}({ty} {a})", ty.suffix())
    }

    pub fn copysign(&mut self, magnitude: &str, sign: &str) -> String {
        let ty = self.ty;
        def!(self.text, "call {ty} @llvm.copysign.{}({ty} {magnitude}, {ty} {sign})", ty.suffix())
    }

    pub fn compare(&mut self, how: &str, a: &str, b: &str) -> String {
        def!(self.text, "fcmp {how} {} {a}, {b}", self.ty)
    }

    pub fn select(&mut self, cond: &str, a: &str, b: &str) -> String {
        let (bools, ty) = (self.ty.with(Elem::I1), self.ty);
        def!(self.text, "select {bools} {cond}, {ty} {a}, {ty} {b}")
    }

    /// The larger of `x` and a bound; NaN stays NaN.
    pub fn at_least(&mut self, x: &str, bound: f64) -> String {
        let bound = self.c(bound);
        let below = self.compare("ogt", &bound, x);
        self.select(&below, &bound, x)
    }

    /// The smaller of `x` and a bound; NaN stays NaN.
    pub fn at_most(&mut self, x: &str, bound: f64) -> String {
        let bound = self.c(bound);
        let above = self.compare("olt", &bound, x);
        self.select(&above, &bound, x)
    }

    /// Horner's rule, highest power first.
    pub fn poly(&mut self, x: &str, coefficients: &[f64]) -> String {
        let mut sum = self.c(coefficients[0]);
        for c in &coefficients[1..] {
            let c = self.c(*c);
            sum = self.fma(&sum, x, &c);
        }
        sum
    }

    fn int(&self) -> Ty {
        self.ty.with(self.ty.elem.to_int())
    }

    /// Bits of the mantissa and bias of the exponent.
    fn format(&self) -> (i64, i64) {
        if self.single() { (23, 127) } else { (52, 1023) }
    }

    /// 2^n for an integer-valued float within the normal range.
    fn power_of_two(&mut self, n: &str) -> String {
        let (ty, int, (mantissa, bias)) = (self.ty, self.int(), self.format());
        let n = def!(self.text, "fptosi {ty} {n} to {int}");
        let biased = def!(self.text, "add {int} {n}, {}", int.int(bias));
        let bits = def!(self.text, "shl {int} {biased}, {}", int.int(mantissa));
        def!(self.text, "bitcast {int} {bits} to {ty}")
    }

    /// `p * 2^n` with one rounding at most, overflow and underflow included, for |n| < 2^(exponent bits).
    fn scale(&mut self, p: &str, n: &str) -> String {
        let ty = self.ty;
        if self.isa == Isa::Avx512 && ty.lanes * ty.elem.bits() == 512 {
            let (kind, mask) = if self.single() { ("ps", "i16") } else { ("pd", "i8") };
            return def!(
                self.text,
                "call {ty} @llvm.x86.avx512.mask.scalef.{kind}.512({ty} {p}, {ty} {n}, {ty} {p}, {mask} -1, i32 4)"
            );
        }
        let (int, (mantissa, bias)) = (self.int(), self.format());
        let whole = def!(self.text, "fptosi {ty} {n} to {int}");
        let first = def!(self.text, "ashr {int} {whole}, {}", int.int(1));
        let second = def!(self.text, "sub {int} {whole}, {first}");
        let mut product = p.to_owned();
        for part in [first, second] {
            let biased = def!(self.text, "add {int} {part}, {}", int.int(bias));
            let bits = def!(self.text, "shl {int} {biased}, {}", int.int(mantissa));
            let factor = def!(self.text, "bitcast {int} {bits} to {ty}");
            product = self.mul(&product, &factor);
        }
        product
    }

    /// exp(r) - 1 for |r| <= ln(2)/2.
    fn exp_small_minus_one(&mut self, r: &str) -> String {
        let q = if self.single() { self.poly(r, &EXP_32) } else { self.poly(r, &EXP_64) };
        let r2 = self.mul(r, r);
        self.fma(&r2, &q, r)
    }

    /// n = round(x / ln 2) and r = x - n ln 2.
    fn reduce_exp(&mut self, x: &str) -> (String, String) {
        let log2e = self.c(std::f64::consts::LOG2_E);
        let scaled = self.mul(x, &log2e);
        let n = self.intrinsic("roundeven", &scaled);
        let (high, low) = if self.single() {
            (f64::from(std::f32::consts::LN_2), -1.904_654_299_957_768e-9)
        } else {
            (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10)
        };
        let (high, low) = (self.c(-high), self.c(-low));
        let r = self.fma(&n, &high, x);
        let r = self.fma(&n, &low, &r);
        (n, r)
    }

    fn exp(&mut self, x: &str) -> String {
        let (low, high) = if self.single() { (-104.0, 89.0) } else { (-745.5, 710.0) };
        let x = self.at_most(x, high);
        let (x, vanishes) = self.without_vanishing(&x, low);
        let scaled = self.exp_in_range(&x);
        self.vanished(&vanishes, &scaled)
    }

    /// Where the result is a normal number.
    fn exp_in_range(&mut self, x: &str) -> String {
        let (n, r) = self.reduce_exp(x);
        let p = self.exp_small_minus_one(&r);
        let one = self.c(1.0);
        let p = self.add(&p, &one);
        self.scale(&p, &n)
    }

    /// Zero for what is below a bound, and where that is: a result that underflows takes the processor a hundred times as long.
    fn without_vanishing(&mut self, x: &str, bound: f64) -> (String, String) {
        let (bound, zero) = (self.c(bound), self.c(0.0));
        let vanishes = self.compare("olt", x, &bound);
        (self.select(&vanishes, &zero, x), vanishes)
    }

    fn vanished(&mut self, vanishes: &str, value: &str) -> String {
        let zero = self.c(0.0);
        self.select(vanishes, &zero, value)
    }

    /// `2^(x + extra)`, where `extra` is tiny beside x.
    pub fn exp2(&mut self, x: &str, extra: Option<&str>) -> String {
        let (low, high) = if self.single() { (-151.0, 129.0) } else { (-1076.0, 1025.0) };
        let x = self.at_most(x, high);
        let (x, vanishes) = self.without_vanishing(&x, low);
        let n = self.intrinsic("roundeven", &x);
        let r = self.sub(&x, &n);
        // r ln 2 in two parts: the second is the product's rounding error and that of ln 2.
        let high = self.c(std::f64::consts::LN_2);
        let low = self.c(if self.single() { -1.904_654_299_957_768e-9 } else { 2.319_046_813_846_299_6e-17 });
        let t = self.mul(&r, &high);
        let negative = self.neg(&t);
        let error = self.fma(&r, &high, &negative);
        let error = self.fma(&r, &low, &error);
        let p = self.exp_small_minus_one(&t);
        let error = match extra {
            Some(extra) => {
                let error = self.fma(extra, &high, &error);
                self.fma(&p, &error, &error)
            }
            None => error,
        };
        let p = self.add(&p, &error);
        let one = self.c(1.0);
        let p = self.add(&p, &one);
        let scaled = self.scale(&p, &n);
        self.vanished(&vanishes, &scaled)
    }

    /// With n from the reduction and p = exp(r) - 1: 2 (2^(n-1) p + (2^(n-1) - 1/2)), exact for n = 0.
    fn expm1(&mut self, x: &str) -> String {
        let (low, high) = if self.single() { (-20.0, 89.0) } else { (-40.0, 710.0) };
        let original = x;
        let x = self.at_most(x, high);
        let x = self.at_least(&x, low);
        let (n, r) = self.reduce_exp(&x);
        let p = self.exp_small_minus_one(&r);
        let one = self.c(1.0);
        let n1 = self.sub(&n, &one);
        let half_scale = self.power_of_two(&n1);
        let minus_half = self.c(-0.5);
        let rest = self.add(&half_scale, &minus_half);
        let half = self.fma(&half_scale, &p, &rest);
        let sum = self.add(&half, &half);
        // Keeps the sign of zero, and tiny arguments whose halves would be subnormal.
        let magnitude = self.intrinsic("fabs", original);
        let tiny = self.c(if self.single() { 1e-20 } else { 1e-200 });
        let is_tiny = self.compare("olt", &magnitude, &tiny);
        self.select(&is_tiny, original, &sum)
    }

    /// Exponent k (as float) and f with x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive x.
    pub fn split_log(&mut self, x: &str) -> (String, String) {
        let (ty, int, (mantissa, _)) = (self.ty, self.int(), self.format());
        let (smallest, up) =
            if self.single() { (f64::from(f32::MIN_POSITIVE), 23.0) } else { (f64::MIN_POSITIVE, 52.0) };
        let (smallest, factor) = (self.c(smallest), self.c(f64::exp2(up)));
        let subnormal = self.compare("olt", x, &smallest);
        let larger = self.mul(x, &factor);
        let x = self.select(&subnormal, &larger, x);
        let (shift, zero) = (self.c(-up), self.c(0.0));
        let shift = self.select(&subnormal, &shift, &zero);
        let bits = def!(self.text, "bitcast {ty} {x} to {int}");
        let root = if self.single() {
            i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits())
        } else {
            std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64
        };
        let above = def!(self.text, "sub {int} {bits}, {}", int.int(root));
        let k = def!(self.text, "ashr {int} {above}, {}", int.int(mantissa));
        let exponent = def!(self.text, "shl {int} {k}, {}", int.int(mantissa));
        let m = def!(self.text, "sub {int} {bits}, {exponent}");
        let m = def!(self.text, "bitcast {int} {m} to {ty}");
        let k = def!(self.text, "sitofp {int} {k} to {ty}");
        let k = self.add(&k, &shift);
        let one = self.c(1.0);
        let f = self.sub(&m, &one);
        (k, f)
    }

    /// k ln 2 + log(1 + f) + extra, where `extra` is tiny beside the rest.
    fn join_log(&mut self, k: &str, f: &str, extra: Option<&str>) -> String {
        let half = self.c(-0.5);
        if self.single() {
            let (high, low) = (self.c(0.693_359_375), self.c(-2.121_944_400_546_905_8e-4));
            let z = self.mul(f, f);
            let p = self.poly(f, &LOG_32);
            let fz = self.mul(f, &z);
            let y = match extra {
                Some(extra) => self.fma(&fz, &p, extra),
                None => self.mul(&fz, &p),
            };
            let y = self.fma(k, &low, &y);
            let y = self.fma(&half, &z, &y);
            let y = self.add(f, &y);
            return self.fma(k, &high, &y);
        }
        let (high, low) = (self.c(0.693_147_180_369_123_8), self.c(1.908_214_929_270_587_7e-10));
        let two = self.c(2.0);
        let below = self.add(f, &two);
        let s = self.div(f, &below);
        let z = self.mul(&s, &s);
        let p = self.poly(&z, &LOG_64);
        let remainder = self.mul(&z, &p);
        let minus_half_square = self.mul(&half, f);
        let minus_half_square = self.mul(&minus_half_square, f);
        let inner = self.sub(&remainder, &minus_half_square);
        let y = self.mul(&s, &inner);
        let y = match extra {
            Some(extra) => self.add(&y, extra),
            None => y,
        };
        let y = self.fma(k, &low, &y);
        let y = self.add(&minus_half_square, &y);
        let y = self.add(f, &y);
        self.fma(k, &high, &y)
    }

    /// The values outside of (0, inf).
    pub fn log_edges(&mut self, x: &str, y: &str) -> String {
        let (zero, inf) = (self.c(0.0), self.c(f64::INFINITY));
        let (minus_inf, nan) = (self.c(f64::NEG_INFINITY), self.c(f64::NAN));
        // NaN and +inf are their own logarithm.
        let finite = self.compare("olt", x, &inf);
        let y = self.select(&finite, y, x);
        let is_zero = self.compare("oeq", x, &zero);
        let y = self.select(&is_zero, &minus_inf, &y);
        let negative = self.compare("olt", x, &zero);
        self.select(&negative, &nan, &y)
    }

    fn log(&mut self, x: &str) -> String {
        let (k, f) = self.split_log(x);
        let y = self.join_log(&k, &f, None);
        self.log_edges(x, &y)
    }

    /// k * unit + log(1 + f) * factor: exact for powers of two where unit is 1. f32 goes through f64.
    fn log_to_base(&mut self, x: &str, unit: f64, factor: f64) -> String {
        if self.single() {
            return self.in_double(x, |wide, x| wide.log_to_base(x, unit, factor));
        }
        let (k, f) = self.split_log(x);
        let zero = self.c(0.0);
        let y = self.join_log(&zero, &f, None);
        let factor = self.c(factor);
        let y = self.mul(&y, &factor);
        let unit = self.c(unit);
        let y = self.fma(&k, &unit, &y);
        self.log_edges(x, &y)
    }

    /// log(u) for u = 1 + x, corrected by the rounding error of that sum over u.
    fn log1p(&mut self, x: &str) -> String {
        let one = self.c(1.0);
        let u = self.add(x, &one);
        let u_minus_one = self.sub(&u, &one);
        let error_small = self.sub(x, &u_minus_one);
        let u_minus_x = self.sub(&u, x);
        let error_large = self.sub(&one, &u_minus_x);
        let magnitude = self.intrinsic("fabs", x);
        let is_large = self.compare("ogt", &magnitude, &one);
        let error = self.select(&is_large, &error_large, &error_small);
        let extra = self.div(&error, &u);
        let (k, f) = self.split_log(&u);
        let y = self.join_log(&k, &f, Some(&extra));
        let y = self.log_edges(&u, &y);
        let tiny = self.c(if self.single() { 1e-10 } else { 1e-20 });
        let is_tiny = self.compare("olt", &magnitude, &tiny);
        self.select(&is_tiny, x, &y)
    }

    fn sigmoid(&mut self, x: &str) -> String {
        let negative = self.neg(x);
        let e = self.exp(&negative);
        let one = self.c(1.0);
        let below = self.add(&one, &e);
        self.div(&one, &below)
    }

    fn tanh(&mut self, x: &str) -> String {
        let a = self.intrinsic("fabs", x);
        let (one, two) = (self.c(1.0), self.c(2.0));
        if !self.single() {
            let a = self.at_most(&a, 22.0);
            let doubled = self.add(&a, &a);
            let e = self.expm1(&doubled);
            let below = self.add(&e, &two);
            let y = self.div(&e, &below);
            return self.copysign(&y, x);
        }
        // (e^2a - 1) / (e^2a + 1), with e^2a - 1 = 2^n p + (2^n - 1). Beyond, it is 1.
        let clamped = self.at_most(&a, 10.0);
        let doubled = self.add(&clamped, &clamped);
        let (n, r) = self.reduce_exp(&doubled);
        let p = self.exp_small_minus_one(&r);
        let scale = self.power_of_two(&n);
        let rest = self.sub(&scale, &one);
        let above = self.fma(&scale, &p, &rest);
        let below = self.add(&above, &two);
        let y = self.div(&above, &below);
        self.copysign(&y, x)
    }

    fn erf(&mut self, x: &str) -> String {
        let a = self.intrinsic("fabs", x);
        let z = self.mul(&a, &a);
        let p = self.poly(&z, &ERF_SMALL_32);
        let small = self.fma(&a, &p, &a);
        let clamped = self.at_most(&a, 4.0);
        let q = self.poly(&clamped, &ERF_LARGE_32);
        let complement = self.exp_in_range(&q);
        let one = self.c(1.0);
        let large = self.sub(&one, &complement);
        let limit = self.c(0.92);
        let is_small = self.compare("olt", &a, &limit);
        let y = self.select(&is_small, &small, &large);
        self.copysign(&y, x)
    }

    /// `erf(x)` for a sum with 1 in single precision: off by 1e-7 at most, also beside zero.
    pub fn erf_near_one(&mut self, x: &str) -> String {
        let a = self.intrinsic("fabs", x);
        let clamped = self.at_most(&a, 5.0);
        let q = self.poly(&clamped, &ERF_NEAR_ONE_32);
        let n = self.intrinsic("roundeven", &q);
        let r = self.sub(&q, &n);
        let p = self.poly(&r, &EXP2_SHORT_32);
        let complement = self.scale(&p, &n);
        let one = self.c(1.0);
        let y = self.sub(&one, &complement);
        self.copysign(&y, x)
    }

    /// Computes in f64 and rounds to this type.
    pub fn in_double(&mut self, x: &str, f: impl FnOnce(&mut Math<'_>, &str) -> String) -> String {
        let (ty, wide) = (self.ty, self.ty.with(Elem::F64));
        let x = def!(self.text, "fpext {ty} {x} to {wide}");
        let y = f(&mut Math { text: self.text, ty: wide, isa: self.isa }, &x);
        def!(self.text, "fptrunc {wide} {y} to {ty}")
    }

    /// A unary operation on a float; `None` if there is none.
    pub fn unary(&mut self, op: Unary, x: &str) -> Option<String> {
        Some(match op {
            Unary::Neg => self.neg(x),
            Unary::Abs => self.intrinsic("fabs", x),
            Unary::Sign => {
                let (zero, one, minus_one) = (self.c(0.0), self.c(1.0), self.c(-1.0));
                let positive = self.compare("ogt", x, &zero);
                let y = self.select(&positive, &one, &zero);
                let negative = self.compare("olt", x, &zero);
                self.select(&negative, &minus_one, &y)
            }
            Unary::Exp => self.exp(x),
            Unary::Exp2 => self.exp2(x, None),
            Unary::Expm1 => self.expm1(x),
            Unary::Log => self.log(x),
            Unary::Log2 => self.log_to_base(x, 1.0, std::f64::consts::LOG2_E),
            Unary::Log10 => self.log_to_base(x, std::f64::consts::LOG10_2, std::f64::consts::LOG10_E),
            Unary::Log1p => self.log1p(x),
            Unary::Sqrt => self.intrinsic("sqrt", x),
            Unary::Rsqrt => {
                let root = self.intrinsic("sqrt", x);
                let one = self.c(1.0);
                self.div(&one, &root)
            }
            Unary::Reciprocal => {
                let one = self.c(1.0);
                self.div(&one, x)
            }
            Unary::Sin | Unary::Cos | Unary::Tan if self.single() => self.trig(op, x),
            Unary::Asin | Unary::Acos if self.single() => self.arc(op, x),
            Unary::Atan if self.single() => self.atan(x),
            Unary::Sinh | Unary::Cosh | Unary::Asinh | Unary::Acosh | Unary::Atanh if self.single() => {
                self.hyperbolic(op, x)
            }
            Unary::Tanh => self.tanh(x),
            Unary::Sigmoid => self.sigmoid(x),
            Unary::Erf if self.single() => self.erf(x),
            Unary::Floor => self.intrinsic("floor", x),
            Unary::Ceil => self.intrinsic("ceil", x),
            Unary::Round => self.intrinsic("roundeven", x),
            Unary::Trunc => self.intrinsic("trunc", x),
            Unary::IsNan => self.compare("uno", x, x),
            Unary::IsInf => {
                let a = self.intrinsic("fabs", x);
                let inf = self.c(f64::INFINITY);
                self.compare("oeq", &a, &inf)
            }
            _ => return None,
        })
    }
}
