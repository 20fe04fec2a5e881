//! Finding plug-ins: pairs of `libflambeau_<name>_compile.so` and `libflambeau_<name>_launch.so` in directories.

use flambeau_wire::registry::Plugin;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The two files of a back end.
#[derive(Clone, Debug)]
pub struct BackendFiles {
    /// Name in the file names.
    pub name: String,
    /// Opened by workers.
    pub compile: PathBuf,
    /// Opened by clients; beside the compile half. `None`: only the compile half is there.
    pub launch: Option<PathBuf>,
    build: Arc<OnceLock<[u8; 32]>>,
}

impl BackendFiles {
    /// blake3 of the compile half; the file is read once.
    pub fn build(&self) -> io::Result<[u8; 32]> {
        if let Some(hash) = self.build.get() {
            return Ok(*hash);
        }
        // A FIFO in its place has nobody at its other end.
        let file = File::from(rustix::fs::open(
            &self.compile,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{} is no regular file", self.compile.display())));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        let hash = *hasher.finalize().as_bytes();
        Ok(*self.build.get_or_init(|| hash))
    }
}

/// All back ends with a compile half in `dirs`, by name. Earlier directories win; unreadable ones are skipped.
pub fn discover(dirs: &[PathBuf]) -> Vec<BackendFiles> {
    let mut found: BTreeMap<String, BackendFiles> = BTreeMap::new();
    for dir in dirs {
        for name in names_in(dir) {
            let plugin = Plugin { name: name.clone(), folder: dir.clone() };
            let (compile, launch) = (plugin.compile_half(), Some(plugin.launch_half()).filter(|p| p.is_file()));
            found.entry(name.clone()).or_insert(BackendFiles { name, compile, launch, build: Arc::default() });
        }
    }
    found.into_values().collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let plugins = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        Plugin::of_file(&path).filter(|plugin| plugin.compile_half() == path)
    });
    let mut names: Vec<String> = plugins.map(|plugin| plugin.name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_directories_win_and_other_files_are_ignored() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, file) in [
            (&first, "libflambeau_cpu_compile.so"),
            (&first, "libother.so"),
            (&second, "libflambeau_cpu_compile.so"),
            (&second, "libflambeau_cpu_launch.so"),
            (&second, "libflambeau_cuda_compile.so"),
            (&second, "libflambeau_cuda_launch.so"),
        ] {
            std::fs::write(dir.path().join(file), file).unwrap();
        }
        let dirs = [first.path().to_owned(), PathBuf::from("/nonexistent"), second.path().to_owned()];
        let found = discover(&dirs);
        let names: Vec<&str> = found.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["cpu", "cuda"]);
        assert_eq!(found[0].compile.parent(), Some(first.path()));
        assert_eq!(found[0].launch, None);
        assert!(found[1].launch.is_some());
        assert_eq!(found[1].build().unwrap(), *blake3::hash(b"libflambeau_cuda_compile.so").as_bytes());
    }
}
