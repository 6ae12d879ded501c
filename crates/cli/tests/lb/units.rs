//! The systemd units: systemd accepts them, and the capabilities that they grant are sufficient.

use std::{path::Path, process::Command};

use dwell_testbed::skip::{lacks_program, skip};

use crate::{
    files::read,
    scene::Scene,
    support::{DWELL, dwell, eventually, links, run, skipped, spawn},
};

const UNITS: [&str; 2] = ["dwell-lb.service", "dwell-agent.service"];

/// The words of all values of a key.
fn words(unit: &str, key: &str) -> Vec<String> {
    let text = read(&format!("dist/{unit}"));
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let words = values.flat_map(|value| value.split_whitespace());
    words.map(str::to_owned).collect()
}

/// A capability list for setpriv: these, and no others.
fn only(capabilities: &[String]) -> String {
    let names = capabilities.iter().map(|name| {
        let name = name.strip_prefix("CAP_").unwrap();
        format!(",+{}", name.to_lowercase())
    });
    format!("-all{}", names.collect::<String>())
}

#[test]
fn systemd_accepts_the_units_and_rates_their_exposure_low() {
    let analyze = |arguments: &[&str]| run(Command::new("systemd-analyze").args(arguments), b"");
    if lacks_program("systemd-analyze") {
        return;
    }
    if !analyze(&["--help"]).stdout.contains("--offline") {
        skip("systemd-analyze is too old to examine a file");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let path = folder.path().join(unit);
        let text = read(&format!("dist/{unit}")).replace("/usr/local/bin/dwell", DWELL);
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        let verified = analyze(&["verify", "--man=no", &path]);
        assert_eq!(verified.status, Some(0), "{verified}");
        // An unknown key is a warning. There may be warnings about other units of this host.
        assert!(!verified.stderr.contains(unit), "{verified}");
        let secure = ["security", "--offline=true", "--no-pager", "--threshold=30"];
        let exposed = analyze(&[&secure[..], &[&path]].concat());
        assert_eq!(exposed.status, Some(0), "{exposed}");
    }
}

#[test]
fn root_the_capabilities_of_its_unit_are_enough_for_a_balancer() {
    if skipped() {
        return;
    }
    let capabilities = only(&words(UNITS[0], "CapabilityBoundingSet"));
    let by = ["setpriv", "--no-new-privs", "--bounding-set", &capabilities];
    let scene = Scene::new("unit", 2);
    let top = "metrics.listen = \"127.0.0.1:9469\"";
    let vip = "policy = \"latency\"\nhealth = { kind = \"icmp\", interval = \"100ms\" }";
    scene.configure(top, vip, &[0, 1]);
    for taken in ["new", "over"] {
        scene.run_by(&by);
        eventually("both answer pings", || (0..2).all(|server| scene.backend(server)["health"] == "up"));
        assert_eq!(scene.status()["plane"]["taken"], taken);
        assert_eq!(scene.spread(30).len(), 2);
        eventually("there are metrics", || scene.get_metrics().contains("dwell_lb_vip_backends"));
        scene.configure(top, vip, &[1, 0]);
        scene.ok(&["reload"]);
        scene.ok(&["where", "tcp:10.79.0.1:1000>198.51.100.1:80"]);
        let run = scene.end();
        assert_eq!(run.status, Some(0), "{run}");
        assert!(!run.stdout.contains("lb_unsaved"), "{run}");
    }
}

#[test]
fn root_user_and_capabilities_of_its_unit_are_enough_for_an_agent() {
    const NOBODY: u32 = 65534;
    if skipped() {
        return;
    }
    let scene = Scene::new("agent", 0);
    let key = scene.path("fleet.key");
    let made = dwell(&["collect", "--new-key", &key]);
    assert_eq!(made.status, Some(0), "{made}");
    std::os::unix::fs::chown(Path::new(&key), Some(NOBODY), Some(NOBODY)).unwrap();
    let (binary, nobody) = (scene.for_anybody(), NOBODY.to_string());
    let bounds = only(&words(UNITS[1], "CapabilityBoundingSet"));
    let ambient = only(&words(UNITS[1], "AmbientCapabilities"));
    let by = [
        ["--reuid", &nobody],
        ["--regid", &nobody],
        ["--inh-caps", &ambient],
        ["--ambient-caps", &ambient],
        ["--bounding-set", &bounds],
    ];
    // Nothing listens there, so measurements are queued.
    let agent = ["--collector", "127.0.0.1:4790", "--key-file", &key];
    let all = [&["--clear-groups", "--no-new-privs"][..], by.as_flattened(), &[&binary, "agent"], &agent];
    let mut process = spawn(&scene.client, "setpriv", &all.concat());
    eventually("it stamps", || process.has_ended() || links(process.id()) >= 10);
    assert!(!process.has_ended(), "{}", process.end());
    let run = process.interrupt();
    assert!(run.stderr.contains("what is measured waits"), "{run}");
}
