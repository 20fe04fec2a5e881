//! Functions that look at the frame that calls them, its variables included.

/// One of them.
struct Reader {
    /// Its import path.
    path: &'static str,
    /// The name that code which calls it mentions; `None` where that says too little, or all of it is traced.
    name: Option<&'static str>,
    /// Whether it gives frames, so that whoever has one may look at any of them.
    gives_frames: bool,
}

const fn reader(path: &'static str, name: Option<&'static str>) -> Reader {
    Reader { path, name, gives_frames: false }
}

const fn gives_frames(path: &'static str, name: Option<&'static str>) -> Reader {
    Reader { path, name, gives_frames: true }
}

/// All of them.
const READERS: &[Reader] = &[
    reader("builtins.locals", Some("locals")),
    reader("builtins.vars", Some("vars")),
    reader("builtins.dir", Some("dir")),
    reader("builtins.eval", Some("eval")),
    reader("builtins.exec", Some("exec")),
    reader("builtins.super", None),
    gives_frames("builtins.breakpoint", Some("breakpoint")),
    gives_frames("sys._getframe", Some("_getframe")),
    gives_frames("sys._current_frames", Some("_current_frames")),
    reader("inspect.currentframe", Some("currentframe")),
    reader("inspect.stack", None),
    reader("traceback.StackSummary.extract", Some("StackSummary")),
];

/// Whether this function looks at its caller's frame.
pub fn reads_frame(path: &str) -> bool {
    READERS.iter().any(|reader| reader.path == path)
}

/// Whether this function gives frames of Python's stack.
pub fn gives_frame(path: &str) -> bool {
    READERS.iter().any(|reader| reader.gives_frames && reader.path == path)
}

/// Whether code with these names may call one.
pub(crate) fn mentioned(names: &[String]) -> bool {
    names.iter().any(|name| READERS.iter().any(|reader| reader.name == Some(name)))
}
