//! One kernel operation as IR, for one element or a vector: integers, booleans, casts, and the floats' exact operations.

use crate::math::Math;
use crate::text::{Elem, Text, Ty, def};
use flambeau_cpu_artifact::Isa;
use flambeau_plugin::kernel::{Binary, DType, ReduceOp, Unary};
use flambeau_plugin::reference::{bf16_bits, f16_bits};

/// Where and how operations are written.
pub struct Ops<'a> {
    pub text: &'a mut Text,
    pub lanes: u32,
    pub isa: Isa,
}

/// The text of a constant's element, from its bits as [`flambeau_plugin::kernel::Op::Const`] has them.
pub fn constant(dtype: DType, bits: u64) -> String {
    let scalar = Ty::new(Elem::of(dtype), 1);
    match dtype {
        DType::F64 => scalar.float(f64::from_bits(bits)),
        DType::F32 => scalar.float(f64::from(f32::from_bits(bits as u32))),
        DType::F16 => f16_bits(f32::from_bits(bits as u32)).to_string(),
        DType::Bf16 => bf16_bits(f32::from_bits(bits as u32)).to_string(),
        DType::Bool => (bits & 1).to_string(),
        DType::U8 => (bits as u8).to_string(),
        DType::I8 => (bits as i8).to_string(),
        DType::I16 => (bits as i16).to_string(),
        DType::I32 => (bits as i32).to_string(),
        _ => (bits as i64).to_string(),
    }
}

