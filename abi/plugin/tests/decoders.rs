//! What the contract reads that others wrote: files of plug-ins, kernels, capabilities.

use flambeau_mutate::{Memory, bytes, encodings, text};
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{Capabilities, file, reference, simplify};
use std::path::Path;

/// A library of the least size that passes: an ELF header, one segment, a few bytes.
fn library() -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56 + 40];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    // ET_DYN, the machine, the version; one program header behind this one.
    put(16, &3_u16.to_le_bytes());
    put(18, &(if cfg!(target_arch = "x86_64") { 62_u16 } else { 183 }).to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    for (at, value) in [(52, 64_u16), (54, 56), (56, 1), (58, 64)] {
        put(at, &value.to_le_bytes());
    }
    // PT_LOAD of the whole file.
    put(64, &1_u32.to_le_bytes());
    put(64 + 32, &160_u64.to_le_bytes());
    bytes
}

fn checked(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    file::check(path).is_ok()
}

#[test]
fn files_of_plug_ins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libplugin.so");
    let plain = library();
    std::fs::write(&path, &plain).unwrap();
    file::seal(&path).unwrap();
    let sealed = std::fs::read(&path).unwrap();
    assert_eq!(sealed.len(), plain.len() + file::SEAL_BYTES);
    bytes("files of plug-ins", vec![plain, sealed], Memory::per_byte(32), |bytes| {
        let accepted = checked(&path, bytes);
        if accepted && file::seal(&path).is_ok() {
            assert_eq!(file::check(&path), Ok(()), "what was sealed is not accepted");
        }
        accepted
    });
}

/// What every compile half does with kernels before it generates code.
fn looked_at(mut kernel: Kernel) {
    let _ = reference::capabilities().check(&kernel);
    if simplify::check(&kernel).is_err() {
        return;
    }
    let _ = (kernel.to_string(), simplify::is_free(&kernel), simplify::accesses(&kernel).count());
    simplify::remove_unit_dims(&mut kernel);
    simplify::sort_by_stride(&mut kernel);
    simplify::merge_neighbours(&mut kernel);
    simplify::append_unit_row(&mut kernel);
    simplify::check(&kernel).unwrap();
    if simplify::is_free(&kernel) {
        simplify::merge_stages(&mut kernel);
    }
}

#[test]
fn kernels() {
    bytes("kernels", encodings::<Vec<Kernel>>(40), Memory::per_byte(512), |bytes| {
        let Ok(kernels) = postcard::from_bytes::<Vec<Kernel>>(bytes) else { return false };
        assert_eq!(postcard::from_bytes(&postcard::to_stdvec(&kernels).unwrap()), Ok(kernels.clone()));
        kernels.into_iter().for_each(looked_at);
        true
    });
}

/// The form in which `flambeau plugin check` writes them.
#[test]
fn kernels_as_json() {
    let kernels = encodings::<Kernel>(40);
    let kernels = kernels.iter().map(|bytes| serde_json::to_string(&postcard::from_bytes::<Kernel>(bytes).unwrap()));
    let valid: Vec<String> = kernels.map(Result::unwrap).collect();
    let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
    text("kernels as JSON", &valid, Memory::per_byte(512), |text| {
        let Ok(kernel) = serde_json::from_str::<Kernel>(text) else { return false };
        let again = serde_json::to_string(&kernel).unwrap();
        assert_eq!(serde_json::from_str::<Kernel>(&again).unwrap(), kernel);
        looked_at(kernel);
        true
    });
}

#[test]
fn capabilities() {
    let valid = vec![reference::capabilities().to_bytes(), Capabilities::default().to_bytes()];
    bytes("capabilities", valid, Memory::per_byte(512), |bytes| {
        let Ok(capabilities) = Capabilities::from_bytes(bytes) else { return false };
        assert_eq!(Capabilities::from_bytes(&capabilities.to_bytes()), Ok(capabilities));
        true
    });
}
