//! Settings of a `flambeaud` command: flags, and the defaults that clients have too. Only commands a user types resolve
//! them here; a running daemon takes what its starter resolved.

use crate::plugins::backends::Backends;
use anyhow::Context;
use clap::Args;
use flambeau_codegen::VARIABLE as LIBRARY_PATH;
use flambeau_wire::endpoint::{Place, Start, kernel_timeout};
use flambeau_wire::from_client;
use std::path::PathBuf;
use std::time::Duration;

/// Flags that say which daemon is meant, and how one is started.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Where compiles are kept [default: $FLAMBEAU_CACHE_DIR, else flambeau in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Upper bound of the cache in bytes, with an optional K, M or G [default: $FLAMBEAU_CACHE_SIZE, else 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache_size: Option<u64>,
    /// The socket to use in place of the one that user, build and cache directory give
    #[arg(long = "socket", value_name = "PATH")]
    pub socket_path: Option<PathBuf>,
    /// Exit after this many seconds without a client; 0 for never [default: $FLAMBEAU_IDLE_TIMEOUT, else three hours]
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,
    /// Look for plug-ins here first; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugin_path: Vec<PathBuf>,
    /// Where your back ends are [default: $FLAMBEAU_DATA_DIR, else flambeau in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Longest time that a plug-in may take for one kernel [default: half of $FLAMBEAU_TIMEOUT, else 30 s]
    #[arg(long, value_name = "SECONDS")]
    pub kernel_timeout: Option<f64>,
}

/// How long clients wait for the daemon unless told otherwise.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Three hours.
const IDLE_TIMEOUT: u64 = 3 * 3600;
/// Four GiB.
const CACHE_SIZE: u64 = 4 << 30;

/// Bytes in `512M`: a whole number with an optional K, M or G.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1_u64),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no size; write 512M or a number of bytes"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is too large"))
}

/// Most seconds of a time: 31 years. Clients have the same bound.
const MOST_SECONDS: f64 = 1e9;

/// The seconds in a variable, if it is set.
fn seconds(name: &str) -> anyhow::Result<Option<f64>> {
    let Some(text) = variable(name) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => Ok(Some(seconds)),
        _ => anyhow::bail!("{name} must be a positive number of seconds, at most 10**9, not {text:?}"),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// The folders in a variable, absolute.
fn folders(name: &str) -> Vec<PathBuf> {
    absolute(std::env::split_paths(&variable(name).unwrap_or_default()).collect())
}

fn absolute(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let named = folders.into_iter().filter(|d| !d.as_os_str().is_empty());
    named.map(|d| std::path::absolute(&d).unwrap_or(d)).collect()
}

/// The flag's folder, else that of `FLAMBEAU_{kind}_DIR`, else `flambeau` in that of `XDG_{kind}_HOME` or in `base` of the
/// user's home.
fn folder(flag: Option<&PathBuf>, kind: &str, base: &str) -> anyhow::Result<PathBuf> {
    let home = || variable("HOME").map(PathBuf::from);
    let home = || home().with_context(|| format!("HOME is not set; set FLAMBEAU_{kind}_DIR"));
    let dir = match (flag, variable(&format!("FLAMBEAU_{kind}_DIR"))) {
        (Some(dir), _) => dir.clone(),
        (None, Some(text)) => match text.strip_prefix("~/") {
            Some(rest) => home()?.join(rest),
            None => text.into(),
        },
        (None, None) => match variable(&format!("XDG_{kind}_HOME")) {
            Some(parent) => PathBuf::from(parent).join("flambeau"),
            None => home()?.join(base).join("flambeau"),
        },
    };
    Ok(std::path::absolute(dir)?)
}

impl Settings {
    /// The cache directory, absolute.
    pub fn cache_dir(&self) -> anyhow::Result<PathBuf> {
        folder(self.cache_dir.as_ref(), "CACHE", ".cache")
    }

    /// The folder of the user's back ends, absolute.
    pub fn data_dir(&self) -> anyhow::Result<PathBuf> {
        folder(self.data_dir.as_ref(), "DATA", ".local/share")
    }

    /// The size limit of the cache, in bytes.
    pub fn cache_size(&self) -> anyhow::Result<u64> {
        let from_env = || match variable("FLAMBEAU_CACHE_SIZE") {
            Some(text) => parse_size(&text).map(Some).map_err(|why| anyhow::anyhow!("FLAMBEAU_CACHE_SIZE: {why}")),
            None => Ok(None),
        };
        Ok(self.cache_size.map_or_else(from_env, |size| Ok(Some(size)))?.unwrap_or(CACHE_SIZE))
    }

    /// The socket. Makes its directory.
    pub fn socket(&self) -> anyhow::Result<PathBuf> {
        match &self.socket_path {
            Some(path) => Ok(std::path::absolute(path)?),
            None => Ok(Place::from_env(self.cache_dir()?).socket()?),
        }
    }

    /// Seconds without a client until the daemon ends.
    pub fn idle_timeout(&self) -> anyhow::Result<u64> {
        match self.idle_timeout {
            Some(seconds) => Ok(seconds),
            None => Ok(seconds("FLAMBEAU_IDLE_TIMEOUT")?.map_or(IDLE_TIMEOUT, |s| s.ceil() as u64)),
        }
    }

    /// Plug-in directories, absolute.
    pub fn plugin_path(&self) -> Vec<PathBuf> {
        if self.plugin_path.is_empty() { folders("FLAMBEAU_PLUGIN_PATH") } else { absolute(self.plugin_path.clone()) }
    }

    /// Longest time that a plug-in may take for one kernel.
    pub fn kernel_timeout(&self) -> anyhow::Result<Duration> {
        match self.kernel_timeout {
            Some(seconds) => Ok(Duration::try_from_secs_f64(seconds)?),
            None => Ok(kernel_timeout(seconds("FLAMBEAU_TIMEOUT")?.map_or(CLIENT_TIMEOUT, Duration::from_secs_f64))),
        }
    }

    /// The plug-ins for commands that run in this process.
    pub fn backends(&self) -> anyhow::Result<Backends> {
        let backends = Backends::new(self.kernel_timeout()?);
        backends.hear_of(&folders(LIBRARY_PATH));
        Ok(backends)
    }

    /// How a daemon of these settings is started.
    pub fn start(&self) -> anyhow::Result<Start> {
        Ok(Start {
            socket: self.socket()?,
            cache_dir: self.cache_dir()?,
            cache_size: self.cache_size()?,
            idle_timeout: self.idle_timeout()?,
            plugin_path: self.plugin_path(),
            kernel_timeout: self.kernel_timeout()?,
        })
    }

    /// What the handshake carries.
    pub fn wire(&self) -> from_client::Settings {
        from_client::Settings {
            cache_dir: self.cache_dir().unwrap_or_default(),
            cache_size: self.cache_size().unwrap_or(CACHE_SIZE),
            plugin_path: self.plugin_path(),
            library_path: folders(LIBRARY_PATH),
            data_dir: self.data_dir().unwrap_or_default(),
            record_dir: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("12"), Ok(12));
        assert_eq!(parse_size("3k"), Ok(3 << 10));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert!(parse_size("x").is_err() && parse_size("").is_err() && parse_size("99999999999G").is_err());
    }
}
