//! Messages of both directions as bytes that anybody may have written, and the record of the user's back ends.

use flambeau_mutate::{Memory, bytes, encodings, text};
use flambeau_wire::from_client::{Admin, FromClient, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::{frame, registry};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value of a byte, like `None`, becomes an enum of the size of its largest variant, in a vector that may have room for twice
/// as many.
const MEMORY: Memory = Memory::per_byte(512);

fn framed(body: &[u8]) -> Vec<u8> {
    let mut framed = [&[0; frame::PREFIX][..], body].concat();
    frame::seal(&mut framed).unwrap();
    framed
}

/// Bodies with the right hash: the prefix stops all others.
fn message<T: Serialize + DeserializeOwned>(name: &str) {
    bytes(name, encodings::<T>(40), MEMORY, |body| {
        let framed = framed(body);
        let (prefix, body) = framed.split_first_chunk::<{ frame::PREFIX }>().unwrap();
        let Ok(message) = frame::decode::<T>(prefix, body) else { return false };
        // Floats that are no numbers differ from themselves: what is written is compared.
        let once = frame::encode(&message).unwrap();
        let (prefix, body) = once.split_first_chunk::<{ frame::PREFIX }>().unwrap();
        let again: T = frame::decode(prefix, body).unwrap();
        assert!(frame::encode(&again).unwrap() == once, "another message than was written");
        true
    });
}

#[test]
fn requests() {
    message::<FromClient>("requests");
}

#[test]
fn answers() {
    message::<FromDaemon>("answers");
}

/// The hash of a message says that it is whole, not that its writer was: one that a bug damaged before asks for no command.
#[test]
fn no_few_bytes_are_a_command() {
    let bodies = (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).flat_map(move |b| (0..=u8::MAX).map(move |c| [a, b, c])));
    for whole in bodies {
        for body in [&whole[..], &whole[..2]] {
            let read = postcard::from_bytes::<FromClient>(body);
            assert!(!matches!(read, Ok(FromClient::Admin { .. })), "{body:?} is {read:?}");
        }
    }
    let stop = FromClient::Admin { request: RequestId(1), command: Admin::Stop };
    let body = postcard::to_stdvec(&stop).unwrap();
    assert_eq!(postcard::from_bytes::<FromClient>(&body), Ok(stop));
}

#[test]
fn whole_messages() {
    let valid = encodings::<FromClient>(40).iter().map(|body| framed(body)).collect();
    bytes("messages with their prefix", valid, MEMORY, |bytes| {
        let Some((prefix, body)) = bytes.split_first_chunk::<{ frame::PREFIX }>() else { return false };
        let fits = frame::body_length(prefix).is_ok_and(|length| length == body.len());
        fits && frame::decode::<FromClient>(prefix, body).is_ok()
    });
}

#[test]
fn records_of_back_ends() {
    let dir = tempfile::tempdir().unwrap();
    let folder = registry::folder(dir.path());
    std::fs::create_dir(&folder).unwrap();
    let valid = [r#"{"default": "one", "added": {"one": "0f3a", "two": "b1"}}"#, r#"{"default": null}"#, "{}"];
    text("records of back ends", &valid, Memory::per_byte(64), |record| {
        std::fs::write(folder.join(registry::FILE), record).unwrap();
        registry::read(dir.path()).is_ok()
    });
}
