//! The worker pool against a plug-in that aborts, hangs and panics. Run with an argument, this binary is the worker.

use flambeau_codegen::{Codegen, CodegenError, CodegenOptions, worker_main};
use flambeau_plugin::kernel::{Extent, Kernel};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, plugin] = arguments.as_slice()
        && command == "worker"
    {
        worker_main(Path::new(plugin)).expect("serves");
        return;
    }
    let executable = std::env::current_exe().expect("has a path");
    let plugins = executable.ancestors().nth(2).expect("in target/<profile>/deps").join("examples");
    for (name, test) in [
        ("describes", describes as fn(&Path)),
        ("compiles in order, equal kernels once", compiles_in_order),
        ("faults are errors and the next compile works", faults),
        ("a hanging kernel is killed", hangs),
        ("a missing plug-in and a broken one are sentences", missing),
    ] {
        print!("test {name} ... ");
        test(&plugins);
        println!("ok");
    }
}

fn codegen(plugins: &Path, timeout: Duration) -> Codegen {
    let command = vec![std::env::current_exe().expect("has a path").into(), "worker".into()];
    Codegen::new(CodegenOptions { command, plugin_dirs: vec![plugins.to_owned()], workers: 2, timeout })
}

fn kernel(name: &str, extent: i64) -> Kernel {
    Kernel {
        name: name.to_owned(),
        params: Vec::new(),
        scalars: 0,
        dims: vec![Extent::Const(extent)],
        outer: 0,
        stages: Vec::new(),
    }
}

const LONG: Duration = Duration::from_secs(30);

fn describes(plugins: &Path) {
    let codegen = codegen(plugins, LONG);
    codegen.prewarm("faulty").unwrap();
    let described = codegen.describe("faulty").unwrap();
    assert_eq!((described.name.as_str(), described.targets.as_slice()), ("faulty", &["any".to_owned()][..]));
    assert_ne!(codegen.build("faulty").unwrap(), [0; 32]);
}

fn compiles_in_order(plugins: &Path) {
    let kernels: Vec<Kernel> = (0..40).map(|i| kernel(&format!("k{i}"), i % 20)).collect();
    let artifacts = codegen(plugins, LONG).compile("faulty", &kernels, "any").unwrap();
    for (i, artifact) in artifacts.iter().enumerate() {
        assert_eq!(&artifact.bytes[..], format!("k{}", i % 20).as_bytes());
        assert_eq!(artifact.hash, *blake3::hash(&artifact.bytes).as_bytes());
    }
}

fn faults(plugins: &Path) {
    let codegen = codegen(plugins, LONG);
    let compile = |name: &str| codegen.compile("faulty", &[kernel("fine", 1), kernel(name, 2)], "any");
    let poisoned = |how: &str| CodegenError::Poisoned {
        kernel: "abort".to_owned(),
        backend: "faulty".to_owned(),
        how: how.to_owned(),
    };
    for _ in 0..2 {
        assert_eq!(compile("abort").unwrap_err(), poisoned("ended by signal 6"));
        assert!(matches!(compile("refuse").unwrap_err(), CodegenError::Refused { .. }));
        let panicked = compile("panic").unwrap_err().to_string();
        assert!(panicked.contains("panicked: as asked"), "{panicked}");
        assert_eq!(&compile("chatter").unwrap()[1].bytes[..], b"chatter");
    }
}

fn hangs(plugins: &Path) {
    let codegen = codegen(plugins, Duration::from_millis(500));
    let kernels: Vec<Kernel> = (0..30).map(|i| kernel("hang", i)).collect();
    for kernels in [&kernels[..], &[kernel("fine", 1)]] {
        let error = codegen.compile("faulty", kernels, "any").unwrap_err();
        assert!(matches!(&error, CodegenError::Hung { backend, .. } if backend == "faulty"), "{error}");
    }
}

fn missing(plugins: &Path) {
    let error = codegen(plugins, LONG).compile("nowhere", &[kernel("k", 1)], "any").unwrap_err();
    assert!(matches!(error, CodegenError::NoBackend { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("libflambeau_garbage_compile.so"), b"garbage").unwrap();
    let broken = codegen(dir.path(), LONG);
    let error = broken.describe("garbage").unwrap_err();
    assert!(matches!(error, CodegenError::Unavailable(_)), "{error}");
    let error = broken.compile("garbage", &[kernel("k", 1)], "any").unwrap_err().to_string();
    assert!(error.contains("is no shared library"), "{error}");
    let options = CodegenOptions {
        command: vec![PathBuf::from("/nonexistent/flambeaud").into()],
        plugin_dirs: vec![plugins.to_owned()],
        workers: 2,
        timeout: LONG,
    };
    let error = Codegen::new(options).compile("faulty", &[kernel("k", 1)], "any").unwrap_err().to_string();
    assert!(error.contains("cannot be started"), "{error}");
}
