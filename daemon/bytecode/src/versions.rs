//! The interpreter versions there are: a module and a line for each.

use crate::dialect::Dialect;

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
