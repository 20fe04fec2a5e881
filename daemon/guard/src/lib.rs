//! Guards to a deduplicated guard program.
