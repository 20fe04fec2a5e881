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
}

impl Reason {
    /// A reason with no stack yet.
    pub fn new(code: ReasonCode, detail: impl Into<String>) -> Self {
        Reason { code, detail: detail.into(), stack: Vec::new(), raises: false }
    }
}

/// Declares the codes with their name, explanation and hint.
macro_rules! reasons {
    ($($variant:ident, $name:literal, $why:literal, $hint:literal;)*) => {
        /// Stable reason codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ReasonCode { $(#[doc = $why] $variant,)* }

        impl ReasonCode {
            /// All codes, in documentation order.
            pub const ALL: &[ReasonCode] = &[$(ReasonCode::$variant,)*];

            /// The name in counters and logs.
            pub fn name(self) -> &'static str { match self { $(ReasonCode::$variant => $name,)* } }

            /// What it means.
            pub fn explanation(self) -> &'static str { match self { $(ReasonCode::$variant => $why,)* } }

            /// What to do about it.
            pub fn hint(self) -> &'static str { match self { $(ReasonCode::$variant => $hint,)* } }
        }
    };
}

reasons! {
    UnsupportedOpcode, "unsupported_opcode", "The tracer does not handle this bytecode instruction.", "Move the construct out of the compiled function.";
    UnsupportedCall, "unsupported_call", "The callee is neither traceable Python nor a known built-in.", "Call it outside the compiled function.";
    UnsupportedObject, "unsupported_object", "The operation on an object of this kind cannot be traced.", "Pass plain Python or tensor values instead.";
    DataDependentJump, "data_dependent_jump", "A branch depends on a tensor's value.", "Use torch.where, or move the test out of the compiled function.";
    DataDependentValue, "data_dependent_value", "A Python number is taken from a tensor's data.", "Keep the value in a tensor.";
    LiveIterator, "live_iterator", "A loop draws from an iterator that only Python can advance.", "Loop over a list or a range that the compiled function makes, or break after the loop.";
    UserBreak, "user_break", "flambeau.graph_break() was called.", "Remove the call.";
    Disabled, "disabled", "The callee is marked flambeau.disable.", "Remove the decorator to compile it.";
    UnusualTensor, "unusual_tensor", "A tensor is sparse, quantised, nested, conjugated, or of a subclass with its own dispatch.", "Convert it to a plain strided tensor first.";
    UnusualAmbient, "unusual_ambient", "A function or dispatch mode, functorch transform or similar state is active.", "Call the compiled function outside that mode.";
    UnguardableObject, "unguardable_object", "A value the trace relies on cannot be checked cheaply.", "Pass it as an argument of a plain type.";
    Generator, "generator", "A generator or coroutine frame is not compiled as a whole.", "Compile the function that consumes it.";
    Exception, "exception", "The traced code raises, or handles an exception that a traced call raised.", "Nothing to do: the original code raises it.";
    NoFakeKernel, "no_fake_kernel", "Torch cannot say what this op returns without running it.", "Register a fake kernel for the op.";
    OpUnknown, "op_unknown", "The op has no native rule and the client could not answer for it.", "Report it with a recording (flambeau record).";
    Shape, "shape_error", "A shape or dtype rule of an op refused its arguments.", "Nothing to do: the original code raises the error.";
    DynamicShape, "dynamic_shape", "The op needs a fixed size where a symbolic one is used.", "Compile with dynamic=False or fix that size.";
    SideEffect, "side_effect", "A side effect of this kind cannot be replayed.", "Move it out of the compiled function.";
    Recursion, "recursion", "Inlining went too deep.", "Rewrite the recursion as a loop.";
    TooLarge, "too_large", "The trace grew past its limit.", "Compile a smaller function.";
    NotLowered, "not_lowered", "The native back end cannot express an op of the graph exactly; torch runs the graph op by op.", "Report the op, or use backend=\"inductor\".";
    BackendUnavailable, "backend_unavailable", "The back end cannot compile kernels here, or failed to.", "See flambeau backends and flambeau logs; the graph runs op by op meanwhile.";
    Internal, "internal", "flambeau met a bug of its own and ran the original code.", "Report it with a recording (flambeau record).";
}
