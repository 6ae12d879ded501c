//! `include/dwell.h`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use dwell_socket::table::Config;

use super::harness::{compile, library, run_with, text};

fn flags(warnings: &[&str]) -> Vec<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let folder = library("libdwell.so");
    let folder = folder.parent().unwrap();
    let mut flags: Vec<_> = warnings.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("-I{}", include.display()));
    flags.push("-pthread".to_owned());
    flags.push(format!("-L{}", folder.display()));
    flags.push(format!("-Wl,-rpath,{}", folder.display()));
    flags.push("-Wl,--no-as-needed".to_owned());
    flags.push("-ldwell".to_owned());
    flags
}

/// Compiles a program with the library.
fn linked(name: &str) -> PathBuf {
    let flags = flags(&[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    compile(name, &format!("{name}-{}", std::process::id()), &flags)
}

/// How to run it.
fn command(name: &str) -> Command {
    // cargo puts a folder first where an earlier build may have left another library.
    let mut command = Command::new(linked(name));
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn must_do_well(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{} {}", output.status, text(&output.stdout));
}

#[test]
fn each_call_of_the_c_interface_does_what_the_header_says() {
    must_do_well(command("api"));
}

#[test]
fn an_end_waits_for_nobody_that_waits_itself() {
    for part in ["close", "fork", "reset", "cancel", "shorter"] {
        let mut command = command("ends");
        command.arg(part);
        must_do_well(command);
    }
}

#[test]
fn a_program_that_has_the_library_twice_has_one_poller() {
    let program = linked("linked");
    for name in ["libdwell_calls.so", "libdwell.so"] {
        let preload = library(name).display().to_string();
        let outcome = run_with(&program, &[], &Config::default(), &preload).succeeded();
        assert_eq!(outcome.numbers("threads"), [2], "{name}");
        assert_eq!(outcome.counts.processes, 1);
        assert_eq!(outcome.socket("sender").totals.written_bytes, 20_000);
    }
}

#[test]
fn the_header_is_c11_and_cpp() {
    for arguments in [["-std=c11", "-xc"], ["-std=c++17", "-xc++"]] {
        let output = Command::new("cc")
            .args(arguments)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/dwell.h"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}
