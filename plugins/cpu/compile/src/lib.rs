//! CPU back end, compile half: kernel IR to machine code through LLVM.
