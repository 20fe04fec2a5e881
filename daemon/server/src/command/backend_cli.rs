//! `flambeau backend`: what a user's programs are compiled with. Commands change files; a daemon is told if one runs, and none
//! is started.

use crate::command::cli::Report;
use crate::command::control::Control;
use crate::plugins::backends::Backends;
use crate::plugins::inspect::{self, Inspected};
use crate::plugins::known::{EAGER, known};
use crate::plugins::registry::Registry;
use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use flambeau_wire::from_client::Admin;
use flambeau_wire::registry::{Chosen, FIRST, Origin, Plugin};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Choose what compiles your programs, and bring back ends of your own
///
/// Running programs follow at their next call, without a restart; calls under way end as they began. What was compiled stays
/// in the cache, so that going back compiles nothing. No daemon is needed, and none is started.
///
/// A program is compiled by the first of these that names a back end: backend= of flambeau.compile, flambeau.config.backend,
/// the variable FLAMBEAU_BACKEND, your default (`flambeau backend use`), cpu. Only programs of the last two follow the
/// default; a new build of a back end (`flambeau backend upgrade`) is for all that use it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Backend {
    #[command(subcommand)]
    command: BackendCommand,
}

const EXAMPLES: &str = "Examples:
  flambeau backend list
  flambeau backend add build/libflambeau_mychip_compile.so     the other half lies beside it
  flambeau backend use mychip
  flambeau backend upgrade mychip build/                       a newer build, in the running programs too
  flambeau backend upgrade cpu ~/flambeau/target/release/      your own build in place of the shipped one
  flambeau backend remove mychip

To try out what a plug-in computes before you add it: flambeau plugin check FILE";

#[derive(Subcommand, Debug)]
enum BackendCommand {
    /// Show each back end: its files, where it is from, its device or why it cannot be used here; `*` marks your default
    List(Report),
    /// Make a back end your default
    Use {
        /// One of `flambeau backend list`
        name: String,
        #[command(flatten)]
        report: Report,
    },
    /// Bring a back end: its two files are checked and copied, so that the originals may go
    Add {
        /// A half, both halves, or a folder with the two halves of one back end
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        report: Report,
    },
    /// Replace a back end by another build of it, shipped ones too; if it cannot be used, the old one stays
    Upgrade {
        /// One of `flambeau backend list`
        name: String,
        /// A half, both halves, or a folder
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        report: Report,
    },
    /// Remove what was added; a shipped back end of this name is used again
    Remove {
        /// One of `flambeau backend list`
        name: String,
        #[command(flatten)]
        report: Report,
    },
}

/// Runs a command.
pub fn run(command: Backend) -> anyhow::Result<()> {
    match command.command {
        BackendCommand::List(report) => {
            let context = Context::new(&report)?;
            let known = known(&context.backends, &context.plugin_path, &context.data_dir);
            context.print(&known, &list_text(&known));
            Ok(())
        }
        BackendCommand::Use { name, report } => Context::new(&report)?.choose(&name),
        BackendCommand::Add { paths, report } => {
            let source = halves_of(&paths, None)?;
            Context::new(&report)?.bring(&source, Bring::Another)
        }
        BackendCommand::Upgrade { name, paths, report } => {
            let source = halves_of(&paths, Some(&name))?;
            Context::new(&report)?.bring(&source, Bring::Newer)
        }
        BackendCommand::Remove { name, report } => Context::new(&report)?.remove(&name),
    }
}

/// What a plug-in is brought for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bring {
    /// As a back end that was not there.
    Another,
    /// In place of the build that is there.
    Newer,
}

/// What all commands need.
struct Context<'a> {
    report: &'a Report,
    backends: Backends,
    plugin_path: Vec<PathBuf>,
    data_dir: PathBuf,
}

impl<'a> Context<'a> {
    fn new(report: &'a Report) -> anyhow::Result<Self> {
        let settings = &report.settings;
        let (backends, data_dir) = (settings.backends()?, settings.data_dir()?);
        Ok(Context { report, backends, plugin_path: settings.plugin_path(), data_dir })
    }

    fn print(&self, value: &Value, text: &str) {
        if self.report.json {
            println!("{value}");
        } else {
            println!("{text}");
        }
    }

