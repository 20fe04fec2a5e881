//! A compile half that does what the name of a kernel says: abort, hang, panic, refuse, or return the name as bytes.

use flambeau_plugin::abi::KERNEL_IR;
use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{Capabilities, Description};
use std::time::Duration;

struct Faulty;

impl CompileBackend for Faulty {
    fn describe() -> Result<Description, String> {
        Ok(Description {
            name: "faulty".into(),
            version: "0".into(),
            kernel_ir: KERNEL_IR,
            targets: vec!["any".into()].into(),
            capabilities: postcard::to_stdvec(&Capabilities::default()).map_err(|e| e.to_string())?.into(),
        })
    }

    fn compile(kernels: &[Kernel], _target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        Ok(kernels
            .iter()
            .map(|kernel| match kernel.name.as_str() {
                "abort" => std::process::abort(),
                "hang" => loop {
                    std::thread::sleep(Duration::from_secs(1));
                },
                "panic" => panic!("as asked"),
                "refuse" => Err("as asked".to_owned()),
                "chatter" => {
                    println!("noise on standard output");
                    Ok(b"chatter".to_vec())
                }
                name => Ok(name.as_bytes().to_vec()),
            })
            .collect())
    }
}

flambeau_plugin::export_compile_half!(Faulty);
