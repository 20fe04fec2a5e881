//! The worker processes of one back end: started when needed, replaced when lost, never more than allowed.

use crate::libraries::VARIABLE;
use crate::scratch::Scratch;
use crate::{CodegenError, CodegenOptions, Described, Libraries};
use flambeau_ir::kernel::Kernel;
use flambeau_wire::frame;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// To a worker.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Answered by `Described`.
    Describe,
    /// Answered by `Compiled`.
    Compile { target: String, kernels: Vec<Kernel> },
}

/// From a worker.
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// The plug-in.
    Described(Described),
    /// One result per kernel, or one error for all.
    Compiled(Result<Vec<Result<Vec<u8>, String>>, String>),
    /// Why the plug-in did not load.
    Unavailable(String),
}

/// How a worker was lost.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("cannot be started: {0}")]
    Start(io::Error),
    #[error("no answer in {} s", .0.as_secs_f32())]
    TimeOut(Duration),
    #[error("ended by signal {0}")]
    Signal(i32),
    #[error("ended with code {0}")]
    Exit(i32),
    #[error("broken answer: {0}")]
    Broken(String),
}

impl Lost {
    /// No process came up: the request is not to blame.
    pub fn is_start(&self) -> bool {
        matches!(self, Lost::Start(_))
    }
}

struct Worker {
    child: Child,
    socket: UnixStream,
    /// Changes of the folders of libraries before it was started.
    changes: u64,
    /// Its folder for temporary files; there may be no place for one.
    _scratch: Option<Scratch>,
}

impl Worker {
    fn start(command: &[OsString], plugin: &Path, timeout: Duration, libraries: &Libraries) -> io::Result<Worker> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(timeout))?;
        ours.set_write_timeout(Some(timeout))?;
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "empty command"))?;
        let (changes, libraries) = libraries.now();
        let scratch = Scratch::new().inspect_err(|error| tracing::warn!(%error, "no folder for a worker")).ok();
        let child = Command::new(program)
            .args(arguments)
            .arg(plugin)
            .env(VARIABLE, libraries)
            .env_remove("TMPDIR")
            .envs(scratch.as_ref().map(|scratch| ("TMPDIR", scratch.path())))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Worker { child, socket: ours, changes, _scratch: scratch })
    }

    fn ask(&mut self, request: &[u8]) -> Result<Reply, io::Error> {
        self.socket.write_all(request)?;
        let mut prefix = [0; frame::PREFIX];
        self.socket.read_exact(&mut prefix)?;
        let mut body = vec![0; frame::body_length(&prefix).map_err(io::Error::other)?];
        self.socket.read_exact(&mut body)?;
        frame::decode(&prefix, &body).map_err(io::Error::other)
    }

    /// Ends the process and says how it was lost.
    fn autopsy(mut self, error: &io::Error, timeout: Duration) -> Lost {
        let timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        );
        if !closed {
            let _ = self.child.kill();
        }
        match self.child.wait() {
            _ if timed_out => Lost::TimeOut(timeout),
            Ok(status) if closed => {
                status.signal().map_or_else(|| Lost::Exit(status.code().unwrap_or(-1)), Lost::Signal)
            }
            _ => Lost::Broken(error.to_string()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A closed socket would end an idle worker too; a busy one must not outlive the daemon's interest in it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    busy: usize,
}

/// Workers of one plug-in.
pub struct Pool {
    command: Vec<OsString>,
    plugin: PathBuf,
    limit: usize,
    timeout: Duration,
    libraries: Arc<Libraries>,
    state: Mutex<State>,
    freed: Condvar,
}

impl Pool {
    pub fn new(options: &CodegenOptions, plugin: &Path) -> Pool {
        Pool {
            command: options.command.clone(),
            plugin: plugin.to_owned(),
            limit: options.workers.max(1),
            timeout: options.timeout,
            libraries: options.libraries.clone(),
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<Worker> {
        Worker::start(&self.command, &self.plugin, self.timeout, &self.libraries)
    }

    /// Starts as many workers as are allowed.
    pub fn start_all(&self) -> Result<(), CodegenError> {
        let mut state = self.state();
        while state.idle.len() + state.busy < self.limit {
            let worker = self.start().map_err(|e| CodegenError::Worker(Lost::Start(e).to_string()))?;
            state.idle.push(worker);
        }
        Ok(())
    }

    fn take(&self) -> Option<Worker> {
        let mut state = self.state();
        while state.busy >= self.limit {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy += 1;
        state.idle.pop()
    }

    fn give_back(&self, worker: Option<Worker>) {
        let mut state = self.state();
        state.busy -= 1;
        state.idle.extend(worker);
        self.freed.notify_one();
    }

    /// One request to one worker; waits for a free one.
    pub fn request(&self, request: &Request) -> Result<Reply, Lost> {
        let bytes = frame::encode(request).map_err(|e| Lost::Broken(e.to_string()))?;
        let taken = self.take().map_or_else(|| self.start(), Ok);
        let mut worker = match taken {
            Ok(worker) => worker,
            Err(error) => {
                self.give_back(None);
                return Err(Lost::Start(error));
            }
        };
        let mut answer = worker.ask(&bytes);
        while matches!(answer, Ok(Reply::Unavailable(_))) && self.libraries.changed_since(worker.changes) {
            // What it lacked may be there for one that is told of all folders.
            let Ok(other) = self.start() else { break };
            worker = other;
            answer = worker.ask(&bytes);
        }
        match answer {
            Ok(reply) => {
                self.give_back(Some(worker));
                Ok(reply)
            }
            Err(error) => {
                let lost = worker.autopsy(&error, self.timeout);
                self.give_back(None);
                Err(lost)
            }
        }
    }
}
