//! Two clients, one compile: joined, answered by one, taken over when that one is lost or stopped.

mod support;

use flambeau_ir::code::{Code, Const};
use flambeau_ir::frame::FrameId;
use flambeau_ir::object::{Described, ObjId, Object, ObjectData};
use flambeau_ir::oracle::{Answer, AnswerValue, Question};
use flambeau_wire::from_client::{FrameKey, FromClient, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use support::{Client, Daemon, NAMESPACE, code, key, snapshot};

/// `def f(x): return g`, on the line with this number. The global `g` is not in the snapshot.
fn function(line: u8) -> Code {
    let load_global = [116, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytecode = [&[151, 0][..], &load_global, &[83, 0]].concat();
    code(line, &bytecode, &["g"])
}

/// What it is compiled under.
fn frame_key(line: u8) -> FrameKey {
    FrameKey { frame: FrameId { code: function(line).hash, path: vec![] }, ..key(0) }
}

fn compile(client: &mut Client, line: u8) -> RequestId {
    let request = client.request();
    client.send(&FromClient::Compile {
        request,
        key: frame_key(line),
        plugin: None,
        snapshot: Box::new(snapshot(function(line))),
    });
    request
}

/// Answers until the compile ends. The global is 7; nothing else is known.
fn finish(client: &mut Client) -> FromDaemon {
    loop {
        match client.receive().unwrap() {
            FromDaemon::Questions { request, questions } => {
                let answers = questions.iter().map(answer).collect();
                client.send(&FromClient::Answers { request, answers });
            }
            end => return end,
        }
    }
}

fn answer(question: &Question) -> Answer {
    let seven =
        Object { id: ObjId(7), class: ObjId(91), path: None, dict: None, data: ObjectData::Const(Const::Int(7)) };
    match question {
        Question::DictItem { dict, .. } if *dict == NAMESPACE => Answer {
            value: AnswerValue::Object(Some(ObjId(7))),
            described: Described { objects: vec![seven], ..Described::default() },
        },
        _ => Answer { value: AnswerValue::Missing, described: Described::default() },
    }
}

/// A traced frame, or a reason the tracer gave: not an error of the daemon's own.
fn is_end(message: &FromDaemon) -> bool {
    match message {
        FromDaemon::Compiled { .. } => true,
        FromDaemon::Failed { reason, .. } => !reason.detail.contains("in time"),
        _ => false,
    }
}

fn questions(client: &mut Client) {
    let message = client.receive().unwrap();
    assert!(matches!(message, FromDaemon::Questions { .. }), "{message:?}");
}

#[test]
fn the_same_request_is_compiled_once() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let (mut a, mut b) = (Client::connect(dir.path()), Client::connect(dir.path()));
    compile(&mut a, 1);
    let FromDaemon::Questions { request, questions } = a.receive().unwrap() else { panic!() };
    compile(&mut b, 1);
    while daemon.counter("shared") < 1 {}
    a.send(&FromClient::Answers { request, answers: questions.iter().map(answer).collect() });
    let end = finish(&mut a);
    assert!(is_end(&end), "{end:?}");
    let shared = b.receive().unwrap();
    assert!(is_end(&shared), "{shared:?}");
    assert_eq!((daemon.counter("compiles"), daemon.counter("shared")), (1, 1));
    // Another snapshot is another compile.
    compile(&mut b, 2);
    assert!(is_end(&finish(&mut b)));
    assert_eq!(daemon.counter("compiles"), 2);
}

#[test]
fn a_shared_compile_survives_the_client_that_answers() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let (mut a, mut b) = (Client::connect(dir.path()), Client::connect(dir.path()));
    compile(&mut a, 1);
    questions(&mut a);
    compile(&mut b, 1);
    while daemon.counter("shared") < 1 {}
    drop(a);
    let end = finish(&mut b);
    assert!(is_end(&end), "{end:?}");
    assert_eq!((daemon.counter("compiles"), daemon.counter("restarted")), (1, 1));
}

#[test]
fn a_stopped_client_does_not_hold_up_one_that_shares_its_compile() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let (mut stopped, mut other) = (Client::connect(dir.path()), Client::connect(dir.path()));
    let request = compile(&mut stopped, 1);
    questions(&mut stopped);
    compile(&mut other, 1);
    let start = std::time::Instant::now();
    assert!(is_end(&finish(&mut other)));
    assert!(start.elapsed().as_secs() < 15);
    assert_eq!(daemon.counter("restarted"), 1);
    // Continued, its late answers are ignored, and it gets the result too.
    stopped.send(&FromClient::Answers { request, answers: vec![] });
    assert!(is_end(&stopped.receive().unwrap()));
}

#[test]
fn a_client_that_cancels_or_leaves_costs_nobody_anything() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let mut a = Client::connect(dir.path());
    let request = compile(&mut a, 1);
    questions(&mut a);
    a.send(&FromClient::Cancel(request));
    compile(&mut a, 2);
    assert!(is_end(&finish(&mut a)));
    compile(&mut a, 3);
    questions(&mut a);
    drop(a);
    let mut b = Client::connect(dir.path());
    compile(&mut b, 3);
    let end = finish(&mut b);
    assert!(is_end(&end), "{end:?}");
    assert_eq!(daemon.counter("panics"), 0);
}

#[test]
fn more_requests_than_credits_are_told_later() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let mut a = Client::connect(dir.path());
    let mut later = 0;
    for hash in 0..12 {
        compile(&mut a, hash);
    }
    let mut asked = 0;
    while asked + later < 12 {
        match a.receive().unwrap() {
            FromDaemon::Later { .. } => later += 1,
            FromDaemon::Questions { .. } => asked += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((asked, later), (8, 4));
    // Another client is served meanwhile: looked up and traced.
    let mut b = Client::connect(dir.path());
    assert_eq!(b.look_up(&frame_key(50)).0, 0);
    compile(&mut b, 50);
    assert!(is_end(&finish(&mut b)));
    assert_eq!(daemon.counter("later"), 4);
}

#[test]
fn the_daemon_can_be_killed_while_it_asks() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let mut a = Client::connect(dir.path());
    compile(&mut a, 1);
    questions(&mut a);
    daemon.kill();
    assert!(a.receive().is_err());
    let _daemon = Daemon::start(dir.path());
    let mut a = Client::connect(dir.path());
    compile(&mut a, 1);
    assert!(is_end(&finish(&mut a)));
}

#[test]
fn a_compile_is_recorded_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(dir.path());
    let mut hello = support::hello(dir.path());
    hello.settings.record_dir = Some(dir.path().join("recordings"));
    let mut client = Client::greet(dir.path(), hello);
    compile(&mut client, 1);
    assert!(is_end(&finish(&mut client)));
    let recordings = || std::fs::read_dir(dir.path().join("recordings")).unwrap().flatten().map(|e| e.path());
    let file = recordings().next().unwrap();
    let replay = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flambeaud"));
        command.args(["replay", "--json", "--show"]).arg(&file).output().unwrap()
    };
    let output = replay();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["replays"][0]["same"], true);
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(!replay().status.success(), "a damaged recording is refused");
}
