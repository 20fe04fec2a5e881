//! Checks on the project itself: crate edges against ARCHITECTURE.md, file headers, file sizes, generated pages.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest file allowed outside `tests`, in lines.
const MAX_LINES: usize = 800;

/// Longest function, in lines.
const MAX_FUNCTION: usize = 80;

/// Stands above a function that is one table, and may be longer.
const IS_TABLE: &str = "// A table.";

/// Most Rust files side by side in a source folder of a crate.
const MAX_FILES: usize = 15;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// A table of ARCHITECTURE.md by its head: the names in backquotes of each row's two cells.
fn table(head: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows = page.lines().skip_while(|l| !l.starts_with(head)).skip(2).take_while(|l| l.starts_with('|'));
    rows.map(|row| row.split('|').collect::<Vec<_>>()).map(|cells| (names(cells[1]), names(cells[2]))).collect()
}

/// The table "Who may depend on whom": crate → allowed crates.
fn allowed_edges() -> BTreeMap<String, BTreeSet<String>> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (crates, allowed) in table("| crate | may depend on |") {
        edges.extend(crates.into_iter().map(|krate| (krate, allowed.iter().cloned().collect())));
    }
    let daemon = ["ir", "core", "bytecode", "ops", "capture", "trace", "guard", "derive", "lower", "codegen"];
    let server = edges.get_mut("flambeau-server").expect("the server has a row");
    server.extend(daemon.iter().map(|n| format!("flambeau-{n}")));
    edges
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let allowed = allowed_edges();
    let mut wrong = Vec::new();
    for package in metadata()["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        let of_ours = package["dependencies"].as_array().expect("dependencies").iter();
        for dependency in of_ours.filter(|d| !d["path"].is_null() && d["kind"].is_null()) {
            let to = dependency["name"].as_str().expect("name");
            if !allowed.get(name).is_some_and(|edges| edges.contains(to)) {
                wrong.push(format!("{name} -> {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "edges that ARCHITECTURE.md does not allow: {wrong:?}");
}

/// The table of floors: source folder → its folders, from the lowest.
fn floors() -> BTreeMap<String, Vec<String>> {
    let rows = table("| source | folders, from the lowest |").into_iter();
    rows.map(|(mut source, folders)| (source.remove(0), folders)).collect()
}

#[test]
fn no_file_uses_a_folder_above_its_own() {
    let floors = floors();
    assert!(!floors.is_empty(), "ARCHITECTURE.md has no table of floors");
    for (source, folders) in floors {
        let floor = |name: &str| folders.iter().position(|folder| folder == name);
        let files = sources(&["rs"]).into_iter().filter(|f| f.starts_with(&source));
        let mut wrong = Vec::new();
        for file in files {
            let text = read(&file);
            let inside = file.strip_prefix(&source).expect("the file is below it");
            let Some(own) = inside.parent().and_then(|p| p.iter().next()).map(|p| p.to_string_lossy().into_owned())
            else {
                continue;
            };
            let Some(own) = floor(&own) else {
                wrong.push(format!("{}: its folder is not in the table", file.display()));
                continue;
            };
            assert!(!text.contains("crate::{"), "{}: one `use` for each folder, please", file.display());
            for used in text
                .split("crate::")
                .skip(1)
                .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            {
                if floor(used).is_some_and(|floor| floor > own) {
                    wrong.push(format!("{} uses {used}", file.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "{source}: {wrong:#?}");
    }
}

/// The table `tests/rooms.txt`: folder or file → paths of its tests. A name for several tests, like `=python`, is a line as
/// others are, and a word of others.
fn rooms() -> BTreeMap<String, Vec<String>> {
    let path = |word: &str| match word.strip_suffix('/') {
        Some(folder) => format!("tests/{folder}"),
        None if word.starts_with('=') => word.to_owned(),
        None => format!("tests/e2e/test_{word}.py"),
    };
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in read(Path::new("tests/rooms.txt")).lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if let Some(room) = words.next() {
            rooms.entry(room.to_owned()).or_default().extend(words.map(path));
        }
    }
    rooms
}

#[test]
fn each_room_of_the_source_names_its_tests() {
    let rooms = rooms();
    let mut wrong = Vec::new();
    for (room, tests) in &rooms {
        let is_there = |path: &String| rooms.contains_key(path) && path.starts_with('=') || root().join(path).exists();
        let missing = std::iter::once(room).chain(tests).filter(|path| !is_there(path));
        wrong.extend(missing.map(|path| format!("{room}: there is no {path}")));
        if tests.is_empty() {
            wrong.push(format!("{room} has no tests"));
        }
    }
    let folders =
        floors().into_iter().flat_map(|(source, folders)| folders.into_iter().map(move |f| format!("{source}/{f}")));
    wrong.extend(folders.filter(|folder| !rooms.contains_key(folder)).map(|folder| format!("{folder} has no line")));
    for file in sources(&["rs", "py"]) {
        let product = ["abi", "daemon", "plugins", "shim", "storage"].iter().any(|folder| file.starts_with(folder));
        if product && !rooms.keys().any(|room| file.starts_with(room)) {
            wrong.push(format!("{} is in no line", file.display()));
        }
        let name = file.to_string_lossy();
        if name.starts_with("tests/e2e/test_") && !rooms.values().flatten().any(|test| *test == name) {
            wrong.push(format!("no line names {name}"));
        }
    }
    assert!(wrong.is_empty(), "tests/rooms.txt: {wrong:#?}");
}

#[test]
fn contracts_are_below_the_daemon() {
    let mut wrong = Vec::new();
    for package in metadata()["packages"].as_array().expect("packages") {
        let manifest = package["manifest_path"].as_str().expect("a path");
        if !(manifest.contains("/abi/") || manifest.contains("/shim/")) {
            continue;
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if dependency["path"].as_str().is_some_and(|path| path.contains("/daemon/")) {
                wrong.push(format!("{} -> {}", package["name"], dependency["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "what both sides of the socket use depends on the daemon: {wrong:?}");
}

#[test]
fn special_libraries_stay_in_their_crate() {
    let homes = [
        ("actix", "flambeau-server"),
        ("sled", "flambeau-storage"),
        ("landlock", "flambeau-codegen"),
        ("pyo3", "flambeau-shim"),
        ("inkwell", "flambeau-cpu-compile"),
        ("ocl-core", "flambeau-opencl-device"),
    ];
    for package in metadata()["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            for (library, home) in homes {
                assert!(dependency["name"] != library || name == home, "{name} uses {library}, which only {home} may");
            }
        }
    }
}

#[test]
fn libraries_that_are_opened_by_name_are_opened_in_one_crate() {
    for (library, home) in [("libcuda.so", "plugins/cuda/launch"), ("libnvrtc", "plugins/cuda/compile")] {
        let outside = sources(&["rs"]).into_iter().filter(|f| !f.starts_with(home) && !f.starts_with("tests"));
        let naming: Vec<PathBuf> = outside.filter(|f| read(f).contains(library)).collect();
        assert!(naming.is_empty(), "{library} is named outside of {home}: {naming:?}");
    }
}

#[test]
fn no_cell_of_the_shim_lets_other_threads_run() {
    // The first use of one of pyo3's gives the GIL away: what was read of Python's objects before may be gone behind it.
    let of_shim = sources(&["rs"]).into_iter().filter(|f| f.starts_with("shim/src"));
    let cells = ["PyOnceLock", "pyo3::intern!", "GILOnceCell"];
    let using: Vec<PathBuf> = of_shim.filter(|f| cells.iter().any(|cell| read(f).contains(cell))).collect();
    assert!(using.is_empty(), "`GilOnce` and `interned!` are there for this: {using:?}");
}

/// A tracked file; nothing of one that was deleted.
fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// All tracked source files with one of the endings.
fn sources(endings: &[&str]) -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().expect("git runs");
    let listing = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let files: Vec<PathBuf> = listing.lines().map(PathBuf::from).collect();
    assert!(!files.is_empty(), "git lists no files");
    files.into_iter().filter(|f| f.extension().is_some_and(|e| endings.iter().any(|w| e == *w))).collect()
}

#[test]
fn every_source_file_says_what_lives_in_it() {
    let mut silent = Vec::new();
    for file in sources(&["rs", "py"]) {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let mut lines = text.lines().filter(|l| !l.starts_with("#!"));
        let first = lines.next().unwrap_or_default();
        if !(first.starts_with("//!") || first.starts_with("\"\"\"") || first.starts_with("r\"\"\"")) {
            silent.push(file);
        }
    }
    assert!(silent.is_empty(), "files without a header: {silent:?}");
}

#[test]
fn no_file_outgrows_its_room() {
    let mut long = Vec::new();
    for file in sources(&["rs", "py"]).into_iter().filter(|f| !f.starts_with("tests")) {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let lines = text.lines().count();
        if lines > MAX_LINES {
            long.push(format!("{} has {lines} lines", file.display()));
        }
    }
    assert!(long.is_empty(), "{long:?}");
}

/// Functions of formatted source text: name, line it begins on, and number of lines. They end where something stands no deeper
/// than they do: in Rust that is their last line.
fn functions<'a>(text: &'a str, keyword: &str) -> Vec<(&'a str, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words = line.split_once(keyword).filter(|(before, _)| {
            before.trim().split(' ').all(|word| {
                word.is_empty()
                    || word.starts_with("pub")
                    || ["const", "unsafe", "async", "extern", "\"C\""].contains(&word)
            })
        });
        let Some((_, rest)) = words else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let inside = |l: &&&str| l.is_empty() || depth(l) > depth(line) || l.trim_start().starts_with([')', '{', '#']);
        let length = 1 + lines[at + 1..].iter().take_while(inside).count();
        let blank = lines[at..at + length].iter().rev().take_while(|l| l.is_empty()).count();
        found.push((name, at, length - blank + usize::from(keyword == "fn ")));
    }
    found
}

#[test]
fn no_function_is_too_long() {
    let mut long = Vec::new();
    for file in sources(&["rs", "py"]).into_iter().filter(|f| !f.starts_with("tests")) {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let keyword = if file.extension().is_some_and(|e| e == "rs") { "fn " } else { "def " };
        let marked = |at: usize| text.lines().nth(at.saturating_sub(1)).is_some_and(|l| l.trim().starts_with(IS_TABLE));
        let found =
            functions(&text, keyword).into_iter().filter(|(_, at, length)| *length > MAX_FUNCTION && !marked(*at));
        long.extend(found.map(|(name, _, length)| format!("{} {name} has {length} lines", file.display())));
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn lengths_of_functions_are_counted_to_their_end() {
    assert_eq!(
        functions("fn a() {\n    b();\n}\n\nfn c(\n    d: u8,\n) {\n    e();\n}\n", "fn "),
        [("a", 0, 3), ("c", 4, 5)]
    );
    assert_eq!(functions("def a(\n    b,\n):\n    c\n\n\ndef d():\n    e\n", "def "), [("a", 0, 4), ("d", 6, 2)]);
}

#[test]
fn no_folder_is_too_full() {
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in sources(&["rs"]).into_iter().filter(|f| f.iter().any(|part| part == "src") && root().join(f).exists()) {
        *counts.entry(file.parent().map(Path::to_path_buf).unwrap_or_default()).or_default() += 1;
    }
    counts.retain(|_, count| *count > MAX_FILES);
    assert!(counts.is_empty(), "folders with more than {MAX_FILES} files: {counts:?}");
}

#[test]
fn generated_pages_are_what_the_code_says() {
    let pages = [
        ("breaks.md", flambeau_ir::text::reasons_page()),
        ("opcodes.md", flambeau_trace::opcodes::page::opcodes_page()),
    ];
    for (name, now) in pages {
        let path = root().join("docs").join(name);
        if std::env::var_os("BLESS").is_some() {
            fs::create_dir_all(root().join("docs")).expect("docs can be made");
            fs::write(&path, &now).expect("the page can be written");
        }
        let page = fs::read_to_string(path).unwrap_or_default();
        assert!(page == now, "docs/{name} is stale: run `cargo xtask docs`");
    }
}
