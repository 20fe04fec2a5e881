//! Why something was not compiled. Every bail-out has a name here, an explanation and a hint.

use crate::graph::Location;
use serde::{Deserialize, Serialize};

/// A named reason, what exactly was met, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The stable name.
    pub code: ReasonCode,
    /// What was met, e.g. the name of the function.
    pub detail: String,
    /// The user's stack, outermost frame first.
    pub stack: Vec<Location>,
    /// `error_on_graph_break(True)` held there: the call raises.
    pub raises: bool,
    /// It is an exception that leaves the frame: the original code is to raise it.
    pub escapes: bool,
}

impl Reason {
    /// A reason with no stack yet.
    pub fn new(code: ReasonCode, detail: impl Into<String>) -> Self {
        Reason { code, detail: detail.into(), stack: Vec::new(), raises: false, escapes: false }
    }
}

/// What a reason's page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// A Python function `f` of one tensor that meets it. A test runs it.
    Code(&'static str),
    /// Where no short program meets it for sure.
    Words(&'static str),
}

/// Declares the codes with their name, explanation, hint and example.
macro_rules! reasons {
    ($($variant:ident { name: $name:literal, means: $why:literal, hint: $hint:literal, example: $kind:ident($example:literal), })*) => {
        /// Stable reason codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ReasonCode { $(#[doc = $why] $variant,)* }

        impl ReasonCode {
            /// All codes, in documentation order.
            pub const ALL: &[ReasonCode] = &[$(ReasonCode::$variant,)*];

            /// The name in counters, logs, exceptions and reports. It is never changed.
            pub fn name(self) -> &'static str { match self { $(ReasonCode::$variant => $name,)* } }

            /// What it means.
            pub fn explanation(self) -> &'static str { match self { $(ReasonCode::$variant => $why,)* } }

            /// What to do about it.
            pub fn hint(self) -> &'static str { match self { $(ReasonCode::$variant => $hint,)* } }

            /// What meets it.
            pub fn example(self) -> Example { match self { $(ReasonCode::$variant => Example::$kind($example),)* } }
        }
    };
}

reasons! {
    UnsupportedOpcode {
        name: "unsupported_opcode",
        means: "The tracer does not handle this bytecode instruction.",
        hint: "Move the construct out of the compiled function.",
        example: Code(
            r"def f(x):
    try:
        raise ValueError(x.dim())
    except* ValueError:
        x = x + 1
    return x"
        ),
    }
    UnsupportedCall {
        name: "unsupported_call",
        means: "The callee is neither traceable Python nor a known built-in.",
        hint: "Call it outside the compiled function.",
        example: Code(
            r#"def f(x):
    print("seen", x.shape)
    return x + 1"#
        ),
    }
    UnsupportedObject {
        name: "unsupported_object",
        means: "The operation on an object of this kind cannot be traced.",
        hint: "Pass plain Python or tensor values instead.",
        example: Code(
            r"def f(x):
    return x + len(f.__closure__ or ())"
        ),
    }
    DataDependentJump {
        name: "data_dependent_jump",
        means: "A branch depends on a tensor's value.",
        hint: "Use torch.where, or move the test out of the compiled function.",
        example: Code(
            r"def f(x):
    return x if x.sum() > 0 else -x"
        ),
    }
    DataDependentValue {
        name: "data_dependent_value",
        means: "A Python number is taken from a tensor's data.",
        hint: "Keep the value in a tensor.",
        example: Code(
            r"def f(x):
    return x * x.max().item()"
        ),
    }
    LiveIterator {
        name: "live_iterator",
        means: "A loop draws from an iterator that only Python can advance.",
        hint: "Loop over a list, range, dict, zip or enumerate, or break after the loop.",
        example: Code(
            r"def f(x):
    for step in map(str, range(3)):
        print(step)
        x = x + 1
    return x"
        ),
    }
    UserBreak {
        name: "user_break",
        means: "flambeau.graph_break() was called.",
        hint: "Remove the call.",
        example: Code(
            r"import flambeau


def f(x):
    x = x + 1
    flambeau.graph_break()
    return x * 2"
        ),
    }
    Disabled {
        name: "disabled",
        means: "The callee is marked flambeau.disable.",
        hint: "Remove the decorator to compile it.",
        example: Code(
            r"import flambeau


@flambeau.disable
def report(x):
    return x


def f(x):
    return report(x + 1) * 2"
        ),
    }
    UnusualTensor {
        name: "unusual_tensor",
        means: "A tensor is sparse, quantised, nested, conjugated, or of a subclass with its own dispatch.",
        hint: "Convert it to a plain strided tensor first.",
        example: Code(
            r"def f(x):
    return x.to_sparse() * 2"
        ),
    }
    UnusualAmbient {
        name: "unusual_ambient",
        means: "A function or dispatch mode, functorch transform or similar state is active.",
        hint: "Call the compiled function outside that mode.",
        example: Code(
            r"import torch


def g(x):
    return x * 2


def f(x):
    return torch.func.vmap(g)(x)"
        ),
    }
    UnguardableObject {
        name: "unguardable_object",
        means: "A value the trace relies on cannot be checked cheaply.",
        hint: "Pass it as an argument of a plain type.",
        example: Code(
            r"marks = {object(), object()}


def f(x):
    return x * len(marks)"
        ),
    }
    Generator {
        name: "generator",
        means: "A generator or coroutine frame is not compiled as a whole.",
        hint: "Compile the function that consumes it.",
        example: Code(
            r"ended = []


def parts(x):
    try:
        yield x + 1
        yield x + 2
    finally:
        ended.append(True)


def f(x):
    for part in parts(x):
        return part"
        ),
    }
    Exception {
        name: "exception",
        means: "The traced code raises, or handles an exception that a traced call raised.",
        hint: "Nothing to do: the original code raises it.",
        example: Code(
            r#"def f(x):
    if x.dim() == 2:
        raise ValueError("not two dimensions, please")
    return x"#
        ),
    }
    NoFakeKernel {
        name: "no_fake_kernel",
        means: "Torch cannot say what this op returns without running it.",
        hint: "Register a fake kernel for the op.",
        example: Words("A custom op of `torch.library` that has an implementation and no `register_fake`."),
    }
    OpUnknown {
        name: "op_unknown",
        means: "The op has no native rule and the client could not answer for it.",
        hint: "Report it with a recording (flambeau record).",
        example: Words("An op that returns an object torch's fake tensors say nothing of, such as a torch script class."),
    }
    Shape {
        name: "shape_error",
        means: "A shape or dtype rule of an op refused its arguments.",
        hint: "Nothing to do: the original code raises the error.",
        example: Code(
            r"import torch


def f(x):
    return x + torch.ones(7)"
        ),
    }
    DynamicShape {
        name: "dynamic_shape",
        means: "The op needs a fixed size where a symbolic one is used.",
        hint: "Compile with dynamic=False or fix that size.",
        example: Words("An op without a rule of flambeau's own, called with a size that varies from call to call."),
    }
    SideEffect {
        name: "side_effect",
        means: "A side effect of this kind cannot be replayed.",
        hint: "Move it out of the compiled function.",
        example: Code(
            r"class Slow:
    steps = 10


class Fast(Slow):
    steps = 1


mode = Slow()


def f(x):
    mode.__class__ = Fast
    return x + mode.steps"
        ),
    }
    Recursion {
        name: "recursion",
        means: "Inlining went too deep.",
        hint: "Rewrite the recursion as a loop.",
        example: Code(
            r"def down(x, n):
    return x if n == 0 else down(x + 1, n - 1)


def f(x):
    return down(x, 500)"
        ),
    }
    TooLarge {
        name: "too_large",
        means: "The trace grew past its limit.",
        hint: "Compile a smaller function.",
        example: Code(
            r"def f(x):
    for _ in range(1_000_000):
        x = x + 1
    return x"
        ),
    }
    NotLowered {
        name: "not_lowered",
        means: "The native back end cannot express an op of the graph exactly; torch runs the graph op by op.",
        hint: "Report the op, or use backend=\"inductor\".",
        example: Code(
            r"import torch


def f(x):
    return x.view(torch.int32).add_(1)"
        ),
    }
    BackendUnavailable {
        name: "backend_unavailable",
        means: "The back end cannot compile kernels here, or failed to.",
        hint: "See flambeau backends and flambeau logs; the graph runs op by op meanwhile.",
        example: Words(r#"`backend="cpu"` where the plug-in's file is missing or its worker dies."#),
    }
    Internal {
        name: "internal",
        means: "flambeau met a bug of its own and ran the original code.",
        hint: "Report it with a recording (flambeau record).",
        example: Words("Never, where all is well."),
    }
}
