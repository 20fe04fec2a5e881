//! The cache against damage: flipped bytes, truncated files, sudden death, a second opener, a full disk's worth.

use flambeau_storage::{Cache, CacheError, CacheOptions, KeyParts, Miss};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn options(dir: &Path) -> CacheOptions {
    CacheOptions { dir: dir.join("cache"), build: "build".into(), limit: 1 << 30 }
}

fn parts(family: u8, torch: &str) -> KeyParts {
    KeyParts { family: [family; 32], parts: vec![("torch".into(), torch.into())] }
}

/// Ten keys with a frame and an artifact each.
fn fill(cache: &mut Cache) {
    for i in 0..10_u8 {
        let artifact = cache.insert_kernel(&[i; 32], &[i; 500]).unwrap();
        cache.insert_frame(&[i; 32], &parts(i, "2.15"), &[i; 900], &[artifact]).unwrap();
    }
    cache.flush();
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(all_files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Every answer is a right one or a named miss; the cache can be written again afterwards.
fn check(dir: &Path, what: &str) {
    let mut cache = Cache::open(&options(dir)).unwrap();
    for i in 0..10_u8 {
        if let Ok(found) = cache.frames(&[i; 32], &parts(i, "2.15")) {
            assert_eq!(found[0].frame, [i; 900], "{what}");
            assert_eq!(found[0].artifacts[0].1, [i; 500], "{what}");
        }
        if let Ok((_, artifact)) = cache.kernel(&[i; 32]) {
            assert_eq!(artifact, [i; 500], "{what}");
        }
    }
    fill(&mut cache);
    assert_eq!(cache.frames(&[3; 32], &parts(3, "2.15")).unwrap()[0].frame, [3; 900], "{what}");
}

#[test]
fn survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    fill(&mut Cache::open(&options(dir.path())).unwrap());
    let mut cache = Cache::open(&options(dir.path())).unwrap();
    assert_eq!(cache.frames(&[7; 32], &parts(7, "2.15")).unwrap().len(), 1);
    let stats = cache.stats();
    assert_eq!((stats.keys, stats.frames, stats.kernels, stats.bytes), (10, 10, 10, 14_000));
}

/// Where the process that is to be killed stores.
const FOLDER: &str = "FLAMBEAU_TEST_FOLDER";

#[test]
#[ignore = "ends by being killed: what the next test starts"]
fn stores_until_it_is_killed() {
    let Some(dir) = std::env::var_os(FOLDER) else { return };
    let mut cache = Cache::open(&options(Path::new(&dir))).unwrap();
    for i in 0..=u8::MAX {
        cache.insert_frame(&[i; 32], &parts(i, "2.15"), &[i; 900], &[]).unwrap();
        println!("stored {i}");
    }
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn what_was_stored_outlives_the_process_at_once() {
    for last in [0, 1, 7, 100, 255] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "stores_until_it_is_killed"])
            .env(FOLDER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stored = lines.map(Result::unwrap).filter(|line| line.ends_with(&format!("stored {last}")));
        assert!(stored.next().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut cache = Cache::open(&options(dir.path())).unwrap();
        for i in 0..=last {
            assert!(cache.frames(&[i; 32], &parts(i, "2.15")).is_ok(), "{i} of {last}");
        }
    }
}

#[test]
fn flipped_bytes_and_truncation_anywhere_give_misses() {
    std::panic::set_hook(Box::new(|_| {}));
    let pristine = tempfile::tempdir().unwrap();
    fill(&mut Cache::open(&options(pristine.path())).unwrap());
    let files = all_files(pristine.path());
    assert!(files.len() > 20);
    for file in &files {
        let length = fs::metadata(file).unwrap().len() as usize;
        // Index files get more than one place hit; of the content files, every fourth will do.
        let is_content = file.components().any(|c| c.as_os_str() == "files");
        let places: Vec<usize> = if is_content { vec![length / 2] } else { (0..6).map(|i| length * i / 6).collect() };
        for at in places.into_iter().filter(|at| *at < length) {
            for cut in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                copy(pristine.path(), dir.path());
                let target = dir.path().join(file.strip_prefix(pristine.path()).unwrap());
                let mut bytes = fs::read(&target).unwrap();
                if cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 0xA5;
                }
                fs::write(&target, bytes).unwrap();
                check(dir.path(), &format!("{} at {at} cut {cut}", file.display()));
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            std::os::unix::fs::chown(&target, None, None).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_second_opener_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Cache::open(&options(dir.path())).unwrap();
    assert!(matches!(Cache::open(&options(dir.path())), Err(CacheError::Locked(_))));
    let mut memory = Cache::in_memory(1 << 20).unwrap();
    fill(&mut memory);
    assert!(memory.stats().in_memory);
}

#[test]
fn misses_have_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Cache::open(&options(dir.path())).unwrap();
    fill(&mut cache);
    assert_eq!(cache.frames(&[99; 32], &parts(99, "2.15")), Err(Miss::Absent));
    let other = cache.frames(&[99; 32], &parts(4, "2.16")).unwrap_err();
    assert_eq!(other.to_string(), "compiled only with other settings (torch: stored 2.15, asked for 2.16)");
    for file in all_files(&dir.path().join("cache/build/files")) {
        fs::write(file, b"damaged").unwrap();
    }
    assert!(matches!(cache.frames(&[4; 32], &parts(4, "2.15")), Err(Miss::Damaged(_))));
    assert!(matches!(cache.kernel(&[5; 32]), Err(Miss::Damaged(_))));
    assert!(cache.stats().damaged >= 2);
}

#[test]
fn the_least_recently_used_is_evicted_and_the_index_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Cache::open(&CacheOptions { limit: 100_000, ..options(dir.path()) }).unwrap();
    for i in 0..=99_u8 {
        cache.insert_frame(&[i; 32], &parts(i, "2.15"), &vec![i; 5000], &[]).unwrap();
    }
    let stats = cache.stats();
    assert!(stats.bytes <= 100_000 && stats.bytes >= 50_000, "{stats:?}");
    assert!(stats.evicted >= 80);
    assert_eq!(cache.frames(&[0; 32], &parts(0, "2.15")), Err(Miss::Evicted));
    let on_disk: u64 =
        all_files(&dir.path().join("cache/build/files")).iter().map(|f| fs::metadata(f).unwrap().len()).sum();
    assert!(on_disk <= 100_000);
    cache.rebuild();
    assert_eq!(cache.stats().bytes, stats.bytes);
    cache.clear();
    assert_eq!((cache.stats().keys, cache.stats().bytes), (0, 0));
    drop(cache);
    assert_eq!(Cache::open(&options(dir.path())).unwrap().stats().keys, 0);
}