impl Ops<'_> {
    fn ty(&self, dtype: DType) -> Ty {
        Ty::new(Elem::of(dtype), self.lanes)
    }

    fn math(&mut self, dtype: DType) -> Math<'_> {
        Math { ty: self.ty(dtype), text: self.text, isa: self.isa }
    }

    fn select(&mut self, ty: Ty, cond: &str, a: &str, b: &str) -> String {
        def!(self.text, "select {} {cond}, {ty} {a}, {ty} {b}", ty.with(Elem::I1))
    }

    fn icmp(&mut self, how: &str, ty: Ty, a: &str, b: &str) -> String {
        def!(self.text, "icmp {how} {ty} {a}, {b}")
    }

    /// `cond ? a : b`.
    pub fn choose(&mut self, dtype: DType, cond: &str, a: &str, b: &str) -> String {
        self.select(self.ty(dtype), cond, a, b)
    }

    /// `erf(a)` of single precision, of which only the sum with 1 is used.
    pub fn erf_near_one(&mut self, a: &str) -> String {
        self.math(DType::F32).erf_near_one(a)
    }

    /// A unary operation; `None` if this back end has none.
    pub fn unary(&mut self, op: Unary, dtype: DType, a: &str) -> Option<String> {
        if matches!(dtype, DType::F32 | DType::F64) {
            return self.math(dtype).unary(op, a);
        }
        let ty = self.ty(dtype);
        Some(match (op, dtype) {
            (Unary::Not | Unary::BitNot, DType::Bool) => def!(self.text, "xor {ty} {a}, {}", ty.int(-1)),
            (Unary::BitNot, _) if dtype.is_integer() => def!(self.text, "xor {ty} {a}, {}", ty.int(-1)),
            (Unary::Neg, _) if dtype.is_integer() => def!(self.text, "sub {ty} {}, {a}", ty.int(0)),
            (Unary::Abs, DType::U8) => a.to_owned(),
            (Unary::Abs, _) if dtype.is_integer() => {
                def!(self.text, "call {ty} @llvm.abs.{}({ty} {a}, i1 false)", ty.suffix())
            }
            (Unary::Sign, _) if dtype.is_integer() => {
                let greater = if dtype == DType::U8 { "ugt" } else { "sgt" };
                let positive = self.icmp(greater, ty, a, &ty.int(0));
                let y = def!(self.text, "zext {} {positive} to {ty}", ty.with(Elem::I1));
                if dtype == DType::U8 {
                    return Some(y);
                }
                let negative = self.icmp("slt", ty, a, &ty.int(0));
                self.select(ty, &negative, &ty.int(-1), &y)
            }
            _ => return None,
        })
    }

    /// A binary operation on operands of type `dtype`; `None` if this back end has none.
    pub fn binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> Option<String> {
        match dtype {
            DType::F32 | DType::F64 => self.float_binary(op, dtype, a, b),
            DType::Bool => self.bool_binary(op, a, b),
            _ if dtype.is_integer() => self.int_binary(op, dtype, a, b),
            _ => None,
        }
    }

    fn float_binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> Option<String> {
        let mut math = self.math(dtype);
        Some(match op {
            Binary::Add => math.add(a, b),
            Binary::Sub => math.sub(a, b),
            Binary::Mul => math.mul(a, b),
            Binary::Div => math.div(a, b),
            Binary::TruncDiv => {
                let quotient = math.div(a, b);
                math.intrinsic("trunc", &quotient)
            }
            // `b > a ? b : a` is one instruction that yields a where either is NaN or both are equal (`relu(-0.0)` is -0.0);
            // then b's own NaN is put in, which costs nothing where b is a constant.
            Binary::Max | Binary::Min => {
                let second = math.compare(if op == Binary::Max { "ogt" } else { "olt" }, b, a);
                let chosen = math.select(&second, b, a);
                let nan = math.compare("uno", b, b);
                math.select(&nan, b, &chosen)
            }
            Binary::Pow if dtype == DType::F32 => math.power(a, b),
            Binary::Atan2 if dtype == DType::F32 => math.atan2(a, b),
            Binary::Fmod if dtype == DType::F32 => math.fmod(a, b),
            Binary::Rem if dtype == DType::F32 => math.remainder(a, b),
            Binary::Pow if dtype == DType::F64 => math.double_power(a, b),
            Binary::Eq => math.compare("oeq", a, b),
            Binary::Ne => math.compare("une", a, b),
            Binary::Lt => math.compare("olt", a, b),
            Binary::Le => math.compare("ole", a, b),
            Binary::Gt => math.compare("ogt", a, b),
            Binary::Ge => math.compare("oge", a, b),
            _ => return None,
        })
    }

    fn bool_binary(&mut self, op: Binary, a: &str, b: &str) -> Option<String> {
        let ty = self.ty(DType::Bool);
        Some(match op {
            Binary::And | Binary::Min => def!(self.text, "and {ty} {a}, {b}"),
            Binary::Or | Binary::Max => def!(self.text, "or {ty} {a}, {b}"),
            Binary::Xor | Binary::Ne => def!(self.text, "xor {ty} {a}, {b}"),
            Binary::Eq => self.icmp("eq", ty, a, b),
            Binary::Lt => self.icmp("ult", ty, a, b),
            Binary::Le => self.icmp("ule", ty, a, b),
            Binary::Gt => self.icmp("ugt", ty, a, b),
            Binary::Ge => self.icmp("uge", ty, a, b),
            _ => return None,
        })
    }

    fn int_binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> Option<String> {
        let ty = self.ty(dtype);
        let sign = if dtype == DType::U8 { "u" } else { "s" };
        let plain = |name: &str| format!("{name} {ty} {a}, {b}");
        Some(match op {
            Binary::Add => def!(self.text, "{}", plain("add")),
            Binary::Sub => def!(self.text, "{}", plain("sub")),
            Binary::Mul => def!(self.text, "{}", plain("mul")),
            Binary::And => def!(self.text, "{}", plain("and")),
            Binary::Or => def!(self.text, "{}", plain("or")),
            Binary::Xor => def!(self.text, "{}", plain("xor")),
            Binary::Max | Binary::Min => {
                let name = if op == Binary::Max { "max" } else { "min" };
                def!(self.text, "call {ty} @llvm.{sign}{name}.{}({ty} {a}, {ty} {b})", ty.suffix())
            }
            Binary::Shl | Binary::Shr => self.shift(op, dtype, a, b),
            Binary::FloorDiv | Binary::TruncDiv | Binary::Rem | Binary::Fmod => self.int_division(op, dtype, a, b),
            Binary::Eq => self.icmp("eq", ty, a, b),
            Binary::Ne => self.icmp("ne", ty, a, b),
            Binary::Lt => self.icmp(&format!("{sign}lt"), ty, a, b),
            Binary::Le => self.icmp(&format!("{sign}le"), ty, a, b),
            Binary::Gt => self.icmp(&format!("{sign}gt"), ty, a, b),
            Binary::Ge => self.icmp(&format!("{sign}ge"), ty, a, b),
            _ => return None,
        })
    }

    /// Shifts by a negative or too large count give 0, or the sign for right shifts, as torch's do.
    fn shift(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let ty = self.ty(dtype);
        let bits = i64::from(ty.elem.bits());
        let fits = self.icmp("ult", ty, b, &ty.int(bits));
        if op == Binary::Shr && dtype != DType::U8 {
            let count = self.select(ty, &fits, b, &ty.int(bits - 1));
            return def!(self.text, "ashr {ty} {a}, {count}");
        }
        let count = self.select(ty, &fits, b, &ty.int(0));
        let name = if op == Binary::Shl { "shl" } else { "lshr" };
        let shifted = def!(self.text, "{name} {ty} {a}, {count}");
        self.select(ty, &fits, &shifted, &ty.int(0))
    }

    /// The divisors that trap are replaced: 0 (never lowered to a kernel) by 1, and -1 by 1 with the quotient negated.
    fn int_division(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let ty = self.ty(dtype);
        let remainder = matches!(op, Binary::Rem | Binary::Fmod);
        if dtype == DType::U8 {
            let zero = self.icmp("eq", ty, b, &ty.int(0));
            let b = self.select(ty, &zero, &ty.int(1), b);
            return def!(self.text, "{} {ty} {a}, {b}", if remainder { "urem" } else { "udiv" });
        }
        let minus_one = self.icmp("eq", ty, b, &ty.int(-1));
        let zero = self.icmp("eq", ty, b, &ty.int(0));
        let unsafe_divisor = def!(self.text, "or {} {minus_one}, {zero}", ty.with(Elem::I1));
        let safe = self.select(ty, &unsafe_divisor, &ty.int(1), b);
        let quotient = def!(self.text, "sdiv {ty} {a}, {safe}");
        let product = def!(self.text, "mul {ty} {quotient}, {safe}");
        let rest = def!(self.text, "sub {ty} {a}, {product}");
        let signs = def!(self.text, "xor {ty} {a}, {safe}");
        let differ = self.icmp("slt", ty, &signs, &ty.int(0));
        let inexact = self.icmp("ne", ty, &rest, &ty.int(0));
        let rounds_down = def!(self.text, "and {} {differ}, {inexact}", ty.with(Elem::I1));
        if remainder {
            if op == Binary::Fmod {
                return rest;
            }
            let moved = def!(self.text, "add {ty} {rest}, {safe}");
            return self.select(ty, &rounds_down, &moved, &rest);
        }
        let quotient = if op == Binary::FloorDiv {
            let lower = def!(self.text, "sub {ty} {quotient}, {}", ty.int(1));
            self.select(ty, &rounds_down, &lower, &quotient)
        } else {
            quotient
        };
        let negated = def!(self.text, "sub {ty} {}, {a}", ty.int(0));
        self.select(ty, &minus_one, &negated, &quotient)
    }

    /// `.to(dtype)`.
    pub fn cast(&mut self, from: DType, to: DType, a: &str) -> String {
        if from == to {
            return a.to_owned();
        }
        let (source, target) = (self.ty(from), self.ty(to));
        match (from, to) {
            (DType::F16, DType::F32) => {
                let half = self.half();
                let h = def!(self.text, "bitcast {source} {a} to {half}");
                def!(self.text, "fpext {half} {h} to {target}")
            }
            (DType::Bf16, DType::F32) => {
                let wide = target.with(Elem::I32);
                let bits = def!(self.text, "zext {source} {a} to {wide}");
                let bits = def!(self.text, "shl {wide} {bits}, {}", wide.int(16));
                def!(self.text, "bitcast {wide} {bits} to {target}")
            }
            (DType::F16 | DType::Bf16, DType::Bool) => {
                let magnitude = def!(self.text, "and {source} {a}, {}", source.int(0x7fff));
                self.icmp("ne", source, &magnitude, &source.int(0))
            }
            (DType::F16 | DType::Bf16, _) => {
                let single = self.cast(from, DType::F32, a);
                self.cast(DType::F32, to, &single)
            }
            (DType::F32, DType::F16) => {
                let half = self.half();
                let h = def!(self.text, "fptrunc {source} {a} to {half}");
                def!(self.text, "bitcast {half} {h} to {target}")
            }
            (DType::F32, DType::Bf16) => self.round_to_bf16(source, target, a),
            (_, DType::F16 | DType::Bf16) => {
                let single = self.cast(from, DType::F32, a);
                self.cast(DType::F32, to, &single)
            }
            (DType::F32, DType::F64) => def!(self.text, "fpext {source} {a} to {target}"),
            (DType::F64, DType::F32) => def!(self.text, "fptrunc {source} {a} to {target}"),
            (DType::F32 | DType::F64, DType::Bool) => def!(self.text, "fcmp une {source} {a}, {}", source.float(0.0)),
            // C++ converts to small integers through `int`.
            (DType::F32 | DType::F64, DType::U8 | DType::I8 | DType::I16) => {
                let int = source.with(Elem::I32);
                let wide = def!(self.text, "fptosi {source} {a} to {int}");
                def!(self.text, "trunc {int} {wide} to {target}")
            }
            (DType::F32 | DType::F64, _) => def!(self.text, "fptosi {source} {a} to {target}"),
            (DType::Bool | DType::U8, DType::F32 | DType::F64) => def!(self.text, "uitofp {source} {a} to {target}"),
            (_, DType::F32 | DType::F64) => def!(self.text, "sitofp {source} {a} to {target}"),
            (_, DType::Bool) => self.icmp("ne", source, a, &source.int(0)),
            _ if source.elem == target.elem => a.to_owned(),
            _ if source.elem.bits() > target.elem.bits() => def!(self.text, "trunc {source} {a} to {target}"),
            (DType::Bool | DType::U8, _) => def!(self.text, "zext {source} {a} to {target}"),
            _ => def!(self.text, "sext {source} {a} to {target}"),
        }
    }

    fn half(&self) -> String {
        if self.lanes == 1 { "half".to_owned() } else { format!("<{} x half>", self.lanes) }
    }

    /// Round to nearest even on the bits; NaN becomes the quiet NaN 0x7fc0.
    fn round_to_bf16(&mut self, source: Ty, target: Ty, a: &str) -> String {
        let int = source.with(Elem::I32);
        let bits = def!(self.text, "bitcast {source} {a} to {int}");
        let shifted = def!(self.text, "lshr {int} {bits}, {}", int.int(16));
        let odd = def!(self.text, "and {int} {shifted}, {}", int.int(1));
        let bias = def!(self.text, "add {int} {odd}, {}", int.int(0x7fff));
        let rounded = def!(self.text, "add {int} {bits}, {bias}");
        let rounded = def!(self.text, "lshr {int} {rounded}, {}", int.int(16));
        let nan = def!(self.text, "fcmp uno {source} {a}, {a}");
        let rounded = self.select(int, &nan, &int.int(0x7fc0), &rounded);
        def!(self.text, "trunc {int} {rounded} to {target}")
    }

    /// One step of a reduction: what is found already (`a`) and what comes to it. Of a positive and a negative zero, the
    /// least and the greatest are the later one, as in torch's loops over few elements.
    pub fn combine(&mut self, op: ReduceOp, dtype: DType, a: &str, b: &str) -> Option<String> {
        let (a, b) = if matches!(op, ReduceOp::Max | ReduceOp::Min) { (b, a) } else { (a, b) };
        self.binary(op.step(), dtype, a, b)
    }
}

/// The element a reduction begins with. Sums begin with +0, as torch's: a sum of negative zeros is +0.
pub fn identity(op: ReduceOp, dtype: DType) -> String {
    let scalar = Ty::new(Elem::of(dtype), 1);
    let float = dtype.is_float();
    let signed_bits = scalar.elem.bits();
    match op {
        ReduceOp::Sum if float => scalar.float(0.0),
        ReduceOp::Prod if float => scalar.float(1.0),
        ReduceOp::Max if float => scalar.float(f64::NEG_INFINITY),
        ReduceOp::Min if float => scalar.float(f64::INFINITY),
        ReduceOp::Sum | ReduceOp::Any => scalar.int(0),
        ReduceOp::Prod | ReduceOp::All => scalar.int(1),
        ReduceOp::Max if dtype == DType::U8 => scalar.int(0),
        ReduceOp::Min if dtype == DType::U8 => scalar.int(-1),
        ReduceOp::Max => scalar.int(i64::MIN >> (64 - signed_bits)),
        ReduceOp::Min => scalar.int(i64::MAX >> (64 - signed_bits)),
    }
}
