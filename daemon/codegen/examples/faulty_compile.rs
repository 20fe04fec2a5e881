//! A compile half that goes wrong as its file is called, or else as a kernel is: abort, hang, panic or refuse. Otherwise
//! an artifact is the kernel's name. If its file is called `needy` it looks for a library first.

#[path = "faulty/own_file.rs"]
mod own_file;

use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{Description, reference};
use own_file::name;
use std::time::Duration;

struct Faulty;

fn fault(how: &str) -> Result<(), String> {
    match how {
        "abort" => std::process::abort(),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "panic" => panic!("as asked"),
        "refuse" => Err("as asked".to_owned()),
        _ => Ok(()),
    }
}

/// Whether one of the folders that workers are told has it.
fn library_is_there() -> bool {
    let folders = std::env::var_os("FLAMBEAU_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("libneeded.so").exists())
}

impl CompileBackend for Faulty {
    fn describe() -> Result<Description, String> {
        match name().as_str() {
            "absent" => Err("there is no driver of this device; install one".to_owned()),
            "needy" if !library_is_there() => Err("there is no libneeded.so".to_owned()),
            "hang_at_once" => fault("hang").map(|()| unreachable!()),
            name => Ok(Description::of_compile_half(name, "0", &["any"], &reference::capabilities())),
        }
    }

    fn compile(kernels: &[Kernel], _target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let compile = |kernel: &Kernel| {
            fault(&name())?;
            fault(&kernel.name)?;
            if kernel.name == "chatter" {
                println!("noise on standard output");
            }
            Ok(kernel.name.clone().into_bytes())
        };
        Ok(kernels.iter().map(compile).collect())
    }
}

flambeau_plugin::export_compile_half!(Faulty);
