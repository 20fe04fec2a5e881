//! Compiled frames in their encoded form. A frame is encoded once, on a worker thread; look-ups, replies to several
//! clients and storage splice those bytes, so that a warm start decodes nothing in the daemon.

use flambeau_ir::plan::CompiledFrame;
use flambeau_ir::reason::ReasonCode;
use flambeau_wire::frame::{PREFIX, seal};
use flambeau_wire::from_client::RequestId;
use flambeau_wire::from_daemon::Artifact;
use serde::Serialize;
use std::sync::Arc;

/// An encoded `Delivery`.
#[derive(Clone)]
pub struct Encoded {
    /// blake3 of the encoded `CompiledFrame`: equal frames have equal hashes.
    pub hash: [u8; 32],
    /// The encoded `CompiledFrame`, which starts `delivery`.
    frame: usize,
    /// The encoded `Delivery`.
    delivery: Arc<[u8]>,
    /// Artifacts it carries.
    pub artifacts: Vec<[u8; 32]>,
    /// False for what should be tried again later: code generation was not available.
    pub keep: bool,
}

impl Encoded {
    /// Encodes a frame.
    pub fn new(frame: &CompiledFrame, artifacts: &[Artifact]) -> Result<Encoded, postcard::Error> {
        let bytes = postcard::to_stdvec(frame)?;
        let parts: Vec<([u8; 32], &[u8])> = artifacts.iter().map(|a| (a.hash, &*a.bytes)).collect();
        let keep = frame.fallback.as_ref().is_none_or(|r| r.code != ReasonCode::BackendUnavailable);
        Ok(Encoded { keep, ..Encoded::from_parts(bytes, &parts)? })
    }

    /// From an encoded `CompiledFrame` and its artifacts, as storage has them.
    pub fn from_parts(frame: Vec<u8>, artifacts: &[([u8; 32], &[u8])]) -> Result<Encoded, postcard::Error> {
        let hash = *blake3::hash(&frame).as_bytes();
        let length = frame.len();
        let mut delivery = postcard::to_extend(&artifacts.len(), frame)?;
        for (name, bytes) in artifacts {
            delivery.extend_from_slice(name);
            delivery = postcard::to_extend(&bytes.len(), delivery)?;
            delivery.extend_from_slice(bytes);
        }
        let artifacts = artifacts.iter().map(|(name, _)| *name).collect();
        Ok(Encoded { hash, frame: length, delivery: delivery.into(), artifacts, keep: true })
    }

    /// The encoded `CompiledFrame`.
    pub fn frame(&self) -> &[u8] {
        &self.delivery[..self.frame]
    }

    /// Bytes in memory.
    pub fn len(&self) -> usize {
        self.delivery.len()
    }
}

/// A framed message under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(tag: u32) -> Message {
        Message(vec![0; PREFIX]).value(&tag)
    }

    fn value(self, value: &impl Serialize) -> Message {
        Message(postcard::to_extend(value, self.0).unwrap_or_default())
    }

    fn raw(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = self.0;
        if let Err(error) = seal(&mut bytes) {
            // What is too large to send is refused by the client's end, too.
            tracing::error!(%error, "a message cannot be sent");
        }
        bytes
    }
}

/// `FromDaemon::Candidates`, framed.
pub fn candidates(request: RequestId, frames: &[Encoded], miss: Option<&str>) -> Vec<u8> {
    let head = Message::new(2).value(&request).value(&frames.len());
    frames.iter().fold(head, |message, f| message.raw(&f.delivery)).value(&miss).finish()
}

/// `FromDaemon::Compiled`, framed.
pub fn compiled(request: RequestId, frame: &Encoded, timings: &[(String, f64)]) -> Vec<u8> {
    Message::new(4).value(&request).raw(&frame.delivery).value(&timings).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_ir::code::CodeHash;
    use flambeau_ir::frame::FrameId;
    use flambeau_ir::plan::{Body, Plan};
    use flambeau_wire::frame::encode;
    use flambeau_wire::from_daemon::{Delivery, FromDaemon};

    fn frame() -> CompiledFrame {
        CompiledFrame {
            frame: FrameId { code: CodeHash([3; 32]), path: vec![] },
            guards: flambeau_ir::guard::GuardProgram::default(),
            symbols: vec![],
            indices: vec![],
            body: Body::Native(Plan::default()),
            exit: flambeau_ir::exit::Exit::default(),
            graph_text: "graph".into(),
            fallback: None,
        }
    }

    #[test]
    fn spliced_messages_are_those_the_protocol_has() {
        let artifacts: Vec<Artifact> =
            [1_u8, 2].iter().map(|i| Artifact { hash: [*i; 32], bytes: vec![*i; 300].into() }).collect();
        let delivery = Delivery { frame: Arc::new(frame()), artifacts: artifacts.clone() };
        let encoded = Encoded::new(&frame(), &artifacts).unwrap();
        assert_eq!(encoded.frame(), postcard::to_stdvec(&frame()).unwrap());
        let request = RequestId(777);
        for miss in [None, Some("why".to_owned())] {
            let frames = vec![delivery.clone(), delivery.clone()];
            let whole = encode(&FromDaemon::Candidates { request, frames, miss: miss.clone() }).unwrap();
            assert_eq!(candidates(request, &[encoded.clone(), encoded.clone()], miss.as_deref()), whole);
        }
        let timings = vec![("trace".to_owned(), 0.5)];
        let whole =
            encode(&FromDaemon::Compiled { request, delivery: Box::new(delivery), timings: timings.clone() }).unwrap();
        assert_eq!(compiled(request, &encoded, &timings), whole);
    }
}
