//! What agents and collector may still do once they run.

use std::fs;

use crate::{
    fleet::{ended, get, pair, patiently},
    support::skipped,
};

/// An agent that root starts keeps what its unit would give it, and the threads that speak to the network keep less.
#[test]
fn root_an_agent_gives_up_what_it_does_not_need() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-rights");
    let collector = office.collect(&pair.left, &[]);
    let agent = office.agent(&pair.left, "a", &["--metrics", "9470"]);
    office.waits_for_agents(1);
    let (bpf, perfmon, net_admin) = (1_u64 << 39, 1 << 38, 1 << 12);
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", agent.id())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let allowed = match value("Name:") {
            "uplink" => bpf,
            "metrics" => 0,
            "dwell-clock" => bpf | net_admin,
            _ => bpf | perfmon | net_admin,
        };
        // The bounding set of a thread that begins later cannot shrink any more, and gives nothing without new privileges.
        let bounds = ("CapBnd:", bpf | perfmon | net_admin);
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(|set| (set, allowed));
        for (set, allowed) in sets.into_iter().chain([bounds]) {
            let has = u64::from_str_radix(value(set), 16).unwrap();
            assert_eq!(has & !allowed, 0, "{} {set} {has:x}", value("Name:"));
        }
        assert_eq!(value("NoNewPrivs:"), "1", "{}", value("Name:"));
        threads += 1;
    }
    assert!(threads >= 4, "{threads}");
    assert!(get(&pair.left, "127.0.0.1:9470").contains("dwell_agent_backlog_bytes"));
    // It still compares its clock, which attaches programs.
    let known = "SELECT count(*) FROM clock";
    patiently("its clock is known", || office.number(known) >= Some(1));
    // The collector, which root has started too, can start no program with rights that it does not have.
    for task in fs::read_dir(format!("/proc/{}/task", collector.id())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
    ended(agent, 0);
    ended(collector, 0);
}
