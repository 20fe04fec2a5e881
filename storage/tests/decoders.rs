//! Records and files of the cache as bytes that anybody may have written, also where their hash is right.

use flambeau_mutate::{Memory, bytes};
use flambeau_storage::{
    Cache, CacheOptions, Folder, KeyParts, SledStore, Store, journal_changes, open_record, seal_record,
};
use std::fs;
use std::path::{Path, PathBuf};

const KEY: [u8; 32] = [1; 32];

/// What sled takes for an index, whatever it holds, and for each byte of damage to it. Twice, as one that panicked over its
/// files is still held for a while when a new one is opened.
const SLED: Memory = Memory { fixed: 64 << 20, per_byte: 64 };

/// What the cache holds. A record with a right hash may name any of it, whoever asks.
const STORED: [&[u8]; 3] = [b"artifact", b"one", b"two"];

fn parts() -> KeyParts {
    KeyParts { family: [2; 32], parts: vec![("torch".into(), "2.15".into()), ("python".into(), "3.11".into())] }
}

fn options(dir: &Path) -> CacheOptions {
    CacheOptions { dir: dir.join("cache"), build: "build".into(), limit: 1 << 20 }
}

/// A cache with two frames of a key, closed.
fn filled(dir: &Path) {
    let mut cache = Cache::open(&options(dir)).unwrap();
    let artifact = cache.insert_kernel(&KEY, STORED[0]).unwrap();
    for frame in &STORED[1..] {
        cache.insert_frame(&KEY, &parts(), frame, &[artifact]).unwrap();
    }
    assert!(cache.flush());
}

fn index(dir: &Path) -> PathBuf {
    dir.join("cache/build/index-0")
}

/// A copy in a folder of its own: sled lets go of its files some time after they were closed.
fn copied(dir: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let to = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy(&entry.path(), &to);
            } else {
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    let other = tempfile::tempdir().unwrap();
    copy(&dir.join("cache"), &other.path().join("cache"));
    other
}

/// Everything that reads records; whether the frames are still there.
fn used(dir: &Path) -> bool {
    let mut cache = Cache::open(&options(dir)).unwrap();
    let frames = cache.frames(&KEY, &parts()).unwrap_or_default();
    assert!(frames.iter().all(|f| STORED.contains(&&f.frame[..])), "{frames:?}");
    assert!(!cache.kernel(&KEY).is_ok_and(|(_, bytes)| !STORED.contains(&&bytes[..])));
    let other = cache.frames(&[9; 32], &parts());
    assert!(other.is_err(), "{other:?}");
    cache.reorder(&KEY, &[1, 0]);
    let _ = (cache.insert_frame(&KEY, &parts(), b"one", &[]), cache.stats());
    cache.tidy();
    // A record that speaks of large files takes others with it when it is evicted.
    let stored = |cache: &mut Cache| cache.frames(&KEY, &parts()).is_ok_and(|found| !found.is_empty());
    if !stored(&mut cache) {
        cache.insert_frame(&KEY, &parts(), b"one", &[]).unwrap();
        assert!(stored(&mut cache), "nothing can be stored any more");
    }
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

/// Records that follow each other: what comes before damage is as it was written.
#[test]
fn journals() {
    let change = |key: &[u8], value: Option<&[u8]>| seal_record(&postcard::to_stdvec(&(key, value)).unwrap());
    let valid = [change(b"a", Some(&[1; 50])), change(b"b", None), change(b"c", Some(b""))].concat();
    bytes("journals", vec![valid], Memory::per_byte(64), |content| !journal_changes(content).is_empty());
}

/// With the right hash, under each kind of key.
#[test]
fn records() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let pairs = SledStore::open(&Folder::open(&index(copied(dir.path()).path())).unwrap()).unwrap().scan(b"").unwrap();
    for (key, sealed) in &pairs {
        let body = open_record(sealed).unwrap().to_vec();
        let name = format!("records of kind {}", char::from(key[0]));
        // What is valid is used as it is first: all of the cache is whole.
        bytes(&name, vec![body], SLED, |body| {
            let changed = copied(dir.path());
            let mut store = SledStore::open(&Folder::open(&index(changed.path())).unwrap()).unwrap();
            store.insert(key, &seal_record(body)).unwrap();
            store.flush().unwrap();
            drop(store);
            used(copied(changed.path()).path())
        });
    }
}

/// sled's own files.
#[test]
fn files_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let files = fs::read_dir(index(dir.path())).unwrap().flatten().filter(|entry| entry.path().is_file());
    for file in files {
        let name = format!("index file {}", file.file_name().display());
        let content = fs::read(file.path()).unwrap();
        bytes(&name, vec![content], SLED, |content| {
            let changed = copied(dir.path());
            fs::write(index(changed.path()).join(file.file_name()), content).unwrap();
            used(changed.path())
        });
    }
}
