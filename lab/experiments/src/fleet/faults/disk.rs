//! A small disk that can be full.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use dwell_testbed::{
    Error, Namespace, Result,
    program::{PATIENCE, RunningProgram},
};

/// How much is written at once to fill the disk.
const PIECE: [u8; 4096] = [0; 4096];

/// A tmpfs that only programs see that are started within, and which goes with this.
pub(super) struct Disk {
    /// Keeps the mount namespace.
    holder: RunningProgram,
    at: PathBuf,
}

impl Disk {
    /// Makes an empty disk of this size at a folder.
    pub(super) fn create(namespace: &Namespace, folder: &Path, bytes: u64) -> Result<Disk> {
        let at = folder.join("disk");
        fs::create_dir(&at).map_err(Error::file("make", &at))?;
        let script = "mount -t tmpfs -o size=\"$2\" dwell-lab \"$1\" && echo mounted && exec sleep infinity";
        let path = at.display().to_string();
        let arguments = ["--mount", "sh", "-c", script, "sh", &path, &bytes.to_string()];
        let mut holder = RunningProgram::start("disk", namespace, Path::new("unshare"), folder, &arguments)?;
        holder.wait_for_output(PATIENCE)?;
        Ok(Disk { holder, at })
    }

    /// Where a program that is started within has it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Where everybody else finds the same file.
    pub(super) fn outside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.at.strip_prefix("/").unwrap_or(&self.at)).join(name)
    }

    /// The beginning of a command that starts a program within.
    pub(super) fn within(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--mount=/proc/{}/ns/mnt", self.holder.id()), "--".into()]
    }

    /// Fills it to the last byte.
    pub(super) fn fill(&self) -> Result<()> {
        let path = self.outside("ballast");
        let mut ballast = File::options().create(true).append(true).open(&path).map_err(Error::file("write", &path))?;
        while ballast.write_all(&PIECE).is_ok() {}
        Ok(())
    }

    /// Frees what [`Disk::fill`] has taken.
    pub(super) fn free(&self) -> Result<()> {
        let path = self.outside("ballast");
        fs::remove_file(&path).map_err(Error::file("remove", &path))
    }
}
