//! `dwell doctor`, and what is said to those who lack a privilege.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{
    records::object,
    support::{DWELL, Pair, Run, dwell, filters, run, skipped, spawn, tool},
    wire::{capture, pings},
};

#[test]
fn the_report_is_one_object_with_every_fact() {
    check_report(&dwell(&["doctor", "--format", "jsonl"]));
}

fn check_report(report: &Run) {
    assert!(matches!(report.status, Some(0 | 1)), "{report}");
    assert_eq!(report.stderr, "");
    assert_eq!(report.stdout.lines().count(), 1);
    let object = object(&report.stdout);
    assert_eq!(object["type"], "doctor.report");
    assert_eq!(object["schema"], "dwell/2");
    assert_eq!(object["possible"], report.status == Some(0));
    let verbs = object["verbs"].as_array().unwrap();
    assert!(verbs.iter().any(|verb| verb["verb"] == "rtt -r" && verb["state"] == "works"));
    let facts = object["facts"].as_array().unwrap();
    assert!(facts.len() > 10);
    for fact in facts {
        assert!(fact["name"].is_string(), "{fact}");
        assert!(fact["value"].is_boolean() || fact["value"].is_null(), "{fact}");
        // A verb that needs what is missing has a remedy.
        let needed = !fact["means"].as_array().unwrap().is_empty();
        if fact["value"] == false && needed {
            assert!(fact["remedy"].is_string(), "{fact}");
        }
    }
}

#[test]
fn the_table_names_every_verb() {
    let report = dwell(&["doctor", "--all"]);
    let is_row = |verb: &str| report.stdout.lines().any(|line| line.starts_with(&format!("{verb} ")));
    for verb in ["rtt -i", "rtt -r", "stack", "agent", "collect", "report", "run", "lb run", "lb decap", "sim"] {
        assert!(is_row(verb), "{report}");
    }
    // They are the laboratory's.
    for row in ["lab", "iperf3", "wg", "veth devices"] {
        assert!(!is_row(row), "{report}");
    }
}

