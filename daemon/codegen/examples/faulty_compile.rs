//! A compile half that goes wrong as its file is called, or else as a kernel is: abort, hang, panic or refuse; or that tries
//! what a worker may not do, like `write PATH`. Otherwise an artifact is the kernel's name. If its file is called `needy` it looks
//! for a library first.

#[path = "faulty/own_file.rs"]
mod own_file;

use flambeau_plugin::export::CompileBackend;
use flambeau_plugin::kernel::Kernel;
use flambeau_plugin::{Description, reference};
use own_file::name;
use std::net::TcpStream;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use std::{env, fs, io};

struct Faulty;

fn fault(how: &str) -> Result<(), String> {
    match how {
        "abort" => std::process::abort(),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        // A panic whose hook is not called: nothing is printed among what tests print.
        "panic" => std::panic::resume_unwind(Box::new("as asked")),
        "refuse" => Err("as asked".to_owned()),
        _ => Ok(()),
    }
}

/// Does what the name of a kernel says, if it is something to try; gives what came of it.
fn tried(name: &str) -> Option<String> {
    let (what, of) = name.split_once(' ')?;
    let result = match what {
        "write" => fs::write(of, "written"),
        "write_temporary" => fs::write(env::temp_dir().join(of), "written"),
        "move_temporary" => moved(&env::temp_dir().join(of)),
        "read" => fs::read(of).map(drop),
        "connect" => TcpStream::connect(of).map(drop),
        "run" => std::process::Command::new(of).output().map(drop),
        "signal" => signal(of.parse().ok()?),
        "write_on_thread" => on_thread(of),
        _ => return None,
    };
    Some(result.map_or_else(|error| error.kind().to_string(), |()| "done".to_owned()))
}

/// From one folder to another, as drivers do with what is whole.
fn moved(from: &Path) -> io::Result<()> {
    let folder = from.with_extension("folder");
    fs::create_dir(&folder).and_then(|()| fs::rename(from, folder.join("moved")))
}

fn signal(process: i32) -> io::Result<()> {
    // SAFETY: signal 0 only asks whether one could be sent.
    #[expect(unsafe_code, reason = "what a hostile plug-in would do")]
    match unsafe { libc::kill(process, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

type Work = (String, Sender<io::Result<()>>);

/// A thread that was started while the plug-in was opened, as drivers start theirs.
static THREAD: OnceLock<Sender<Work>> = OnceLock::new();

fn start_thread() {
    let (sender, receiver) = channel::<Work>();
    if THREAD.set(sender).is_ok() {
        std::thread::spawn(move || {
            for (path, reply) in receiver {
                let _ = reply.send(fs::write(path, "written"));
            }
        });
    }
}

fn on_thread(path: &str) -> io::Result<()> {
    let (sender, receiver) = channel();
    let _ = THREAD.get().ok_or(io::ErrorKind::NotFound)?.send((path.to_owned(), sender));
    receiver.recv().map_err(io::Error::other)?
}

/// Whether one of the folders that workers are told has it.
fn library_is_there() -> bool {
    let folders = std::env::var_os("FLAMBEAU_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("libneeded.so").exists())
}

impl CompileBackend for Faulty {
    fn describe() -> Result<Description, String> {
        start_thread();
        match name().as_str() {
            "absent" => Err("there is no driver of this device; install one".to_owned()),
            "needy" if !library_is_there() => Err("there is no libneeded.so".to_owned()),
            "hang_at_once" => fault("hang").map(|()| unreachable!()),
            name => Ok(Description::of_compile_half(name, "0", &["any"], &reference::capabilities())),
        }
    }

    fn compile(kernels: &[Kernel], _target: &str) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        let compile = |kernel: &Kernel| {
            fault(&name())?;
            fault(&kernel.name)?;
            if kernel.name == "chatter" {
                println!("noise on standard output");
            }
            Ok(tried(&kernel.name).unwrap_or_else(|| kernel.name.clone()).into_bytes())
        };
        Ok(kernels.iter().map(compile).collect())
    }
}

flambeau_plugin::export_compile_half!(Faulty);
