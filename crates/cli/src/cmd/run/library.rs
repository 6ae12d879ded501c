//! The library that is loaded into the program.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::anyhow;

use super::Args;
use crate::exit::Failure;

const PRELOAD: &str = "LD_PRELOAD";

/// The file, or why there is none.
///
/// # Errors
///
/// If it was named, and is not there.
pub fn find(args: &Args) -> Result<Result<PathBuf, String>, Failure> {
    let name = match args.needs_calls() {
        true => "libdwell_calls.so",
        false => "libdwell.so",
    };
    let path = match &args.library {
        Some(path) => std::path::absolute(path).ok().filter(|path| path.is_file()).ok_or_else(|| {
            let shown = path.display();
            Failure::usage(anyhow!("--library {shown}: there is no such file"))
        })?,
        None => match beside(name) {
            Some(path) => path,
            None => {
                return Ok(Err(format!("{name} was not found (--library FILE names it)")));
            }
        },
    };
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        let shown = path.display();
        return Ok(Err(format!("{shown} has a space or colon in its name, which LD_PRELOAD cannot have")));
    }
    Ok(Ok(path))
}

/// Where it is built, and where it is installed.
fn beside(name: &str) -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let places = [
        // Of cargo: what lies above it may be older.
        folder.join("deps").join(name),
        folder.join(name),
        folder.join("../lib/dwell").join(name),
    ];
    places.into_iter().find(|path| path.is_file())
}

/// The program's LD_PRELOAD: what it would have been, and this library last.
pub fn preload(library: &Path) -> (&'static str, OsString) {
    (PRELOAD, joined(env::var_os(PRELOAD).as_deref(), library))
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
        let library = Path::new("/lib/libdwell.so");
        assert_eq!(joined(None, library), "/lib/libdwell.so");
        assert_eq!(joined(Some(OsStr::new("")), library), "/lib/libdwell.so");
        assert_eq!(joined(Some(OsStr::new("/lib/libasan.so")), library), "/lib/libasan.so:/lib/libdwell.so");
    }
}
