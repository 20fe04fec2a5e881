//! What a worker forbids itself, by Landlock: its code generator runs over what others sent. Nothing of it can be had back.
//!
//! Landlock holds for the thread that asks and those that it starts, and a plug-in starts threads while it is opened. So what
//! matters most is forbidden before: writing outside of the worker's own folder and of devices, TCP, signals to processes
//! outside. What it may read is known only once the plug-in and its libraries are there: reading is bounded then.
//!
//! A kernel that has no Landlock, or an older one, forbids as much as it can. What connects to sockets that are files, and
//! who may see other processes, is not Landlock's business.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

/// Set to 0, workers are not confined: for drivers that need what is not foreseen here.
const SWITCH: &str = "FLAMBEAU_CONFINE";

/// The latest version of Landlock whose rules were tried.
const KNOWN: ABI = ABI::V7;

/// Where systems keep libraries, programs and what they need. Read, and run as programs.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/etc",
    "/nix",
    "/gnu",
    "/run/opengl-driver",
    "/run/current-system",
];

/// Of the machine and of this process. Read.
const FACTS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// How the names of devices in `/dev` begin that compilers and drivers open. Read, written and asked.
const DEVICES: [&str; 11] =
    ["null", "zero", "full", "random", "urandom", "dri", "kfd", "nvidia", "accel", "dxg", "mali"];

/// Variables that name folders in which drivers look for what they need, separated by colons.
const READ: [&str; 7] = [
    crate::VARIABLE,
    "LD_LIBRARY_PATH",
    "OCL_ICD_VENDORS",
    "OCL_ICD_FILENAMES",
    "OPENCL_VENDOR_PATH",
    "CUDA_PATH",
    "CUDA_HOME",
];

/// Variables that name folders that drivers write to: where the user had them keep files, and for all that is temporary.
const WRITTEN: [&str; 3] = ["TMPDIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"];

/// How far a worker is confined, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Confined {
    /// As said above.
    Wholly,
    /// As far as this kernel can.
    Partly,
    /// This kernel has no Landlock.
    NoKernel,
    /// The user does not want it, or it failed.
    Off,
}

/// Before the plug-in is opened: nothing is written outside of the folder for temporary files, no TCP, no signals.
pub fn writing() -> Confined {
    apply(|| {
        let written = AccessFs::from_write(KNOWN);
        ruleset(written)?
            .handle_access(AccessNet::from_all(KNOWN))?
            .scope(Scope::from_all(KNOWN))?
            .create()?
            .add_rules(path_beneath_rules(folders(&WRITTEN), written))?
            .add_rules(path_beneath_rules(devices(), written))?
            // A driver names its threads, in the folder of the process.
            .add_rules(path_beneath_rules(["/proc/self"], AccessFs::WriteFile))
    })
}

/// Once it is open: nothing is read but the system, the plug-in, the libraries that are loaded and folders that the user named.
pub fn reading(plugin: &Path) -> Confined {
    apply(|| {
        let read = AccessFs::from_read(KNOWN);
        let files = AccessFs::ReadFile | AccessFs::ReadDir;
        let loaded = loaded_from().into_iter().chain(plugin.parent().map(Path::to_owned));
        ruleset(read)?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, read))?
            .add_rules(path_beneath_rules(FACTS, files))?
            .add_rules(path_beneath_rules(devices(), files))?
            .add_rules(path_beneath_rules(loaded, files))?
            .add_rules(path_beneath_rules(folders(&READ), files))?
            .add_rules(path_beneath_rules(folders(&WRITTEN), files | AccessFs::Refer))
    })
}

/// Rules for such accesses, and for moving files between folders: what says nothing of the latter forbids it, so that a
/// kernel that knows no rule for it (5.18 and earlier) is asked for nothing. Drivers do move files.
fn ruleset(handled: BitFlags<AccessFs>) -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
}

fn apply(rules: impl FnOnce() -> Result<RulesetCreated, RulesetError>) -> Confined {
    if env::var_os(SWITCH).is_some_and(|value| value == "0") {
        return Confined::Off;
    }
    match rules().and_then(RulesetCreated::restrict_self) {
        Ok(status) => match (status.ruleset, status.landlock) {
            (RulesetStatus::FullyEnforced, _) => Confined::Wholly,
            (RulesetStatus::PartiallyEnforced, _) => Confined::Partly,
            (RulesetStatus::NotEnforced, LandlockStatus::Available { .. }) => Confined::Off,
            (RulesetStatus::NotEnforced, _) => Confined::NoKernel,
        },
        Err(_) => Confined::Off,
    }
}

/// The folders in these variables.
fn folders(variables: &[&str]) -> Vec<PathBuf> {
    let values = variables.iter().filter_map(env::var_os);
    values.flat_map(|value| env::split_paths(&value).collect::<Vec<_>>()).filter(|path| path.is_absolute()).collect()
}

fn devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let known = |name: &str| DEVICES.iter().any(|device| name.starts_with(device));
    entries.filter(|entry| entry.file_name().to_str().is_some_and(known)).map(|entry| entry.path()).collect()
}

/// The folders of the files that this process has mapped, and what a library keeps beside its folder.
fn loaded_from() -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let folders = files.filter_map(Path::parent).filter(|folder| folder.parent().is_some());
    let beside = |folder: &Path| ["share", "lib"].map(|name| folder.with_file_name(name));
    folders.flat_map(|folder| beside(folder).into_iter().chain([folder.to_owned()])).collect()
}
