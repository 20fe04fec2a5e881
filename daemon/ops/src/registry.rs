//! The table of ops: one [`OpDef`] per op, and how each name that torch gives it leads there. The lines themselves are in
//! the families' folders.

use crate::call::Rule;
use crate::signature::{Argument, Bound, Signature};
use crate::{InferError, decompose, families};
use flambeau_ir::graph::{Arg, Target};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Where an op's name is found. Combined by `|`.
pub(crate) mod place {
    /// `torch.X` and its aliases.
    pub const FN: u16 = 1;
    /// `Tensor.X`.
    pub const METHOD: u16 = 2;
    /// `torch._C._nn.X`, and what `torch.nn.functional` re-exports.
    pub const NN: u16 = 4;
    /// Also `X_` in each of those places.
    pub const INPLACE: u16 = 8;
    /// `torch.special.X`.
    pub const SPECIAL: u16 = 16;
    /// `torch.linalg.X`.
    pub const LINALG: u16 = 32;
    /// `torch.fft.X`.
    pub const BOTH: u16 = FN | METHOD;
    /// `torch.X`, `Tensor.X` and their in-place forms.
    pub const ALL: u16 = FN | METHOD | INPLACE;
}

/// What is known of one op.
#[derive(Debug)]
pub struct OpDef {
    /// Canonical name.
    pub name: &'static str,
    text: &'static str,
    method_text: Option<&'static str>,
    pub(crate) rule: Rule,
    /// How it becomes core values; `None`: torch computes it.
    pub lowers: Option<decompose::Rule>,
    /// Whether autograd may take the derivative of that.
    pub derives: bool,
    places: u16,
    synonyms: &'static [&'static str],
    paths: &'static [&'static str],
    operator: Option<Operator>,
    marks: u32,
    /// What autograd saves of a call.
    pub saved: Saved,
    /// What a call does besides giving its result.
    pub(crate) effect: Effect,
}

/// What autograd saves of a call for its derivative: a write to that, before the derivative runs, is an error of torch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Maybe all: arguments and result.
    All,
    /// Arguments.
    Arguments,
    /// Arguments where they are several tensors: each is a factor of another one's gradient.
    Factors,
    /// Arguments, if there are tensors in the index, which is the second one.
    Indices,
    /// Something that nobody else has.
    Own,
    /// Nothing.
    Nothing,
}

impl Saved {
    /// Whether tensors are saved of a call that takes this many.
    pub fn keeps_arguments(self, tensors: usize) -> bool {
        match self {
            Saved::All | Saved::Arguments | Saved::Indices => true,
            Saved::Factors => tensors > 1,
            Saved::Own | Saved::Nothing => false,
        }
    }
}

/// What is true of an op, or of a function without a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its rule holds on the CPU only: elsewhere torch lays the result out otherwise.
    CpuOnly,
    /// It may raise for what its tensors hold.
    Checks,
    /// Torch raises where an operand is a bool, which fake tensors do not.
    NoBools,
    /// Its only form writes into its first argument.
    Writes,
    /// It writes into its first argument and gives `None`.
    Stores,
    /// Autograd does not know its view for one.
    Severs,
    /// Where its result is a half, it computes with a number as it is; other ops round it to the result's type first.
    KeepsNumbers,
    /// It makes a tensor of no tensors.
    Makes,
    /// It makes a tensor of numbers, whose types are that of its elements.
    TakesData,
    /// Its result depends on dtypes, sizes, strides and devices alone, so that fake tensors answer for real ones.
    OfMetadata,
    /// It is called for what it does where it gives `None`.
    ForEffect,
    /// It sets whether a leaf requires grad.
    SetsGrad,
    /// No graph holds it: its result depends on what a tensor holds, or it runs code of its own.
    ReadsData,
    /// Of its second tensor it takes the type or the sizes alone.
    TakesForm,
    /// Of several tensors it gives those as they are that it has nothing to change of.
    PassesEqual,
    /// No graph holds it: it asks a tensor where its memory is, what autograd knows of it, how it was made.
    Asks,
}

