//! The command line's side of the socket: connect, greet, ask, print.

use crate::command::settings::Settings;
use anyhow::{Context, bail};
use flambeau_wire::from_client::{Admin, FromClient, Hello, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::{PROTOCOL, endpoint, frame};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait for a daemon that was asked to stop: it gives up what keeps it a little earlier.
const LAST_WAIT: Duration = Duration::from_secs(20);

/// A connection to a running daemon.
pub struct Control {
    stream: UnixStream,
    next: u64,
}

impl Control {
    /// Connects to the daemon of these settings; `None` if none runs.
    pub fn connect(settings: &Settings) -> anyhow::Result<Option<Control>> {
        let Ok(stream) = UnixStream::connect(settings.socket()?) else { return Ok(None) };
        endpoint::check_peer(&stream)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut control = Control { stream, next: 1 };
        control.send(&FromClient::Hello(Hello {
            protocol: PROTOCOL,
            build: endpoint::BUILD.to_owned(),
            pid: std::process::id(),
            settings: settings.wire(),
        }))?;
        match control.receive()? {
            FromDaemon::Welcome { .. } => Ok(Some(control)),
            FromDaemon::Refused(why) => bail!("the daemon refused: {why}"),
            other => bail!("the daemon greeted with {other:?}"),
        }
    }

    fn send(&mut self, message: &FromClient) -> anyhow::Result<()> {
        Ok(self.stream.write_all(&frame::encode(message)?)?)
    }

    fn receive(&mut self) -> anyhow::Result<FromDaemon> {
        let mut prefix = [0; frame::PREFIX];
        self.stream.read_exact(&mut prefix).context("the daemon does not answer")?;
        let mut body = vec![0; frame::body_length(&prefix)?];
        self.stream.read_exact(&mut body)?;
        Ok(frame::decode(&prefix, &body)?)
    }

    /// The daemon's report on a command.
    pub fn ask(&mut self, command: Admin) -> anyhow::Result<Value> {
        let request = RequestId(self.next);
        self.next += 1;
        self.send(&FromClient::Admin { request, command })?;
        loop {
            match self.receive()? {
                FromDaemon::Report { request: of, json } if of == request => return Ok(serde_json::from_str(&json)?),
                FromDaemon::Goodbye => bail!("the daemon is going away"),
                _ => {}
            }
        }
    }
}

/// Starts a daemon as a client does; true if one was started, false if one ran already.
pub fn start(settings: &Settings) -> anyhow::Result<bool> {
    if Control::connect(settings)?.is_some() {
        return Ok(false);
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(settings.start()?.args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut said = Vec::new();
    child.stdout.take().context("no pipe")?.read_to_end(&mut said)?;
    child.wait()?;
    match said.split_first() {
        Some((&endpoint::READY, _)) => Ok(true),
        Some((&endpoint::BUSY, _)) => Ok(false),
        Some((&endpoint::ERROR, text)) => bail!("{}", String::from_utf8_lossy(text)),
        _ => bail!("the daemon ended without a word; see its log"),
    }
}

/// Stops the daemon and waits until it is gone; gives its process id, or `None` if none ran. An error if it lives on.
pub fn stop(settings: &Settings) -> anyhow::Result<Option<u64>> {
    let Some(mut control) = Control::connect(settings)? else { return Ok(None) };
    let pid = control.ask(Admin::Stop)?["stopping"].as_u64().unwrap_or(0);
    let end = Instant::now() + LAST_WAIT;
    // The connection ends with the process, or a little before it.
    control.stream.set_read_timeout(Some(LAST_WAIT))?;
    while control.receive().is_ok() && Instant::now() < end {}
    while lives(pid) {
        if Instant::now() >= end {
            bail!("the daemon (process {pid}) was asked to stop {} s ago and still runs", LAST_WAIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Some(pid))
}

/// Whether a process runs; one that ended and waits for its parent does not.
fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may hold anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), None | Some('Z' | 'X')))
}
