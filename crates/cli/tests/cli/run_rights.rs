//! `dwell run` by root: programs with other rights than its own, and options that only root may set.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, thread, time::Duration};

use tempfile::TempDir;

use crate::{
    run::{MUCH, drain, of_port, serve, talk},
    support::{DWELL, run, skipped},
};

#[test]
fn root_a_program_that_becomes_another_user_is_measured_inside() {
    if skipped() {
        return;
    }
    // The other user must be able to reach the program and the library.
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = talk(&folder, &[]);
    let library = folder.path().join("libdwell_calls.so");
    fs::copy(Path::new(DWELL).with_file_name("deps/libdwell_calls.so"), &library).unwrap();
    let (port, server) = serve(|mut stream| {
        thread::sleep(Duration::from_millis(300));
        drain(&mut stream);
    });
    let figures = folder.path().join("figures");
    let mut command = Command::new(DWELL);
    command.args(["run", "--minimize", "--format", "jsonl", "--interval", "50ms", "--write"]);
    command.arg(&figures).arg("--library").arg(&library);
    command.args(["--", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&program).args(["127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"]);
    let run = run(&mut command, b"");
    server.join().unwrap();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let records = of_port(&figures, "run.socket", port);
    assert!(!records.is_empty() && records.iter().all(|record| record["viewpoint"] == "inside"), "{records:#?}");
    assert!(records.iter().any(|record| record["notsent_lowat"].is_u64()), "{records:#?}");
}

#[test]
fn root_what_only_root_may_choose_is_chosen_for_roots_programs() {
    if skipped() {
        return;
    }
    let names = |kind: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{kind}_congestion_control")).unwrap();
    let (available, allowed) = (names("available"), names("allowed"));
    let allowed: Vec<_> = allowed.split_whitespace().collect();
    let Some(name) = available.split_whitespace().find(|name| !allowed.contains(name)) else {
        return dwell_testbed::skip::skip("every user may choose every congestion control");
    };
    let folder = TempDir::new().unwrap();
    let (port, server) = serve(|mut stream| {
        thread::sleep(Duration::from_millis(300));
        drain(&mut stream);
    });
    let mut command = Command::new(DWELL);
    command.args(["run", "--format", "none", "--congestion", name, "--"]).arg(talk(&folder, &[]));
    let run = run(command.args(["127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"]), b"");
    server.join().unwrap();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{name}: {run}");
}
