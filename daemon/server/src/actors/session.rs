//! Session: one per client. It greets, admits requests by credits, and passes messages on.

use crate::base::lock;
use crate::base::wire_out::{Outbox, outbox};
use crate::hub::messages::{CaptureMessage, CodegenMessage, GuardMessage, Request, SessionMessage};
use crate::hub::oracle::Asker;
use crate::hub::report;
use crate::hub::swap;
use crate::hub::{CHUNK, ClientId, Hub, INCOMING_CHUNKS, count, fence};
use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_wire::PROTOCOL;
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::frame::{PREFIX, Prefix, body_length, decode};
use flambeau_wire::from_client::{FrameKey, FromClient, Hello, RequestId, Settings};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::registry::Plugin;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::OwnedSemaphorePermit;

/// Compile requests a client may have in flight.
pub const CREDITS: u32 = 8;
/// Look-ups a client may have in flight.
const LOOKUPS: usize = 1024;
/// Time to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest first message.
const HELLO_BYTES: usize = 1 << 20;
/// Largest request.
const REQUEST_BYTES: usize = INCOMING_CHUNKS as usize * CHUNK as usize;
/// Messages up to this size are decoded on the I/O thread.
const SMALL: usize = 16 << 10;
/// Longest wait for the next part of a message.
const HALF_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time from a message's length to its end.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
/// One client.
pub struct Session {
    hub: Arc<Hub>,
    id: ClientId,
    outbox: Outbox,
    settings: Option<Arc<Settings>>,
    compiles: HashSet<RequestId>,
    others: HashSet<RequestId>,
}

impl Actor for Session {
    type Context = Context<Self>;
}

impl Handler<SessionMessage> for Session {
    type Result = ();

    fn handle(&mut self, message: SessionMessage, context: &mut Self::Context) {
        let hub = self.hub.clone();
        if fence(&hub, "session", || self.on(message)) != Ok(true) {
            self.close();
            context.stop();
        }
    }
}

/// Serves a client on an accepted connection.
pub fn open(hub: &Arc<Hub>, id: ClientId, stream: UnixStream) {
    count(&hub.counters.clients);
    let (read, write) = stream.into_split();
    let (outbox, queue) = outbox();
    let session =
        Session { hub: hub.clone(), id, outbox, settings: None, compiles: HashSet::new(), others: HashSet::new() };
    let addr = Session::create(|context: &mut Context<Session>| {
        context.set_mailbox_capacity(64);
        lock(&hub.sessions).insert(id, context.address().recipient());
        session
    });
    actix_rt::spawn(write_all(write, queue));
    actix_rt::spawn(read_all(hub.clone(), read, addr));
}

