//! The worker pool against a plug-in that aborts, hangs and panics. Run with an argument, this binary is the worker.

use flambeau_codegen::{Codegen, CodegenError, CodegenOptions, Confined, Libraries, worker_main};
use flambeau_plugin::kernel::{Access, DType, Extent, Inst, Kernel, Op, Param, Role, Scope, Stage, Store, ValueId};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
        ("what lacks a library is asked again once there is another folder", lacks_a_library),
        ("a worker writes to its own folder only, reads what it needs, and reaches nobody", confined),
        ("CUDA's code generator compiles with the NVRTC that lies beside torch", nvrtc_beside_torch),
    ] {
        print!("test {name} ... ");
        test(&plugins);
        println!("ok");
    }
}

fn codegen(plugins: &Path, timeout: Duration) -> Codegen {
    Codegen::new(options(plugins, timeout))
}

fn options(plugins: &Path, timeout: Duration) -> CodegenOptions {
    let command = vec![std::env::current_exe().expect("has a path").into(), "worker".into()];
    let plugin_dirs = vec![plugins.to_owned()];
    CodegenOptions { command, plugin_dirs, workers: 2, timeout, libraries: Arc::default() }
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
    let options =
        CodegenOptions { command: vec![PathBuf::from("/nonexistent/flambeaud").into()], ..options(plugins, LONG) };
    let error = Codegen::new(options).compile("faulty", &[kernel("k", 1)], "any").unwrap_err().to_string();
    assert!(error.contains("cannot be started"), "{error}");
}

fn lacks_a_library(plugins: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let half = |name: &str| format!("libflambeau_{name}_compile.so");
    std::fs::copy(plugins.join(half("faulty")), dir.path().join(half("needy"))).unwrap();
    let libraries = Arc::new(Libraries::default());
    let codegen = Codegen::new(CodegenOptions { libraries: libraries.clone(), ..options(dir.path(), LONG) });
    codegen.prewarm("needy").unwrap();
    let lacks = |error: CodegenError| assert!(error.to_string().ends_with("there is no libneeded.so"), "{error}");
    lacks(codegen.describe("needy").unwrap_err());
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    for folder in [&with, &without] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(with.join("libneeded.so"), b"").unwrap();
    libraries.hear_of(std::slice::from_ref(&without));
    lacks(codegen.compile("needy", &[kernel("k", 1)], "any").unwrap_err());
    libraries.hear_of(&[with]);
    // Two workers, each of which was started without it.
    let kernels: Vec<Kernel> = (0..20).map(|i| kernel(&format!("k{i}"), i)).collect();
    assert_eq!(codegen.compile("needy", &kernels, "any").unwrap().len(), 20);
    assert_eq!(codegen.describe("needy").unwrap().name, "needy");
}

fn confined(plugins: &Path) {
    let codegen = codegen(plugins, LONG);
    match codegen.describe("faulty").unwrap().confined {
        Confined::Wholly => {}
        other => return print!("skipped, this kernel confines nobody: {other:?} ... "),
    }
    let tried = |what: String| {
        let artifacts = codegen.compile("faulty", &[kernel(&what, 3)], "any").unwrap();
        String::from_utf8(artifacts[0].bytes.to_vec()).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let (file, secret) = (dir.path().join("file"), dir.path().join("secret"));
    std::fs::write(&secret, "secret").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    for denied in [
        format!("write {}", file.display()),
        format!("write_on_thread {}", file.display()),
        format!("read {}", secret.display()),
        format!("run {}", std::env::current_exe().unwrap().display()),
        format!("connect {}", server.local_addr().unwrap()),
        format!("signal {}", std::process::id()),
        "write /dev/shm/flambeau-test".to_owned(),
    ] {
        assert_eq!(tried(denied.clone()), "permission denied", "{denied}");
    }
    assert!(!file.exists());
    for allowed in
        ["write_temporary file", "move_temporary file", "read /etc/passwd", "run /bin/true", "write /dev/null"]
    {
        assert_eq!(tried(allowed.to_owned()), "done", "{allowed}");
    }
}

/// With what `cargo xtask develop` laid out and set up.
fn nvrtc_beside_torch(_: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let packages = below(root.join(".venv/lib")).flat_map(|python| below(python.join("site-packages/nvidia")));
    let libraries = Arc::new(Libraries::default());
    libraries.hear_of(&packages.map(|package| package.join("lib")).collect::<Vec<_>>());
    let plugins = root.join("shim/python/flambeau/_plugins");
    let codegen = Codegen::new(CodegenOptions { libraries, ..options(&plugins, LONG) });
    let targets = codegen.describe("cuda").unwrap().targets;
    let one = |value| Inst { id: ValueId(0), dtype: DType::F32, op: Op::Const(u64::from(f32::to_bits(value))) };
    let access = Access { param: 0, offset: Extent::Const(0), strides: vec![Extent::Const(1)] };
    let stores = vec![Store { access, value: ValueId(0) }];
    let kernel = Kernel {
        params: vec![Param { dtype: DType::F32, role: Role::Out }],
        stages: vec![Stage { scope: Scope::Row, insts: vec![one(1.0)], stores, reduces: vec![] }],
        ..kernel("ones", 64)
    };
    let artifacts = codegen.compile("cuda", &[kernel], targets.last().unwrap()).unwrap();
    assert!(artifacts[0].bytes.windows(4).any(|bytes| bytes == b"\x7fELF"), "no cubin");
}
