//! What goes, when, and what stays.

use std::{
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    process::Stdio,
    sync::{Mutex, atomic::AtomicBool},
    time::Duration,
};

use crate::support::{Script, eventually, exists, other_process, skipped, start_and_read};
use dwell_testbed::{
    Emulation, Error, Lab, LabOptions, Namespace, Nanos, ProcessId, State, Topology, UpOptions, down, list, up,
    workload::{Ends, Ping},
};

fn options(name: &str, emulation: Emulation) -> LabOptions {
    let topology = Topology::line(Nanos::from_millis(2), Nanos::from_millis(2));
    LabOptions { name: name.to_owned(), topology, emulation }
}

fn state_file(name: &str) -> std::path::PathBuf {
    format!("/run/dwell/lab/{name}.json").into()
}

fn is_gone(state: &State) -> bool {
    !state_file(&state.name).exists()
        && !state_file(&state.name).with_extension("").exists()
        && state.namespaces.values().all(|name| !exists(name))
        && state.emulator.is_none_or(|emulator| !emulator.is_alive())
}

#[test]
fn root_a_lab_is_removed_after_a_panic() {
    if skipped() {
        return;
    }
    let made = Mutex::new(None);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::start(&options("panic", Emulation::Thread)).unwrap();
        assert!(lab.state().namespaces.values().all(|name| exists(name)));
        *made.lock().unwrap() = Some(lab.state().clone());
        std::panic::panic_any("as planned");
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as planned"));
    let state = made.into_inner().unwrap().unwrap();
    assert_eq!(state.namespaces.len(), 5);
    assert!(is_gone(&state), "{state}");
}

#[test]
fn root_a_namespace_on_its_own_goes_with_its_guard() {
    if skipped() {
        return;
    }
    let namespace = Namespace::create("alone").unwrap();
    let name = namespace.name().to_owned();
    assert!(exists(&name));
    let interfaces = namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert_eq!(interfaces.lines().count(), 3, "only loopback and two lines of head: {interfaces}");
    drop(namespace);
    assert!(!exists(&name));
}

