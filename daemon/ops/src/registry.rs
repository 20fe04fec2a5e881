//! The table of ops: one [`OpDef`] per op, and how each name that torch gives it leads there. The lines themselves are in
//! the families' folders.

use crate::call::Rule;
use crate::signature::{Argument, Bound, Signature};
use crate::{InferError, families};
use flambeau_ir::graph::Target;
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
    places: u16,
    aliases: &'static [&'static str],
    operator: Option<Operator>,
    /// The rule holds on the CPU only: elsewhere torch lays the result out otherwise.
    pub(crate) cpu_only: bool,
    /// What autocast does to it.
    pub(crate) autocast: Autocast,
    /// It may raise for what its tensors hold.
    pub(crate) checks: bool,
}

/// What autocast does to an op's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Autocast {
    /// Nothing.
    Untouched,
    /// Something; the rule does not know what.
    Changes,
}

/// A Python operator: its name in module `operator`, and which dunder methods it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub name: &'static str,
    /// The operator's signature where it takes more than the function: `2 < x` but not `torch.gt(2, x)`.
    pub text: Option<&'static str>,
    pub reflected: bool,
    pub inplace: bool,
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
            places,
            aliases: &[],
            operator: None,
            cpu_only: false,
            autocast: Autocast::Untouched,
            checks: false,
        }
    }

    /// Further full import paths; a path that starts with `.` is a method.
    pub(crate) const fn also(mut self, aliases: &'static [&'static str]) -> OpDef {
        self.aliases = aliases;
        self
    }

    /// The method's signature, where its order of parameters is another.
    pub(crate) const fn method(mut self, text: &'static str) -> OpDef {
        self.method_text = Some(text);
        self
    }

    /// A binary operator with reflected and in-place forms.
    pub(crate) const fn binary(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: None, reflected: true, inplace: true });
        self
    }

    /// An operator with neither.
    pub(crate) const fn operator(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: None, reflected: false, inplace: false });
        self
    }

    /// A comparison: numbers may stand on the left of the operator.
    pub(crate) const fn comparison(mut self, name: &'static str) -> OpDef {
        self.operator = Some(Operator { name, text: Some("input:TN, other:TN"), reflected: false, inplace: false });
        self
    }

    /// Marks a rule that holds on the CPU only.
    pub(crate) const fn cpu_only(mut self) -> OpDef {
        self.cpu_only = true;
        self
    }

    /// Marks an op that may raise for what its tensors hold.
    pub(crate) const fn checks(mut self) -> OpDef {
        self.checks = true;
        self
    }

    /// Marks an op that autocast changes.
    pub(crate) const fn autocast(mut self) -> OpDef {
        self.autocast = Autocast::Changes;
        self
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
        let signature = parsed(op.text);
        let plain = Canon { op, inplace: false, reflected: false, operator: false, signature };
        let inplace = Canon { inplace: true, ..plain };
        let method = Canon { signature: op.method_text.map_or(signature, parsed), ..plain };
        for (module, _) in modules(op.places) {
            self.functions.entry(format!("{module}{}", op.name)).or_insert(plain);
            if op.places & place::INPLACE != 0 {
                self.functions.entry(format!("{module}{}_", op.name)).or_insert(inplace);
            }
        }
        if op.places & place::METHOD != 0 {
            self.methods.entry(op.name.to_owned()).or_insert(method);
            if op.places & place::INPLACE != 0 {
                self.methods.entry(format!("{}_", op.name)).or_insert(Canon { inplace: true, ..method });
            }
        }
        for alias in op.aliases {
            let inplace = alias.ends_with('_') && !alias.ends_with("__");
            match alias.strip_prefix('.') {
                Some(name) => self.methods.insert(name.to_owned(), Canon { inplace, ..method }),
                None => self.functions.insert((*alias).to_owned(), Canon { inplace, ..plain }),
            };
        }
        if let Some(operator) = op.operator {
            let name = operator.name.trim_end_matches('_');
            let signature = operator.text.map_or(signature, parsed);
            self.functions.insert(format!("_operator.{}", operator.name), Canon { signature, operator: true, ..plain });
            self.methods.insert(format!("__{name}__"), method);
            if operator.reflected {
                // `x.__radd__(y)` is `x.add(y)`.
                let reflected = !matches!(op.name, "add" | "mul");
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
