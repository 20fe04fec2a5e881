//! The daemon's life: one per socket, detached from its starter, until it is idle for long, asked to stop, or
//! signalled.

use crate::actors::cache::Cache;
use crate::actors::capture::Capture;
use crate::actors::codegen::Codegen;
use crate::actors::guard::Guard;
use crate::actors::lower::Lower;
use crate::actors::session;
use crate::actors::trace::Trace;
use crate::actors::{Station, start};
use crate::base::limits;
use crate::base::lock;
use crate::base::log;
use crate::hub::messages::{CacheMessage, GuardMessage, SessionMessage};
use crate::hub::report;
use crate::hub::swap;
use crate::hub::{Config, Hub, Slot, count};
use anyhow::Context;
use flambeau_storage::Folder;
use flambeau_wire::endpoint::{self, BUSY, ERROR, READY};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::test_kill_process;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

/// Between two looks of the watchdog; also the pace of progress messages.
const TICK: Duration = Duration::from_secs(1);
/// Time for compiles in flight once the daemon is asked to stop.
const LAST_WORK: Duration = Duration::from_secs(5);
/// Longest time from the wish to end to the end.
const LONGEST_END: Duration = Duration::from_secs(15);
/// Longest time that the lock of a socket which nobody listens on is waited for.
const LEFT_LOCKED: Duration = Duration::from_secs(1);
/// Ticks between two rounds of idle work on the cache.
const TIDY_EVERY: u64 = 600;
/// Ticks until the first.
const TIDY_FIRST: u64 = 30;

/// How `flambeaud serve` was asked to run.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// In the terminal; logs to standard error.
    Foreground,
    /// Start the daemon in the background and exit.
    Detach,
    /// Be that daemon: a session of its own, log to a file, report on standard output.
    Background,
}

/// Runs `flambeaud serve`.
pub fn serve(config: Config, mode: Mode, level: LevelFilter) -> anyhow::Result<()> {
    match mode {
        Mode::Detach => detach(),
        Mode::Foreground => {
            log::start(None, level);
            run(config, &|_, _| {})
        }
        Mode::Background => {
            let _ = rustix::process::setsid();
            std::env::set_current_dir("/")?;
            log::start(Some(&config.cache_dir), level);
            let result = run(config, &notify);
            if let Err(error) = &result {
                tracing::error!("{error:#}");
                notify(ERROR, &format!("{error:#}"));
            }
            result
        }
    }
}

/// Starts this command again as a background daemon, which keeps our standard output, and returns. The starter then has
/// no child left to wait for.
fn detach() -> anyhow::Result<()> {
    let args = std::env::args_os().skip(1).map(|a| if a == "--detach" { "--background".into() } else { a });
    let spawned = Command::new(std::env::current_exe()?).args(args).stdin(Stdio::null()).spawn();
    if let Err(error) = &spawned {
        notify(ERROR, &error.to_string());
    }
    spawned?;
    Ok(())
}

/// Tells the starter, once; then lets go of its pipe.
fn notify(byte: u8, text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(&[byte]).and_then(|()| out.write_all(text.as_bytes())).and_then(|()| out.flush());
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Gives up what this process inherited: descriptors beyond standard input, output and error, and blocked signals (the
/// client's thread that starts a daemon blocks them all; SIGTERM would never arrive). To be called first of all.
pub fn forget_starter() {
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    limits::set();
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The directory listing's own descriptor is among them and is closed already.
        let _ = nix::unistd::close(fd);
    }
}

fn run(config: Config, notify: &dyn Fn(u8, &str)) -> anyhow::Result<()> {
    let socket = config.socket.clone();
    let lock_file = lock_file(&socket)?;
    if !is_locked(&lock_file, &socket) {
        tracing::info!(socket = %socket.display(), "another daemon serves this socket");
        notify(BUSY, "");
        return Ok(());
    }
    let system = actix_rt::System::new();
    let result = system.block_on(async {
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).with_context(|| format!("socket {}", socket.display()))?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        let hub = Hub::new(config);
        start_all(&hub);
        tracing::info!(socket = %socket.display(), build = endpoint::BUILD, pid = std::process::id(), "listening");
        notify(READY, "");
        live(&hub, listener).await?;
        end(&hub, lock_file).await;
        anyhow::Ok(())
    });
    tracing::info!("ended");
    result
}

