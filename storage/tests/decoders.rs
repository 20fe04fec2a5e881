//! Records and files of the cache as bytes that anybody may have written, also where their hash is right.

use flambeau_mutate::{Memory, bytes};
use flambeau_storage::{Cache, CacheOptions, KeyParts, SledStore, Store, open_record, seal_record};
use std::fs;
use std::path::{Path, PathBuf};

const KEY: [u8; 32] = [1; 32];

/// What sled takes for an index, whatever it holds, and for each byte of damage to it.
const SLED: Memory = Memory { fixed: 32 << 20, per_byte: 64 };

fn parts() -> KeyParts {
    KeyParts { family: [2; 32], parts: vec![("torch".into(), "2.15".into()), ("python".into(), "3.11".into())] }
}

fn options(dir: &Path) -> CacheOptions {
    CacheOptions { dir: dir.join("cache"), build: "build".into(), limit: 1 << 20 }
}

/// A new cache with two frames of a key, and where its index is.
fn filled(dir: &Path) -> PathBuf {
    let _ = fs::remove_dir_all(dir.join("cache"));
    let mut cache = Cache::open(&options(dir)).unwrap();
    let artifact = cache.insert_kernel(&KEY, b"artifact").unwrap();
    for frame in [b"one", b"two"] {
        cache.insert_frame(&KEY, &parts(), frame, &[artifact]).unwrap();
    }
    dir.join("cache/build/index-0")
}

/// Everything that reads records; whether the frames are still there.
fn used(dir: &Path) -> bool {
    let mut cache = Cache::open(&options(dir)).unwrap();
    let frames = cache.frames(&KEY, &parts()).unwrap_or_default();
    assert!(frames.iter().all(|f| [b"one", b"two"].contains(&&f.frame[..].try_into().unwrap())), "{frames:?}");
    let kernel = cache.kernel(&KEY);
    assert!(kernel.as_ref().is_ok_and(|(_, bytes)| bytes == b"artifact") || kernel.is_err());
    let other = cache.frames(&[9; 32], &parts());
    assert!(other.is_err(), "{other:?}");
    cache.reorder(&KEY, &[1, 0]);
    let _ = (cache.insert_frame(&KEY, &parts(), b"one", &[]), cache.stats());
    cache.tidy();
    assert!(!cache.frames(&KEY, &parts()).unwrap().is_empty(), "nothing can be stored any more");
    !frames.is_empty()
}

#[test]
fn envelopes_of_records() {
    let valid = vec![seal_record(b""), seal_record(&[7; 300])];
    bytes("envelopes of records", valid, Memory::per_byte(0), |sealed| {
        let Ok(body) = open_record(sealed) else { return false };
        assert_eq!(seal_record(body), sealed);
        true
    });
}

/// With the right hash, under each kind of key.
#[test]
fn records() {
    let dir = tempfile::tempdir().unwrap();
    let index = filled(dir.path());
    let pairs = SledStore::open(&index).unwrap().scan(b"").unwrap();
    for (key, sealed) in &pairs {
        let body = open_record(sealed).unwrap().to_vec();
        let name = format!("records of kind {}", char::from(key[0]));
        // What is valid is used as it is first: all of the cache is whole.
        bytes(&name, vec![body], SLED, |body| {
            let index = filled(dir.path());
            let mut store = SledStore::open(&index).unwrap();
            store.insert(key, &seal_record(body)).unwrap();
            drop(store);
            let whole = used(dir.path());
            whole || key[0] != b'M'
        });
    }
}

/// sled's own files.
#[test]
fn files_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let index = filled(dir.path());
    let files = || fs::read_dir(&index).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    let sound: Vec<(PathBuf, Vec<u8>)> = files().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    for (path, content) in &sound {
        let name = format!("index file {}", path.file_name().unwrap().display());
        // Its page cache and buffers are sled's.
        bytes(&name, vec![content.clone()], SLED, |content| {
            let build = dir.path().join("cache/build");
            let _ = (fs::remove_dir_all(&index), fs::remove_file(build.join("generation")));
            fs::create_dir(&index).unwrap();
            for (path, content) in &sound {
                fs::write(path, content).unwrap();
            }
            fs::write(path, content).unwrap();
            used(dir.path());
            true
        });
    }
}
