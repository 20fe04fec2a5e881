//! Which back ends the user has and prefers. One file in the user's folder is the only record: `flambeau backend` replaces it
//! as a whole, daemons and clients read it. Here are its form and the order in which back ends are looked for; what writes
//! it is in `daemon/server`.
//!
//! ```text
//! backends/chosen.json             {"default": "opencl", "added": {"opencl": "0f3a…"}}
//! backends/opencl/0f3a…/           the two files of a build that was added; the folder is named by their hash
//! ```

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The back end of users who chose none.
pub const FIRST: &str = "cpu";

/// The record, in [`folder`].
pub const FILE: &str = "chosen.json";

/// Largest record. Unit: bytes.
const LARGEST: u64 = 1 << 20;

const PREFIX: &str = "libflambeau_";
const COMPILE: &str = "_compile.so";
const LAUNCH: &str = "_launch.so";

/// A build of a back end: its name, and the folder that its two files are in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Plugin {
    /// As in the names of the files.
    pub name: String,
    /// Absolute.
    pub folder: PathBuf,
}

impl Plugin {
    /// The half that workers open.
    pub fn compile_half(&self) -> PathBuf {
        self.folder.join(format!("{PREFIX}{}{COMPILE}", self.name))
    }

    /// The half that clients open.
    pub fn launch_half(&self) -> PathBuf {
        self.folder.join(format!("{PREFIX}{}{LAUNCH}", self.name))
    }

    /// The plug-in that a file is a half of, by its name.
    pub fn of_file(path: &Path) -> Option<Plugin> {
        let rest = path.file_name().and_then(OsStr::to_str)?.strip_prefix(PREFIX)?;
        let name = rest.strip_suffix(COMPILE).or_else(|| rest.strip_suffix(LAUNCH)).filter(|name| is_plain(name))?;
        Some(Plugin { name: name.to_owned(), folder: path.parent()?.to_owned() })
    }
}

/// Names of back ends and of builds: they become names of folders.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What the user chose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The back end of programs that name none; [`FIRST`] where it is missing.
    #[serde(default)]
    pub default: Option<String>,
    /// The builds that were added, by the names of their back ends.
    #[serde(default)]
    pub added: BTreeMap<String, String>,
}

impl Chosen {
    /// The name of the default.
    pub fn default_name(&self) -> &str {
        self.default.as_deref().unwrap_or(FIRST)
    }
}

/// Why the record cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Somebody else could put code there.
    #[error("{0} can be written to by others, or is not yours; take it over with chown and chmod 700")]
    Unsafe(PathBuf),
    /// It cannot be read.
    #[error("{0} cannot be read ({1}); see who owns it and who may read it")]
    Unreadable(PathBuf, io::Error),
    /// It is not of its form.
    #[error("{0} is damaged ({1}); delete it, then choose and add back ends again")]
    Damaged(PathBuf, String),
}

/// Where the record and the builds are.
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("backends")
}

/// Where an added build is.
pub fn build_folder(data_dir: &Path, name: &str, build: &str) -> PathBuf {
    folder(data_dir).join(name).join(build)
}

/// The user's choice; that of a user who chose nothing where there is no record.
pub fn read(data_dir: &Path) -> Result<Chosen, RegistryError> {
    let folder = folder(data_dir);
    let path = folder.join(FILE);
    let text = match read_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Chosen::default()),
        read => read.map_err(|error| RegistryError::Unreadable(path.clone(), error))?,
    };
    let meta = fs::metadata(&folder).map_err(|error| RegistryError::Unreadable(folder.clone(), error))?;
    if meta.uid() != rustix::process::getuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(RegistryError::Unsafe(folder));
    }
    let chosen: Chosen =
        serde_json::from_str(&text).map_err(|error| RegistryError::Damaged(path.clone(), error.to_string()))?;
    let names = chosen.added.iter().flat_map(|(name, build)| [name, build]).chain(&chosen.default);
    let odd: Vec<String> = names.filter(|name| !is_plain(name)).cloned().collect();
    match &odd[..] {
        [] => Ok(chosen),
        [name, ..] => Err(RegistryError::Damaged(path, format!("{name:?} is no name"))),
    }
}

/// Reads a regular file of at most [`LARGEST`] bytes; does not wait for who writes a FIFO.
fn read_file(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(io::Error::other("it is no regular file of a usual size"));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// Tells one record from the next: each is a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(Option<(u64, i64, i64, u64)>);

/// The stamp of the record of now.
pub fn stamp(data_dir: &Path) -> Stamp {
    let meta = fs::metadata(folder(data_dir).join(FILE));
    Stamp(meta.ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec(), m.len())))
}

