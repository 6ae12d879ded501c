//! Several CPUs that use the slots of one flow table: threads of a C program, because the core is C.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{env, path::Path, process::Command};

/// Runs the program with this number of threads, and of steps per thread.
fn run(what: &str, threads: u32, steps: u32) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("slots-{what}-{}", std::process::id()));
    let compiler = env::var("CC").unwrap_or_else(|_| "clang".into());
    let compiled = Command::new(compiler)
        .args(["-O2", "-pthread", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("core"))
        .arg("-o")
        .arg(&program)
        .arg(here.join("tests/programs/slots.c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let ran = Command::new(&program).args([what, &threads.to_string(), &steps.to_string()]).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}: {said}", ran.status);
}

#[test]
fn slots_that_cpus_take_and_free_concurrently_are_never_assigned_twice_nor_lost() {
    run("pool", 2, 200_000);
    run("pool", 4, 200_000);
}

#[test]
fn flows_that_cpus_admit_and_free_concurrently_have_a_slot_each() {
    run("table", 2, 200_000);
    run("table", 4, 200_000);
}