/// What a call does besides giving its result, by the name of its op. In-place forms and `out` are told from the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Pure,
    /// Draws from torch's generators, at least with some arguments.
    Draws,
    /// Draws unless the parameter, at this place, is absent, false or zero.
    DrawsIf(&'static str, usize),
    /// Writes to an argument or sets the thread's state, at least with some arguments.
    Updates,
    /// Writes unless the parameter, at this place, is absent, false or zero.
    UpdatesIf(&'static str, usize),
    /// Acts on something else than tensors: no graph holds it.
    Elsewhere,
}

/// A Python operator: its name in module `operator`, and which dunder methods it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub name: &'static str,
    /// The operator's signature where it takes more than the function: `2 < x` but not `torch.gt(2, x)`.
    pub text: Option<&'static str>,
    pub reflected: Reflected,
    pub inplace: bool,
}

/// The method of an operator whose left operand has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reflected {
    None,
    /// `x.__rsub__(y)` is `y.sub(x)`.
    Swapped,
    /// `x.__radd__(y)` is `x.add(y)`.
    Same,
}

/// A call target resolved to its op.
#[derive(Clone, Copy, Debug)]
pub struct Canon {
    /// The op.
    pub op: &'static OpDef,
    /// Writes its result into the first tensor argument and returns that. `_operator.iadd` and the like do so only if their
    /// first argument is a tensor.
    pub inplace: bool,
    /// The two arguments are swapped (`__radd__`).
    pub reflected: bool,
    /// Reached as a Python operator, which may have its numbers and tensors in any order.
    pub(crate) operator: bool,
    signature: &'static Signature,
}

impl OpDef {
    pub(crate) const fn new(name: &'static str, text: &'static str, rule: Rule, places: u16) -> OpDef {
        OpDef {
            name,
            text,
            method_text: None,
            rule,
            lowers: None,
            derives: false,
            places,
            synonyms: &[],
            paths: &[],
            operator: None,
            marks: 0,
            saved: Saved::All,
            effect: Effect::Pure,
        }
    }

    /// An op whose metadata is torch's, and whose decomposition holds for all arguments that it takes itself.
    pub(crate) const fn told(name: &'static str, text: &'static str, places: u16) -> OpDef {
        OpDef::new(name, text, |_| Err(InferError::Told), places)
    }

    /// The op's decomposition.
    pub(crate) const fn lowers(mut self, rule: decompose::Rule) -> OpDef {
        self.lowers = Some(rule);
        self
    }

    /// The op's decomposition, whose derivative is the one that torch takes.
    pub(crate) const fn derives(mut self, rule: decompose::Rule) -> OpDef {
        self.derives = true;
        self.lowers(rule)
    }

    /// Further names, in the same places.
    pub(crate) const fn also(mut self, names: &'static [&'static str]) -> OpDef {
        self.synonyms = names;
        self
    }

    /// Further full import paths; one that starts with `.` is a method.
    pub(crate) const fn paths(mut self, paths: &'static [&'static str]) -> OpDef {
        self.paths = paths;
        self
    }

    /// The method's signature, where its order of parameters is another.
    pub(crate) const fn method(mut self, text: &'static str) -> OpDef {
        self.method_text = Some(text);
        self
    }

    /// A binary operator with reflected and in-place forms.
    pub(crate) const fn binary(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: None, reflected: Reflected::Swapped, inplace: true });
        self
    }

    /// A binary operator whose operands torch leaves in place where it is reflected.
    pub(crate) const fn commutative(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: None, reflected: Reflected::Same, inplace: true });
        self
    }

    /// An operator with neither.
    pub(crate) const fn operator(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: None, reflected: Reflected::None, inplace: false });
        self
    }

    /// A comparison: numbers may stand on the left of the operator.
    pub(crate) const fn comparison(mut self, name: &'static str) -> OpDef {
        self.operator =
            Some(Operator { name, text: Some("input:TN, other:TN"), reflected: Reflected::None, inplace: false });
        self
    }

    /// Says what is true of it.
    pub(crate) const fn is(mut self, mark: Mark) -> OpDef {
        self.marks |= 1 << mark as u32;
        self
    }

    /// Says what autograd saves of a call.
    pub(crate) const fn saves(mut self, saved: Saved) -> OpDef {
        self.saved = saved;
        self
    }

    /// Says what a call does besides giving its result.
    pub(crate) const fn effect(mut self, effect: Effect) -> OpDef {
        self.effect = effect;
        self
    }

    /// Whether this is true of it.
    pub fn has(&self, mark: Mark) -> bool {
        self.marks & 1 << mark as u32 != 0
    }

    /// Whether it acts on something else than tensors, which no graph holds.
    pub fn acts_elsewhere(&self) -> bool {
        self.effect == Effect::Elsewhere
    }
}

