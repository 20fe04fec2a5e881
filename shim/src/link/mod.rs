//! The connection to the daemon: one per process, made (and the daemon started) by its own thread, which then hands
//! messages to whoever waits for them. Waiting releases the GIL, lets Ctrl-C through and has a deadline.

pub mod backends;

use crate::process::fence::fence;
use crate::process::fork;
use crate::process::settings::{self, Settings};
use flambeau_wire::endpoint::{self, Start};
use flambeau_wire::from_client::{FromClient, Hello, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::{PROTOCOL, frame, registry};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks for a pending signal while waiting.
const SIGNAL_POLL: Duration = Duration::from_millis(20);
/// Between two looks for changes of back ends while there is no daemon.
const ALONE_POLL: Duration = Duration::from_secs(1);
/// First pause before another attempt to connect; doubles up to [`LONGEST_BACK_OFF`].
const BACK_OFF: Duration = Duration::from_millis(500);
/// Daemons that may end while they are greeted.
const ATTEMPTS: u32 = 3;
/// Bytes reserved for a message before they arrive.
const CHUNK: usize = 1 << 20;
/// Longest pause between attempts.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);

/// Why the daemon did not answer.
#[derive(Debug)]
pub enum LinkError {
    /// A signal handler raised; the caller raises it.
    Interrupted(PyErr),
    /// The daemon cannot be reached or went away: run eagerly. A stable name and what happened.
    Unavailable(&'static str, String),
}

/// A stable name and what happened.
type Why = (&'static str, String);

/// An open connection.
struct Connection {
    /// One descriptor for both ways. The lock is for writers.
    stream: UnixStream,
    writing: Mutex<()>,
    waiting: Mutex<HashMap<RequestId, Sender<FromDaemon>>>,
    dead: AtomicBool,
    /// [`fork::generation`] of the process that made it.
    generation: u32,
}

enum State {
    /// Nothing yet, or the last attempt failed: not before this instant.
    Closed {
        not_before: Option<Instant>,
        pause: Duration,
        why: Option<Why>,
    },
    /// A thread is at it. `after` says why the attempt before failed: nobody waits for another one then.
    Connecting {
        after: Option<Why>,
    },
    Open(Arc<Connection>),
}

struct Link {
    state: Mutex<State>,
    changed: Condvar,
    next: AtomicU64,
}

static LINK: AtomicPtr<Link> = AtomicPtr::new(std::ptr::null_mut());
/// The socket, for the child of a fork to close.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// In the child of a fork: the parent's link (its locks may be held) is left alone; a new one is made when needed.
pub fn abandon() {
    LINK.store(std::ptr::null_mut(), Ordering::Release);
    let socket: RawFd = SOCKET.swap(-1, Ordering::AcqRel);
    if socket >= 0 {
        // SAFETY: the child's copy of the descriptor; closing it does not end the parent's connection.
        unsafe { libc::close(socket) };
    }
}

fn link() -> &'static Link {
    let found = LINK.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: links are never freed.
        return unsafe { &*found };
    }
    let fresh = Box::into_raw(Box::new(Link {
        state: Mutex::new(State::Closed { not_before: None, pause: BACK_OFF, why: None }),
        changed: Condvar::new(),
        next: AtomicU64::new(1),
    }));
    match LINK.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: links are never freed.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: `fresh` was not shared; `other` is a link, never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                &*other
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts connecting in the background, so that the daemon is up by the time the first frame needs it.
pub fn warm_up() {
    let link = link();
    begin(link, &mut lock(&link.state), &settings::get());
}

/// Ends the connection; the next request makes another, with the settings of then.
pub fn disconnect() {
    let old =
        std::mem::replace(&mut *lock(&link().state), State::Closed { not_before: None, pause: BACK_OFF, why: None });
    if let State::Open(connection) = old {
        connection.dead.store(true, Ordering::Release);
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Whether a daemon listens already, or this process is about to start one.
pub fn daemon_runs() -> bool {
    matches!(*lock(&link().state), State::Connecting { .. }) || daemon_listens()
}

/// Whether a daemon listens.
pub fn daemon_listens() -> bool {
    settings::get().start().is_ok_and(|start| UnixStream::connect(start.socket).is_ok())
}

/// The next request connects and waits for it, however short ago an attempt failed.
pub fn forget_failures() {
    match &mut *lock(&link().state) {
        State::Connecting { after } => *after = None,
        state @ State::Closed { .. } => *state = State::Closed { not_before: None, pause: BACK_OFF, why: None },
        State::Open(_) => {}
    }
}

/// Gives up a connection whose daemon is silent. Calls run eagerly until another attempt to connect succeeds.
fn give_up(connection: &Arc<Connection>) {
    connection.dead.store(true, Ordering::Release);
    let _ = connection.stream.shutdown(std::net::Shutdown::Both);
    let mut state = lock(&link().state);
    if matches!(&*state, State::Open(open) if Arc::ptr_eq(open, connection)) {
        *state = closed(BACK_OFF, silence());
    }
}

/// Starts the connecting thread unless one runs, the link is open, or it is too early for another attempt.
fn begin(link: &'static Link, state: &mut State, settings: &Arc<Settings>) {
    let (pause, after) = match state {
        State::Connecting { .. } => return,
        State::Open(connection) if !connection.dead.load(Ordering::Acquire) => return,
        State::Open(_) => (BACK_OFF, None),
        State::Closed { not_before: Some(instant), .. } if Instant::now() < *instant => return,
        State::Closed { pause, why, .. } => (*pause, why.take()),
    };
    *state = State::Connecting { after };
    let settings = settings.clone();
    let spawned = std::thread::Builder::new().name("flambeau-link".into()).spawn(move || {
        block_signals();
        run(link, pause, &settings);
    });
    if let Err(e) = spawned {
        *state = closed(pause, ("no_thread", e.to_string()));
    }
}

fn closed(pause: Duration, why: Why) -> State {
    let not_before = Some(Instant::now() + pause);
    State::Closed { not_before, pause: (pause * 2).min(LONGEST_BACK_OFF), why: Some(why) }
}

/// Signals are for Python's main thread.
fn block_signals() {
    // SAFETY: a local signal set, filled and used for this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// The thread: connect, then read until the connection ends.
fn run(link: &'static Link, pause: Duration, settings: &Settings) {
    let connection = match connect(settings) {
        Ok(connection) => Arc::new(connection),
        Err(why) => {
            *lock(&link.state) = closed(pause, why);
            link.changed.notify_all();
            return;
        }
    };
    let socket = connection.stream.as_raw_fd();
    SOCKET.store(socket, Ordering::Release);
    *lock(&link.state) = State::Open(connection.clone());
    link.changed.notify_all();
    // What changed before the daemon knew of this process, it does not say.
    backends::changed();
    // The thread decodes what came from outside: it ends in order whatever that was.
    let _ = fence(|| hand_out(&connection));
    connection.dead.store(true, Ordering::Release);
    let _ = SOCKET.compare_exchange(socket, -1, Ordering::AcqRel, Ordering::Relaxed);
    // Dropping the senders wakes the waiters.
    lock(&connection.waiting).clear();
    watch_alone(link, &connection, &settings.wire.data_dir);
}

/// Reads messages and hands them to who waits for them, until the connection ends.
fn hand_out(connection: &Connection) {
    while let Ok(message) = receive(&connection.stream) {
        let request = match &message {
            FromDaemon::Candidates { request, .. }
            | FromDaemon::Questions { request, .. }
            | FromDaemon::Compiled { request, .. }
            | FromDaemon::Failed { request, .. }
            | FromDaemon::Later { request }
            | FromDaemon::Progress { request, .. }
            | FromDaemon::Log { request, .. }
            | FromDaemon::Report { request, .. } => *request,
            FromDaemon::Swapped => {
                backends::changed();
                continue;
            }
            FromDaemon::Goodbye | FromDaemon::Refused(_) => break,
            FromDaemon::Welcome { .. } => continue,
        };
        if let Some(waiting) = lock(&connection.waiting).get(&request) {
            // A waiter that gave up dropped its end; its answer is dropped too.
            let _ = waiting.send(message);
        }
    }
}

/// Looks for changes of back ends, which no daemon tells of any more, until there is another connection.
fn watch_alone(link: &Link, lost: &Arc<Connection>, data_dir: &Path) {
    let mut known = None;
    while !matches!(&*lock(&link.state), State::Open(open) if !Arc::ptr_eq(open, lost)) {
        let now = Some(registry::stamp(data_dir));
        if std::mem::replace(&mut known, now) != now {
            backends::changed();
        }
        std::thread::sleep(ALONE_POLL);
    }
}

fn receive(mut stream: &UnixStream) -> Result<FromDaemon, String> {
    let mut prefix = [0; frame::PREFIX];
    stream.read_exact(&mut prefix).map_err(|e| e.to_string())?;
    let length = frame::body_length(&prefix).map_err(|e| e.to_string())?;
    // An announced length alone reserves no memory.
    let mut body = Vec::with_capacity(length.min(CHUNK));
    let read = stream.take(length as u64).read_to_end(&mut body).map_err(|e| e.to_string())?;
    if read < length {
        return Err("the connection ended in the middle of a message".into());
    }
    frame::decode(&prefix, &body).map_err(|e| e.to_string())
}

/// Connects to the daemon of this build, starting it if need be, and shakes hands. A daemon that ends just then is
/// followed by another one.
fn connect(settings: &Settings) -> Result<Connection, Why> {
    let start = settings.start().map_err(|e| ("no_socket_directory", e))?;
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match greet(settings, open(&start, settings.timeout)?) {
            Err(("daemon_lost", _)) if left > 0 => {}
            done => return done,
        }
    }
}

fn greet(settings: &Settings, mut stream: UnixStream) -> Result<Connection, Why> {
    let timeout = settings.timeout;
    endpoint::check_peer(&stream).map_err(|e| ("wrong_user", e.to_string()))?;
    let lost = |e: String| ("daemon_lost", e);
    // A daemon that is stopped accepts connections and answers nothing.
    stream.set_read_timeout(Some(timeout.max(SIGNAL_POLL))).map_err(|e| lost(e.to_string()))?;
    stream.set_write_timeout(Some(timeout.max(SIGNAL_POLL))).map_err(|e| lost(e.to_string()))?;
    let hello = FromClient::Hello(Hello {
        protocol: PROTOCOL,
        build: endpoint::BUILD.to_owned(),
        pid: std::process::id(),
        settings: settings.wire.clone(),
    });
    let began = Instant::now();
    let bytes = frame::encode(&hello).map_err(|e| lost(e.to_string()))?;
    stream.write_all(&bytes).map_err(|e| lost(e.to_string()))?;
    match receive(&stream) {
        Ok(FromDaemon::Welcome { .. }) => {
            stream.set_read_timeout(None).map_err(|e| lost(e.to_string()))?;
            let (writing, waiting, dead) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
            Ok(Connection { stream, writing, waiting, dead, generation: fork::generation() })
        }
        Ok(FromDaemon::Refused(why)) => Err(("daemon_refused", why)),
        Ok(other) => Err(lost(format!("it sent {other:?} in place of a greeting"))),
        Err(e) if began.elapsed() >= timeout => Err(("daemon_silent", format!("it did not answer the greeting: {e}"))),
        Err(e) => Err(lost(e)),
    }
}

fn open(start: &Start, timeout: Duration) -> Result<UnixStream, Why> {
    if let Ok(stream) = UnixStream::connect(&start.socket) {
        return Ok(stream);
    }
    let began = Instant::now();
    loop {
        let busy = spawn(start)?;
        match UnixStream::connect(&start.socket) {
            Ok(stream) => return Ok(stream),
            Err(e) if !busy || began.elapsed() > timeout => {
                return Err(("daemon_unreachable", format!("{}: {e}", start.socket.display())));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Starts a daemon; true if another one is about to serve the socket.
fn spawn(start: &Start) -> Result<bool, Why> {
    let daemon = settings::daemon();
    let failed = |e: std::io::Error| ("daemon_start", format!("{}: {e}", daemon.display()));
    let mut child = Command::new(&daemon)
        .args(start.args())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut report = Vec::new();
    let mut first = [0_u8; 1];
    let mut output = child.stdout.take().ok_or(("daemon_start", "it has no output".to_owned()))?;
    let read = output.read_exact(&mut first);
    if read.is_ok() && first[0] == endpoint::ERROR {
        let _ = output.read_to_end(&mut report);
    }
    let _ = child.wait();
    match (read, first[0]) {
        (Ok(()), endpoint::READY) => Ok(false),
        (Ok(()), endpoint::BUSY) => Ok(true),
        (Ok(()), endpoint::ERROR) => Err(("daemon_start", String::from_utf8_lossy(&report).trim().to_owned())),
        (Ok(()), other) => Err(("daemon_start", format!("it reported {other:#x}"))),
        (Err(e), _) => Err(failed(e)),
    }
}

/// One request in flight. Dropping it unanswered cancels it.
pub struct Pending {
    connection: Arc<Connection>,
    id: RequestId,
    replies: Receiver<FromDaemon>,
    deadline: Deadline,
    done: bool,
}

struct Deadline {
    timeout: Duration,
    last_progress: Instant,
}

impl Deadline {
    fn new() -> Self {
        Deadline { timeout: settings::get().timeout, last_progress: Instant::now() }
    }

    fn passed(&self) -> bool {
        self.last_progress.elapsed() >= self.timeout
    }
}

fn silence() -> Why {
    ("daemon_timeout", "the daemon made no progress within FLAMBEAU_TIMEOUT".into())
}

fn unavailable((name, detail): Why) -> LinkError {
    LinkError::Unavailable(name, detail)
}

/// An id for a new request of this process.
pub fn next_request() -> RequestId {
    RequestId(link().next.fetch_add(1, Ordering::Relaxed))
}

/// Sends a request, connecting first if need be; once more if the connection turns out to have ended.
pub fn send(py: Python<'_>, id: RequestId, message: &FromClient) -> Result<Pending, LinkError> {
    match send_on(py, connection(py)?, id, message) {
        Err(LinkError::Unavailable("daemon_lost", _)) => send_on(py, connection(py)?, id, message),
        sent => sent,
    }
}

fn send_on(
    py: Python<'_>,
    connection: Arc<Connection>,
    id: RequestId,
    message: &FromClient,
) -> Result<Pending, LinkError> {
    let (sender, replies) = mpsc::channel();
    lock(&connection.waiting).insert(id, sender);
    let pending = Pending { connection, id, replies, deadline: Deadline::new(), done: false };
    pending.write(py, message)?;
    Ok(pending)
}

/// The open connection; waits for the connecting thread.
fn connection(py: Python<'_>) -> Result<Arc<Connection>, LinkError> {
    let link = link();
    let (settings, deadline) = (settings::get(), Deadline::new());
    loop {
        let found = py.detach(|| {
            let mut state = lock(&link.state);
            begin(link, &mut state, &settings);
            if matches!(*state, State::Connecting { after: None }) {
                state = link.changed.wait_timeout(state, SIGNAL_POLL).map_or_else(|p| p.into_inner().0, |(s, _)| s);
            }
            match &*state {
                State::Open(connection) => Some(Ok(connection.clone())),
                State::Connecting { after: None } => None,
                State::Connecting { after: Some(why) } => Some(Err(unavailable(why.clone()))),
                State::Closed { why, .. } => {
                    Some(Err(unavailable(why.clone().unwrap_or(("daemon_lost", String::new())))))
                }
            }
        });
        py.check_signals().map_err(LinkError::Interrupted)?;
        match found {
            Some(result) => return result,
            None if deadline.passed() => return Err(unavailable(silence())),
            None => {}
        }
    }
}

impl Pending {
    /// Sends another message of this request.
    pub fn write(&self, py: Python<'_>, message: &FromClient) -> Result<(), LinkError> {
        let lost = |e: String| LinkError::Unavailable("daemon_lost", e);
        let bytes = frame::encode(message).map_err(|e| lost(e.to_string()))?;
        self.owned()?;
        let connection = &self.connection;
        let written = detached(py, || {
            let _guard = lock(&connection.writing);
            (&connection.stream).write_all(&bytes)
        });
        written.map_err(|e| {
            connection.dead.store(true, Ordering::Release);
            lost(e.to_string())
        })
    }

    /// Fails in a child that a signal handler forked while this request waited: the connection is the parent's.
    fn owned(&self) -> Result<(), LinkError> {
        if self.connection.generation == fork::generation() {
            return Ok(());
        }
        Err(LinkError::Unavailable("forked", "the process was forked while it waited for the daemon".into()))
    }

    /// The next reply other than progress.
    pub fn wait(&mut self, py: Python<'_>) -> Result<FromDaemon, LinkError> {
        loop {
            let replies = &self.replies;
            // The receiver is used by this thread only; it is moved into the closure as an exclusive borrow.
            let received = detached(py, || replies.recv_timeout(SIGNAL_POLL));
            py.check_signals().map_err(LinkError::Interrupted)?;
            self.owned()?;
            match received {
                Ok(FromDaemon::Progress { .. }) => self.deadline.last_progress = Instant::now(),
                Ok(FromDaemon::Log { lines, .. }) => {
                    self.deadline.last_progress = Instant::now();
                    crate::process::say::log("trace", || lines.join("\n"));
                }
                Ok(message) => {
                    self.deadline.last_progress = Instant::now();
                    self.done = !matches!(message, FromDaemon::Questions { .. });
                    return Ok(message);
                }
                Err(RecvTimeoutError::Timeout) if self.deadline.passed() => {
                    give_up(&self.connection);
                    return Err(unavailable(silence()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.done = true;
                    return Err(LinkError::Unavailable("daemon_lost", "the connection ended".into()));
                }
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.owned().is_err() {
            return;
        }
        let connection = &self.connection;
        lock(&connection.waiting).remove(&self.id);
        if self.done || connection.dead.load(Ordering::Acquire) {
            return;
        }
        // Best effort, and never blocking: a daemon that is stopped reads nothing.
        if let (Ok(bytes), Ok(_guard)) = (frame::encode(&FromClient::Cancel(self.id)), connection.writing.try_lock()) {
            use rustix::net::{SendFlags, send};
            let sent = send(&connection.stream, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            if sent != Ok(bytes.len()) {
                connection.dead.store(true, Ordering::Release);
            }
        }
    }
}

/// Runs `f` without the GIL; `f` may borrow what is not `Sync` because it runs on this very thread.
fn detached<T>(_py: Python<'_>, f: impl FnOnce() -> T) -> T {
    struct Restore(*mut pyo3::ffi::PyThreadState);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: saved by this thread below.
            unsafe { pyo3::ffi::PyEval_RestoreThread(self.0) };
        }
    }
    // SAFETY: the GIL is held (`_py`); `f` touches no Python object.
    let _restore = Restore(unsafe { pyo3::ffi::PyEval_SaveThread() });
    f()
}
