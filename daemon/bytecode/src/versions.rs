//! The interpreter versions there are: a module and a line for each.

use crate::dialect::Dialect;
use flambeau_ir::code::Code;

/// The version that made `code`; its numbers where it is not known.
pub fn dialect(code: &Code) -> Result<&'static Dialect, (u8, u8)> {
    VERSIONS.iter().find(|(version, _)| *version == code.python).map(|(_, dialect)| *dialect).ok_or(code.python)
}

macro_rules! versions {
    ($(($major:literal, $minor:literal) $module:ident;)*) => {
        $(mod $module;)*

        /// The versions there are, by their numbers.
        pub const VERSIONS: &[((u8, u8), &Dialect)] = &[$((($major, $minor), &$module::DIALECT)),*];
    };
}

versions! {
    (3, 11) v311;
    (3, 12) v312;
    (3, 13) v313;
}
