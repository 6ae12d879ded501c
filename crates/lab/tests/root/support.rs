//! What the root tests share.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Tells why labs cannot be made here, and that the test is skipped; false where they can.
pub fn skipped() -> bool {
    let reason = dwell_lab::missing_requirement().or_else(|| {
        let may = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
        (!may).then(|| "no network namespace can be made here".to_owned())
    });
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason.is_some()
}

/// Waits until something holds, for ten seconds at most.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not come true");
        std::thread::sleep(Duration::from_millis(10));
    }
}

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

    /// An executable that knows `lab emulate --config X`, as dwell does: the ignored test `emulator_process`.
    pub fn emulator(name: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let run = "--exact --ignored --nocapture --quiet emulator_process";
        Self::new(
            name,
            &format!(
                "[ \"$1 $2 $3\" = 'lab emulate --config' ] || exit 2\nEMULATE=\"$4\" exec '{}' {run}",
                test.display()
            ),
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
