//! Snapshots and answers that no client of ours would send.

use flambeau_capture::{capture, check_answer, check_key};
use flambeau_ir::code::{Code, CodeHash};
use flambeau_ir::frame::FrameId;
use flambeau_ir::object::Described;
use flambeau_ir::object::ObjectData;
use flambeau_mutate::{Memory, bytes, encodings};
use flambeau_wire::from_client::{FrameKey, Snapshot};
use std::sync::Arc;

/// With right hashes, as a client that computes them would send it.
fn hashed(mut snapshot: Snapshot) -> (CodeHash, Snapshot) {
    let mut first = None;
    for code in &mut snapshot.described.codes {
        *code = Arc::new(Code { hash: code.content_hash(), ..Code::clone(code) });
        first.get_or_insert(code.hash);
    }
    let hash = first.unwrap_or(CodeHash([0; 32]));
    for object in &mut snapshot.described.objects {
        if let ObjectData::Function(function) = &mut object.data {
            function.code = hash;
        }
    }
    (hash, snapshot)
}

#[test]
fn snapshots() {
    bytes("snapshots", encodings::<(FrameKey, Snapshot)>(40), Memory::per_byte(512), |bytes| {
        let Ok((key, snapshot)) = postcard::from_bytes::<(FrameKey, Snapshot)>(bytes) else { return false };
        let _ = (check_key(&key, &snapshot), capture(key.frame, snapshot.clone()));
        let (code, snapshot) = hashed(snapshot);
        let _ = capture(FrameId { code, path: vec![] }, snapshot);
        true
    });
}

#[test]
fn answers() {
    bytes("what comes with answers", encodings::<Described>(40), Memory::per_byte(512), |bytes| {
        let Ok(described) = postcard::from_bytes::<Described>(bytes) else { return false };
        let _ = check_answer(&described);
        true
    });
}
