//! The sections, symbols and dependencies of the libraries.

use super::harness::{library, tool};

/// The names that a library defines for others.
fn exports(name: &str) -> Vec<String> {
    let symbols = tool("nm", &["-D", "--defined-only", &library(name).display().to_string()]);
    let mut names: Vec<_> =
        symbols.lines().filter_map(|line| Some(line.split_whitespace().last()?.to_owned())).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_library_that_programs_link_with_exports_what_its_header_declares_and_nothing_else() {
    let header = include_str!("../../../../include/dwell.h");
    let mut declared: Vec<_> = header
        .lines()
        .filter(|line| line.ends_with(';') && !line.starts_with(['\t', ' ', '}']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    declared.sort_unstable();
    assert!(declared.contains(&"dwell_init") && declared.len() > 10, "{declared:?}");
    assert_eq!(exports("libdwell.so"), declared);
}

#[test]
fn no_call_that_carries_data_is_intercepted_without_need() {
    let mut expected = vec!["__asan_default_options", "accept", "accept4", "connect", "dwell_library"];
    // Calls that change the program's rights, which are rare.
    expected.extend(["chroot", "prctl", "setegid", "seteuid", "setgid", "setgroups", "setns", "setregid", "setresgid"]);
    expected.extend(["setresuid", "setreuid", "setuid", "syscall", "unshare"]);
    expected.sort_unstable();
    assert_eq!(exports("libdwell_preload.so"), expected);
    assert!(exports("libdwell_calls.so").contains(&"sendmsg".to_owned()));
}

#[test]
fn the_name_by_which_programs_load_the_library_has_the_version_of_its_interface() {
    let dynamic = tool("readelf", &["-dW", &library("libdwell.so").display().to_string()]);
    let name = format!("soname: [libdwell.so.{}]", env!("CARGO_PKG_VERSION_MAJOR"));
    assert!(dynamic.contains(&name), "{dynamic}");
}

#[test]
fn nothing_is_looked_up_while_the_poller_runs() {
    for name in ["libdwell.so", "libdwell_preload.so", "libdwell_calls.so"] {
        let dynamic = tool("readelf", &["-dW", &library(name).display().to_string()]);
        assert!(dynamic.contains("BIND_NOW") || dynamic.contains("NOW"), "{dynamic}");
    }
}

#[test]
fn a_program_cannot_unload_what_has_a_thread() {
    for name in ["libdwell.so", "libdwell_preload.so", "libdwell_calls.so"] {
        let dynamic = tool("readelf", &["-dW", &library(name).display().to_string()]);
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
}