/// How a back end came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a folder of the plug-in path (`FLAMBEAU_PLUGIN_PATH`).
    Path,
    /// By `flambeau backend add` or `upgrade`.
    Added,
    /// With flambeau.
    Shipped,
}

/// Where back ends are looked for, first to last.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Folders that the program or its user named.
    pub plugin_path: &'a [PathBuf],
    /// The user's folder.
    pub data_dir: &'a Path,
    /// The user's choice.
    pub chosen: &'a Chosen,
    /// Folders that flambeau brought.
    pub shipped: &'a [PathBuf],
}

impl Places<'_> {
    /// The build of a back end that is used: the first folder that has one of its halves.
    pub fn find(&self, name: &str) -> Option<(Plugin, Origin)> {
        self.builds(name).into_iter().next()
    }

    /// All builds of a back end; the first is used.
    pub fn builds(&self, name: &str) -> Vec<(Plugin, Origin)> {
        let added = self.chosen.added.get(name).map(|build| build_folder(self.data_dir, name, build));
        let path = self.plugin_path.iter().cloned().map(|folder| (folder, Origin::Path));
        let shipped = self.shipped.iter().cloned().map(|folder| (folder, Origin::Shipped));
        let places = path.chain(added.map(|folder| (folder, Origin::Added))).chain(shipped);
        let plugins = places.map(|(folder, origin)| (Plugin { name: name.to_owned(), folder }, origin));
        // What was added is used, or missed, as such: a build that vanished is no reason to run another one.
        plugins
            .filter(|(p, origin)| *origin == Origin::Added || p.compile_half().is_file() || p.launch_half().is_file())
            .collect()
    }

    /// The names of all back ends, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.chosen.added.keys().cloned().collect();
        for folder in self.plugin_path.iter().chain(self.shipped) {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            names.extend(files.filter_map(|file| Plugin::of_file(&file.path())).map(|plugin| plugin.name));
        }
        names.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn touch(folder: &Path, name: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), name).unwrap();
    }

    #[test]
    fn the_plug_in_path_goes_first_then_what_was_added_then_what_was_shipped() {
        let dir = tempfile::tempdir().unwrap();
        let [path, data_dir, shipped] = ["path", "data", "shipped"].map(|name| dir.path().join(name));
        touch(&path, "libflambeau_one_launch.so");
        touch(&shipped, "libflambeau_one_compile.so");
        touch(&shipped, "libflambeau_two_compile.so");
        touch(&shipped, "libflambeau_three_compile.so");
        touch(&shipped, "libother_compile.so");
        let added = ["one", "two"].map(|name| (name.to_owned(), "b1".to_owned())).into();
        let chosen = Chosen { default: None, added };
        let places = Places { plugin_path: &[path], data_dir: &data_dir, chosen: &chosen, shipped: &[shipped] };
        assert_eq!(places.names(), ["one", "three", "two"]);
        let origins = |name| places.builds(name).iter().map(|(_, origin)| *origin).collect::<Vec<_>>();
        assert_eq!(origins("one"), [Origin::Path, Origin::Added, Origin::Shipped]);
        assert_eq!(origins("two"), [Origin::Added, Origin::Shipped]);
        assert_eq!(origins("three"), [Origin::Shipped]);
        assert_eq!(origins("four"), []);
        assert_eq!(places.find("two").unwrap().0.folder, data_dir.join("backends/two/b1"));
    }

    #[test]
    fn a_record_is_read_or_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        assert_eq!(read(dir.path()).unwrap(), Chosen::default());
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let before = stamp(dir.path());
        fs::write(folder.join(FILE), r#"{"default": "x", "added": {"x": "0a"}, "later": 1}"#).unwrap();
        assert_ne!(stamp(dir.path()), before);
        assert_eq!(read(dir.path()).unwrap().default_name(), "x");
        for damaged in ["", "{", r#"{"added": {"x": "../../y"}}"#, r#"{"default": "a/b"}"#] {
            fs::write(folder.join(FILE), damaged).unwrap();
            let error = read(dir.path()).unwrap_err();
            assert!(matches!(error, RegistryError::Damaged(..)) && error.to_string().lines().count() == 1, "{error}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read(dir.path()), Err(RegistryError::Unsafe(_))));
    }

    #[test]
    fn files_say_which_back_end_they_are_of() {
        let of = |path: &str| Plugin::of_file(Path::new(path)).map(|plugin| plugin.name);
        assert_eq!(of("/a/libflambeau_my_chip_launch.so").as_deref(), Some("my_chip"));
        assert_eq!(of("/a/libflambeau__compile.so"), None);
        assert_eq!(of("/a/cpu.so"), None);
    }
}
