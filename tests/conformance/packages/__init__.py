"""Programs that use packages from PyPI the way their documentation does, eagerly and compiled: `cargo xtask
conformance packages`."""
