//! Wrong calls, hosts that cannot do it, and outputs that take nothing.

use std::{fs::File, process::Command};

use crate::support::{LAB, lab, prepare, skipped};

/// What a wrong call prints.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let run = lab(arguments);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run}");
    run.stderr
}

#[test]
fn root_names_that_no_lab_has_or_may_have() {
    if skipped() {
        return;
    }
    let said = refused(&["down", "never-made"]);
    assert_eq!(said, "dwell-lab: no lab named never-made\n");
    assert_eq!(
        refused(&["up", "Not/A/Name"]),
        "dwell-lab: lab name \"Not/A/Name\": it must be 1 to 64 of the characters a-z, 0-9 and -, and not begin with -\n"
    );
}

#[test]
fn the_doctor_reports_on_the_laboratory_and_its_programs() {
    let report = lab(&["doctor", "--all"]);
    assert!(matches!(report.status, Some(0 | 1)), "{report}");
    for row in ["up", "stack", "iperf3", "veth devices", "RTT program loads", "cgroup controller cpu"] {
        let is_row = |line: &str| line.starts_with(&format!("{row} "));
        assert!(report.stdout.lines().any(is_row), "{report}");
    }
}

#[test]
fn links_that_no_lab_can_have() {
    let said: String = ["--bottleneck=fast", "--bottleneck=0", "--bottleneck=1T", "--loss=2", "--client-rtt=20"]
        .iter()
        .map(|option| refused(&["up", option]))
        .collect();
    insta::assert_snapshot!(said, @"
    error: invalid value 'fast' for '--bottleneck <RATE>': the unit is k, M or G bits per second

    For more information, try '--help'.
    error: invalid value '0' for '--bottleneck <RATE>': write a rate as in 500k, 10M or 1G

    For more information, try '--help'.
    error: invalid value '1T' for '--bottleneck <RATE>': the unit is k, M or G bits per second

    For more information, try '--help'.
    error: invalid value '2' for '--loss <SHARE>': write a share from 0% to 100%, as in 1%, or from 0 to 1, as in 0.01

    For more information, try '--help'.
    error: invalid value '20' for '--client-rtt <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    ");
}

#[test]
fn a_full_disk_is_an_error_of_the_list_of_labs() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(LAB);
    let output = prepare(&mut command).arg("list").stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    if stderr.contains("not root") {
        return;
    }
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("No space left on device"), "{stderr}");
}
