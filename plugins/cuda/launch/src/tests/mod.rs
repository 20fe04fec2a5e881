//! How the driver is called: by a stand-in, and what is said where there is no driver.

mod stand_in;

use crate::device::{Device, find};
use crate::driver::Driver;
use crate::kernel::{Kernel, STATUS_FORKED, explain};
use flambeau_cuda_artifact::{Count, Fast, Header, Launch, encode};
use flambeau_plugin::kernel::Extent;
use stand_in::{Script, calls, script};
use std::ffi::c_void;

/// The devices of a new stand-in, whose calls may fail.
fn devices(capabilities: &[(i32, i32)], fails: &[(&'static str, i32)]) -> Result<Vec<Device>, String> {
    let fresh = Script { devices: capabilities.to_vec(), fails: fails.to_vec(), version: 12080, ..Script::default() };
    script(|script| *script = fresh);
    find(stand_in::driver())
}

fn one_device() -> Device {
    devices(&[(9, 0)], &[]).unwrap().pop().unwrap()
}

fn step(entry: u32, threads: u32, divisor: u64) -> Launch {
    let blocks = Count { factor: 1, extents: vec![Extent::Scalar(0)], divisor };
    Launch { entry: format!("entry_{entry}"), threads, blocks }
}

/// Two buffers, the size and a fast way; with scratch, two plain launches share it.
fn header(scratch: bool) -> Header {
    Header {
        target: "sm_90".to_owned(),
        buffers: 2,
        scalars: 1,
        scratch: scratch.then(|| Count { factor: 8, extents: vec![Extent::Scalar(0)], divisor: 4 }),
        plain: if scratch { vec![step(8001, 64, 64), step(8002, 32, 1000)] } else { vec![step(8001, 64, 64)] },
        fast: Some(Fast { alignments: vec![16, 4], multiples: vec![(0, 4)], launches: vec![step(8003, 128, 512)] }),
        hash: [0; 32],
    }
}

fn loaded(device: &Device, header: Header) -> Result<Kernel, String> {
    script(|script| script.arguments = 3 + usize::from(header.scratch.is_some()));
    Kernel::load(device, &encode(header, b"no real cubin"))
}

fn launch(kernel: &Kernel, addresses: [usize; 2], size: i64) -> i32 {
    let buffers = addresses.map(std::ptr::without_provenance_mut::<c_void>);
    // SAFETY: nothing but the stand-in sees the addresses.
    unsafe { kernel.launch(buffers.as_ptr(), [size].as_ptr(), std::ptr::without_provenance_mut(77)) }
}

#[test]
fn what_is_missing_is_one_sentence() {
    let missing = Driver::open("libcuda-of-nobody.so.1").err().unwrap();
    assert!(missing.starts_with("no CUDA driver was found (libcuda-of-nobody.so.1: cannot open shared"), "{missing}");
    assert!(missing.ends_with("; install NVIDIA's for the GPU of this machine"), "{missing}");
    // A library without the functions stands for a driver of before they were there.
    let old = Driver::open("libc.so.6").err().unwrap();
    assert_eq!(old, "the CUDA driver has no cuGetErrorName, so it is too old; install one for CUDA 11.2 or later");
    script(|script| script.version = 10020);
    let aged = stand_in::owned().recent().err().unwrap();
    assert_eq!(aged, "the CUDA driver is for CUDA 10.2, so it is too old; install one for CUDA 11.2 or later");
}

#[test]
fn devices_are_the_drivers_in_its_order() {
    let found = devices(&[(9, 0), (12, 1)], &[]).unwrap();
    let said: Vec<_> = found.iter().map(|device| (device.name.as_str(), device.target.as_str())).collect();
    assert_eq!(said, [("GPU 40", "sm_90"), ("GPU 41", "sm_121")]);
    // Contexts are not made before something is loaded: they take memory of the device.
    assert_eq!(calls(), ["init 0"]);
}

#[test]
fn no_devices_are_one_sentence() {
    assert!(devices(&[], &[]).err().unwrap().starts_with("there is no CUDA device; `nvidia-smi` lists"));
    for (status, sentence) in [
        (100, "there is no CUDA device; `nvidia-smi` lists"),
        (3, "CUDA does not work in a process that was forked from one that used it; start processes with"),
        (999, "CUDA does not start: CUDA_ERROR_OTHER (its text); `nvidia-smi` says more"),
    ] {
        let said = devices(&[(9, 0)], &[("init", status)]).err().unwrap();
        assert!(said.starts_with(sentence) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn loading_is_in_the_primary_context_once() {
    let device = one_device();
    calls();
    loaded(&device, header(false)).unwrap();
    assert_eq!(
        calls(),
        [
            "retain 40",
            "push 4000",
            "capture mode 2",
            "load",
            "function entry_8001",
            "function entry_8003",
            "capture mode 0",
            "pop"
        ]
    );
    // The same again, where the context is current: the module is there.
    script(|script| script.contexts = vec![4000]);
    loaded(&device, header(false)).unwrap();
    assert_eq!(calls(), ["capture mode 2", "function entry_8001", "function entry_8003", "capture mode 0"]);
}

#[test]
fn the_fast_launch_is_for_arguments_that_fit() {
    let kernel = loaded(&one_device(), header(false)).unwrap();
    script(|script| script.contexts = vec![4000]);
    calls();
    assert_eq!(launch(&kernel, [0x1000, 0x2004], 1024), 0);
    assert_eq!(calls(), ["launch 8003 of 2 x 128 in 77: [4096, 8196, 1024]"]);
    assert_eq!(launch(&kernel, [0x1008, 0x2004], 1024), 0);
    assert_eq!(launch(&kernel, [0x1000, 0x2004], 1023), 0);
    assert_eq!(
        calls(),
        ["launch 8001 of 16 x 64 in 77: [4104, 8196, 1024]", "launch 8001 of 16 x 64 in 77: [4096, 8196, 1023]"]
    );
}

#[test]
fn another_context_is_put_back() {
    let kernel = loaded(&one_device(), header(false)).unwrap();
    calls();
    for before in [vec![], vec![5555]] {
        script(|script| script.contexts.clone_from(&before));
        assert_eq!(launch(&kernel, [0x1000, 0x2000], 4), 0);
        assert_eq!(calls(), ["push 4000", "launch 8003 of 1 x 128 in 77: [4096, 8192, 4]", "pop"]);
        assert_eq!(script(|script| script.contexts.clone()), before);
    }
}

#[test]
fn launches_share_scratch_in_the_order_of_the_stream() {
    let kernel = loaded(&one_device(), Header { fast: None, ..header(true) }).unwrap();
    script(|script| script.contexts = vec![4000]);
    calls();
    assert_eq!(launch(&kernel, [0x1000, 0x2000], 1001), 0);
    assert_eq!(
        calls(),
        [
            "allocate 2002 in 77",
            "launch 8001 of 16 x 64 in 77: [4096, 8192, 1001, 36864]",
            "launch 8002 of 2 x 32 in 77: [4096, 8192, 1001, 36864]",
            "free 0x9000 in 77"
        ]
    );
    // Nothing to do: no memory, no context.
    script(|script| script.contexts.clear());
    assert_eq!(launch(&kernel, [0x1000, 0x2000], 0), 0);
    assert!(calls().is_empty());
}

#[test]
fn what_fails_gives_everything_back() {
    let kernel = loaded(&one_device(), Header { fast: None, ..header(true) }).unwrap();
    for (fails, status, after) in [
        (("launch 8002", 719), 719, vec!["free 0x9000 in 77", "pop"]),
        (("allocate", 2), 2, vec!["pop"]),
        (("free", 700), 700, vec!["pop"]),
        (("push", 201), 201, vec![]),
    ] {
        calls();
        script(|script| script.fails = vec![fails]);
        assert_eq!(launch(&kernel, [0x1000, 0x2000], 1001), status);
        let made = calls();
        let at = made.iter().position(|call| call.starts_with(fails.0)).unwrap();
        assert_eq!(made[at + 1..], after, "{made:?}");
        script(|script| script.contexts.clear());
    }
}

#[test]
fn artifacts_that_do_not_fit_are_refused() {
    let device = one_device();
    let refused = |header: Header| loaded(&device, header).err().unwrap();
    let elsewhere = refused(Header { target: "sm_80".to_owned(), ..header(false) });
    assert_eq!(elsewhere, "the artifact is for sm_80, and GPU 40 is sm_90");
    let large = refused(Header { plain: vec![step(8001, 1024, 1)], ..header(false) });
    assert_eq!(large, "entry_8001 is for blocks of 1024 threads, and takes 512 at most");
    for foreign in [&b""[..], b"\x7fELF", &[0; 4096]] {
        let said = Kernel::load(&device, foreign).err().unwrap();
        assert_eq!(said, "no artifact of this version of the CUDA back end");
    }
    let device = one_device();
    script(|script| script.fails = vec![("load", 209)]);
    let old = loaded(&device, header(false)).err().unwrap();
    assert_eq!(
        old,
        "the driver does not load the kernel: CUDA_ERROR_OTHER (its text); the driver is for CUDA 12.8: update it if the \
         compiler, NVRTC, is of a later one"
    );
    // It is tried again.
    script(|script| script.fails.clear());
    loaded(&device, header(false)).unwrap();
}

#[test]
fn statuses_are_explained() {
    let driver = stand_in::driver();
    assert_eq!(driver.named(719), "CUDA_ERROR_LAUNCH_FAILED (its text)");
    assert_eq!(driver.named(12345), "status 12345");
    assert!(explain(STATUS_FORKED).starts_with("CUDA does not work in a process that was forked"));
    assert!(explain(719).contains("run with CUDA_LAUNCH_BLOCKING=1 to see which"));
    assert!(explain(1).starts_with("the CUDA driver said "));
}
