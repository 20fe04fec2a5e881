//! A real daemon process against a minimal client: handshake, compiles, restarts, damage.

mod support;

use flambeau_ir::plan::Body;
use flambeau_wire::endpoint::lock_path;
use flambeau_wire::from_client::{FromClient, Hello};
use flambeau_wire::from_daemon::FromDaemon;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use support::{Client, Daemon, hello, key, socket};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn other_builds_protocols_and_cache_directories_are_refused() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let refused = |hello: Hello| {
        let mut client = Client::raw(dir.path());
        client.send(&FromClient::Hello(hello));
        let reply = client.receive().unwrap();
        assert!(client.receive().is_err(), "the connection ends");
        matches!(reply, FromDaemon::Refused(_))
    };
    assert!(refused(Hello { build: "other".into(), ..hello(dir.path()) }));
    assert!(refused(Hello { protocol: 0, ..hello(dir.path()) }));
    let mut elsewhere = hello(dir.path());
    elsewhere.settings.cache_dir = "/elsewhere".into();
    assert!(refused(elsewhere));
    let mut impatient = Client::raw(dir.path());
    impatient.send(&FromClient::Cancel(flambeau_wire::from_client::RequestId(1)));
    assert!(matches!(impatient.receive(), Ok(FromDaemon::Refused(_))));
    assert_eq!(daemon.counter("refused"), 4);
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    for bytes in [&[0xff; 64][..], &[4, 0, 0, 0, 0xee, 0xee, 0xee, 0xee], &[0, 0, 0, 0x3f]] {
        let mut client = Client::raw(dir.path());
        client.stream.write_all(bytes).unwrap();
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        assert!(client.receive().is_err());
    }
    let mut greeted = Client::connect(dir.path());
    greeted.stream.write_all(&[8, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]).unwrap();
    assert!(greeted.receive().is_err());
    assert!(matches!(Client::connect(dir.path()).lower(&key(1)), FromDaemon::Compiled { .. }));
    assert_eq!(daemon.counter("panics"), 0);
}

#[test]
fn what_was_compiled_is_found_by_others_and_after_a_restart() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    assert_eq!(client.look_up(&key(1)), (0, Some("never compiled".into())));
    let FromDaemon::Compiled { delivery, timings, .. } = client.lower(&key(1)) else { panic!() };
    assert!(matches!(delivery.frame.body, Body::Eager(_)));
    assert!(delivery.frame.graph_text.contains("add"));
    assert!(timings.iter().any(|(name, _)| name == "lower"));
    assert_eq!(Client::connect(dir.path()).look_up(&key(1)), (1, None));
    assert_eq!(Client::connect(dir.path()).look_up(&key(1)), (1, None));
    assert_eq!((daemon.counter("hits_disk"), daemon.counter("hits_memory")), (1, 1));
    // The same again is not stored twice.
    client.lower(&key(1));
    assert_eq!(client.look_up(&key(1)), (1, None));
    daemon.stop();
    assert!(!socket(dir.path()).exists());

    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    assert_eq!(client.look_up(&key(1)), (1, None));
    let mut other = key(1);
    other.torch = "2.16".into();
    let (none, why) = client.look_up(&other);
    assert_eq!(none, 0);
    assert!(why.unwrap().contains("torch: stored 2.15.0, asked for 2.16"));
    drop(daemon);
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_flushed_and_leaves_a_usable_place() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    for i in 0..20 {
        assert!(matches!(client.lower(&key(i)), FromDaemon::Compiled { .. }));
    }
    // One in flight.
    let request = client.request();
    client.send(&FromClient::Lower {
        request,
        key: key(99),
        plugin: None,
        graph: Box::new(support::graph(99)),
        options: flambeau_ir::frame::TraceOptions::default(),
    });
    daemon.kill();
    assert!(socket(dir.path()).exists(), "nobody removed the socket");

    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    for i in 0..20 {
        let (frames, miss) = client.look_up(&key(i));
        assert!(frames == 1 || miss.is_some());
        assert!(matches!(client.lower(&key(i)), FromDaemon::Compiled { .. }));
        assert_eq!(client.look_up(&key(i)).0, 1);
    }
    assert_eq!(daemon.counter("panics"), 0);
}