impl Canon {
    /// Binds a call's arguments to the op's parameters by position and name. A method's receiver is the first argument.
    pub fn bind<'a, A: Argument>(
        &self,
        args: &'a [A],
        kwargs: &'a [(Arc<str>, A)],
    ) -> Result<Bound<'a, A>, InferError> {
        Bound::new(self.signature, args, kwargs, self.reflected)
    }
}

#[derive(Default)]
struct Names {
    functions: HashMap<String, Canon>,
    methods: HashMap<String, Canon>,
    /// By name alone, whatever the module.
    known: HashMap<&'static str, &'static OpDef>,
    /// Lines that stand for all names that begin so.
    beginnings: Vec<(&'static str, &'static OpDef)>,
}

/// Signatures live as long as the process, like the tables they come from.
fn parsed(text: &'static str) -> &'static Signature {
    Box::leak(Box::new(Signature::parse(text)))
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut names = Names::default();
    for op in families().into_iter().flatten() {
        names.add(op);
    }
    names
});

/// Import paths under which torch's own namespaces reach the same functions.
fn modules(places: u16) -> impl Iterator<Item = (&'static str, u16)> {
    let all: [(&'static str, u16); 5] = [
        ("torch.", place::FN),
        ("torch._C._nn.", place::NN),
        ("torch._C._special.special_", place::SPECIAL),
        ("torch.special.", place::SPECIAL),
        ("torch._C._linalg.linalg_", place::LINALG),
    ];
    all.into_iter().filter(move |(_, place)| places & place != 0)
}

impl Names {
    fn add(&mut self, op: &'static OpDef) {
        match op.name.strip_suffix('*') {
            Some(beginning) => self.beginnings.push((beginning, op)),
            None => drop(self.known.insert(op.name, op)),
        }
        let signature = parsed(op.text);
        let plain = Canon { op, inplace: op.has(Mark::Writes), reflected: false, operator: false, signature };
        let inplace = Canon { inplace: true, ..plain };
        let method = Canon { signature: op.method_text.map_or(signature, parsed), ..plain };
        for name in std::iter::once(&op.name).chain(op.synonyms) {
            for (module, _) in modules(op.places) {
                self.functions.entry(format!("{module}{name}")).or_insert(plain);
                if op.places & place::INPLACE != 0 {
                    self.functions.entry(format!("{module}{name}_")).or_insert(inplace);
                }
            }
            if op.places & place::METHOD != 0 {
                self.methods.entry((*name).to_owned()).or_insert(method);
                if op.places & place::INPLACE != 0 {
                    self.methods.entry(format!("{name}_")).or_insert(Canon { inplace: true, ..method });
                }
            }
        }
        for path in op.paths {
            match path.strip_prefix('.') {
                Some(name) => self.methods.insert(name.to_owned(), method),
                None => self.functions.insert((*path).to_owned(), plain),
            };
        }
        if let Some(operator) = op.operator {
            let name = operator.name.trim_end_matches('_');
            let signature = operator.text.map_or(signature, parsed);
            self.functions.insert(format!("_operator.{}", operator.name), Canon { signature, operator: true, ..plain });
            self.methods.insert(format!("__{name}__"), method);
            if operator.reflected != Reflected::None {
                let reflected = operator.reflected == Reflected::Swapped;
                self.methods.insert(format!("__r{name}__"), Canon { reflected, ..method });
            }
            if operator.inplace {
                self.functions.insert(format!("_operator.i{name}"), Canon { operator: true, ..inplace });
                self.methods.insert(format!("__i{name}__"), Canon { inplace: true, ..method });
            }
        }
    }
}

/// The op that `target` names, if there is one here.
pub fn canonical(target: &Target) -> Option<Canon> {
    match target {
        Target::Method(name) => NAMES.methods.get(&**name).copied(),
        Target::Function(path) => function(path),
    }
}

fn function(path: &str) -> Option<Canon> {
    if let Some(found) = NAMES.functions.get(path) {
        return Some(*found);
    }
    let (module, name) = path.rsplit_once('.')?;
    let place = match module {
        "torch._C._VariableFunctions" | "torch._VF" | "torch._C._VariableFunctionsClass" => "torch.",
        "torch.nn.functional" | "torch._C._nn" => "torch._C._nn.",
        "operator" => "_operator.",
        "torch.Tensor" | "torch._C.TensorBase" | "torch._C._TensorBase" | "torch._tensor.Tensor" => {
            return NAMES.methods.get(name).copied();
        }
        _ => return None,
    };
    NAMES.functions.get(&format!("{place}{name}")).copied()
}

/// What is known of a function by its import path or of a method by its name, with a rule or without. Of
/// `torch.ops.aten.NAME.OVERLOAD` that is what is known of `torch.NAME`.
pub fn known(path: &str) -> Option<&'static OpDef> {
    if let Some(name) = path.strip_prefix("torch.ops.aten.").and_then(|rest| rest.split('.').next()) {
        return known(&format!("torch.{name}"));
    }
    let name = path.rsplit('.').next().unwrap_or(path);
    let canon = || if path.contains('.') { function(path) } else { NAMES.methods.get(path).copied() };
    let beginning = || NAMES.beginnings.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|(_, op)| *op);
    NAMES.known.get(name).copied().or_else(|| canon().map(|c| c.op)).or_else(beginning)
}

