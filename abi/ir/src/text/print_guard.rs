//! Guards in words, as reports and logs show them.

use crate::device::DeviceKind;
use crate::dim::Dim;
use crate::guard::{Ambient, Guard, GuardProgram, Relation, TensorGuard};
use crate::plan::{Symbol, SymbolOf};

/// What holds of a guard's source, as a Python expression where there is one.
pub fn guard(program: &GuardProgram, guard: &Guard) -> String {
    guard.kind.in_words(&program.sources.display(guard.source), &|other| program.sources.display(other))
}

/// What a symbol is read from, and its bounds.
pub fn symbol(program: &GuardProgram, symbol: &Symbol) -> String {
    let Symbol { id, source, of, hint, min, max } = symbol;
    let source = program.sources.display(*source);
    let what = match of {
        SymbolOf::Int => source,
        SymbolOf::Size(dim) => format!("{source}.size({dim})"),
        SymbolOf::Stride(dim) => format!("{source}.stride({dim})"),
    };
    let above = if *max == i64::MAX { String::new() } else { format!(" <= {max}") };
    format!("{min} <= s{} = {what}{above}, first {hint}", id.0)
}

fn dims(dims: &[Dim]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn of_tensor(tensor: &TensorGuard) -> String {
    let TensorGuard { class, dtype, device, sizes, strides, requires_grad, is_leaf_or_view, dispatch_keys: _ } = tensor;
    let mut text = format!(
        "a {}.{} of {} on {}, sizes [{}], strides [{}]",
        class.module,
        class.qualname,
        dtype.torch_name(),
        device,
        dims(sizes),
        dims(strides)
    );
    if *requires_grad {
        text += ", requires_grad";
    }
    match is_leaf_or_view {
        Some(true) => text + ", a leaf or view",
        Some(false) => text + ", neither a leaf nor a view",
        None => text,
    }
}

/// What is not as usual, after the modes that most often differ.
pub(crate) fn of_thread(ambient: &Ambient) -> String {
    let mut text = format!("grad mode {}", if ambient.grad_enabled { "on" } else { "off" });
    for (kind, _) in DeviceKind::running().zip(&ambient.autocast).filter(|(_, (enabled, _))| *enabled) {
        text = text + ", autocast on " + kind.name;
    }
    let unusual = [
        (ambient.inference_mode, "inference mode"),
        (ambient.deterministic.0, "deterministic algorithms"),
        (ambient.default_device.is_some(), "a default device"),
        (ambient.function_modes != 0, "torch-function modes"),
        (ambient.dispatch_modes != 0, "dispatch modes"),
        (ambient.functorch_levels != 0, "functorch"),
        (ambient.saved_tensor_hooks, "saved-tensor hooks"),
        (ambient.forward_ad, "forward-mode AD"),
        (ambient.observers != 0, "anomaly mode, jit tracing or a profiler"),
    ];
    for (_, name) in unusual.iter().filter(|(is_so, _)| *is_so) {
        text = text + ", " + name;
    }
    text + ", the rest as it was"
}

pub(crate) fn sign(relation: Relation) -> &'static str {
    match relation {
        Relation::Eq => "==",
        Relation::Ne => "!=",
        Relation::Lt => "<",
        Relation::Le => "<=",
        Relation::Gt => ">",
        Relation::Ge => ">=",
    }
}

#[cfg(test)]
mod tests {
    use crate::code::Const;
    use crate::guard::{ClassRef, Guard, GuardKind, GuardProgram};
    use crate::source::{SourceTable, Step};

    #[test]
    fn guards_read_as_expressions() {
        let mut sources = SourceTable::default();
        let arg = sources.intern(None, Step::Arg(0));
        let item = sources.intern(Some(arg), Step::Item(Const::str("lr")));
        let program = GuardProgram { sources, guards: Vec::new() };
        let words = |source, kind| super::guard(&program, &Guard { source, kind });
        let class = ClassRef { module: "builtins".into(), qualname: "dict".into() };
        assert_eq!(words(arg, GuardKind::Type(class)), "type(arg0) is builtins.dict");
        assert_eq!(words(item, GuardKind::Equals(Const::Float(0.5))), "arg0['lr'] == 0.5");
        assert_eq!(words(arg, GuardKind::Keys(vec![Const::str("lr")])), "list(arg0) == [\"lr\"]");
        assert_eq!(words(arg, GuardKind::NotSame(item)), "arg0 is not arg0['lr']");
    }
}
