//! A compile half that goes wrong as its file is called, or else as a kernel is: abort, hang, panic or refuse. Otherwise
//! an artifact is the kernel's name.

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

impl CompileBackend for Faulty {
    fn describe() -> Result<Description, String> {
        match name().as_str() {
            "absent" => Err("there is no driver of this device; install one".to_owned()),
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
