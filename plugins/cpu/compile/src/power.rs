//! Powers of f32, computed in f64 as `2^(y log2 |x|)`; the cases apart are those of C99's annex F.

use crate::math::Math;

impl Math<'_> {
    /// `x^y` of f32.
    pub fn power(&mut self, x: &str, y: &str) -> String {
        self.both_in_double(x, y, |wide, x, y| wide.wide_power(x, y))
    }

    fn wide_power(&mut self, x: &str, y: &str) -> String {
        let (zero, one, half) = (self.c(0.0), self.c(1.0), self.c(0.5));
        let (inf, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let size = self.intrinsic("fabs", x);
        let log = self.log_to_base(&size, 1.0, std::f64::consts::LOG2_E);
        let product = self.mul(y, &log);
        let power = self.exp2(&product);
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