#[test]
fn a_damaged_cache_is_a_miss() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    for i in 0..8 {
        client.lower(&key(i));
    }
    daemon.stop();
    let mut flipped = 0;
    flip(&dir.path().join("cache"), &mut flipped);
    assert!(flipped > 8);
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    for i in 0..8 {
        let (frames, miss) = client.look_up(&key(i));
        assert_eq!(frames, 0);
        assert!(miss.is_some());
        assert!(matches!(client.lower(&key(i)), FromDaemon::Compiled { .. }));
        assert_eq!(client.look_up(&key(i)).0, 1);
    }
    drop(daemon);
}

/// Flips a byte in the middle of every file.
fn flip(dir: &Path, flipped: &mut usize) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            flip(&entry.path(), flipped);
        } else if let Ok(mut bytes) = fs::read(entry.path()) {
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x55;
                *flipped += 1;
                fs::write(entry.path(), bytes).unwrap();
            }
        }
    }
}

#[test]
fn a_second_daemon_on_the_socket_leaves_quietly() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut second = Command::new(env!("CARGO_BIN_EXE_flambeaud"));
    second.args(["serve", "--socket"]).arg(socket(dir.path())).arg("--cache-dir").arg(dir.path().join("cache"));
    let output = second.output().unwrap();
    assert!(output.status.success());
    assert_eq!(daemon.status()["running"], serde_json::Value::Null);
    assert_eq!(daemon.status()["pid"], daemon.child.id());
}

#[test]
fn a_lock_that_a_killed_daemon_left_is_waited_for() {
    let dir = dir();
    Daemon::start(dir.path()).kill();
    let file = fs::File::open(lock_path(&socket(dir.path()))).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let held = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(file);
    });
    let next = Daemon::start(dir.path());
    held.join().unwrap();
    assert_eq!(next.status()["pid"], next.child.id());
}

#[test]
fn it_ends_when_idle_on_sigterm_and_when_its_socket_is_gone() {
    let dir = dir();
    let mut idle = Daemon::start_with(dir.path(), &["--idle-timeout", "1"]);
    assert!(idle.child.wait().unwrap().success());
    assert!(idle.log().contains("idle"));

    let mut daemon = Daemon::start(dir.path());
    Client::connect(dir.path()).lower(&key(1));
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.child.wait().unwrap().success());
    assert!(!socket(dir.path()).exists());

    let mut orphan = Daemon::start(dir.path());
    assert_eq!(Client::connect(dir.path()).look_up(&key(1)).0, 1, "SIGTERM flushed the cache");
    fs::remove_file(socket(dir.path())).unwrap();
    assert!(orphan.child.wait().unwrap().success());
}

#[test]
fn idle_memory_is_small() {
    let dir = dir();
    let daemon = Daemon::start(dir.path());
    let mut client = Client::connect(dir.path());
    for i in 0..50 {
        client.lower(&key(i));
    }
    let rss = daemon.status()["rss_bytes"].as_u64().unwrap();
    assert!(rss < 80 << 20, "{rss} bytes");
}

#[test]
fn the_command_line_starts_looks_and_stops() {
    let dir = dir();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flambeaud"));
        command.args(args).arg("--socket").arg(socket(dir.path())).arg("--cache-dir").arg(dir.path().join("cache"));
        let output = command.arg("--json").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    assert_eq!(run(&["status"])["running"], false);
    assert_eq!(run(&["start"])["started"], true);
    assert_eq!(run(&["start"])["started"], false);
    assert_eq!(run(&["status"])["running"], true);
    Client::connect(dir.path()).lower(&key(1));
    Client::connect(dir.path()).look_up(&key(2));
    assert_eq!(run(&["cache", "stats"])["frames"], 1);
    assert_eq!(run(&["cache", "why"])["misses"][0]["reason"], "never compiled");
    assert_eq!(run(&["cache", "clear"])["frames"], 1);
    assert_eq!(Client::connect(dir.path()).look_up(&key(1)).0, 0);
    assert!(run(&["logs"])["lines"].as_array().unwrap().len() > 2);
    assert!(run(&["backend", "list"])["backends"].is_array());
    assert_eq!(run(&["stop"])["stopped"], true);
    assert_eq!(run(&["stop"])["stopped"], false);
    assert_eq!(run(&["cache", "stats"])["frames"], 0);
}
