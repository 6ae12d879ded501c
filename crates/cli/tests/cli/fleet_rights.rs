//! What agents and collector may still do once they run.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use nix::unistd::{self, Gid, Uid};

use crate::{
    fleet::{ended, get, pair, patiently},
    support::{Process, skipped},
};

/// Holds each thread of a process to the capabilities that one of its name may have. The bounding set, which one that begins later
/// cannot shrink any more and which gives nothing without new privileges, is held to `bounds`. Returns how many threads there are.
fn threads_keep_at_most(process: &Process, bounds: u64, allowed: impl Fn(&str) -> u64) -> usize {
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", process.id())).unwrap() {
        // One that has ended meanwhile has nothing.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let name = value("Name:");
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(|set| (set, allowed(name)));
        for (set, allowed) in sets.into_iter().chain([("CapBnd:", bounds)]) {
            let has = u64::from_str_radix(value(set), 16).unwrap();
            assert_eq!(has & !allowed, 0, "{name} {set} {has:x}");
        }
        assert_eq!(value("NoNewPrivs:"), "1", "{name}");
        threads += 1;
    }
    threads
}

/// An agent that root starts keeps what its unit would give it, and the threads that speak to the network keep less.
#[test]
fn root_an_agent_gives_up_what_it_does_not_need() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-rights");
    let collector = office.collect(&pair.left, &["--metrics", "9471"]);
    let agent = office.agent(&pair.left, "a", &["--metrics", "9470"]);
    office.waits_for_agents(1);
    let (bpf, perfmon, net_admin) = (1_u64 << 39, 1 << 38, 1 << 12);
    let allowed = |thread: &str| match thread {
        "uplink" => bpf,
        "metrics" => 0,
        "dwell-clock" => bpf | net_admin,
        _ => bpf | perfmon | net_admin,
    };
    let threads = threads_keep_at_most(&agent, bpf | perfmon | net_admin, allowed);
    assert!(threads >= 4, "{threads}");
    assert!(get(&pair.left, "127.0.0.1:9470").contains("dwell_agent_backlog_bytes"));
    // It still compares its clock, which attaches programs.
    let known = "SELECT count(*) FROM clock";
    patiently("its clock is known", || office.number(known) >= Some(1));
    let allowed = |thread: &str| if thread.starts_with("clock") { bpf | net_admin } else { 0 };
    assert!(threads_keep_at_most(&collector, bpf | net_admin, allowed) >= 4);
    ended(agent, 0);
    ended(collector, 0);
}

/// Root looks after a collector that has a user of its own: that user's files stay so.
#[test]
fn root_a_collector_that_root_starts_on_the_files_of_another_user_leaves_them_to_that_user() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-rights-user");
    let (uid, folder) = (65_534, office.path("theirs"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    unistd::chown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).unwrap();
    let store = folder.join("store");
    fs::write(&store, "").unwrap();
    unistd::chown(&store, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).unwrap();
    symlink(&store, office.path("store")).unwrap();
    let collector = office.collect_into(&pair.left, &[], &["--store", store.to_str().unwrap()]);
    let agent = office.agent(&pair.left, "a", &[]);
    office.waits_for_agents(1);
    let (chown, dac_override, of_clocks) = (1, 1 << 1, 1 << 39 | 1 << 12);
    let allowed = |thread: &str| match thread {
        "forward" | "metrics" => 0,
        clock if clock.starts_with("clock") => of_clocks,
        _ => chown | dac_override,
    };
    assert!(threads_keep_at_most(&collector, chown | dac_override | of_clocks, allowed) >= 3);
    for beside in ["store", "store-wal", "store-shm"] {
        assert_eq!(fs::metadata(folder.join(beside)).unwrap().uid(), uid, "{beside}");
    }
    ended(agent, 0);
    ended(collector, 0);
}
