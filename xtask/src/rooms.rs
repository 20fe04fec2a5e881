//! The table `tests/rooms.txt`: which tests with a real daemon concern which folder of the source.

use crate::run::root;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the table is. `tests/tidy` checks that it is complete.
const TABLE: &str = "tests/rooms.txt";

/// Lines of the table: a folder or file, and the tests that concern it.
pub struct Rooms(Vec<(PathBuf, Vec<PathBuf>)>);

impl Rooms {
    /// Reads the table.
    pub fn read() -> Result<Rooms> {
        let text = fs::read_to_string(root().join(TABLE)).context(TABLE)?;
        let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            if let Some(first) = words.next() {
                lines.entry(first).or_default().extend(words);
            }
        }
        let rooms = lines.iter().filter(|(first, _)| !first.starts_with('='));
        let tests = |words: &[&str]| words.iter().flat_map(|word| meant(&lines, word)).map(test).collect();
        Ok(Rooms(rooms.map(|(room, words)| (PathBuf::from(room), tests(words))).collect()))
    }

    /// The line that says most exactly where a file is.
    fn line(&self, file: &Path) -> Option<&(PathBuf, Vec<PathBuf>)> {
        let above = self.0.iter().filter(|(room, _)| file.starts_with(room));
        above.max_by_key(|(room, _)| room.components().count())
    }

    /// The rooms that these files are in.
    pub fn of(&self, files: &[PathBuf]) -> BTreeSet<PathBuf> {
        files.iter().filter_map(|file| self.line(file)).map(|(room, _)| room.clone()).collect()
    }

    /// The tests that concern these files. One that was changed itself is among them.
    pub fn tests(&self, files: &[PathBuf]) -> BTreeSet<PathBuf> {
        let mapped = files.iter().filter_map(|file| self.line(file)).flat_map(|(_, tests)| tests.iter());
        let own = files.iter().filter(|file| is_test(file) && root().join(file).exists());
        mapped.chain(own).cloned().collect()
    }
}

/// What a word of the table stands for: `=python` for what its own line lists.
fn meant<'a>(lines: &'a BTreeMap<&str, Vec<&str>>, word: &'a str) -> Vec<&'a str> {
    match lines.get(word) {
        Some(listed) if word.starts_with('=') => listed.clone(),
        _ => vec![word],
    }
}

/// A word of the table: `breaks` is `tests/e2e/test_breaks.py`, `bytecode/` is `tests/bytecode`.
fn test(word: &str) -> PathBuf {
    match word.strip_suffix('/') {
        Some(folder) => Path::new("tests").join(folder),
        None => PathBuf::from(format!("tests/e2e/test_{word}.py")),
    }
}

fn is_test(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    file.starts_with("tests") && name.starts_with("test_") && name.ends_with(".py")
}
