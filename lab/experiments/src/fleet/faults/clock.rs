//! A wrong Unix time for one program: a library that is preloaded, and a file that says by how much the time is off.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use dwell_testbed::{Error, Result, error::run};

const SOURCE: &str = include_str!("clock.c");

/// The time of the programs that are started with its variables.
pub(super) struct WrongClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WrongClock {
    /// Makes a clock that is right to begin with, with its files in a folder.
    pub(super) fn create(folder: &Path, name: &str) -> Result<WrongClock> {
        let [source, library, offset] = ["c", "so", "offset"].map(|kind| folder.join(format!("{name}.{kind}")));
        fs::write(&source, SOURCE).map_err(Error::file("write", &source))?;
        let arguments = ["-O1", "-shared", "-fPIC", "-o"];
        run(Command::new("cc").args(arguments).args([&library, &source]), "")?;
        let clock = WrongClock { library, offset };
        clock.set(0)?;
        Ok(clock)
    }

    /// Steps the clock: from now on it is off by this many seconds.
    pub(super) fn set(&self, seconds: i64) -> Result<()> {
        let ns = seconds * 1_000_000_000;
        // In place: programs have mapped the file.
        let file = File::options().write(true).create(true).truncate(false).open(&self.offset);
        let written = file.and_then(|file| file.write_all_at(&ns.to_ne_bytes(), 0));
        written.map_err(Error::file("write", &self.offset))
    }

    /// What `env` sets for a program with this clock.
    pub(super) fn variables(&self) -> Vec<String> {
        vec![format!("LD_PRELOAD={}", self.library.display()), format!("DWELL_LAB_CLOCK={}", self.offset.display())]
    }
}
