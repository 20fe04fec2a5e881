//! Graph to kernels and launch plan.
