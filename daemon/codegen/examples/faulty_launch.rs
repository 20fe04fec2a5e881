//! A launch half that takes every artifact, and at each launch panics. If its file is called `idle` it
//! does nothing, if it is called `status` it fails. If it is called `cuda` it says what the launch half of that back end says
//! where there is a GPU.
#![expect(unsafe_code, reason = "the contract's `launch` is unsafe")]

#[path = "faulty/own_file.rs"]
mod own_file;

use flambeau_plugin::abi::{Device, MEMORY_TORCH};
use flambeau_plugin::export::LaunchBackend;
use flambeau_plugin::{Description, reference};
use own_file::name;
use std::ffi::c_void;

struct Faulty;

impl LaunchBackend for Faulty {
    type Executable = ();

    fn describe() -> Result<Description, String> {
        let said = |version, target| {
            let devices = vec![Device::new("none", &[target])];
            Description::of_launch_half(&name(), version, devices, &reference::capabilities())
        };
        Ok(match name().as_str() {
            "cuda" => Description { memory: MEMORY_TORCH, ..said(env!("CARGO_PKG_VERSION"), "sm_90") },
            _ => said("0", "any"),
        })
    }

    fn load(_artifact: &[u8], _device: u32) -> Result<(), String> {
        Ok(())
    }

    unsafe fn launch((): &(), _: *const *mut c_void, _: *const i64, _: *mut c_void, _: u32) -> i32 {
        match name().as_str() {
            "idle" => 0,
            "status" => 7,
            _ => panic!("as asked"),
        }
    }

    fn explain(status: i32) -> String {
        format!("the device said {status}")
    }
}

flambeau_plugin::export_launch_half!(Faulty);
