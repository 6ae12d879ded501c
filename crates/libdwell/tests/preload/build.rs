//! What the libraries are made of.

use super::harness::{library, tool};

#[test]
fn no_call_that_carries_data_is_taken_the_place_of() {
    let symbols = tool("nm", &["-D", "--defined-only", &library("libdwell.so").display().to_string()]);
    let mut names: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !name.starts_with("dwell_"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept4", "connect"]);
}

#[test]
fn nothing_is_looked_up_while_the_poller_runs() {
    for name in ["libdwell.so", "libdwell_calls.so"] {
        let dynamic = tool("readelf", &["-dW", &library(name).display().to_string()]);
        assert!(dynamic.contains("BIND_NOW") || dynamic.contains("NOW"), "{dynamic}");
    }
}

#[test]
fn a_program_cannot_unload_what_has_a_thread() {
    for name in ["libdwell.so", "libdwell_calls.so"] {
        let dynamic = tool("readelf", &["-dW", &library(name).display().to_string()]);
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
}