#[test]
fn a_verb_is_answered_for_alone() {
    let page = dwell(&["doctor", "report"]);
    assert_eq!(page.status, Some(0), "{page}");
    assert!(page.stdout.contains("works: report\n"), "{page}");
    assert!(!page.stdout.contains("rtt") && !page.stdout.contains("CAP_BPF"), "{page}");
    for (words, mode) in [
        (&["rtt", "r"][..], "rtt -r"),
        (&["why", "--", "-r"], "why -r"),
        (&["top", "--", "-r"], "top -r"),
        (&["lb", "check"], "lb check"),
    ] {
        let page = dwell(&[&["doctor"], words].concat());
        assert_eq!((page.status, page.stdout.contains(&format!("works: {mode}\n"))), (Some(0), true), "{page}");
    }
    assert_eq!(dwell(&["doctor", "rtt", "gue"]).status, Some(2), "it is no mode of that verb");
    insta::assert_snapshot!(dwell(&["doctor", "lab"]), @r#"
    exit 2
    stderr: dwell: "lab" has nothing to try; these have: rtt, response, stack, agent, collect, report, run, why, top, lb, sim; `dwell-lab doctor` reports on the laboratory
    "#);
}

const LB: &str = "interface = \"left0\"\n\
    [[vip]]\nname = \"web\"\naddress = \"192.0.2.10\"\nport = 443\nforward = \"l2\"\n\
    [[vip.backend]]\nname = \"b1\"\naddress = \"10.78.0.2\"\n";

/// `ip netns exec` mounts a new /sys, where nothing is mounted below.
#[test]
fn root_a_hidden_bpf_file_system_is_told_from_one_that_is_not_there() {
    if skipped() {
        return;
    }
    let pair = Pair::start("doctor-hidden");
    let below = |script: &str, arguments: &[&str]| {
        let script = format!("umount -l /sys && mount -t sysfs sysfs /sys || exit 99; {script}");
        let mut command = pair.left.command("unshare");
        command.args(["--mount", "sh", "-c", &script, DWELL]).args(arguments);
        run(&mut command, b"")
    };
    let doctor = below("exec \"$0\" \"$@\"", &["doctor", "lb", "-i", "left0"]);
    assert_eq!(doctor.status, Some(1), "{doctor}");
    assert!(doctor.stdout.contains("hidden from this process: `ip netns"), "{doctor}");
    let remedy =
        format!("    -> sudo nsenter --net=/run/netns/{} dwell ... instead of ip netns exec\n", pair.left.name());
    assert!(doctor.stdout.contains(&remedy), "{doctor}");
    // So are cgroups, unless they are mounted elsewhere.
    let follows = below("exec \"$0\" \"$@\"", &["doctor", "run", "cgroup"]);
    let is_elsewhere = tool(&pair.left, "cat", &["/proc/self/mountinfo"])
        .lines()
        .any(|line| line.contains(" - cgroup2 ") && !line.contains(" /sys/"));
    assert!(is_elsewhere || follows.stdout.contains(&remedy), "{follows}");
    let top = below("exec unshare --net \"$0\" \"$@\"", &["doctor", "top"]);
    assert!(top.stdout.contains("may work") && top.stdout.contains("    -> sudo ip link set lo up\n"), "{top}");
    // Others may let the kernel time programs meanwhile, by which `lb decap` is degraded.
    assert!(!doctor.stdout.contains("lb decap                    impossible"), "{doctor}");
    assert!(doctor.stdout.lines().any(|line| line.starts_with("works: ") && line.ends_with("lb check")), "{doctor}");

    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("lb.toml");
    fs::write(&configuration, LB).unwrap();
    let balancer = below("exec \"$0\" \"$@\"", &["lb", "run", configuration.to_str().unwrap()]);
    assert!(balancer.stderr.contains("hidden from this process: `ip netns exec`"), "{balancer}");
    assert!(balancer.stderr.contains("nsenter --net=/run/netns/"), "{balancer}");
}

#[test]
fn root_programs_of_others_are_shown() {
    if skipped() {
        return;
    }
    let pair = Pair::start("doctor");
    let watcher = crate::support::watch(&pair.left, &["-i", "left0", "--hook", "xdp"]);
    let report = spawn(&pair.left, DWELL, &["doctor", "rtt", "-i", "left0"]).end();
    assert_eq!(report.status, Some(0), "{report}");
    let shown = report.stdout.lines().skip_while(|line| !line.starts_with("left0 "));
    let shown: Vec<_> = shown.collect();
    let text = shown.join("\n");
    assert!(text.contains("XDP: observe_xdp (native, id "), "{report}");
    assert!(text.contains("tcx egress: observe_tc (id "), "{report}");
    watcher.interrupt();
}

#[test]
fn root_filters_that_a_killed_run_left_are_shown_and_removed_as_told() {
    if skipped() {
        return;
    }
    let pair = Pair::start("doctor-left");
    let watcher = crate::support::watch(&pair.left, &["-i", "left0", "--attach", "clsact"]);
    watcher.signal(Signal::SIGKILL);
    watcher.end();
    assert_eq!(filters(&pair.left, "left0").len(), 2);
    let report = spawn(&pair.left, DWELL, &["doctor", "rtt", "-i", "left0"]).end();
    assert_eq!(report.status, Some(0), "{report}");
    let shown = report.stdout.lines().map(str::trim_start);
    let remedies: Vec<_> = shown.filter_map(|line| line.strip_prefix("-> sudo tc filter del ")).collect();
    let left = "dev left0 ingress pref 1 handle 0x1 bpf";
    assert_eq!(remedies, [left, &left.replace("ingress", "egress")]);
    assert!(report.stdout.contains("clsact ingress: observe_tc"), "{report}");
    for remedy in remedies {
        let words: Vec<_> = remedy.split(' ').collect();
        tool(&pair.left, "tc", &[&["filter", "del"], &words[..]].concat());
    }
    assert_eq!(filters(&pair.left, "left0"), Vec::<String>::new());
}

/// A copy of dwell where everybody may run it, and calls of it as nobody.
struct Nobody {
    folder: TempDir,
}

impl Nobody {
    /// None, with a notice, where this user cannot become another.
    fn new() -> Option<Nobody> {
        if skipped() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::copy(DWELL, folder.path().join("dwell")).unwrap();
        Some(Nobody { folder })
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
        command.arg(self.folder.path().join("dwell")).args(arguments);
        command.current_dir(self.folder.path());
        run(&mut command, b"")
    }
}

#[test]
fn root_without_privilege_each_verb_says_what_it_lacks() {
    let Some(nobody) = Nobody::new() else { return };
    let live = nobody.run(&["rtt", "-i", "lo"]);
    assert_eq!((live.status, live.stdout.as_str()), (Some(3), ""), "{live}");
    let wanted = "dwell: cannot load the RTT program: ";
    let lacking = "(this process lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); use sudo, or once: \
                   sudo setcap cap_bpf,cap_net_admin,cap_perfmon+ep \"$(command -v dwell)\"\n";
    assert!(live.stderr.starts_with(wanted), "{live}");
    assert!(live.stderr.ends_with(lacking), "{live}");
    check_report(&nobody.run(&["doctor", "--format", "jsonl"]));
    let doctor = nobody.run(&["doctor"]);
    assert_eq!((doctor.status, doctor.stderr.as_str()), (Some(1), ""), "{doctor}");
    assert!(doctor.stdout.contains("rtt -i                      impossible"), "{doctor}");
    assert!(doctor.stdout.contains("CAP_BPF: no"), "{doctor}");
    assert!(doctor.stdout.contains("\nworks: rtt -r, "), "{doctor}");
}

#[test]
fn root_without_privilege_captures_are_read_if_they_may_be() {
    let Some(nobody) = Nobody::new() else { return };
    let file = nobody.folder.path().join("x.pcap");
    fs::write(&file, capture(&pings(3))).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(nobody.run(&["rtt", "-r", "x.pcap"]).stdout.lines().count(), 3);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    insta::assert_snapshot!(nobody.run(&["rtt", "-r", "x.pcap"]), @"
    exit 2
    stderr: dwell: cannot open capture x.pcap: Permission denied (os error 13); check the name and that you may read it
    ");
}

#[test]
fn root_the_three_capabilities_are_enough_and_each_is_needed() {
    if skipped() {
        return;
    }
    let pair = Pair::start("capabilities");
    let with = |capabilities: &str| {
        let mut command = pair.left.command("setpriv");
        let kept = format!("-all{capabilities}");
        command.args(["--bounding-set", &kept, "--inh-caps", "-all", DWELL]);
        command.args(["rtt", "-i", "left0", "--duration", "100ms"]);
        run(&mut command, b"")
    };
    let enough = with(",+bpf,+net_admin,+perfmon");
    assert_eq!(enough.status, Some(0), "{enough}");
    for (kept, missing) in
        [(",+net_admin,+perfmon", "CAP_BPF"), (",+bpf,+perfmon", "CAP_NET_ADMIN"), (",+bpf,+net_admin", "CAP_PERFMON")]
    {
        let refused = with(kept);
        assert_eq!(refused.status, Some(3), "{refused}");
        let said = format!("(this process lacks {missing})");
        assert!(refused.stderr.contains(&said), "{refused}");
    }
}
