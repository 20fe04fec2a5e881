//! Which back end compiles the calls of a callable: the one that its program named, else its user's default of the moment.
//! Compiled code stays with the build that it was compiled by; what moves to another one is the next call.

use crate::process::counters;
use crate::process::say;
use crate::process::settings;
use crate::python::gil::GilCell;
use flambeau_ir::frame::BackendKind;
use flambeau_wire::registry::{self, Chosen, Origin, Places, Plugin};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a program asked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// This one, in whichever build is used now.
    Named(String),
    /// The user's default.
    Default,
}

/// What compiles calls now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// "eager", "fx:" and the name of a torch back end, or that of a plug-in.
    pub name: String,
    /// Its files; none of those that are no plug-ins, and of one that is not there.
    pub plugin: Option<Plugin>,
    /// Whether it was added by the user.
    added: bool,
}

/// Counts what the daemon said of changes. Also written by the thread of the link, which takes no lock: another thread may
/// fork meanwhile.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Counts changes of back ends and calls of `reset()`. What was compiled in an older generation is looked at again at its
/// next use: this one number is all that a call reads of either.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The user's choice, as of so many changes.
static CHOSEN: GilCell<Option<(u64, Arc<Chosen>)>> = GilCell::new(None);

/// The user's back ends, or where they are looked for, may have changed: each callable looks at its next call.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::Release);
    look_again();
}

/// Makes every callable look at its next call whether its back end is another one now.
pub fn look_again() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// What is counted up each time.
#[inline]
pub fn generation(order: Ordering) -> u64 {
    GENERATION.load(order)
}

/// The user's choice. The file is read once per change; one that cannot be read is as none, which is warned of.
fn chosen(py: Python<'_>) -> Arc<Chosen> {
    let changes = CHANGES.load(Ordering::Acquire);
    if let Some((as_of, chosen)) = &*CHOSEN.borrow(py)
        && *as_of == changes
    {
        return chosen.clone();
    }
    let read = registry::read(&settings::get().wire.data_dir);
    let chosen = Arc::new(read.as_ref().map_or_else(|_| Chosen::default(), Clone::clone));
    *CHOSEN.borrow(py) = Some((changes, chosen.clone()));
    if let Err(why) = read {
        counters::bump(py, "backend_choice_unreadable");
        say::warn_once(py, &format!("registry:{why}"), &format!("flambeau does not know your back ends: {why}"));
    }
    chosen
}

/// What compiles calls of a callable now. May warn, so that other Python code runs.
pub fn now(py: Python<'_>, wanted: &Wanted) -> Backend {
    let chosen = chosen(py);
    let name = match wanted {
        Wanted::Named(name) => name.as_str(),
        Wanted::Default => chosen.default_name(),
    };
    if kind(name) == BackendKind::Native(name.to_owned())
        && let Some((plugin, origin)) = with_places(&chosen, |places| places.find(name))
    {
        return Backend { name: name.to_owned(), plugin: Some(plugin), added: origin == Origin::Added };
    }
    Backend { name: name.to_owned(), ..Backend::default() }
}

/// The folders of all plug-ins that are known, by name.
pub fn plugins(py: Python<'_>) -> BTreeMap<String, PathBuf> {
    let chosen = chosen(py);
    with_places(&chosen, |places| {
        let found = places.names().into_iter().filter_map(|name| places.find(&name));
        found.map(|(plugin, _)| (plugin.name, plugin.folder)).collect()
    })
}

fn with_places<T>(chosen: &Chosen, take: impl FnOnce(Places<'_>) -> T) -> T {
    let current = settings::get();
    let wire = &current.wire;
    let shipped = [settings::shipped_plugins()];
    take(Places { plugin_path: &wire.plugin_path, data_dir: &wire.data_dir, chosen, shipped: &shipped })
}

/// How graphs leave for a back end of this name.
fn kind(name: &str) -> BackendKind {
    match name {
        "eager" => BackendKind::Eager,
        name if name.starts_with("fx:") => BackendKind::Fx,
        name => BackendKind::Native(name.to_owned()),
    }
}

impl Backend {
    /// How graphs leave for it.
    pub fn kind(&self) -> BackendKind {
        kind(&self.name)
    }

    /// Whether it is in the folder that came with this package.
    pub fn is_shipped(&self) -> bool {
        self.plugin.as_ref().is_some_and(|plugin| plugin.folder == settings::shipped_plugins())
    }

    /// Where its launch half is looked for.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.plugin.iter().map(|plugin| plugin.folder.clone()).collect()
    }

    /// Why it cannot be used, where its files say nothing because they are gone.
    pub fn missing(&self) -> Option<String> {
        let plugin = self.plugin.as_ref().filter(|plugin| self.added && !plugin.launch_half().exists())?;
        let (name, folder) = (&self.name, plugin.folder.display());
        Some(format!(
            "the build of back end {name} that was added is gone from {folder}; `flambeau backend upgrade {name} FILE` brings \
             another, `flambeau backend remove {name}` forgets it"
        ))
    }
}
