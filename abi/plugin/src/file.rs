//! What can be told of a plug-in's file before the dynamic loader sees it, which maps what it is given: a file that is cut
//! off or has a bit flipped would end the process. Seals are made and checked here.
//!
//! A *seal* is [`SEAL_BYTES`] bytes at the end of the file, where the loader does not look: [`MAGIC`] and the blake3 hash
//! of all that is mapped. It is lost when a file is stripped or patched; one without it is taken as it is.

use object::Endianness;
use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, ET_DYN, FileHeader64, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// First bytes of a seal; the digit is the version of its form.
pub const MAGIC: [u8; 8] = *b"FLMBSEA1";

/// [`MAGIC`] and a hash.
pub const SEAL_BYTES: usize = MAGIC.len() + blake3::OUT_LEN;

type Header = FileHeader64<Endianness>;

/// What is wrong with a file, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing is there.
    #[error("does not exist; install it, or take its folder off the plug-in path")]
    Missing,
    /// It cannot be read.
    #[error("cannot be read ({0}); see who owns it and who may read it")]
    Unreadable(String),
    /// Something else than a library.
    #[error("is no shared library for Linux; a plug-in is a file that cargo makes of a crate of type cdylib")]
    NoLibrary,
    /// For another kind of machine.
    #[error("is for {found}, and this machine is {}; install the build for this machine", std::env::consts::ARCH)]
    Foreign {
        /// Its machine, in words.
        found: String,
    },
    /// Its end is missing.
    #[error("is cut off: it has {found} bytes of at least {wanted}; install it again")]
    CutOff {
        /// Bytes that its headers speak of.
        wanted: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The seal says something else.
    #[error("is damaged: it is not what was sealed; install it again, or seal it again if it was changed on purpose")]
    Damaged,
}

/// Looks at all that the loader will map. Runs nothing of the file.
pub fn check(path: &Path) -> Result<(), Fault> {
    let library = Library::open(path)?;
    let mapped = library.mapped();
    if let Some(seal) = library.seal()? {
        let mapped = mapped.as_ref().map_err(|_| Fault::Damaged)?;
        if library.hash(mapped)? != seal {
            return Err(Fault::Damaged);
        }
    }
    let mapped = mapped?;
    match mapped.kind {
        _ if mapped.machine != std::env::consts::ARCH => Err(Fault::Foreign { found: mapped.machine }),
        ET_DYN => Ok(()),
        _ => Err(Fault::NoLibrary),
    }
}

/// Ends the file in a seal, unless it has the right one.
pub fn seal(path: &Path) -> Result<(), Fault> {
    let library = Library::open(path)?;
    let hash = library.hash(&library.mapped()?)?;
    let mut file = OpenOptions::new().append(true).open(path).map_err(unreadable)?;
    match library.seal()? {
        Some(seal) if seal == hash => return Ok(()),
        Some(_) => file.set_len(library.bytes - SEAL_BYTES as u64).map_err(unreadable)?,
        None => {}
    }
    file.write_all(&[&MAGIC, &hash.as_bytes()[..]].concat()).map_err(unreadable)
}

fn unreadable(error: io::Error) -> Fault {
    if error.kind() == ErrorKind::NotFound { Fault::Missing } else { Fault::Unreadable(error.to_string()) }
}

/// A file, of which no more is read than is asked for: most of a library is not mapped.
struct Library {
    file: File,
    bytes: u64,
}

/// What the headers say.
struct Mapped {
    machine: String,
    kind: u16,
    /// What is mapped.
    ranges: Vec<Range<u64>>,
}