/// Locks the file of a socket. A daemon that was killed leaves file and socket open for a moment where a child of it has not
/// begun its own program yet.
fn is_locked(file: &File, socket: &Path) -> bool {
    let begun = Instant::now();
    while flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if is_served(socket) || begun.elapsed() > LEFT_LOCKED {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whether the process that began to listen on the socket is still there.
fn is_served(socket: &Path) -> bool {
    let listener = UnixStream::connect(socket).ok().and_then(|stream| socket_peercred(stream).ok());
    listener.is_some_and(|listener| test_kill_process(listener.pid).is_ok())
}

/// Opens the lock file of a socket in a folder that is checked first.
fn lock_file(socket: &Path) -> anyhow::Result<File> {
    let path = endpoint::lock_path(socket);
    let name = path.file_name().and_then(|name| name.to_str()).context("the socket has no name")?;
    let folder = Folder::open(path.parent().context("the socket has no folder")?)?;
    folder.append(name).with_context(|| format!("lock file of {}", socket.display()))
}

fn start_all(hub: &Arc<Hub>) {
    hub.cache.put(start::<Cache>(hub));
    hub.capture.put(start::<Capture>(hub));
    hub.trace.put(start::<Trace>(hub));
    hub.guard.put(start::<Guard>(hub));
    hub.lower.put(start::<Lower>(hub));
    hub.codegen.put(start::<Codegen>(hub));
}

/// Accepts clients until the daemon is to end.
async fn live(hub: &Arc<Hub>, listener: UnixListener) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let own = inode(&hub.config.socket);
    let mut next_client = 1;
    let mut ticks = 0;
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match endpoint::check_peer(&stream) {
                    Ok(()) => {
                        session::open(hub, next_client, stream);
                        next_client += 1;
                    }
                    Err(error) => tracing::warn!(%error, "refused a connection"),
                },
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            _ = terminate.recv() => break tracing::info!("SIGTERM"),
            _ = interrupt.recv() => break tracing::info!("SIGINT"),
            _ = hang_up.recv() => tracing::info!("SIGHUP ignored"),
            () = hub.stop.notified() => break tracing::info!("asked to stop"),
            _ = interval.tick() => {
                ticks += 1;
                if let Some(why) = tick(hub, ticks, own) {
                    break tracing::info!(why, "nothing left to do");
                }
            }
        }
    }
    Ok(())
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// The watchdog's round: dead actors, progress, idle work. Gives why the daemon should end, if it should.
fn tick(hub: &Arc<Hub>, ticks: u64, own: Option<(u64, u64)>) -> Option<&'static str> {
    let revived = [
        revive::<Cache>(hub, &hub.cache),
        revive::<Capture>(hub, &hub.capture),
        revive::<Trace>(hub, &hub.trace),
        revive::<Guard>(hub, &hub.guard),
        revive::<Lower>(hub, &hub.lower),
        revive::<Codegen>(hub, &hub.codegen),
    ];
    if revived.contains(&true) {
        for session in lock(&hub.sessions).values() {
            session.do_send(SessionMessage::FailAll);
        }
    }
    hub.guard.tell(GuardMessage::Tick);
    swap::look(hub);
    if ticks == TIDY_FIRST || ticks.is_multiple_of(TIDY_EVERY) {
        hub.cache.tell(CacheMessage::Tidy);
    }
    if !lock(&hub.sessions).is_empty() {
        return None;
    }
    if inode(&hub.config.socket) != own {
        return Some("the socket is gone");
    }
    let idle = lock(&hub.last_client).elapsed().as_secs();
    (hub.config.idle_timeout > 0 && idle >= hub.config.idle_timeout).then_some("idle")
}

fn revive<A: Station>(hub: &Arc<Hub>, slot: &Slot<A::Told>) -> bool {
    let dead = !slot.alive();
    if dead {
        count(&hub.counters.revived);
        tracing::error!(actor = std::any::type_name::<A>(), "recreating a dead actor");
        slot.put(start::<A>(hub));
    }
    dead
}

/// Ends the process whatever still keeps it: a disk that does not answer, a plug-in that does not end.
fn give_up_later() {
    let wait = || {
        std::thread::sleep(LONGEST_END);
        tracing::error!("something does not end; leaving it behind");
        std::process::exit(1);
    };
    let _ = std::thread::Builder::new().name("last".into()).spawn(wait);
}

/// Ends in order: no new clients, goodbye, last compiles, the cache on disk.
async fn end(hub: &Arc<Hub>, lock_file: File) {
    hub.closing.store(true, Ordering::Relaxed);
    give_up_later();
    let _ = fs::remove_file(&hub.config.socket);
    // A successor may take the socket from here on; it waits for the cache.
    drop(lock_file);
    let start = Instant::now();
    while start.elapsed() < LAST_WORK {
        hub.guard.tell(GuardMessage::Tick);
        tokio::time::sleep(Duration::from_millis(5)).await;
        if hub.in_flight.load(Ordering::Relaxed) == 0 {
            break;
        }
    }
    for session in lock(&hub.sessions).values() {
        session.do_send(SessionMessage::Goodbye);
    }
    let flushing = hub.clone();
    let _ = tokio::task::spawn_blocking(move || {
        report::ask(&flushing, CacheMessage::Flush);
        drop(lock(&flushing.store).take());
    })
    .await;
}
