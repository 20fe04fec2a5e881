//! Where a daemon listens and how one is started: socket directory and name, peer check, arguments, the READY byte.
//! Both sides use it, so that they agree; connecting and spawning is theirs.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Hash of the sources this binary was built from. A client and a daemon with different builds never talk.
pub const BUILD: &str = env!("FLAMBEAU_BUILD");

/// Longest path a Unix socket can be bound to on Linux, in bytes, without the terminating zero.
const MAX_SOCKET_PATH: usize = 107;

/// Why there is no usable place for a socket.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The directory cannot be made or read.
    #[error("socket directory {0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// Somebody else could put a socket there.
    #[error("socket directory {0} is not a directory of this user with mode 0700")]
    Unsafe(PathBuf),
    /// The kernel would refuse it.
    #[error("socket path {0} is longer than {MAX_SOCKET_PATH} bytes; set XDG_RUNTIME_DIR or TMPDIR to a shorter path")]
    TooLong(PathBuf),
    /// The peer runs as another user.
    #[error("the process at the other end of the socket runs as user {0}")]
    Peer(u32),
}

/// What the socket's place depends on; the caller resolves its environment.
#[derive(Clone, Debug)]
pub struct Place {
    /// `$XDG_RUNTIME_DIR`, if set.
    pub runtime_dir: Option<PathBuf>,
    /// The system's directory for temporary files.
    pub temp_dir: PathBuf,
    /// The resolved cache directory (it need not exist).
    pub cache_dir: PathBuf,
}

impl Place {
    /// The place that this process's environment and `cache_dir` give.
    pub fn from_env(cache_dir: PathBuf) -> Place {
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()).map(PathBuf::from);
        Place { runtime_dir, temp_dir: std::env::temp_dir(), cache_dir }
    }

    /// The socket's path. Makes its directory (mode 0700), and refuses one that others could write to.
    pub fn socket(&self) -> Result<PathBuf, EndpointError> {
        let uid = rustix::process::getuid().as_raw();
        let name = format!("{}.sock", self.name(uid, &boot_id()));
        let private = self.temp_dir.join(format!("flambeau-{uid}"));
        let shared = self.runtime_dir.as_ref().filter(|d| d.is_dir()).map(|d| d.join("flambeau"));
        let mut last = None;
        for dir in shared.into_iter().chain([private]) {
            let path = dir.join(&name);
            let usable = if path.as_os_str().len() > MAX_SOCKET_PATH {
                Err(EndpointError::TooLong(path.clone()))
            } else {
                private_directory(&dir, uid)
            };
            match usable {
                Ok(()) => return Ok(path),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| EndpointError::Unsafe(self.temp_dir.clone())))
    }

    fn name(&self, uid: u32, boot: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in
            [&uid.to_le_bytes()[..], boot.as_bytes(), BUILD.as_bytes(), self.cache_dir.as_os_str().as_encoded_bytes()]
        {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize().to_hex()[..24].to_string()
    }
}

/// The lock file beside a socket: whoever holds its `flock` serves the socket.
pub fn lock_path(socket: &Path) -> PathBuf {
    socket.with_extension("lock")
}

/// Makes `dir` with mode 0700 if it is missing, then checks that it is a directory (no link) of `uid` that nobody else
/// can write to or read.
fn private_directory(dir: &Path, uid: u32) -> Result<(), EndpointError> {
    let io = |e| EndpointError::Io(dir.to_path_buf(), e);
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(io(e)),
    }
    let meta = fs::symlink_metadata(dir).map_err(io)?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(EndpointError::Unsafe(dir.to_path_buf()))
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Refuses a socket whose other end belongs to another user. Both sides call it before the first message.
pub fn check_peer(socket: impl AsFd) -> Result<(), EndpointError> {
    let own = rustix::process::getuid();
    match rustix::net::sockopt::socket_peercred(socket) {
        Ok(peer) if peer.uid == own => Ok(()),
        Ok(peer) => Err(EndpointError::Peer(peer.uid.as_raw())),
        Err(e) => Err(EndpointError::Io(PathBuf::new(), e.into())),
    }
}

/// First byte the daemon writes to its standard output, which its starter holds the other end of: it listens.
pub const READY: u8 = b'R';
/// As [`READY`]: another daemon holds this socket's lock and will listen in a moment; connect and retry.
pub const BUSY: u8 = b'B';
/// As [`READY`]: it cannot serve; a message follows until end of file.
pub const ERROR: u8 = b'E';

/// How a client starts a daemon.
///
/// Run `flambeaud` with [`Start::args`], standard input and error on `/dev/null`, standard output on a pipe; wait for
/// the process (with `--detach` it only starts the daemon, in a session of its own, and exits), then read one byte from
/// the pipe: [`READY`], [`BUSY`] or [`ERROR`].
#[derive(Clone, Debug)]
pub struct Start {
    /// Where to listen.
    pub socket: PathBuf,
    /// Where compiles are kept.
    pub cache_dir: PathBuf,
    /// Upper bound of the cache, in bytes.
    pub cache_size: u64,
    /// Exit after this many seconds without a client; 0 for never.
    pub idle_timeout: u64,
    /// Extra plug-in directories.
    pub plugin_path: Vec<PathBuf>,
    /// Longest time that a plug-in may take for one kernel; see [`kernel_timeout`].
    pub kernel_timeout: Duration,
}

/// The time for one kernel, of a client's patience: the daemon names a plug-in that hangs before the client gives up.
pub fn kernel_timeout(patience: Duration) -> Duration {
    patience / 2
}

/// The patience of clients, of the time for one kernel.
pub fn patience(kernel_timeout: Duration) -> Duration {
    kernel_timeout.saturating_mul(2)
}

impl Start {
    /// The arguments of `flambeaud`.
    pub fn args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["serve".into(), "--detach".into()];
        let mut flag = |name: &str, value: OsString| args.extend([name.into(), value]);
        flag("--socket", self.socket.clone().into());
        flag("--cache-dir", self.cache_dir.clone().into());
        flag("--cache-size", self.cache_size.to_string().into());
        flag("--idle-timeout", self.idle_timeout.to_string().into());
        flag("--kernel-timeout", self.kernel_timeout.as_secs_f64().to_string().into());
        for dir in &self.plugin_path {
            flag("--plugin-path", dir.clone().into());
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn place(temp: &Path) -> Place {
        Place { runtime_dir: None, temp_dir: temp.into(), cache_dir: "/cache".into() }
    }

    fn fresh(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("fl-endpoint-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn name_depends_on_the_cache_directory_and_the_directory_is_private() {
        let dir = fresh("name");
        let a = place(&dir).socket().unwrap();
        let b = Place { cache_dir: "/other".into(), ..place(&dir) }.socket().unwrap();
        assert_ne!(a, b);
        assert_eq!(fs::metadata(a.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn refuses_a_directory_that_others_can_write() {
        let dir = fresh("mode");
        let socket = place(&dir).socket().unwrap();
        fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(place(&dir).socket(), Err(EndpointError::Unsafe(_))));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_runtime_directory_that_is_too_long_is_passed_over() {
        let dir = fresh("long");
        let long = dir.join("x".repeat(100));
        fs::create_dir_all(&long).unwrap();
        let socket = Place { runtime_dir: Some(long), ..place(&dir) }.socket().unwrap();
        assert!(socket.starts_with(dir.join(format!("flambeau-{}", rustix::process::getuid().as_raw()))));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn own_peer_is_accepted() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(check_peer(&a).is_ok());
    }
}
