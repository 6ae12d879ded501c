//! Virtual machines. Those that boot need a kernel, which `make vm` fetches.

use std::{path::PathBuf, time::Duration};

use dwell_testbed::{Guest, GuestOptions, Namespace, ProcessId, skip::skip};

use crate::support::{eventually, skipped};

const PATIENCE: Duration = Duration::from_secs(300);

/// The newest one that there is.
fn kernel() -> Option<PathBuf> {
    let lack = Guest::missing_requirement();
    let folder = std::env::var_os("DWELL_KERNELS");
    let kernel = folder.and_then(|folder| Guest::newest_kernel(folder.as_ref()));
    match (&lack, &kernel) {
        (Some(lack), _) => skip(lack),
        (None, None) => skip("DWELL_KERNELS names no folder with kernels: `make vm`"),
        _ => return kernel,
    }
    None
}

#[test]
fn root_a_machine_does_what_its_script_says_and_ends() {
    let Some(kernel) = kernel().filter(|_| !skipped()) else {
        return;
    };
    let namespace = Namespace::create("guest").unwrap();
    let mut options = GuestOptions::new(kernel, "setpriv --version; echo MEMORY $(free -m)\n");
    options.programs = vec!["/usr/bin/setpriv".into()];
    let console = Guest::start(&options, &namespace).unwrap().wait(PATIENCE).unwrap();
    assert!(console.contains("setpriv from util-linux"), "{console}");
    assert!(console.contains("MEMORY total used"), "{console}");
}

#[test]
fn root_a_machine_is_killed_with_its_guard() {
    let Some(kernel) = kernel().filter(|_| !skipped()) else {
        return;
    };
    let namespace = Namespace::create("guest").unwrap();
    let options = GuestOptions::new(kernel, "echo WAITS; sleep 1000\n");
    let guest = Guest::start(&options, &namespace).unwrap();
    guest.wait_for(&["WAITS\n"], PATIENCE).unwrap();
    let process = ProcessId::of(guest.process()).unwrap();
    assert!(process.is_alive());
    drop(guest);
    eventually("the emulator has ended", || !process.is_alive());
}

#[test]
fn root_without_a_kernel_it_says_where_there_is_none() {
    if skipped() || Guest::missing_requirement().is_some() {
        return;
    }
    let namespace = Namespace::create("guest").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = GuestOptions::new(folder.path(), "");
    let error = Guest::start(&options, &namespace).unwrap_err().to_string();
    assert!(error.contains("lib/modules"), "{error}");
}