/// Not a test: makes a lab, tells its state, and waits to be killed.
#[test]
#[ignore = "started by other tests"]
fn owner_to_be_killed() {
    let exe = std::env::var_os("EXE").expect("started by another test");
    let lab = Lab::start(&options("killed", Emulation::Process(exe.into()))).unwrap();
    let quiet = |command: &mut std::process::Command| {
        command.arg("1000").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    };
    let helper = lab.client().spawn("sleep", quiet).unwrap();
    let comm = format!("/proc/{}/comm", helper.id());
    eventually("the start of the helper", || std::fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let helper_id = ProcessId::of(helper.id()).unwrap();
    println!("made {}", serde_json::to_string(&(lab.state(), helper_id)).unwrap());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn root_what_a_killed_owner_left_is_reaped() {
    if skipped() {
        return;
    }
    let emulator = Script::emulator("killed");
    let mut command = other_process("lifetime::owner_to_be_killed");
    command.env("EXE", emulator.path());
    let (mut owner, made) = start_and_read(command, "made ");
    let (state, helper): (State, ProcessId) = serde_json::from_str(&made).unwrap();
    assert!(state.emulator.unwrap().is_alive() && helper.is_alive());

    owner.kill().unwrap();
    owner.wait().unwrap();
    // Its processes end by themselves, before anybody clears up.
    eventually("the end of the emulator", || !state.emulator.unwrap().is_alive());
    eventually("the end of the helper", || !helper.is_alive());

    // Another test's lab may have been quicker.
    let next = Lab::start(&options("next", Emulation::None)).unwrap();
    assert!(is_gone(&state), "{state}");
    assert!(!is_gone(next.state()), "a lab whose owner lives is left alone");
    list().unwrap();
    assert!(!is_gone(next.state()), "a lab whose owner lives is left alone");
}

/// Not a test: makes a lab that stays, and ends.
#[test]
#[ignore = "started by other tests"]
fn up_and_away() {
    let exe = std::env::var_os("EXE").expect("started by another test");
    let state = up(&UpOptions::new(std::env::var("NAME").unwrap(), exe)).unwrap();
    println!("made {}", serde_json::to_string(&state).unwrap());
}

#[test]
fn root_an_emulator_whose_maker_was_killed_before_it_was_ready_is_reaped() {
    if skipped() {
        return;
    }
    let never_ready = Script::new("never-ready", "exec sleep 1000");
    let name = format!("unready-{}", std::process::id());
    let mut command = other_process("lifetime::up_and_away");
    command.env("EXE", never_ready.path()).env("NAME", &name);
    let mut maker = command.spawn().unwrap();
    let state = || -> Option<State> {
        let text = std::fs::read_to_string(state_file(&name)).ok()?;
        serde_json::from_str(&text).ok()
    };
    eventually("the record of the emulator", || state().is_some_and(|state| state.emulator.is_some()));
    maker.kill().unwrap();
    maker.wait().unwrap();
    let state = state().unwrap();
    assert!(state.emulator.unwrap().is_alive());
    list().unwrap();
    assert!(is_gone(&state), "{state}");
}

#[test]
fn root_what_a_guarded_process_started_goes_with_it() {
    if skipped() {
        return;
    }
    let namespace = Namespace::create("family").unwrap();
    for (script, leader_ends) in [("sleep 1000 & echo $!; wait", false), ("sleep 1000 & echo $!", true)] {
        let mut shell = namespace
            .spawn("sh", |command| {
                command.args(["-c", script]).stdout(Stdio::piped());
            })
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let sleep = ProcessId::of(line.trim().parse().unwrap()).unwrap();
        if leader_ends {
            assert!(shell.wait().unwrap().success());
        }
        assert!(sleep.is_alive(), "{script}");
        drop(shell);
        eventually("the end of what the shell started", || !sleep.is_alive());
    }
}

#[test]
fn root_a_lab_that_is_up_stays_until_it_is_down() {
    if skipped() {
        return;
    }
    let emulator = Script::emulator("up");
    let name = format!("up-{}", std::process::id());
    let mut command = other_process("lifetime::up_and_away");
    command.env("EXE", emulator.path()).env("NAME", &name);
    let (mut process, made) = start_and_read(command, "made ");
    let state: State = serde_json::from_str(&made).unwrap();
    assert!(process.wait().unwrap().success());
    assert!(matches!(up(&UpOptions::new(&name, emulator.path())), Err(Error::Exists(of)) if of == name));
    assert!(list().unwrap().states.contains(&state));
    assert!(!is_gone(&state));

    let server = Lab::address_v4(dwell_testbed::Role::Server).to_string();
    let client = &state.namespaces["client"];
    let ping = ["netns", "exec", client, "ping", "-c", "3", "-i", "0.1", "-W", "2", &server];
    let ping = std::process::Command::new("ip").args(ping).output().unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));

    let report = down(&name).unwrap().expect("the emulator reports");
    assert_eq!(report.direction("client to vantage").unwrap().packets, 3);
    assert!(is_gone(&state), "{state}");
    assert!(matches!(down(&name), Err(Error::Unknown(_))));
}

#[test]
fn root_an_emulator_that_cannot_start_leaves_nothing() {
    if skipped() {
        return;
    }
    let broken = Script::new("broken", "echo no such verb >&2; exit 2");
    let name = format!("broken-{}", std::process::id());
    let error = up(&UpOptions::new(&name, broken.path())).unwrap_err().to_string();
    assert!(error.contains("no such verb"), "{error}");
    assert!(list().unwrap().states.iter().all(|state| state.name != name));
    assert!(!exists(&format!("dwell-{name}-client")));
}

#[test]
fn root_an_emulator_process_reports_when_it_is_stopped() {
    if skipped() {
        return;
    }
    let emulator = Script::emulator("process");
    let lab = Lab::start(&options("process", Emulation::Process(emulator.path()))).unwrap();
    let ping = Ping { count: 5, interval: Duration::from_millis(20) };
    let report = ping.run(Ends::v4(&lab), &AtomicBool::new(false)).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    let state = lab.state().clone();
    let report = lab.stop().unwrap().unwrap();
    assert_eq!(report.direction("client to vantage").unwrap().delivered, 5);
    assert!(report.directions.iter().all(|direction| direction.stamped == direction.packets));
    assert!(is_gone(&state), "{state}");
}
