//! LLVM: a module's text to an object file in memory. No IR passes run: the emitter writes what it wants.

use flambeau_cpu_artifact::Isa;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetMachineOptions, TargetTriple,
};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// A code generator for one instruction set.
pub struct Generator {
    machine: TargetMachine,
}

impl Generator {
    /// Sets LLVM up.
    pub fn new(isa: Isa) -> Result<Generator, String> {
        Target::initialize_x86(&InitializationConfig {
            asm_parser: false,
            asm_printer: true,
            base: true,
            disassembler: false,
            info: true,
            machine_code: true,
        });
        let triple = TargetTriple::create(TRIPLE);
        let target = Target::from_triple(&triple).map_err(|e| e.to_string())?;
        let cpu = match isa {
            Isa::Avx512 => "x86-64-v4",
            Isa::Avx2 => "x86-64-v3",
        };
        let options = TargetMachineOptions::new()
            .set_cpu(cpu)
            .set_level(OptimizationLevel::Default)
            .set_reloc_mode(RelocMode::PIC)
            .set_code_model(CodeModel::Small);
        let machine = target
            .create_target_machine_from_options(&triple, options)
            .ok_or_else(|| format!("LLVM has no code generator for {cpu}"))?;
        Ok(Generator { machine })
    }

    /// The object file of a module.
    pub fn object(&self, module: &str) -> Result<Vec<u8>, String> {
        let context = Context::create();
        let buffer = MemoryBuffer::create_from_memory_range_copy(module.as_bytes(), "kernel");
        let module = context.create_module_from_ir(buffer).map_err(|e| e.to_string())?;
        module.set_triple(&self.machine.get_triple());
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
        module.verify().map_err(|e| e.to_string())?;
        let object = self.machine.write_to_memory_buffer(&module, FileType::Object).map_err(|e| e.to_string())?;
        Ok(object.as_slice().to_vec())
    }
}
