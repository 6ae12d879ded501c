//! What the root tests share.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

pub use dwell_testbed::harness::{eventually, skipped};

/// Whether a named namespace exists.
pub fn exists(namespace: &str) -> bool {
    PathBuf::from("/run/netns").join(namespace).exists()
}

/// One of this file's ignored tests, run in a process of its own.
pub fn other_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "--quiet", test]);
    command
}

/// Starts the process and gives the rest of its first line with that beginning. What follows is read and forgotten.
pub fn start_and_read(mut command: Command, beginning: &str) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let found = lines.find_map(|line| line.split_once(beginning).map(|(_, rest)| rest.to_owned()));
    std::thread::spawn(move || lines.for_each(drop));
    (child, found.expect("the process told its line"))
}

/// A script in a folder of its own, removed with it.
pub struct Script {
    folder: PathBuf,
}

impl Script {
    /// Writes it.
    pub fn new(name: &str, body: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("dwell-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = Self { folder };
        std::fs::write(script.path(), format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(script.path(), PermissionsExt::from_mode(0o755)).unwrap();
        script
    }

    /// An executable that knows `emulate --config X`, as dwell-lab does: the ignored test `emulator_process`.
    pub fn emulator(name: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let run = "--exact --ignored --nocapture --quiet emulator_process";
        Self::new(
            name,
            &format!("[ \"$1 $2\" = 'emulate --config' ] || exit 2\nEMULATE=\"$3\" exec '{}' {run}", test.display()),
        )
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.join("script")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