/// A process that was killed while it noted a change leaves a part of it; what is noted next is found all the same.
#[test]
fn a_part_of_a_change_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    fill(&mut Cache::open(&options(dir.path())).unwrap());
    let journal = dir.path().join("cache/build/index-0/journal");
    assert_eq!(fs::metadata(&journal).unwrap().len(), 0);
    fs::write(&journal, [1, 2, 3]).unwrap();
    let mut cache = Cache::open(&options(dir.path())).unwrap();
    assert_eq!(fs::metadata(&journal).unwrap().len(), 0);
    assert_eq!(cache.frames(&[3; 32], &parts(3, "2.15")).unwrap().len(), 1);
}

/// What a key costs does not grow with the number of keys of the same frame: a daemon that is behind loses what it answered.
#[test]
fn many_keys_of_one_frame() {
    const KEYS: u32 = 4000;
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Cache::open(&options(dir.path())).unwrap();
    for i in 0..KEYS {
        let key = *blake3::hash(&i.to_le_bytes()).as_bytes();
        cache.insert_frame(&key, &parts(1, "2.15"), &[1; 900], &[]).unwrap();
    }
    cache.flush();
    let written: u64 = all_files(dir.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(written < u64::from(KEYS) * 8192, "{} bytes a key", written / u64::from(KEYS));
    assert!(matches!(cache.frames(&[0; 32], &parts(1, "2.16")), Err(Miss::Differs(_))));
}

#[test]
fn frames_can_be_reordered() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = Cache::open(&options(dir.path())).unwrap();
    for i in 0..3_u8 {
        cache.insert_frame(&[1; 32], &parts(1, "2.15"), &[i; 10], &[]).unwrap();
    }
    cache.reorder(&[1; 32], &[2, 0, 1]);
    cache.reorder(&[1; 32], &[0, 0, 1]);
    let order: Vec<u8> = cache.frames(&[1; 32], &parts(1, "2.15")).unwrap().iter().map(|f| f.frame[0]).collect();
    assert_eq!(order, [2, 0, 1]);
}
