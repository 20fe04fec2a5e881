//! The Python environments: `.venv` of the first version, with all packages; one more for each further version, which holds
//! only what is built for one version of Python and takes the rest from the first.

use crate::run::{Step, command, root};
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// A CPython that the extension is built for: 3 and this number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Python(u8);

/// The one that all is built for unless told otherwise. Its environment has all packages.
pub const FIRST: Python = Python(11);

/// The oldest that the package is importable on, as `pyproject.toml` says; it has no extension for it.
pub const PLAIN: Python = Python(10);

/// Has a module for each version, like `v311.rs`.
const LAYOUTS: &str = "shim/src/python/layout";

/// Built for one version of Python, and not needed beside the first: compilers for GPUs, drivers, the type checker.
const LEFT_OUT: &[&str] = &["triton", "cuda_bindings", "mypy", "librt"];

impl Python {
    /// Those that the extension knows, in order.
    pub fn all() -> Result<Vec<Python>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(root().join(LAYOUTS)).context(LAYOUTS)? {
            let name = entry?.file_name();
            let minor = name.to_str().and_then(|n| n.strip_prefix("v3")?.strip_suffix(".rs")?.parse().ok());
            found.extend(minor.map(Python));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Those of them that the machine has.
    pub fn here() -> Result<Vec<Python>> {
        Ok(Python::all()?.into_iter().filter(|python| python.is_there()).collect())
    }

    /// 12 of 3.12.
    pub fn minor(self) -> u8 {
        self.0
    }

    /// The interpreter of its environment.
    pub fn program(self) -> PathBuf {
        self.environment().join("bin/python")
    }

    /// What the file names of its extension modules end in.
    pub fn extension_suffix(self) -> Result<String> {
        let line = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))";
        let answer = command(self.program()).args(["-c", line]).output().context("cannot start Python")?;
        Ok(String::from_utf8(answer.stdout)?.trim().to_owned())
    }

    /// Makes its environment, unless it is there and has what `requirements.txt` lists.
    pub fn set_up(self) -> Result<()> {
        if self != FIRST {
            FIRST.set_up()?;
        }
        let wanted = fs::read_to_string(root().join("requirements.txt")).context("requirements.txt")?;
        let stamp = self.environment().join("flambeau-requirements.txt");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        self.make()?;
        if self == FIRST {
            self.install(&["-r", "requirements.txt"])?;
        } else {
            self.borrow_packages()?;
        }
        fs::write(stamp, wanted).context("cannot note what was installed")
    }

    /// Makes its environment, without packages, unless it is there: builds ask its interpreter.
    pub fn make(self) -> Result<()> {
        if self.program().exists() {
            return Ok(());
        }
        Step::new("Python environment").run(command(self.find()?).args(["-m", "venv"]).arg(self.environment()))
    }

    /// Has `import flambeau` and the command `flambeau` in its environment mean the package in this folder (an editable
    /// install), unless they do.
    pub fn install_package(self) -> Result<()> {
        let wanted = fs::read_to_string(root().join("pyproject.toml")).context("pyproject.toml")?;
        let wanted = format!("{} {}\n{wanted}", root().display(), env!("CARGO_PKG_VERSION"));
        let stamp = self.environment().join("flambeau-package.txt");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let editable = ["--no-deps", "--no-build-isolation", "--editable", "."];
        Step::new("Python package").run(self.pip().args(editable))?;
        fs::write(stamp, wanted).context("cannot note what was installed")
    }

    /// Whether the machine has such an interpreter, or an environment was made with one.
    pub fn is_there(self) -> bool {
        self.interpreter().is_ok()
    }

    /// The interpreter of its environment, else another one of this version.
    pub fn interpreter(self) -> Result<PathBuf> {
        let own = self.program();
        if own.exists() { Ok(own) } else { self.find() }
    }

    fn environment(self) -> PathBuf {
        root().join(if self == FIRST { ".venv".to_owned() } else { format!(".venv-{self}") })
    }

    fn packages(self) -> PathBuf {
        self.environment().join(format!("lib/python{self}/site-packages"))
    }

    fn install(self, what: &[&str]) -> Result<()> {
        Step::new("Python packages (torch is large: a minute or more)").run(self.pip().args(what))
    }

    fn pip(self) -> Command {
        let mut pip = command(self.program());
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-q"]);
        pip
    }

    /// Installs what is built for one version of Python and links to all else of the first environment. A folder of its
    /// own for each package, since torch looks for libraries beside itself.
    fn borrow_packages(self) -> Result<()> {
        // Through a link, pip would change the first environment.
        for entry in fs::read_dir(self.packages())? {
            let path = entry?.path();
            if path.is_symlink() {
                fs::remove_file(path)?;
            }
        }
        let (mut own, mut left_out) = (vec!["--no-deps".to_owned()], HashSet::new());
        for package in FIRST.installed()? {
            if LEFT_OUT.contains(&&*package.name) {
                left_out.extend(package.files.iter().filter_map(|file| file.split('/').next().map(str::to_owned)));
            } else if package.files.iter().any(|file| file.contains(&FIRST.binary_mark())) {
                own.push(format!("{}=={}", package.name, package.version));
            }
        }
        self.install(&own.iter().map(String::as_str).collect::<Vec<_>>())?;
        for entry in fs::read_dir(FIRST.packages().canonicalize()?)? {
            let entry = entry?;
            let (name, link) = (entry.file_name(), self.packages().join(entry.file_name()));
            let text = name.to_string_lossy();
            // This package is installed in each.
            let own = text.starts_with("flambeau-") || text == "__pycache__" || text.ends_with(".pth");
            if !own && !left_out.contains(&*text) && !link.exists() {
                std::os::unix::fs::symlink(entry.path(), link)?;
            }
        }
        Ok(())
    }

    /// What the name of a library has that is for this version only.
    fn binary_mark(self) -> String {
        format!(".cpython-{}-", self.to_string().replace('.', ""))
    }

    /// The packages that its environment has.
    fn installed(self) -> Result<Vec<Package>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.packages())? {
            let folder = entry?.path();
            let Some(stem) = folder.file_name().and_then(|n| n.to_str()?.strip_suffix(".dist-info")) else { continue };
            let (name, version) = stem.rsplit_once('-').context("a package's folder has no version")?;
            let record = fs::read_to_string(folder.join("RECORD")).unwrap_or_default();
            let files = record.lines().map(|line| line.split(',').next().unwrap_or_default().to_owned()).collect();
            found.push(Package { name: name.to_owned(), version: version.to_owned(), files });
        }
        Ok(found)
    }

    /// An interpreter of this version: by name, else one that pyenv holds.
    fn find(self) -> Result<PathBuf> {
        let name = format!("python{self}");
        let answers = |python: &Path| {
            let line = "import sys; print('%d.%d' % sys.version_info[:2])";
            let version = Command::new(python).args(["-c", line]).output();
            version.is_ok_and(|o| o.stdout.trim_ascii() == self.to_string().as_bytes())
        };
        let mut candidates: Vec<PathBuf> = vec![name.clone().into(), "python3".into()];
        if let Some(home) = std::env::var_os("HOME")
            && let Ok(versions) = fs::read_dir(Path::new(&home).join(".pyenv/versions"))
        {
            candidates.extend(versions.flatten().map(|v| v.path().join("bin").join(&name)));
        }
        candidates
            .into_iter()
            .find(|p| answers(p))
            .with_context(|| format!("Python {self} was not found: install it (apt-get install {name}-venv)"))
    }
}

/// As in `python3.11`.
impl Display for Python {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "3.{}", self.0)
    }
}

impl FromStr for Python {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Python> {
        let all = Python::all()?;
        let known = || all.iter().map(Python::to_string).collect::<Vec<_>>().join(", ");
        all.iter()
            .copied()
            .find(|p| p.to_string() == name)
            .with_context(|| format!("flambeau is for Python {}", known()))
    }
}

/// An installed package, as its `RECORD` says.
struct Package {
    name: String,
    version: String,
    files: Vec<String>,
}
