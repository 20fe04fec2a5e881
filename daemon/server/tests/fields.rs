//! Requests in which single fields are others, with the hashes and keys that they then have, in any number and order: what is
//! wrong in them is found by what looks at its meaning. The daemon goes on, and no stage panics.

mod support;

use flambeau_ir::code::Code;
use flambeau_ir::frame::{FrameId, TraceOptions};
use flambeau_ir::object::ObjectData;
use flambeau_mutate::{Memory, cases, encodings, mutated};
use flambeau_wire::frame;
use flambeau_wire::from_client::{FrameKey, FromClient, KeyOptions, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use proptest::collection::vec;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use support::{Client, Daemon, code, graph, key, snapshot};

/// What a daemon gets that traces and lowers.
fn requests() -> Vec<Vec<u8>> {
    let request = RequestId(1);
    // `return x`, `return x + x`, `return g(x)`.
    let bytecodes: [(&[u8], &[&str]); 3] = [
        (&[151, 0, 124, 0, 83, 0], &[]),
        (&[151, 0, 124, 0, 124, 0, 122, 0, 0, 0, 83, 0], &[]),
        (
            &[
                151, 0, 116, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 124, 0, 166, 1, 0, 0, 171, 1, 0, 0, 0, 0, 0, 0, 0, 0, 83,
                0,
            ],
            &["g"],
        ),
    ];
    let compiles = bytecodes.into_iter().map(|(bytecode, names)| {
        let code = code(1, bytecode, names);
        let key = FrameKey { frame: FrameId { code: code.hash, path: vec![] }, ..key(1) };
        FromClient::Compile { request, key, plugin: None, snapshot: Box::new(snapshot(code)) }
    });
    let options = TraceOptions::default();
    let lower = FromClient::Lower { request, key: key(1), plugin: None, graph: Box::new(graph(1)), options };
    let look_up = FromClient::Lookup { request, key: key(1), plugin: None };
    let body = |message| frame::encode(&message).unwrap()[frame::PREFIX..].to_vec();
    compiles.chain([lower, look_up]).map(body).chain(encodings::<FromClient>(10)).collect()
}

/// The message with the hashes and the key of what it became.
fn hashed(mut message: FromClient) -> FromClient {
    match &mut message {
        FromClient::Compile { key, snapshot, .. } => {
            for code in &mut snapshot.described.codes {
                *code = Arc::new(Code { hash: code.content_hash(), ..Code::clone(code) });
            }
            if let Some(code) = snapshot.described.codes.first() {
                key.frame = FrameId { code: code.hash, path: vec![] };
                key.python = format!("{}.{}.0", code.python.0, code.python.1);
                for object in &mut snapshot.described.objects {
                    if let ObjectData::Function(function) = &mut object.data {
                        function.code = code.hash;
                    }
                }
            }
            key.options = KeyOptions::of(&snapshot.options);
        }
        FromClient::Lower { key, graph, options, .. } => {
            key.frame = FrameId { code: graph.content_hash(), path: vec![] };
            key.options = KeyOptions::of(options);
        }
        _ => {}
    }
    message
}

#[test]
fn changed_fields_harm_nobody() {
    let dir = tempfile::Builder::new().prefix("fl").tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let sessions = vec(mutated(requests()), 1..4);
    let size = |bodies: &Vec<Vec<u8>>| bodies.iter().map(Vec::len).sum();
    cases("requests with changed fields", sessions, Memory::per_byte(4096), size, |bodies| {
        let decoded = bodies.iter().filter_map(|body| frame_of(body));
        // Commands of the user's are what they are.
        let sound: Vec<Vec<u8>> = decoded
            .filter(|message| !matches!(message, FromClient::Admin { .. } | FromClient::Hello(_)))
            .map(|message| frame::encode(&hashed(message)).unwrap())
            .collect();
        if sound.is_empty() {
            return false;
        }
        let mut client = Client::connect(dir.path());
        client.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        for bytes in &sound {
            let _ = client.stream.write_all(bytes);
        }
        let _ = client.receive();
        true
    });
    assert!(matches!(Client::connect(dir.path()).lower(&key(9)), FromDaemon::Compiled { .. }));
    assert_eq!(daemon.counter("panics"), 0, "{}", daemon.log());
    drop(daemon);
}

/// Memory is made for what is there, not for what a number says of it.
#[test]
fn numbers_in_code_are_not_believed() {
    let dir = tempfile::Builder::new().prefix("fl").tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    for requested in requests() {
        let Some(FromClient::Compile { request, key, plugin, mut snapshot }) = frame_of(&requested) else { continue };
        for code in &mut snapshot.described.codes {
            *code = Arc::new(Code { stacksize: u32::MAX, ..Code::clone(code) });
        }
        let mut client = Client::connect(dir.path());
        client.send(&hashed(FromClient::Compile { request, key, plugin, snapshot }));
        client.receive().expect("an answer");
    }
    assert_eq!(daemon.counter("panics"), 0, "{}", daemon.log());
}

/// COPY, SWAP and COPY_FREE_VARS with operands that lie outside of what there is.
#[test]
fn operands_of_code_are_not_believed() {
    let dir = tempfile::Builder::new().prefix("fl").tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    for op in [120, 99, 149] {
        let mut client = Client::connect(dir.path());
        for (operand, items) in [0, 1, 2, 3, u8::MAX].into_iter().flat_map(|operand| [(operand, 1), (operand, 3)]) {
            let mut bytecode = vec![151, 0];
            bytecode.extend([124, 0].repeat(items));
            bytecode.extend([op, operand, 83, 0]);
            let code = code(1, &bytecode, &["g"]);
            let key = FrameKey { frame: FrameId { code: code.hash, path: vec![] }, ..key(1) };
            let snapshot = Box::new(snapshot(code));
            client.send(&hashed(FromClient::Compile { request: RequestId(1), key, plugin: None, snapshot }));
            client.receive().expect("an answer");
        }
    }
    assert_eq!(daemon.counter("panics"), 0, "{}", daemon.log());
}

fn frame_of(body: &[u8]) -> Option<FromClient> {
    let mut framed = [&[0; frame::PREFIX][..], body].concat();
    frame::seal(&mut framed).ok()?;
    let (prefix, body) = framed.split_first_chunk()?;
    frame::decode(prefix, body).ok()
}