async fn write_all(mut write: OwnedWriteHalf, mut queue: crate::base::wire_out::Queue) {
    while let Some(bytes) = queue.next().await {
        if write.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _ = write.shutdown().await;
}

async fn read_all(hub: Arc<Hub>, mut read: OwnedReadHalf, addr: Addr<Session>) {
    let mut first = true;
    let why = loop {
        let limit = if first { HELLO_BYTES } else { REQUEST_BYTES };
        let next = read_message(&hub, &mut read, limit);
        let body = if first {
            tokio::time::timeout(HELLO_TIMEOUT, next).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        } else {
            next.await
        };
        first = false;
        let body = match body {
            Ok(body) => body,
            Err(error) => break error.to_string(),
        };
        let (message, hash) = match decode_body(&hub, body).await {
            Ok(decoded) => decoded,
            Err(error) => break error,
        };
        if addr.send(SessionMessage::Received(Box::new(message), hash)).await.is_err() {
            return;
        }
    };
    let _ = addr.send(SessionMessage::Closed(why)).await;
}

async fn read_message(hub: &Hub, read: &mut OwnedReadHalf, limit: usize) -> io::Result<Received> {
    let mut prefix = [0; PREFIX];
    read.read_exact(&mut prefix).await?;
    let length = body_length(&prefix).map_err(io::Error::other)?;
    if length > limit {
        return Err(io::Error::other(format!("a message of {length} bytes")));
    }
    // Half a message holds its memory, and so its share of what all clients may have; it gets on or its sender goes.
    let chunks = length.div_ceil(CHUNK as usize) as u32;
    let share = if length <= SMALL { None } else { Some(acquire(hub, chunks.min(INCOMING_CHUNKS)).await?) };
    let whole = read_body(read, length);
    let body =
        tokio::time::timeout(WHOLE_TIMEOUT, whole).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    Ok(Received { prefix, body, share })
}

async fn read_body(read: &mut OwnedReadHalf, length: usize) -> io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(length.min(CHUNK as usize));
    while body.len() < length {
        let rest = (length - body.len()) as u64;
        let mut part = read.take(rest.min(CHUNK));
        let next = tokio::time::timeout(HALF_TIMEOUT, part.read_to_end(&mut body)).await;
        if next.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(body)
}

/// A message as it came, with its share of the memory for such.
struct Received {
    prefix: Prefix,
    body: Vec<u8>,
    share: Option<OwnedSemaphorePermit>,
}

async fn acquire(hub: &Hub, chunks: u32) -> io::Result<OwnedSemaphorePermit> {
    let share = hub.incoming.clone().acquire_many_owned(chunks);
    let share = tokio::time::timeout(HALF_TIMEOUT, share).await.map_err(|_| io::ErrorKind::TimedOut)?;
    share.map_err(io::Error::other)
}

/// The message and the hash of what a compile asks for. Large messages are decoded on a worker thread.
async fn decode_body(hub: &Arc<Hub>, received: Received) -> Result<(FromClient, [u8; 32]), String> {
    if received.body.len() <= SMALL {
        return decode_here(&received);
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = move || {
        let _ = sender.send(decode_here(&received));
        drop(received.share);
    };
    hub.capture.tell(CaptureMessage::Decode(Box::new(work)));
    receiver.await.unwrap_or_else(|_| Err("too much to decode".to_owned()))
}

fn decode_here(Received { prefix, body, .. }: &Received) -> Result<(FromClient, [u8; 32]), String> {
    let message: FromClient = decode(prefix, body).map_err(|e| e.to_string())?;
    let hash = match &message {
        FromClient::Compile { request, .. } | FromClient::Lower { request, .. } => {
            // Everything but the request's name, which is the varint after the tag.
            let name = postcard::to_stdvec(request).map_or(0, |b| b.len());
            *blake3::hash(&body[1 + name..]).as_bytes()
        }
        _ => [0; 32],
    };
    Ok((message, hash))
}

impl Session {
    /// Handles a message; false ends the session.
    fn on(&mut self, message: SessionMessage) -> bool {
        match message {
            SessionMessage::Received(message, hash) => match (*message, self.settings.clone()) {
                (FromClient::Hello(hello), None) => self.greet(hello),
                (FromClient::Hello(_), Some(_)) => false,
                (message, Some(settings)) => {
                    self.received(message, hash, &settings);
                    true
                }
                (_, None) => self.refuse("the first message must be Hello"),
            },
            SessionMessage::Closed(why) => {
                tracing::debug!(client = self.id, why, "disconnected");
                false
            }
            SessionMessage::Reply(request, bytes) => {
                let known = self.compiles.remove(&request) | self.others.remove(&request);
                !known || self.outbox.send_bytes(bytes)
            }
            SessionMessage::Swapped(data_dir) => {
                let concerned = self.settings.as_ref().is_some_and(|settings| settings.data_dir == data_dir);
                !concerned || self.outbox.send(&FromDaemon::Swapped)
            }
            SessionMessage::Goodbye => self.outbox.send(&FromDaemon::Goodbye),
            SessionMessage::FailAll => {
                let reason = Box::new(Reason::new(ReasonCode::Internal, "an actor of the daemon was restarted"));
                for request in self.compiles.drain() {
                    self.outbox.send(&FromDaemon::Failed { request, reason: reason.clone() });
                }
                for request in self.others.drain() {
                    let miss = Some(reason.detail.clone());
                    self.outbox.send(&FromDaemon::Candidates { request, frames: vec![], miss });
                }
                true
            }
        }
    }

    fn refuse(&self, why: &str) -> bool {
        count(&self.hub.counters.refused);
        tracing::info!(client = self.id, why, "refused");
        self.outbox.send(&FromDaemon::Refused(why.to_owned()));
        false
    }

    fn greet(&mut self, hello: Hello) -> bool {
        if hello.protocol != PROTOCOL {
            return self.refuse(&format!("protocol {} here, {} there", PROTOCOL, hello.protocol));
        }
        if hello.build != BUILD {
            return self.refuse(&format!("build {BUILD} here, {} there", hello.build));
        }
        if hello.settings.cache_dir != self.hub.config.cache_dir {
            return self.refuse(&format!("this daemon serves {}", self.hub.config.cache_dir.display()));
        }
        if self.hub.closing.load(Ordering::Relaxed) {
            return self.refuse("going away");
        }
        tracing::info!(client = self.id, pid = hello.pid, "connected");
        let settings = Arc::new(hello.settings);
        self.hub.backends.hear_of(&settings.library_path);
        swap::watch(&self.hub, &settings.data_dir);
        self.hub.codegen.tell(CodegenMessage::Prewarm(settings.clone()));
        self.settings = Some(settings);
        self.outbox.send(&FromDaemon::Welcome { pid: std::process::id(), credits: CREDITS })
    }

    fn request(&self, request: RequestId, key: FrameKey, plugin: Option<Plugin>, settings: &Arc<Settings>) -> Request {
        let asker = Asker { client: self.id, request, outbox: self.outbox.clone() };
        Request { asker, settings: settings.clone(), key, plugin }
    }

    /// Admits a compile if the client has credits and the front desk takes it; else "later".
    fn admit(&mut self, request: RequestId, message: GuardMessage) {
        let free = self.compiles.len() < CREDITS as usize && !self.hub.closing.load(Ordering::Relaxed);
        if free && self.hub.guard.offer(message) {
            self.compiles.insert(request);
        } else {
            count(&self.hub.counters.later);
            self.outbox.send(&FromDaemon::Later { request });
        }
    }

    fn received(&mut self, message: FromClient, hash: [u8; 32], settings: &Arc<Settings>) {
        match message {
            FromClient::Hello(_) => {}
            FromClient::Lookup { request, key, plugin } => {
                count(&self.hub.counters.lookups);
                let asked = self.request(request, key, plugin, settings);
                if self.others.len() < LOOKUPS && self.hub.guard.offer(GuardMessage::Lookup(asked)) {
                    self.others.insert(request);
                } else {
                    let miss = Some("the daemon is busy".to_owned());
                    self.outbox.send(&FromDaemon::Candidates { request, frames: vec![], miss });
                }
            }
            FromClient::Compile { request, key, plugin, snapshot } => {
                let asked = self.request(request, key, plugin, settings);
                self.admit(request, GuardMessage::Compile(asked, snapshot, hash));
            }
            FromClient::Lower { request, key, plugin, graph, options } => {
                let asked = self.request(request, key, plugin, settings);
                self.admit(request, GuardMessage::LowerGraph(asked, graph, options, hash));
            }
            FromClient::Answers { request, answers } => self.hub.questions.answer(self.id, request, answers),
            FromClient::Cancel(request) => {
                self.compiles.remove(&request);
                self.others.remove(&request);
                self.hub.questions.abandon(self.id, request);
                self.hub.guard.tell(GuardMessage::Cancel(self.id, request));
            }
            FromClient::GuardFailures { key, plugin, failures } => {
                let asked = self.request(RequestId(0), key, plugin, settings);
                let _ = self.hub.guard.offer(GuardMessage::Failures(asked, failures));
            }
            FromClient::Admin { request, command } => {
                report::answer(self.hub.clone(), settings.clone(), request, command, self.outbox.clone());
            }
        }
    }

    fn close(&mut self) {
        lock(&self.hub.sessions).remove(&self.id);
        *lock(&self.hub.last_client) = Instant::now();
        self.hub.questions.abandon_client(self.id);
        self.hub.guard.tell(GuardMessage::Gone(self.id));
    }
}
