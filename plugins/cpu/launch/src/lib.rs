//! CPU back end, launch half: maps and runs compiled kernels.
