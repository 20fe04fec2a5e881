//! Kernels to artifacts through plug-in workers.
