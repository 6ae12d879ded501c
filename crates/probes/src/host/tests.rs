//! Tests on a real kernel. What must hold everywhere is asserted; what this host can do is printed.

use std::{
    env,
    process::{Command, Stdio},
    thread,
};

use dwell_testbed::skip::lacks_root;
use nix::sched::{CloneFlags, unshare};

use super::{explain::explain, plan::plan, *};
use crate::{
    Error, Hook, Interface, TcHookKind,
    rtt::{Options, Probe},
};

/// Set in a test that runs itself again with other privileges.
const AGAIN: &str = "DWELL_HOST_TEST_AGAIN";

/// Runs the body in a network namespace of its own, with the processes that it starts.
fn in_a_namespace<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make namespaces");
        body()
    };
    thread::scope(|scope| scope.spawn(enter).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs one of these tests again, in a process with other privileges.
fn again(test: &str, setpriv: &[&str]) {
    // Other users may have no access to the folder of the executable.
    let folder = env::temp_dir().join(format!("dwell-host-{}-{}", test, std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let executable = folder.join("test");
    // Another process copies it: one that a thread of this one starts meanwhile would have the file open to write it.
    assert!(Command::new("cp").arg(env::current_exe().unwrap()).arg(&executable).status().unwrap().success());
    let status = Command::new("setpriv")
        .args(setpriv)
        .arg(&executable)
        .args(["--exact", "--nocapture", &format!("host::tests::{test}")])
        .env(AGAIN, "1")
        .current_dir("/")
        .stdin(Stdio::null())
        .status();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(status.unwrap().success());
}

fn holders_of_loopback() -> Device {
    Device::inspect(&Interface::find("lo").unwrap())
}

fn options() -> Options {
    Options {
        config: Default::default(),
        report: true,
        aggregate: None,
        ingress: Hook::TcIngress,
        tc: TcHookKind::Auto,
        replay: false,
    }
}

fn load_rtt() -> Result<Probe, Error> {
    Probe::load(&options())
}

/// Loads the RTT program without a privilege, and returns the error message.
fn refusal_of_rtt() -> String {
    let error = match load_rtt() {
        Ok(_) => panic!("the program was loaded without a privilege"),
        Err(error) => error.to_string(),
    };
    eprintln!("{error}");
    error
}

#[test]
fn root_tc_program_loads_and_nothing_stays_attached() {
    if lacks_root() {
        return;
    }
    let (before, facts, after) = in_a_namespace(|| (holders_of_loopback(), probe(None, &DWELL), holders_of_loopback()));
    assert_eq!(after, before);
    let plan = plan(&facts, &DWELL);
    eprintln!("{}", explain(&facts, &plan, &DWELL).text(true));
    for fact in [
        Fact::TcProgram,
        Fact::Root,
        Fact::CapNetAdmin,
        Fact::NetworkNamespaces, // as this test is in one that it made
    ] {
        assert_eq!(facts.answer(fact).holds, Some(true), "{fact:?}");
    }
    assert_eq!(plan.verbs[0].state != State::Impossible, load_rtt().is_ok(), "the plan agrees with the outcome");
    for fact in Fact::all() {
        assert!(facts.answers.contains_key(&fact), "{fact:?} was not asked");
    }
    assert!(facts.devices.iter().any(|device| device.name == "lo"));
}

#[test]
fn root_what_no_mode_of_the_verb_needs_is_not_tried() {
    if lacks_root() {
        return;
    }
    let rtt = DWELL.only(&["rtt".to_owned()]).unwrap();
    let facts = in_a_namespace(|| probe(None, &rtt));
    assert!([Fact::RttProgram, Fact::RttXdpProgram, Fact::Clsact].iter().all(|fact| facts.answers.contains_key(fact)));
    for fact in [Fact::BalancerProgram, Fact::ResponseProgram, Fact::StackProgram, Fact::Kprobe] {
        assert_eq!(facts.answer(fact), Answer::default(), "{fact:?}");
    }
    let whole = in_a_namespace(|| probe(None, &DWELL));
    for fact in rtt.facts() {
        assert_eq!(facts.answer(fact).holds, whole.answer(fact).holds, "{fact:?}");
    }
}

/// Trials take place on the loopback device that is in use if no namespace can be created.
#[test]
fn root_without_a_namespace_of_its_own_nothing_stays_attached_either() {
    let test = "root_without_a_namespace_of_its_own_nothing_stays_attached_either";
    if env::var_os(AGAIN).is_none() {
        if !lacks_root() {
            let but = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
            in_a_namespace(|| again(test, &but));
        }
        return;
    }
    let before = holders_of_loopback();
    let facts = probe(Some(&Interface::find("lo").unwrap()), &DWELL);
    assert_eq!(facts.answer(Fact::CapSysAdmin).holds, Some(false));
    assert_eq!(facts.answer(Fact::NetworkNamespaces).holds, Some(false));
    assert_eq!(facts.answer(Fact::Clsact).holds, None);
    assert_eq!(facts.answer(Fact::TcProgram).holds, Some(true));
    assert_eq!(facts.devices.len(), 1);
    assert_eq!(holders_of_loopback(), before);
}

#[test]
fn root_without_privilege_the_missing_capabilities_are_named() {
    let test = "root_without_privilege_the_missing_capabilities_are_named";
    if env::var_os(AGAIN).is_none() {
        if !lacks_root() {
            again(test, &["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        return;
    }
    let error = refusal_of_rtt();
    assert!(error.contains("this process lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"), "{error}");
    assert!(error.contains("setcap"), "{error}");

    let facts = probe(None, &DWELL);
    let plan = plan(&facts, &DWELL);
    eprintln!("{}", explain(&facts, &plan, &DWELL).text(true));
    assert_eq!(plan.verbs[0].state, State::Impossible);
    // The kernel was not asked, so nothing is known about it.
    assert_eq!(facts.answer(Fact::TcProgram).holds, None);
    assert_eq!(facts.answer(Fact::Tcx).holds, None);
    let rtt = &plan.verbs[0];
    for capability in ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"] {
        assert!(rtt.reasons.iter().any(|reason| reason.text.starts_with(capability)), "{rtt:?}");
    }
    let replay = plan.verbs.iter().find(|verdict| verdict.verb == "rtt -r");
    assert_eq!(replay.unwrap().state, State::Works);
}

/// Root of a user namespace holds every capability there, and none that counts.
#[test]
fn in_a_user_namespace_the_one_remedy_is_to_leave_it() {
    let test = "in_a_user_namespace_the_one_remedy_is_to_leave_it";
    if env::var_os(AGAIN).is_none() {
        let allowed = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
        if !allowed.is_ok_and(|status| status.success()) {
            return dwell_testbed::skip::skip("this host makes no user namespaces");
        }
        let status = Command::new("unshare")
            .args(["--user", "--map-root-user"])
            .arg(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", &format!("host::tests::{test}")])
            .env(AGAIN, "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let error = refusal_of_rtt();
    assert!(error.contains("lacks capabilities of the initial user namespace"), "{error}");
    assert!(error.contains("run it outside of the user namespace"), "{error}");
    let facts = probe(None, &DWELL);
    let plan = plan(&facts, &DWELL);
    eprintln!("{}", explain(&facts, &plan, &DWELL).text(false));
    for verdict in plan.verbs.iter().filter(|verdict| verdict.state != State::Works) {
        for reason in &verdict.reasons {
            let remedy = reason.remedy.as_deref().unwrap_or_default();
            assert!(remedy.starts_with("run it outside of the user namespace"), "{verdict:?}");
        }
    }
    let rtt = plan.verbs.iter().find(|verdict| verdict.verb == "rtt -i").unwrap();
    assert_eq!((rtt.state, rtt.reasons.len()), (State::Impossible, 1), "{rtt:?}");
    assert_eq!(facts.answer(Fact::BpfLoop).holds, None, "the kernel was not asked");
}

#[test]
fn root_one_missing_capability_is_named_alone() {
    let test = "root_one_missing_capability_is_named_alone";
    if env::var_os(AGAIN).is_none() {
        if !lacks_root() {
            again(test, &["--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]);
        }
        return;
    }
    let error = refusal_of_rtt();
    assert!(error.contains("lacks CAP_NET_ADMIN;") || error.contains("lacks CAP_NET_ADMIN)"), "{error}");
}

#[test]
fn root_programs_at_hooks_are_listed_with_their_names() {
    if lacks_root() {
        return;
    }
    let (held, free) = in_a_namespace(|| {
        let loopback = Interface::find("lo").unwrap();
        let mut probe = Probe::load(&Options { ingress: Hook::Xdp, ..options() }).unwrap();
        probe.attach(&loopback).unwrap();
        let held = holders_of_loopback();
        drop(probe);
        (held, holders_of_loopback())
    });
    let xdp = held.xdp.unwrap();
    assert_eq!(xdp.len(), 1);
    assert_eq!(xdp[0].name.as_deref(), Some("observe_xdp"));
    assert_eq!(xdp[0].mode, Some("generic"));
    assert_eq!(free.xdp, Some(Vec::new()));
}