    fn inspect(&self, plugin: &Plugin) -> anyhow::Result<Inspected> {
        inspect::plugin(&self.backends, plugin, self.backends.patience())
    }

    fn builds(&self, chosen: &Chosen, name: &str) -> Vec<(Plugin, Origin)> {
        self.backends.places(&self.plugin_path, &self.data_dir, chosen).builds(name)
    }

    fn unknown(&self, chosen: &Chosen, name: &str) -> anyhow::Error {
        let names = self.backends.places(&self.plugin_path, &self.data_dir, chosen).names().join(", ");
        anyhow::anyhow!(
            "no back end is called {name}; there are {names}, {EAGER}; `flambeau backend add FILE` brings one"
        )
    }

    /// `use`.
    fn choose(&self, name: &str) -> anyhow::Result<()> {
        let registry = Registry::lock(&self.data_dir)?;
        let mut chosen = registry.chosen()?;
        if name != EAGER {
            let builds = self.builds(&chosen, name);
            let Some((plugin, _)) = builds.first() else { return Err(self.unknown(&chosen, name)) };
            ensure!(
                builds.iter().any(|(_, origin)| *origin != Origin::Path),
                "{name} is known here only by FLAMBEAU_PLUGIN_PATH, which other programs may not have; `flambeau backend add \
                 {}` brings it for all",
                plugin.compile_half().display()
            );
            if let Err(why) = self.inspect(plugin) {
                bail!("{name} cannot be used here, so {} stays the default: {why}", chosen.default_name());
            }
        }
        let before = chosen.default.replace(name.to_owned());
        registry.publish(&chosen)?;
        let before = before.as_deref().unwrap_or(FIRST);
        self.done(&json!({ "default": name, "before": before }), &format!("{name} is the default now, after {before}"))
    }

    /// `add` and `upgrade`.
    fn bring(&self, source: &Plugin, how: Bring) -> anyhow::Result<()> {
        let registry = Registry::lock(&self.data_dir)?;
        let mut chosen = registry.chosen()?;
        let name = &source.name;
        let known = self.builds(&chosen, name);
        let upgrade = how == Bring::Newer;
        if upgrade && known.is_empty() {
            return Err(self.unknown(&chosen, name));
        }
        if !upgrade && let Some((plugin, _)) = known.iter().find(|(_, origin)| *origin != Origin::Path) {
            bail!(
                "there is a back end called {name}, in {}; `flambeau backend upgrade {name} FILE` puts another build in its \
                 place",
                plugin.folder.display()
            );
        }
        let staged = registry.stage(source)?;
        let inspected = self.inspect(&staged.plugin).map_err(|error| {
            let (copies, originals) = (staged.plugin.folder.to_string_lossy(), source.folder.to_string_lossy());
            let why = error.to_string().replace(&*copies, &originals);
            let kept = if upgrade { format!("; the {name} that was there stays") } else { String::new() };
            anyhow::anyhow!("{why}{kept}")
        })?;
        let build = registry.keep(&staged)?;
        let before = chosen.added.insert(name.clone(), build.clone());
        registry.publish(&chosen)?;
        let Inspected { version, .. } = inspected;
        let mut text = match (upgrade, before) {
            (true, Some(before)) if before == build => format!("{name} {version} was this build already"),
            (true, _) => format!("{name} is {version} now, for programs that run too"),
            (false, _) => format!("{name} {version} was added; `flambeau backend use {name}` makes it the default"),
        };
        if known.first().is_some_and(|(_, origin)| *origin == Origin::Path) {
            text += "; where FLAMBEAU_PLUGIN_PATH is set as it is here, the build in its folder goes first";
        }
        self.done(&json!({ "name": name, "version": version, "build": build }), &text)
    }

