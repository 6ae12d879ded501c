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
        let library = Path::new("/lib/libdwell_preload.so");
        assert_eq!(joined(None, library), "/lib/libdwell_preload.so");
        assert_eq!(joined(Some(OsStr::new("")), library), "/lib/libdwell_preload.so");
        assert_eq!(joined(Some(OsStr::new("/lib/libasan.so")), library), "/lib/libasan.so:/lib/libdwell_preload.so");
    }
}
