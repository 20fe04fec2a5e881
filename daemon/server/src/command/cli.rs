//! The command line of `flambeaud`. Every report is text for people, or JSON with `--json`.

use crate::command::backend_cli;
use crate::command::control::{self, Control};
use crate::command::life::{self, Mode};
use crate::command::settings::Settings;
use crate::hub::Config;
use crate::plugins::backends::Backends;
use crate::plugins::inspect;
use crate::stages;
use crate::stages::record;
use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use flambeau_ir::frame::BackendKind;
use flambeau_wire::endpoint::BUILD;
use flambeau_wire::from_client::Admin;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

/// The flambeau compiler daemon.
///
/// Clients start it by themselves; these commands look at it, stop it, and run its parts by hand.
#[derive(Parser, Debug)]
#[command(name = "flambeaud", version, long_version = concat!(env!("CARGO_PKG_VERSION")))]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Listen for clients
    Serve {
        #[command(flatten)]
        settings: Settings,
        /// Run in the background; standard output tells the starter when the socket is there
        #[arg(long)]
        detach: bool,
        /// Be the background process that --detach starts
        #[arg(long, hide = true)]
        background: bool,
        /// error, warn, info, debug or trace
        #[arg(long, default_value = "info", value_name = "LEVEL")]
        log_level: LevelFilter,
    },
    /// Compile kernels with a plug-in, for a daemon at the other end of standard input
    Worker {
        /// The plug-in's compile half
        plugin: PathBuf,
    },
    /// Show the daemon's process, memory and counters
    Status(Report),
    /// Start a daemon in the background, unless one runs
    Start(Report),
    /// Stop the daemon once it has finished what it is at
    Stop(Report),
    /// Look at the compile cache
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Show the end of the daemon's log
    Logs {
        #[command(flatten)]
        report: Report,
        /// How many lines
        #[arg(short = 'n', long, default_value_t = 50)]
        lines: usize,
    },
    /// Run recorded compiles again and compare graph and guards, bit for bit
    Replay {
        /// Recordings (see `flambeau record`)
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print graph and guards
        #[arg(long)]
        show: bool,
        #[command(flatten)]
        report: Report,
    },
    /// Say what a plug-in's launch half is, as JSON, in a process that it may end
    #[command(hide = true)]
    Inspect {
        /// The launch half
        plugin: PathBuf,
    },
    Backend(backend_cli::Backend),
    /// End plug-ins' files in a seal, by which damage is found before they are loaded
    Seal {
        /// The files
        #[arg(required = true)]
        plugins: Vec<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
enum CacheCommand {
    /// Show sizes, counts and damage
    Stats(Report),
    /// Drop all entries
    Clear(Report),
    /// Show why the latest look-ups found nothing
    Why(Report),
}

/// Which daemon, and in which form.
#[derive(Args, Clone, Debug)]
pub struct Report {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the command.
pub fn run() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Serve { settings, detach, background, log_level } => {
            let start = settings.start()?;
            let config = Config {
                socket: start.socket,
                cache_dir: start.cache_dir,
                cache_size: start.cache_size,
                idle_timeout: start.idle_timeout,
                plugin_path: start.plugin_path,
                kernel_timeout: start.kernel_timeout,
            };
            let mode = match (detach, background) {
                (true, _) => Mode::Detach,
                (false, true) => Mode::Background,
                (false, false) => Mode::Foreground,
            };
            life::serve(config, mode, log_level)?;
        }
        Command::Worker { plugin } => flambeau_codegen::worker_main(&plugin)?,
        Command::Seal { plugins } => {
            for plugin in plugins {
                flambeau_plugin::file::seal(&plugin).with_context(|| format!("{} was not sealed", plugin.display()))?;
            }
        }
        Command::Status(report) => {
            let value = match Control::connect(&report.settings)? {
                Some(mut control) => {
                    let mut value = control.ask(Admin::Status)?;
                    value["running"] = json!(true);
                    value
                }
                None => json!({ "running": false, "build": BUILD, "socket": report.settings.socket()? }),
            };
            report.print(&value);
        }
        Command::Start(report) => {
            let started = control::start(&report.settings)?;
            report.print(&json!({ "started": started, "socket": report.settings.socket()? }));
        }
        Command::Stop(report) => {
            let pid = control::stop(&report.settings)?;
            report.print(&json!({ "stopped": pid.is_some(), "pid": pid }));
        }
        Command::Cache { command } => cache(command)?,
        Command::Logs { report, lines } => logs(&report, lines)?,
        Command::Replay { files, show, report } => return replay(&files, show, &report),
        Command::Inspect { plugin } => inspect::main(&plugin)?,
        Command::Backend(command) => backend_cli::run(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the daemon; without one, opens the cache itself.
fn cache(command: CacheCommand) -> anyhow::Result<()> {
    let (report, admin) = match command {
        CacheCommand::Stats(report) => (report, Admin::CacheStats),
        CacheCommand::Clear(report) => (report, Admin::CacheClear),
        CacheCommand::Why(report) => (report, Admin::CacheWhy),
    };
    let value = match Control::connect(&report.settings)? {
        Some(mut control) => control.ask(admin)?,
        None if admin == Admin::CacheWhy => json!({ "misses": [], "note": "no daemon runs; it keeps these in memory" }),
        None => {
            let options = flambeau_storage::CacheOptions {
                dir: report.settings.cache_dir()?,
                build: BUILD.to_owned(),
                limit: report.settings.cache_size()?,
            };
            let mut cache = flambeau_storage::Cache::open(&options)?;
            let stats = cache.stats();
            if admin == Admin::CacheClear {
                cache.clear();
                json!({ "frames": stats.frames, "kernels": stats.kernels, "bytes": stats.bytes })
            } else {
                serde_json::to_value(stats)?
            }
        }
    };
    report.print(&value);
    Ok(())
}

fn logs(report: &Report, lines: usize) -> anyhow::Result<()> {
    let path = crate::base::log::path(&report.settings.cache_dir()?);
    let text = std::fs::read_to_string(&path).with_context(|| format!("no log at {}", path.display()))?;
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    if report.json {
        println!("{}", json!({ "path": path, "lines": last }));
    } else {
        for line in last {
            println!("{line}");
        }
    }
    Ok(())
}

/// Replays each file; fails if any differs.
fn replay(files: &[PathBuf], show: bool, report: &Report) -> anyhow::Result<ExitCode> {
    let backends = report.settings.backends()?;
    let mut same = true;
    let mut reports = Vec::new();
    for file in files {
        let value = replay_one(file, &backends, report).with_context(|| format!("replaying {}", file.display()))?;
        same &= value["same"] == json!(true);
        if !report.json {
            let verdict = if value["same"] == json!(true) { "same graph and guards" } else { "DIFFERS" };
            println!("{}: {verdict}; {}", file.display(), value["then"].as_str().unwrap_or_default());
            if let Some(difference) = value["difference"].as_str() {
                println!("{difference}");
            }
            if show {
                println!("{}", value["graph"].as_str().unwrap_or_default());
                for guard in value["guards"].as_array().into_iter().flatten() {
                    println!("  {}", guard.as_str().unwrap_or_default());
                }
            }
        }
        reports.push(value);
    }
    if report.json {
        println!("{}", json!({ "replays": reports }));
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay_one(file: &Path, backends: &Backends, report: &Report) -> anyhow::Result<Value> {
    let recording = record::load(file)?;
    let replay = record::replay(&recording)?;
    let difference = match (recording.result.difference(&replay.result), replay.unasked) {
        (None, 0) => None,
        (None, unasked) => Some(format!("{unasked} recorded questions were not asked")),
        (some, _) => some,
    };
    let then = match replay.traced {
        None => "refused as recorded".to_owned(),
        Some(traced) => {
            let native = matches!(traced.options.backend, BackendKind::Native(_));
            let (plugin_path, data_dir) = (report.settings.plugin_path(), report.settings.data_dir()?);
            let folder = match &traced.options.backend {
                BackendKind::Native(name) => Some(backends.of(&backends.find(name, &plugin_path, &data_dir).0)),
                BackendKind::Eager | BackendKind::Fx => None,
            };
            let codegen = folder.as_deref().map(|folder| &folder.codegen);
            match stages::body(traced, codegen) {
                stages::Bodied::Done(frame) => match frame.fallback {
                    Some(reason) => format!("runs op by op: {}", reason.detail),
                    None if native => "runs op by op, for autograd".to_owned(),
                    None => "runs op by op".to_owned(),
                },
                stages::Bodied::Kernels(pending) => {
                    let target = &recording.key.target;
                    match codegen.map(|codegen| codegen.compile(&pending.backend, &pending.kernels, target)) {
                        Some(Ok(artifacts)) => format!("{} kernels compiled", artifacts.len()),
                        Some(Err(error)) => format!("{} kernels; code generation: {error}", pending.kernels.len()),
                        None => format!("{} kernels", pending.kernels.len()),
                    }
                }
            }
        }
    };
    let (graph, guards) = match replay.result {
        record::Recorded::Traced { graph, guards, .. } => (graph, guards),
        record::Recorded::Refused(name, detail) => (format!("{name}: {detail}"), vec![]),
    };
    Ok(json!({
        "file": file, "build": recording.build, "same": difference.is_none(), "difference": difference, "then": then,
        "graph": graph, "guards": guards, "exchanges": recording.exchanges.len(),
    }))
}

impl Report {
    fn print(&self, value: &Value) {
        if self.json {
            println!("{value}");
        } else {
            print!("{}", text(value, 0));
        }
    }
}

/// JSON as indented `name: value` lines.
fn text(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(name, inner)| match inner {
                Value::Object(_) | Value::Array(_) => format!("{indent}{name}:\n{}", text(inner, depth + 1)),
                _ => format!("{indent}{name}: {}", text(inner, 0)),
            })
            .collect(),
        Value::Array(items) if items.is_empty() => format!("{indent}none\n"),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Object(_) => format!("{indent}-\n{}", text(item, depth + 1)),
                _ => format!("{indent}- {}", text(item, 0)),
            })
            .collect(),
        Value::String(s) => format!("{s}\n"),
        Value::Null => "-\n".to_owned(),
        other => format!("{other}\n"),
    }
}