    /// `remove`.
    fn remove(&self, name: &str) -> anyhow::Result<()> {
        let registry = Registry::lock(&self.data_dir)?;
        let mut chosen = registry.chosen()?;
        if chosen.added.remove(name).is_none() {
            match self.builds(&chosen, name).first() {
                None => return Err(self.unknown(&chosen, name)),
                Some((_, Origin::Path)) => bail!("{name} was not added; take its folder off FLAMBEAU_PLUGIN_PATH"),
                Some(_) => {
                    bail!("{name} is shipped with flambeau and stays; `flambeau backend use` chooses another one")
                }
            }
        }
        let mut text = format!("{name} was removed");
        let left = !self.builds(&chosen, name).is_empty();
        if left {
            text += "; the build that it stood for is used again";
        } else if chosen.default.as_deref() == Some(name) {
            chosen.default = None;
            text = format!("{text}; it was the default, which is {FIRST} again");
        }
        registry.publish(&chosen)?;
        self.done(&json!({ "removed": name, "default": chosen.default_name(), "still_there": left }), &text)
    }

    /// Tells the daemon, then the user.
    fn done(&self, value: &Value, text: &str) -> anyhow::Result<()> {
        // Without a daemon, and of another cache's, programs see it within a second or so.
        let told = match Control::connect(&self.report.settings) {
            Ok(Some(mut control)) => control.ask(Admin::Swap).unwrap_or(Value::Null),
            _ => Value::Null,
        };
        let mut value = value.clone();
        value["daemon"] = told;
        self.print(&value, text);
        Ok(())
    }
}

/// The plug-in that the paths of a command stand for.
fn halves_of(paths: &[PathBuf], name: Option<&str>) -> anyhow::Result<Plugin> {
    let mut found: Vec<Plugin> = Vec::new();
    for path in paths {
        let path = std::path::absolute(path)?;
        if path.is_dir() {
            let files = std::fs::read_dir(&path)?.flatten().map(|file| file.path());
            let plugins = files.filter_map(|file| Plugin::of_file(&file));
            found.extend(plugins.filter(|plugin| name.is_none_or(|name| plugin.name == name)));
        } else {
            let Some(plugin) = Plugin::of_file(&path) else {
                bail!(
                    "{} is not named as plug-ins are: libflambeau_NAME_compile.so or libflambeau_NAME_launch.so",
                    path.display()
                );
            };
            found.push(plugin);
        }
    }
    found.sort();
    found.dedup();
    let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    match &found[..] {
        [plugin] => {
            if let Some(name) = name {
                ensure!(
                    plugin.name == name,
                    "{first} is of {}, not of {name}; the {name} that was there stays",
                    plugin.name
                );
            }
            Ok(plugin.clone())
        }
        [] => bail!("{first} holds no plug-in: libflambeau_NAME_compile.so and libflambeau_NAME_launch.so"),
        many => {
            let names: Vec<String> = many.iter().map(|p| p.compile_half().display().to_string()).collect();
            bail!("one back end at a time; these are of several: {}", names.join(", "))
        }
    }
}

/// What [`known`] found, for people.
fn list_text(known: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for row in known["backends"].as_array().into_iter().flatten() {
        let mark = if row["default"] == json!(true) { "*" } else { " " };
        let name = [text(&row["name"]), text(&row["version"])].join(" ");
        lines.push(format!("{mark} {} ({})", name.trim_end(), text(&row["from"])));
        if row["available"] == json!(false) {
            lines.push(format!("    cannot be used here: {}", text(&row["why"])));
        }
        for device in row["devices"].as_array().into_iter().flatten() {
            let targets: Vec<String> = device["targets"].as_array().into_iter().flatten().map(text).collect();
            let memory = match row["memory"].as_str() {
                Some("torch") => "the memory of torch's device",
                Some("own") => "memory of its own",
                _ => "the host's memory",
            };
            lines.push(format!("    runs on {} ({}), in {memory}", text(&device["name"]), targets.join(", ")));
        }
        for half in ["compile", "launch"].into_iter().filter(|half| row[*half].is_string()) {
            lines.push(format!("    {half:7} half: {}", text(&row[half])));
        }
        for hidden in row["hides"].as_array().into_iter().flatten() {
            lines.push(format!("    in place of the one in {}", text(hidden)));
        }
    }
    if let Some(problem) = known["problem"].as_str() {
        lines.push(format!("your choice cannot be read: {problem}"));
    }
    match std::env::var("FLAMBEAU_BACKEND").ok().filter(|name| !name.is_empty()) {
        Some(name) => lines.push(format!("FLAMBEAU_BACKEND is set here and goes before the default: {name}")),
        None => lines.push("* is the default of programs that name none".to_owned()),
    }
    lines.join("\n")
}
