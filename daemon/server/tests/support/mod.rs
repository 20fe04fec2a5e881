//! A daemon process and a minimal client, for tests. Each test binary uses a part of it.
#![allow(dead_code, reason = "shared by test binaries that each need a part")]

use flambeau_ir::code::{Code, CodeHash, Const};
use flambeau_ir::frame::{BackendKind, FrameId, TraceOptions};
use flambeau_ir::graph::{Arg, Effect, Graph, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::guard::Ambient;
use flambeau_ir::kernel::DType;
use flambeau_ir::object::{Described, FunctionDesc, ObjId, Object, ObjectData};
use flambeau_ir::source::SourceId;
use flambeau_ir::tensor::{Device, TensorMeta};
use flambeau_wire::from_client::{Admin, FrameKey, FromClient, Hello, KeyOptions, RequestId, Settings, Snapshot};
use flambeau_wire::from_daemon::FromDaemon;
use flambeau_wire::{PROTOCOL, endpoint, frame};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A daemon in the foreground, with a directory of its own.
pub struct Daemon {
    pub dir: PathBuf,
    pub child: Child,
}

impl Daemon {
    /// Starts one on `dir`, which may hold what another left.
    pub fn start(dir: &Path) -> Daemon {
        Daemon::start_with(dir, &[])
    }

    pub fn start_with(dir: &Path, args: &[&str]) -> Daemon {
        let child = Command::new(env!("CARGO_BIN_EXE_flambeaud"))
            .args(["serve", "--log-level", "debug"])
            .arg("--socket")
            .arg(socket(dir))
            .arg("--cache-dir")
            .arg(dir.join("cache"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap())
            .spawn()
            .unwrap();
        let daemon = Daemon { dir: dir.to_path_buf(), child };
        for _ in 0..1000 {
            // A child of one that was killed may hold its socket open for a moment.
            let listener = UnixStream::connect(socket(dir)).ok().and_then(|stream| socket_peercred(stream).ok());
            if listener.is_some_and(|of| of.pid == Pid::from_child(&daemon.child)) {
                return daemon;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the daemon does not listen: {}", daemon.log());
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop and waits for its end.
    pub fn stop(mut self) {
        let mut client = Client::connect(&self.dir);
        client.admin(Admin::Stop);
        assert!(self.child.wait().unwrap().success());
    }

    pub fn status(&self) -> serde_json::Value {
        Client::connect(&self.dir).admin(Admin::Status)
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][name].as_u64().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// One connection.
pub struct Client {
    pub stream: UnixStream,
    next: u64,
}

pub fn hello(dir: &Path) -> Hello {
    Hello {
        protocol: PROTOCOL,
        build: endpoint::BUILD.to_owned(),
        pid: std::process::id(),
        settings: Settings { cache_dir: dir.join("cache"), cache_size: 1 << 30, ..Settings::default() },
    }
}

impl Client {
    /// Connects without a greeting.
    pub fn raw(dir: &Path) -> Client {
        let stream = UnixStream::connect(socket(dir)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, next: 1 }
    }

    pub fn connect(dir: &Path) -> Client {
        Client::greet(dir, hello(dir))
    }

    pub fn greet(dir: &Path, hello: Hello) -> Client {
        let mut client = Client::raw(dir);
        client.send(&FromClient::Hello(hello));
        let reply = client.receive().unwrap();
        assert!(matches!(reply, FromDaemon::Welcome { .. }), "{reply:?}");
        client
    }

    pub fn request(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    pub fn send(&mut self, message: &FromClient) {
        self.stream.write_all(&frame::encode(message).unwrap()).unwrap();
    }

    pub fn receive(&mut self) -> std::io::Result<FromDaemon> {
        loop {
            let mut prefix = [0; frame::PREFIX];
            self.stream.read_exact(&mut prefix)?;
            let mut body = vec![0; frame::body_length(&prefix).unwrap()];
            self.stream.read_exact(&mut body)?;
            match frame::decode(&prefix, &body).unwrap() {
                FromDaemon::Progress { .. } => {}
                message => return Ok(message),
            }
        }
    }

    pub fn admin(&mut self, command: Admin) -> serde_json::Value {
        let request = self.request();
        self.send(&FromClient::Admin { request, command });
        match self.receive().unwrap() {
            FromDaemon::Report { json, .. } => serde_json::from_str(&json).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Number of stored frames, and why there are none.
    pub fn look_up(&mut self, key: &FrameKey) -> (usize, Option<String>) {
        let request = self.request();
        self.send(&FromClient::Lookup { request, key: key.clone(), plugin: None });
        match self.receive().unwrap() {
            FromDaemon::Candidates { request: of, frames, miss } if of == request => (frames.len(), miss),
            other => panic!("{other:?}"),
        }
    }

    /// Lowers the test graph under `key`.
    pub fn lower(&mut self, key: &FrameKey) -> FromDaemon {
        let request = self.request();
        let options = TraceOptions { backend: BackendKind::Eager, ..TraceOptions::default() };
        let named = |graph: &Graph| graph.content_hash() == key.frame.code;
        let graph = Box::new((0..=255).map(graph).find(named).unwrap());
        self.send(&FromClient::Lower { request, key: key.clone(), plugin: None, graph, options });
        self.receive().unwrap()
    }
}

pub fn key(code: u8) -> FrameKey {
    FrameKey {
        frame: FrameId { code: graph(code).content_hash(), path: vec![] },
        options: KeyOptions::of(&TraceOptions::default()),
        shape: [1; 32],
        python: "3.11.7".into(),
        torch: "2.15.0".into(),
        target: "cpu".into(),
    }
}

/// `x + number`.
pub fn graph(number: u8) -> Graph {
    let meta = ValueMeta::Tensor(TensorMeta::contiguous(DType::F32, Device::CPU, vec![8.into()]));
    let node = |name: &str, op| Node {
        name: name.into(),
        op,
        meta: meta.clone(),
        location: None,
        stack: vec![],
        effect: Effect::None,
        view: false,
        torchs: false,
        fresh: false,
        schema: None,
    };
    let call = NodeOp::Call {
        target: Target::Function("_operator.add".into()),
        args: vec![Arg::Node(NodeId(0)), Arg::Const(Const::Int(number.into()))],
        kwargs: vec![],
    };
    Graph {
        nodes: vec![node("x", NodeOp::Placeholder(SourceId(0))), node("add", call)],
        outputs: vec![NodeId(1)],
        ..Graph::default()
    }
}

/// A code object with this bytecode and one argument `x`.
pub fn code(number: u8, bytecode: &[u8], names: &[&str]) -> Code {
    let code = Code {
        hash: CodeHash([0; 32]),
        python: (3, 11),
        name: "f".into(),
        qualname: "f".into(),
        filename: "f.py".into(),
        firstlineno: number.into(),
        argcount: 1,
        posonlyargcount: 0,
        kwonlyargcount: 0,
        stacksize: 4,
        flags: 3,
        bytecode: bytecode.to_vec(),
        consts: vec![Const::None],
        names: names.iter().map(ToString::to_string).collect(),
        localsplusnames: vec!["x".into()],
        localspluskinds: vec![0x20],
        linetable: vec![],
        exceptiontable: vec![],
    };
    Code { hash: code.content_hash(), ..code }
}

/// The globals of the function of [`snapshot`].
pub const NAMESPACE: ObjId = ObjId(2);
const BUILTINS: ObjId = ObjId(3);

/// The frame of a function of this code that is called with 3. None of its globals is described.
pub fn snapshot(code: Code) -> Snapshot {
    let function = FunctionDesc {
        code: code.hash,
        name: "f".into(),
        qualname: "f".into(),
        module: Some("m".into()),
        defaults: None,
        kwdefaults: None,
        closure: vec![],
        globals: NAMESPACE,
    };
    let object = |id: u32, data| Object { id: ObjId(id), class: ObjId(90), path: None, dict: None, data };
    let objects = vec![
        object(1, ObjectData::Function(Box::new(function))),
        object(NAMESPACE.0, ObjectData::Namespace),
        object(BUILTINS.0, ObjectData::Namespace),
        object(4, ObjectData::Const(Const::Int(3))),
    ];
    Snapshot {
        function: ObjId(1),
        args: vec![Some(ObjId(4))],
        builtins: BUILTINS,
        ambient: Ambient::default(),
        options: TraceOptions::default(),
        described: Described { objects, codes: vec![Arc::new(code)], ..Described::default() },
    }
}
