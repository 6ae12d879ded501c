//! `include/dwell.h`.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use dwell_socket::table::Config;

use super::harness::{compile, library, run_with, text};

fn flags(warnings: &[&str]) -> Vec<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let folder = installed();
    let mut flags: Vec<_> = warnings.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("-I{}", include.display()));
    flags.push("-pthread".to_owned());
    flags.push(format!("-L{}", folder.display()));
    flags.push(format!("-Wl,-rpath,{}", folder.display()));
    flags.push("-Wl,--no-as-needed".to_owned());
    flags.push("-ldwell".to_owned());
    flags
}

/// Returns a folder with the library by its two names, as `make install` makes them.
fn installed() -> PathBuf {
    static ONCE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libdwell.so", concat!("libdwell.so.", env!("CARGO_PKG_VERSION_MAJOR"))] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            symlink(library("libdwell.so"), link).unwrap();
        }
        folder
    });
    ONCE.clone()
}

/// Compiles a program with the library.
fn linked(name: &str) -> PathBuf {
    let flags = flags(&[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    compile(name, &format!("{name}-{}", std::process::id()), &flags)
}

/// Returns the command that runs it.
fn command(name: &str) -> Command {
    // cargo puts a folder first in which an earlier build may have left another library.
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
fn a_program_that_is_linked_with_the_library_is_watched_if_another_is_preloaded() {
    let program = linked("linked");
    for name in ["libdwell_calls.so", "libdwell_preload.so"] {
        let preload = library(name).display().to_string();
        let outcome = run_with(&program, &[], &Config::default(), &preload).succeeded();
        assert_eq!(outcome.numbers("threads"), [2], "{name}");
        assert_eq!(outcome.counts.processes, 1);
        assert_eq!(outcome.socket("sender").totals.written_bytes, 20_000);
    }
}

#[test]
fn two_preloaded_libraries_have_one_poller() {
    let both = ["libdwell_calls.so", "libdwell_preload.so"].map(|name| library(name).display().to_string());
    let outcome = run_with(&linked("linked"), &[], &Config::default(), &both.join(":")).succeeded();
    assert_eq!(outcome.numbers("threads"), [2]);
    assert_eq!(outcome.counts.processes, 1);
}

#[test]
fn a_program_that_is_linked_with_the_library_runs_its_own_calls_and_is_not_watched() {
    let outcome = run_with(&linked("linked"), &[], &Config::default(), "").succeeded();
    assert_eq!(outcome.numbers("threads"), [1]);
    assert_eq!(outcome.counts.processes, 0);
    let bindings = Command::new(linked("linked")).env("LD_DEBUG", "bindings").env_remove("LD_LIBRARY_PATH").output();
    let bindings = text(&bindings.unwrap().stderr);
    let bound = |name: &str| {
        let line = bindings.lines().find(|line| line.contains("/linked-") && line.contains(&format!("`{name}'")));
        line.unwrap_or_else(|| panic!("{name} is not bound:\n{bindings}")).contains("libc.so")
    };
    assert!(["connect", "accept"].into_iter().all(bound), "{bindings}");
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
