//! The command line's side of the socket: connect, greet, ask, print.

use crate::settings::Settings;
use anyhow::{Context, bail};
use flambeau_wire::from_client::{Admin, FromClient, Hello, RequestId};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::{PROTOCOL, endpoint, frame};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).context("the daemon does not answer")?;
        let mut body = vec![0; frame::body_length(prefix)?];
        self.stream.read_exact(&mut body)?;
        Ok(frame::decode(&body)?)
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

/// Stops the daemon and waits until it is gone; gives its process id, or `None` if none ran.
pub fn stop(settings: &Settings) -> anyhow::Result<Option<u64>> {
    let Some(mut control) = Control::connect(settings)? else { return Ok(None) };
    let pid = control.ask(Admin::Stop)?["stopping"].as_u64().unwrap_or(0);
    // The connection ends with the process. (Its entry in /proc may outlive it, waiting for a parent.)
    while control.receive().is_ok() {}
    Ok(Some(pid))
}
