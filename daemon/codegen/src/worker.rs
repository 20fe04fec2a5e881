//! What runs in a worker process: opens one plug-in and answers requests from its standard input, a socket, until that
//! closes. Standard output is not used: code generators print.

use crate::Described;
use crate::confine::{self, Confined};
use crate::pool::{Reply, Request};
use flambeau_plugin::CompileLibrary;
use flambeau_wire::frame;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Memory of its own that a code generator may have, in bytes: beyond that it ends, and nothing else does.
const MOST_DATA: u64 = 8 << 30;

/// The worker process for the compile half at `plugin`, whose file the daemon checked. Returns when the daemon closed the socket.
pub fn worker_main(plugin: &Path) -> io::Result<()> {
    // An abort of the code generator is an expected event, not one to keep 100 MB of core for.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(MOST_DATA), maximum: Some(MOST_DATA) });
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let confined = confine::writing();
    let library = CompileLibrary::open_checked(plugin).map_err(|e| e.to_string());
    // The lesser of both is what holds.
    let confined = confined.max(confine::reading(plugin));
    while let Some(request) = receive(&mut socket)? {
        let reply = answer(library.as_ref(), confined, request);
        socket.write_all(&frame::encode(&reply).map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn answer(library: Result<&CompileLibrary, &String>, confined: Confined, request: Request) -> Reply {
    match (request, library) {
        (Request::Describe, Ok(library)) => {
            let said = library.description();
            Reply::Described(Described {
                name: said.name.to_string(),
                version: said.version.to_string(),
                memory: said.memory,
                targets: said.targets.iter().map(ToString::to_string).collect(),
                capabilities: library.capabilities().clone(),
                confined,
            })
        }
        (Request::Compile { target, kernels }, Ok(library)) => Reply::Compiled(library.compile(&kernels, &target)),
        (_, Err(why)) => Reply::Unavailable(why.clone()),
    }
}

fn receive(socket: &mut UnixStream) -> io::Result<Option<Request>> {
    let mut prefix = [0; frame::PREFIX];
    match socket.read_exact(&mut prefix) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut body = vec![0; frame::body_length(&prefix).map_err(io::Error::other)?];
    socket.read_exact(&mut body)?;
    frame::decode(&prefix, &body).map(Some).map_err(io::Error::other)
}
