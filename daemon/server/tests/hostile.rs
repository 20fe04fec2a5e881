//! The daemon against hostile bytes, kills and odd files: it goes on for everybody else, and keeps what it said it keeps.

mod support;

use flambeau_ir::code::{Code, Const};
use flambeau_ir::frame::{FrameId, TraceOptions};
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::frame;
use flambeau_wire::from_client::{Admin, FrameKey, FromClient, KeyOptions, Snapshot};
use flambeau_wire::from_daemon::FromDaemon;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Client, Daemon, code, key, snapshot};

fn dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("fl").tempdir().unwrap()
}

/// `def f(x): return x`, on the line with this number.
fn identity(line: u8) -> Code {
    code(line, &[151, 0, 124, 0, 83, 0], &[])
}

fn compile(client: &mut Client, key: FrameKey, snapshot: Snapshot) -> FromDaemon {
    let request = client.request();
    client.send(&FromClient::Compile { request, key, plugin: None, snapshot: Box::new(snapshot) });
    client.receive().unwrap()
}

fn key_of(code: &Code) -> FrameKey {
    FrameKey { frame: FrameId { code: code.hash, path: vec![] }, ..key(0) }
}

#[test]
fn what_was_answered_a_quarter_second_ago_outlives_a_kill() {
    let dir = dir();
    for round in 0..5_u8 {
        let daemon = Daemon::start(dir.path());
        let mut client = Client::connect(dir.path());
        for i in 0..8 {
            assert!(matches!(client.lower(&key(round * 8 + i)), FromDaemon::Compiled { .. }));
        }
        std::thread::sleep(Duration::from_millis(250));
        daemon.kill();
        let daemon = Daemon::start(dir.path());
        let mut client = Client::connect(dir.path());
        let kept = (0..8).filter(|i| client.look_up(&key(round * 8 + i)).0 == 1).count();
        assert_eq!(kept, 8, "round {round}");
        // What is reported as stored is there at once.
        client.lower(&key(200 + round));
        assert_eq!(client.admin(Admin::CacheFlush)["stored"], true);
        daemon.kill();
        let daemon = Daemon::start(dir.path());
        assert_eq!(Client::connect(dir.path()).look_up(&key(200 + round)).0, 1);
        daemon.stop();
    }
    assert!(named(&dir.path().join("cache"), ".new-").is_empty());
}

fn named(dir: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(named(&entry.path(), prefix));
        }
        found.extend(entry.file_name().into_string().ok().filter(|name| name.starts_with(prefix)));
    }
    found
}

#[test]
fn half_written_files_are_gone_after_the_next_start() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    Client::connect(dir.path()).lower(&key(1));
    daemon.stop();
    let folder = fs::read_dir(dir.path().join("cache").join(BUILD).join("files")).unwrap().next().unwrap().unwrap();
    fs::write(folder.path().join(".new-1-1"), "half").unwrap();
    let daemon = Daemon::start(dir.path());
    assert_eq!(Client::connect(dir.path()).look_up(&key(1)).0, 1);
    assert!(named(&dir.path().join("cache"), ".new-").is_empty());
    daemon.stop();
}