impl Library {
    fn open(path: &Path) -> Result<Library, Fault> {
        // A FIFO in its place has nobody at its other end.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() {
            return Err(unreadable(io::Error::other("it is no regular file")));
        }
        let bytes = meta.len();
        // A folder can be opened, but not read.
        file.read_at(&mut [0], 0).map_err(unreadable)?;
        Ok(Library { file, bytes })
    }

    fn part(&self, range: Range<u64>) -> Result<Vec<u8>, Fault> {
        let mut part = vec![0; (range.end - range.start) as usize];
        self.read(&mut part, range.start)?;
        Ok(part)
    }

    fn read(&self, into: &mut [u8], start: u64) -> Result<(), Fault> {
        self.file.read_exact_at(into, start).map_err(unreadable)
    }

    fn seal(&self) -> Result<Option<blake3::Hash>, Fault> {
        let Some(start) = self.bytes.checked_sub(SEAL_BYTES as u64) else { return Ok(None) };
        let end = self.part(start..self.bytes)?;
        let hash = end.strip_prefix(&MAGIC).and_then(|hash| <[u8; blake3::OUT_LEN]>::try_from(hash).ok());
        Ok(hash.map(blake3::Hash::from_bytes))
    }

    /// The parts of the file that are mapped, if they are all there.
    fn mapped(&self) -> Result<Mapped, Fault> {
        let cut_off = |wanted: u64| Fault::CutOff { wanted, found: self.bytes };
        let first = self.part(0..self.bytes.min(size_of::<Header>() as u64))?;
        if !first.starts_with(b"\x7fELF") {
            return Err(Fault::NoLibrary);
        }
        if first.len() < size_of::<Header>() {
            return Err(cut_off(size_of::<Header>() as u64));
        }
        // Where the machine is written does not depend on the class.
        let machine = u16::from_le_bytes([first[18], first[19]]);
        let header = Header::parse(&*first).map_err(|_| Fault::Foreign { found: machine_name(machine) })?;
        let endian = header.endian().map_err(|_| Fault::NoLibrary)?;
        let sections = u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
        let end = header.e_shoff(endian).saturating_add(sections);
        if end > self.bytes {
            return Err(cut_off(end));
        }
        let start = header.e_phoff(endian);
        let cache = ReadCache::new(&self.file);
        let segments = header.program_headers(endian, &cache).map_err(|_| cut_off(start))?;
        let mut ranges = Vec::new();
        for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD) {
            let start = segment.p_offset(endian);
            let end = start.saturating_add(segment.p_filesz(endian));
            if end > self.bytes {
                return Err(cut_off(end));
            }
            ranges.push(start..end);
        }
        Ok(Mapped { machine: machine_name(header.e_machine(endian)), kind: header.e_type(endian), ranges })
    }

    fn hash(&self, mapped: &Mapped) -> Result<blake3::Hash, Fault> {
        /// Bytes that are read at a time.
        const STEP: usize = 1 << 18;
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; STEP]);
        for range in &mapped.ranges {
            for start in range.clone().step_by(STEP) {
                let part = &mut buffer[..((range.end - start) as usize).min(STEP)];
                self.read(part, start)?;
                hasher.update(part);
            }
        }
        Ok(hasher.finalize())
    }
}

/// Rust's name of an ELF machine where it has one.
fn machine_name(machine: u16) -> String {
    let name = match machine {
        EM_X86_64 => "x86_64",
        EM_AARCH64 => "aarch64",
        EM_386 => "x86",
        EM_ARM => "arm",
        EM_RISCV => "riscv64",
        EM_PPC64 => "powerpc64",
        EM_S390 => "s390x",
        other => return format!("ELF machine {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A copy of a library that this very program has loaded.
    fn library() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|l| l.split_whitespace().nth(5).filter(|p| p.contains("/libc.so"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("libcopy.so");
        let bytes = std::fs::read(found).unwrap();
        std::fs::write(&copy, &bytes).unwrap();
        (dir, copy, bytes)
    }

    #[test]
    fn a_whole_library_passes_with_and_without_a_seal() {
        let (_dir, path, bytes) = library();
        assert_eq!(check(&path), Ok(()));
        seal(&path).unwrap();
        seal(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (bytes.len() + SEAL_BYTES) as u64, "one seal");
        assert_eq!(check(&path), Ok(()));
    }

    #[test]
    fn a_flipped_bit_of_what_is_mapped_breaks_the_seal() {
        let (_dir, path, _) = library();
        seal(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 4, 5, 18, 33, 40, 0x1000, 0x8000, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(check(&path), Err(Fault::Damaged), "byte {at}");
        }
    }

    #[test]
    fn a_truncated_library_is_cut_off_wherever_it_ends() {
        let (_dir, path, bytes) = library();
        for end in [8, 63, 64, 100, 0x1000, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let fault = check(&path);
            assert!(matches!(fault, Err(Fault::CutOff { .. })), "{end}: {fault:?}");
        }
    }

    #[test]
    fn other_machines_other_files_and_none_are_told_apart() {
        let (dir, path, mut bytes) = library();
        assert_eq!(check(&dir.path().join("nothing.so")), Err(Fault::Missing));
        assert!(matches!(check(dir.path()), Err(Fault::Unreadable(_))), "a folder");
        bytes[18..20].copy_from_slice(&EM_AARCH64.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(check(&path), Err(Fault::Foreign { found: "aarch64".to_owned() }));
        bytes[4] = object::elf::ELFCLASS32;
        bytes[18..20].copy_from_slice(&EM_ARM.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(check(&path), Err(Fault::Foreign { found: "arm".to_owned() }));
        assert!(matches!(check(Path::new("/proc/self/mem")), Err(Fault::Unreadable(_))));
        for other in [&b""[..], b"#!/bin/sh", &[0x7f; 4096]] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(check(&path), Err(Fault::NoLibrary));
        }
    }
}
