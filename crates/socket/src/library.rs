//! Where the libraries are that dwell loads into programs.

use std::{env, path::PathBuf};

/// The library that measures a program from inside, and sets options of its sockets.
pub const PRELOADED: &str = "libdwell_preload.so";

/// Searches for a library where it is built and where it is installed, seen from this binary.
pub fn library(name: &str) -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let candidates = [
        // Cargo's newest build; the file above it may be older.
        folder.join("deps").join(name),
        folder.join(name),
        folder.join("../lib/dwell").join(name),
    ];
    candidates.into_iter().find(|path| path.is_file())
}