/// What autograd saves of a call of `target`.
pub fn saved(target: &Target, args: &[Arg]) -> Saved {
    let (Target::Function(path) | Target::Method(path)) = target;
    match canonical(target).map(|canon| canon.op).or_else(|| known(path)).map_or(Saved::All, |op| op.saved) {
        Saved::Indices if !args.get(1).is_some_and(Arg::has_nodes) => Saved::Nothing,
        saved => saved,
    }
}

/// Whether a call of `target` writes into its first argument and returns it: `add_`, `_operator.iadd`, `__iadd__`.
pub fn writes_first(target: &Target) -> bool {
    let (Target::Function(path) | Target::Method(path)) = target;
    match (canonical(target), known(path)) {
        (Some(canon), _) => canon.inplace,
        (None, Some(op)) if op.name == path.rsplit('.').next().unwrap_or(path) => op.has(Mark::Writes),
        _ => path.ends_with('_') && !path.ends_with("__"),
    }
}

/// Every op, in table order.
pub fn ops() -> impl Iterator<Item = &'static OpDef> {
    families().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> (&'static str, bool, bool) {
        let target = match path.strip_prefix('.') {
            Some(method) => Target::Method(method.into()),
            None => Target::Function(path.into()),
        };
        let canon = canonical(&target).unwrap_or_else(|| panic!("no op for {path}"));
        (canon.op.name, canon.inplace, canon.reflected)
    }

    #[test]
    fn every_name_leads_to_the_op() {
        for path in
            ["torch.add", "torch._C._VariableFunctions.add", "_operator.add", "operator.add", ".add", ".__add__"]
        {
            assert_eq!(named(path), ("add", false, false), "{path}");
        }
        for path in [".add_", "_operator.iadd", ".__iadd__"] {
            assert_eq!(named(path), ("add", true, false), "{path}");
        }
        assert_eq!(named(".__radd__"), ("add", false, false));
        assert_eq!(named(".__rsub__"), ("sub", false, true));
        assert_eq!(named("torch._C._nn.linear"), ("linear", false, false));
        assert_eq!(named("torch.nn.functional.linear"), ("linear", false, false));
    }

    #[test]
    fn names_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for op in ops() {
            assert!(seen.insert(op.name), "{} is declared twice", op.name);
        }
    }
}
