//! Writing LLVM IR as text: fresh names, blocks, and operands that become known later (phi inputs of loops).

use flambeau_plugin::kernel::DType;
use std::fmt::{self, Write};

/// Element of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Elem {
    /// How values of a type are held: half-precision floats as their bits (they are only converted, never computed with).
    pub fn of(dtype: DType) -> Elem {
        match dtype {
            DType::Bool => Elem::I1,
            DType::U8 | DType::I8 => Elem::I8,
            DType::I16 | DType::F16 | DType::Bf16 => Elem::I16,
            DType::I32 | DType::C32 => Elem::I32,
            DType::I64 | DType::C64 | DType::C128 => Elem::I64,
            DType::F32 => Elem::F32,
            DType::F64 => Elem::F64,
        }
    }

    /// How values of a type lie in memory.
    pub fn in_memory(dtype: DType) -> Elem {
        if dtype == DType::Bool { Elem::I8 } else { Elem::of(dtype) }
    }

    pub fn text(self) -> &'static str {
        match self {
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::F32 => "float",
            Elem::F64 => "double",
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Elem::I1 => 1,
            Elem::I8 => 8,
            Elem::I16 => 16,
            Elem::I32 | Elem::F32 => 32,
            Elem::I64 | Elem::F64 => 64,
        }
    }

    /// The suffix intrinsics are overloaded with.
    pub fn suffix(self) -> &'static str {
        match self {
            Elem::F32 => "f32",
            Elem::F64 => "f64",
            other => other.text(),
        }
    }

    /// The integer of the same size.
    pub fn to_int(self) -> Elem {
        match self {
            Elem::F32 => Elem::I32,
            Elem::F64 => Elem::I64,
            other => other,
        }
    }
}

/// Type of a register: one element or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ty {
    pub elem: Elem,
    pub lanes: u32,
}

impl Ty {
    pub fn new(elem: Elem, lanes: u32) -> Ty {
        Ty { elem, lanes }
    }

    pub fn with(self, elem: Elem) -> Ty {
        Ty { elem, ..self }
    }

    /// A constant of this type in every lane; `scalar` is its element's text.
    pub fn constant(self, scalar: impl fmt::Display) -> String {
        if self.lanes == 1 { scalar.to_string() } else { format!("splat ({} {scalar})", self.elem.text()) }
    }

    /// An integer constant.
    pub fn int(self, value: i64) -> String {
        self.constant(value)
    }

    /// A float constant, rounded to the element's type.
    pub fn float(self, value: f64) -> String {
        let rounded = if self.elem == Elem::F32 { f64::from(value as f32) } else { value };
        self.constant(format_args!("0x{:016X}", rounded.to_bits()))
    }

    /// The suffix intrinsics are overloaded with.
    pub fn suffix(self) -> String {
        let elem = self.elem.suffix();
        if self.lanes == 1 { elem.to_owned() } else { format!("v{}{elem}", self.lanes) }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lanes == 1 {
            f.write_str(self.elem.text())
        } else {
            write!(f, "<{} x {}>", self.lanes, self.elem.text())
        }
    }
}

/// An operand that is written before it is known.
#[derive(Clone, Copy, Debug)]
pub struct Later(usize);

/// Brackets the number of a [`Later`] in the text; no LLVM IR contains it.
const MARK: char = '\u{1}';

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}{MARK}", self.0)
    }
}

/// The body of a function under construction.
#[derive(Default)]
pub struct Text {
    body: String,
    next: u32,
    block: String,
    later: Vec<String>,
}

impl Text {
    /// Starts with the block `entry`.
    pub fn new() -> Text {
        Text { block: "entry".to_owned(), body: "entry:\n".to_owned(), ..Text::default() }
    }

    /// Appends an instruction without a result.
    pub fn run(&mut self, instruction: fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "  {instruction}");
    }

    /// Appends an instruction and names its result.
    pub fn def(&mut self, instruction: fmt::Arguments<'_>) -> String {
        let name = format!("%{}", self.fresh("v"));
        let _ = writeln!(self.body, "  {name} = {instruction}");
        name
    }

    /// A name nothing else has.
    pub fn fresh(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    /// Starts the block with this label.
    pub fn enter(&mut self, label: &str) {
        let _ = writeln!(self.body, "{label}:");
        label.clone_into(&mut self.block);
    }

    /// The label of the current block.
    pub fn block(&self) -> String {
        self.block.clone()
    }

    /// An operand to be given by [`Text::resolve`].
    pub fn later(&mut self) -> Later {
        self.later.push(String::new());
        Later(self.later.len() - 1)
    }

    pub fn resolve(&mut self, later: Later, operand: &str) {
        operand.clone_into(&mut self.later[later.0]);
    }

    /// The finished body.
    pub fn finish(self) -> String {
        let mut done = String::with_capacity(self.body.len());
        for (i, part) in self.body.split(MARK).enumerate() {
            if i % 2 == 0 {
                done.push_str(part);
            } else {
                let index: usize = part.parse().unwrap_or_default();
                done.push_str(&self.later[index]);
            }
        }
        done
    }
}

/// `def!(text, "fadd {ty} {a}, {b}")`: appends an instruction and names its result.
macro_rules! def {
    ($text:expr, $($format:tt)+) => { $text.def(format_args!($($format)+)) };
}

/// `run!(text, "ret void")`: appends an instruction without a result.
macro_rules! run {
    ($text:expr, $($format:tt)+) => { $text.run(format_args!($($format)+)) };
}

pub(crate) use {def, run};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_operands_are_filled_in() {
        let mut text = Text::new();
        let later = text.later();
        let phi = def!(text, "phi i64 [ 0, %entry ], [ {later}, %loop ]");
        text.resolve(later, "%next");
        assert_eq!(phi, "%v1");
        assert_eq!(text.finish(), "entry:\n  %v1 = phi i64 [ 0, %entry ], [ %next, %loop ]\n");
    }

    #[test]
    fn constants_are_exact() {
        assert_eq!(Ty::new(Elem::F32, 1).float(0.1), "0x3FB99999A0000000");
        assert_eq!(Ty::new(Elem::I32, 8).int(-1), "splat (i32 -1)");
    }
}