#[test]
fn a_fifo_anywhere_in_the_cache_keeps_nobody_waiting() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    Client::connect(dir.path()).lower(&key(1));
    daemon.stop();
    let build = dir.path().join("cache").join(BUILD);
    let file = {
        let folder = fs::read_dir(build.join("files")).unwrap().next().unwrap().unwrap().path();
        fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    };
    let index = fs::read_dir(build.join("index-0")).unwrap().next().unwrap().unwrap().path();
    for victim in
        [file, index, build.join("generation"), build.join("lock"), build.join("files"), build.join("index-0")]
    {
        let _ = fs::remove_dir_all(&victim).or_else(|_| fs::remove_file(&victim));
        mknodat(CWD, &victim, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let begun = Instant::now();
        let daemon = Daemon::start(dir.path());
        let mut client = Client::connect(dir.path());
        client.look_up(&key(1));
        assert!(matches!(client.lower(&key(1)), FromDaemon::Compiled { .. }));
        client.admin(Admin::CacheFlush);
        assert_eq!(client.look_up(&key(1)).0, 1, "{}", victim.display());
        daemon.stop();
        assert!(begun.elapsed() < Duration::from_secs(5), "{}", victim.display());
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_left_alone() {
    let dir = dir();
    let target = dir.path().join("target");
    fs::write(&target, "mine").unwrap();
    let build = dir.path().join("cache").join(BUILD);
    fs::create_dir_all(&build).unwrap();
    symlink(&target, build.join("flambeaud.log")).unwrap();
    fs::set_permissions(dir.path().join("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    assert!(matches!(client.lower(&key(1)), FromDaemon::Compiled { .. }));
    assert_eq!(client.admin(Admin::CacheFlush)["stored"], false);
    daemon.stop();
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&build).unwrap().count(), 1);
}

#[test]
fn a_snapshot_is_stored_under_its_own_key_only() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    let (one, other) = (identity(1), identity(2));
    let failed = |reply: &FromDaemon| matches!(reply, FromDaemon::Failed { .. });
    // Another function's key; another function's code under the hash of this one; other options than the key says.
    assert!(failed(&compile(&mut client, key_of(&other), snapshot(one.clone()))));
    let lie = Code { hash: other.hash, ..one.clone() };
    assert!(failed(&compile(&mut client, key_of(&other), snapshot(lie))));
    let options = TraceOptions { fullgraph: true, ..TraceOptions::default() };
    let mut odd = snapshot(one.clone());
    odd.options = options.clone();
    assert!(failed(&compile(&mut client, key_of(&one), odd.clone())));
    assert_eq!(client.look_up(&key_of(&other)).0, 0);
    assert_eq!(client.look_up(&key_of(&one)).0, 0);
    let right = FrameKey { options: KeyOptions::of(&options), ..key_of(&one) };
    let reply = compile(&mut client, right, odd);
    assert!(!failed(&reply), "{reply:?}");
    let reply = compile(&mut client, key_of(&one), snapshot(one.clone()));
    assert!(!failed(&reply), "{reply:?}");
    drop(daemon);
}

#[test]
fn constants_nested_without_end_end_their_sender_only() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    let mut code = identity(3);
    code.consts = vec![Const::Tuple(vec![Const::None])];
    let message = FromClient::Compile {
        request: client.request(),
        key: key_of(&code),
        plugin: None,
        snapshot: Box::new(snapshot(code)),
    };
    let body = frame::encode(&message).unwrap()[frame::PREFIX..].to_vec();
    let tuple = postcard_of_tuple();
    let at = body.windows(tuple.len()).position(|w| w == tuple).unwrap();
    for levels in [300, 300_000] {
        let deep = [&body[..at], &tuple[..2].repeat(levels), &body[at..]].concat();
        let mut framed = [&[0; frame::PREFIX][..], &deep].concat();
        frame::seal(&mut framed).unwrap();
        let mut hostile = Client::connect(dir.path());
        let _ = hostile.stream.write_all(&framed);
        assert!(hostile.receive().is_err());
    }
    assert!(matches!(client.lower(&key(1)), FromDaemon::Compiled { .. }));
    assert_eq!(daemon.counter("panics"), 0);
}

/// `Const::Tuple(vec![Const::None])`: the variant, the length, the item.
fn postcard_of_tuple() -> [u8; 3] {
    let framed = frame::encode(&Const::Tuple(vec![Const::None])).unwrap();
    framed[frame::PREFIX..].try_into().unwrap()
}

#[test]
fn half_messages_hold_little_memory() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut halves = Vec::new();
    for _ in 0..6 {
        let mut client = Client::connect(dir.path());
        client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let length = 250_u32 << 20;
        client.stream.write_all(&[&length.to_le_bytes()[..], &[0; 32]].concat()).unwrap();
        let part = vec![0_u8; 1 << 20];
        for _ in 0..200 {
            if client.stream.write_all(&part).is_err() {
                break;
            }
        }
        halves.push(client);
    }
    let mut client = Client::connect(dir.path());
    let held = client.admin(Admin::Status)["rss_bytes"].as_u64().unwrap();
    assert!(held < 400 << 20, "{} MiB", held >> 20);
    drop((halves, daemon));
}

#[test]
fn a_changed_byte_ends_the_connection_and_does_nothing() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    let request = client.request();
    let mut bytes = frame::encode(&FromClient::Admin { request, command: Admin::Stop }).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    client.stream.write_all(&bytes).unwrap();
    assert!(client.receive().is_err());
    assert!(matches!(Client::connect(dir.path()).lower(&key(1)), FromDaemon::Compiled { .. }));
    drop(daemon);
}
