//! The types that cross the socket between client and daemon, shared by all stages: plain data, printers, parsers and
//! verifiers. No stage logic lives here.

pub mod bounds;
pub mod code;
pub mod device;
pub mod dim;
pub mod exit;
pub mod frame;
pub mod graph;
pub mod guard;
pub mod object;
pub mod oracle;
pub mod plan;
pub mod reason;
pub mod source;
pub mod tensor;
pub mod text;
pub mod verify;

/// Kernel IR is part of the plug-in contract; the daemon uses the same types.
pub use flambeau_plugin::{Capabilities, kernel};

/// Whether this run is to make the mistake of this name: a *mutation*, by which tests are tested. `cargo xtask mutants`
/// builds with the feature `mutations` and sets the variable; in every other build this is `false`.
#[cfg(feature = "mutations")]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {{
        static CHOSEN: std::sync::LazyLock<bool> =
            std::sync::LazyLock::new(|| std::env::var("FLAMBEAU_TEST_MUTATION").is_ok_and(|name| name == $name));
        *CHOSEN
    }};
}

/// Whether this run is to make the mistake of this name: not in this build, which is without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        false
    };
}
