//! Finds the program to run, and whether a library can be loaded into it.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File, Metadata},
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use nix::unistd::{AccessFlags, access, getegid, geteuid};

use crate::exit::Failure;

/// Search path of execvp(3) without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Bytes that are read from the beginning of a file.
const HEAD_BYTES: u64 = 16 << 10;

/// A program that can be run.
#[derive(Debug)]
pub struct Program {
    /// Path of the program.
    pub path: PathBuf,
    /// Why no library can be loaded into the program, if so.
    pub obstacle: Option<String>,
}

impl Program {
    /// Finds a program as a shell does.
    ///
    /// # Errors
    ///
    /// If there is no such program, or it may not be run.
    pub fn find(name: &OsStr) -> Result<Program, Failure> {
        let path = search(name)?;
        let obstacle = obstacle(&path);
        Ok(Program { path, obstacle })
    }
}

fn search(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = Path::new(name).display();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(error) => Err(anyhow!("cannot run {shown}: {error}; check its name")),
            Ok(data) if data.is_dir() => Err(anyhow!("cannot run {shown}: it is a folder")),
            Ok(_) if !may_run(&path) => Err(match is_program(&path) {
                true => anyhow!("cannot run {shown}: it may not be executed; `chmod +x {shown}` allows it"),
                false => anyhow!("cannot run {shown}: it is not a program"),
            }),
            Ok(_) => Ok(path),
        }
        .map_err(Failure::usage);
    }
    if name.as_bytes().starts_with(b"-") {
        return Err(Failure::usage(anyhow!(
            "`dwell run` has no option {shown}, and what it is to run is a program; `dwell run --help` shows its options"
        )));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let candidates = env::split_paths(&path).map(|folder| folder.join(name));
    let mut programs = candidates.filter(|path| path.is_file() && !name.is_empty());
    programs.find(|path| may_run(path)).ok_or_else(|| {
        Failure::usage(anyhow!(
            "cannot run {shown}: there is no such program in PATH; check its name, or give its path"
        ))
    })
}

/// Recognises a program by its first bytes, if they can be read.
fn is_program(path: &Path) -> bool {
    head(path).is_none_or(|head| head.starts_with(b"\x7fELF") || head.starts_with(b"#!"))
}

fn may_run(path: &Path) -> bool {
    access(path, AccessFlags::X_OK).is_ok()
}

/// Returns what keeps the loader from loading a library into the program. Other obstacles show when the program runs.
fn obstacle(path: &Path) -> Option<String> {
    let shown = path.display();
    let data = fs::metadata(path).ok()?;
    if gains_rights(&data) {
        return Some(format!("{shown} is setuid or setgid"));
    }
    let head = head(path)?;
    if let Some(interpreter) = interpreter(&head) {
        return elf_obstacle(&interpreter);
    }
    elf_obstacle(path)
}

fn elf_obstacle(path: &Path) -> Option<String> {
    let shown = path.display();
    let program = Elf::parse(&head(path)?)?;
    let own = Elf::parse(&head(Path::new("/proc/self/exe"))?)?;
    if program.kind != own.kind {
        Some(format!("{shown} is of another architecture"))
    } else if program.loader.is_none() {
        Some(format!("{shown} is linked statically"))
    } else if own.loader.is_some() && program.loader != own.loader {
        Some(format!("{shown} has another C library"))
    } else {
        None
    }
}

/// Returns true if the program has more rights than the user: the loader then ignores LD_PRELOAD.
fn gains_rights(data: &Metadata) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2010;
    let other_user = data.mode() & SETUID != 0 && data.uid() != geteuid().as_raw();
    let other_group = data.mode() & SETGID == SETGID && data.gid() != getegid().as_raw();
    other_user || other_group
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Returns the interpreter of a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace);
    let word = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// The relevant part of an ELF header.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    /// Class, byte order and machine.
    kind: [u8; 4],
    /// PT_INTERP: who loads its libraries.
    loader: Option<Vec<u8>>,
}

impl Elf {
    /// `None` if it is no ELF file, or one whose byte order or word size is not that of this host: then its kind
    /// alone is known.
    fn parse(head: &[u8]) -> Option<Elf> {
        const PT_INTERP: u32 = 3;
        if !head.starts_with(b"\x7fELF") {
            return None;
        }
        let kind = [head[4..].first(), head.get(5), head.get(18), head.get(19)];
        let [Some(&class), Some(&order), Some(&low), Some(&high)] = kind else {
            return None;
        };
        let kind = [class, order, low, high];
        let native_order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if (class, order) != (2, native_order) {
            return Some(Elf { kind, loader: None });
        }
        let table = usize::try_from(u64_at(head, 32)?).ok()?;
        let (size, count) = (u16_at(head, 54)?, u16_at(head, 56)?);
        let entries = (0..usize::from(count)).filter_map(|index| {
            let begin = table.checked_add(index.checked_mul(size.into())?)?;
            head.get(begin..begin.checked_add(56)?)
        });
        let mut loaders = entries.filter(|entry| u32_at(entry, 0) == Some(PT_INTERP));
        let loader = loaders.next().map(|entry| {
            let place = |at| usize::try_from(u64_at(entry, at)?).ok();
            let bytes = || head.get(place(8)?..place(8)?.checked_add(place(32)?)?);
            bytes().unwrap_or_default().to_vec()
        });
        Some(Elf { kind, loader })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_host_is_open_and_a_script_is_as_its_interpreter() {
        assert_eq!(obstacle(Path::new("/proc/self/exe")), None);
        let line = interpreter(b"#! /usr/bin/env python3\nprint()");
        assert_eq!(line, Some("/usr/bin/env".into()));
        assert_eq!(interpreter(b"#!"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn without_a_loader_it_is_static_and_other_machines_differ() {
        let own = head(Path::new("/proc/self/exe")).unwrap();
        let elf = Elf::parse(&own).unwrap();
        assert!(elf.loader.is_some());
        let mut other = own.clone();
        other[18] ^= 0x55;
        assert_ne!(Elf::parse(&other).unwrap().kind, elf.kind);
        let mut none = own.clone();
        none[56..58].fill(0);
        assert_eq!(Elf::parse(&none).unwrap().loader, None);
    }

    #[test]
    fn a_damaged_header_is_no_reason_to_panic() {
        let own = head(Path::new("/proc/self/exe")).unwrap();
        for length in 0..own.len().min(1024) {
            let _ = Elf::parse(&own[..length]);
        }
        for at in 0..64 {
            let mut damaged = own.clone();
            damaged[at] = 0xff;
            let _ = Elf::parse(&damaged);
        }
    }
}
