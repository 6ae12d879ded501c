//! Outputs that end before the run does.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use crate::{
    support::{DWELL, prepare},
    wire::{capture, pings},
};

/// Far more samples than any pipe or buffer holds.
const MANY: u16 = 20_000;

struct Many {
    folder: tempfile::TempDir,
}

impl Many {
    fn new() -> Many {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("many.pcap"), capture(&pings(MANY))).unwrap();
        Many { folder }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(DWELL);
        prepare(&mut command).arg("rtt").arg("-r");
        command.arg(self.folder.path().join("many.pcap"));
        command
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let many = Many::new();
    let mut child = many.command().spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().unwrap();
    pipe.read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
    assert!(line.contains("icmp"), "{line}");
}

#[test]
fn a_full_disk_is_told_whatever_is_printed() {
    let many = Many::new();
    for options in [
        &[][..],
        &["--summary"],
        &["--aggregate"],
        &["--aggregate", "--interval", "1h"],
        &["--format", "jsonl"],
        &["--format", "ppviz"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = many.command().args(options).stdout(Stdio::from(full)).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{options:?}: {stderr}");
        assert!(
            stderr.contains(
                "dwell: cannot write to standard output: No space left on device (os error 28); \
                 later output is missing there: free some space, or write \
                 elsewhere\n"
            ),
            "{options:?}: {stderr}"
        );
    }
}

#[test]
fn a_full_disk_and_the_other_verbs() {
    for arguments in [&["doctor"][..], &["doctor", "--format", "jsonl"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(DWELL);
        let command = prepare(&mut command).args(arguments).stdout(full);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{stderr}");
    }
}

#[test]
fn a_standard_error_that_takes_nothing_changes_nothing_else() {
    let many = Many::new();
    let file = many.folder.path().join("many.pcap");
    let missing = many.folder.path().join("missing.pcap");
    for (path, status, samples) in [(&file, 0, usize::from(MANY)), (&missing, 2, 0)] {
        for redirection in ["2>&-", "2>/dev/full"] {
            let script = format!("exec \"$0\" rtt -r \"$1\" {redirection}");
            let mut command = Command::new("sh");
            let output = prepare(command.args(["-c", &script, DWELL]).arg(path)).output().unwrap();
            let lines = output.stdout.split(|byte| *byte == b'\n').count() - 1;
            assert_eq!((output.status.code(), lines), (Some(status), samples), "{path:?} {redirection}");
        }
    }
}
