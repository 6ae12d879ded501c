//! Labs as root: what they emulate, and that nothing of them stays. Each test has namespaces of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod guest;
mod lifetime;
mod link_box;
mod links;
mod support;
mod traffic;

/// Not a test: the process of a link emulator, started by [`support::Script::emulator`].
#[test]
#[ignore = "started by other tests"]
fn emulator_process() {
    let config = std::env::var("EMULATE").expect("started by another test").parse().unwrap();
    dwell_testbed::emulate(&config).unwrap();
}
