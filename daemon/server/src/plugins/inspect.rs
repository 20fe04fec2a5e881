//! What a plug-in's two files say of themselves. Each is opened in a process of its own, which it may end or hang.

use crate::plugins::backends::Backends;
use anyhow::{Context, bail, ensure};
use flambeau_plugin::abi::{MEMORY_HOST, MEMORY_OWN, MEMORY_TORCH};
use flambeau_plugin::{LaunchLibrary, file};
use flambeau_wire::registry::Plugin;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks whether a process ended.
const POLL: Duration = Duration::from_millis(2);

/// A plug-in whose halves belong together and work here.
pub struct Inspected {
    /// Its own version.
    pub version: String,
    /// What it compiles for.
    pub targets: Vec<String>,
    /// Where its kernels find their buffers, and what they run on.
    pub launch: LaunchSays,
}

/// What a launch half says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchSays {
    name: String,
    version: String,
    /// Where buffers are: the host's memory, torch's device, or memory of its own.
    pub memory: String,
    /// What kernels run on here.
    pub devices: Vec<Device>,
}

/// Something that kernels run on.
#[derive(Debug, Serialize, Deserialize)]
pub struct Device {
    /// For reports.
    pub name: String,
    /// What kernels may be compiled for, best first.
    pub targets: Vec<String>,
}

/// Opens a launch half in this process and prints what it says, as JSON: `flambeaud inspect`.
pub fn main(launch_half: &Path) -> anyhow::Result<()> {
    let library = LaunchLibrary::open(launch_half)?;
    let said = library.description();
    let device = |device: &flambeau_plugin::abi::Device| Device {
        name: device.name.to_string(),
        targets: device.targets.iter().map(ToString::to_string).collect(),
    };
    let says = LaunchSays {
        name: said.name.to_string(),
        version: said.version.to_string(),
        memory: match said.memory {
            MEMORY_HOST => "host",
            MEMORY_TORCH => "torch",
            MEMORY_OWN => "own",
            _ => "unknown",
        }
        .to_owned(),
        devices: said.devices.iter().map(device).collect(),
    };
    println!("{}", serde_json::to_string(&says)?);
    Ok(())
}

/// Opens both halves. The error is one sentence: which file cannot be used, why, and what to do.
pub fn plugin(backends: &Backends, plugin: &Plugin, patience: Duration) -> anyhow::Result<Inspected> {
    let (compile_half, launch_half) = (plugin.compile_half(), plugin.launch_half());
    for half in [&compile_half, &launch_half] {
        file::check(half).map_err(|fault| anyhow::anyhow!("plug-in {} {fault}", half.display()))?;
    }
    let compile = backends.of(plugin).codegen.describe(&plugin.name)?;
    let launch = launch_says(&launch_half, patience)?;
    for (file, name) in [(&compile_half, &compile.name), (&launch_half, &launch.name)] {
        ensure!(
            *name == plugin.name,
            "plug-in {} says that its name is {name}; call both files libflambeau_{name}_compile.so and \
             libflambeau_{name}_launch.so",
            file.display()
        );
    }
    ensure!(
        compile.version == launch.version,
        "the halves of back end {} are of versions {} and {}; bring two files of one build",
        plugin.name,
        compile.version,
        launch.version
    );
    let targets = launch.devices.first().map(|device| &device.targets[..]).unwrap_or_default();
    let Some(first) = targets.first() else { bail!("plug-in {} names no device with a target", launch_half.display()) };
    ensure!(
        compile.targets.contains(first),
        "back end {} compiles for {}, and the device here wants {first}; get a build for this device",
        plugin.name,
        compile.targets.join(", ")
    );
    Ok(Inspected { version: compile.version, targets: compile.targets, launch })
}

/// Asks a process of its own.
fn launch_says(launch_half: &Path, patience: Duration) -> anyhow::Result<LaunchSays> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("inspect")
        .arg(launch_half)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let file = launch_half.display();
    let begun = Instant::now();
    // What it prints is one line, which a pipe holds.
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            bail!("plug-in {file} gave no answer in {} s while it was opened; get another build", patience.as_secs());
        }
        std::thread::sleep(POLL);
    };
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().context("no pipe")?.read_to_string(&mut out)?;
    child.stderr.take().context("no pipe")?.read_to_string(&mut err)?;
    if status.code().is_none() {
        bail!("plug-in {file} ended its process while it was opened ({status}); get another build");
    }
    // Libraries print too; what was asked for comes last.
    let last = |text: &str| text.lines().next_back().unwrap_or_default().to_owned();
    ensure!(status.success(), "{}", last(&err).trim_start_matches("flambeaud: "));
    serde_json::from_str(&last(&out)).with_context(|| format!("plug-in {file} printed something else"))
}
