//! The library that is loaded into the program.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use dwell_socket::{PRELOADED, library};

use super::Args;
use crate::exit::Failure;

const PRELOAD: &str = "LD_PRELOAD";

/// Returns the path of the library, or the reason why there is none.
///
/// # Errors
///
/// If the library was named and does not exist.
pub fn find(args: &Args) -> Result<Result<PathBuf, String>, Failure> {
    let name = match args.needs_calls() {
        true => "libdwell_calls.so",
        false => PRELOADED,
    };
    let path = match &args.library {
        Some(path) => std::path::absolute(path).ok().filter(|path| path.is_file()).ok_or_else(|| {
            let shown = path.display();
            Failure::usage(anyhow!("--library {shown}: there is no such file"))
        })?,
        None => match library(name) {
            Some(path) => path,
            None => {
                return Ok(Err(format!("{name} was not found (--library FILE names it)")));
            }
        },
    };
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        let shown = path.display();
        return Ok(Err(format!("{shown} has a space or colon in its path, which LD_PRELOAD does not allow")));
    }
    Ok(Ok(path))
}

/// Returns the program's LD_PRELOAD: its former value, followed by this library.
pub fn preload(library: &Path) -> (&'static str, OsString) {
    (PRELOAD, joined(env::var_os(PRELOAD).as_deref(), &for_glibc(library)))
}

/// Returns a path that leads to the library for glibc's loader, which replaces `$ORIGIN` by the program's folder, and to nothing for
/// others: musl's would end a program for which it cannot resolve what a library needs, and goes on without one that it does not
/// find. It is absolute for those too, so that nobody but root can make them find something.
fn for_glibc(library: &Path) -> PathBuf {
    /// Folders between the root and a program, at most: the library is not loaded into one that lies deeper.
    const DEPTH: usize = 64;
    let mut path = OsString::from("/$ORIGIN");
    path.push("/..".repeat(DEPTH));
    path.push(library);
    path.into()
}

fn joined(before: Option<&OsStr>, library: &Path) -> OsString {
    match before.filter(|before| !before.is_empty()) {
        None => library.into(),
        Some(before) => {
            let parts = [before.as_bytes(), library.as_os_str().as_bytes()];
            OsString::from_vec(parts.join(&b':'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_loaded_before_is_loaded_still_and_first() {
        let library = Path::new("/lib/libdwell_preload.so");
        assert_eq!(joined(None, library), "/lib/libdwell_preload.so");
        assert_eq!(joined(Some(OsStr::new("")), library), "/lib/libdwell_preload.so");
        assert_eq!(joined(Some(OsStr::new("/lib/libasan.so")), library), "/lib/libasan.so:/lib/libdwell_preload.so");
    }

    #[test]
    fn a_loader_that_replaces_nothing_finds_nothing() {
        let library = for_glibc(Path::new("/proc/self/exe"));
        assert!(library.is_absolute() && !library.exists());
        let folder = library.to_str().unwrap().replace("$ORIGIN", "/proc/self/fd");
        assert!(Path::new(&folder).exists());
    }
}
