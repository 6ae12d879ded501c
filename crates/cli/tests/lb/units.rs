//! The systemd units: systemd accepts them, the capabilities that they grant are sufficient, and systemd learns what it
//! waits for.

use std::{collections::BTreeSet, io, os::unix::net::UnixDatagram, path::Path, process::Command, time::Duration};

use dwell_testbed::{
    Namespace,
    skip::{lacks_program, skip},
};

use crate::{
    files::read,
    scene::Scene,
    support::{DWELL, Process, dwell, eventually, links, run, skipped, spawn},
};

const UNITS: [&str; 6] = [
    "dwell-lb.service",
    "dwell-agent.service",
    "dwell-rtt@.service",
    "dwell-response@.service",
    "dwell-collect.service",
    "dwell-decap@.service",
];

/// The words of all values of a key.
fn words(unit: &str, key: &str) -> Vec<String> {
    let text = read(&format!("dist/systemd/{unit}"));
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

/// What units refer to, and every system has.
const OF_SYSTEM: [&str; 6] = [
    "basic.target",
    "multi-user.target",
    "network-online.target",
    "network.target",
    "shutdown.target",
    "sysinit.target",
];

#[test]
fn units_call_existing_verbs_with_existing_options() {
    for unit in UNITS {
        let text = read(&format!("dist/systemd/{unit}"));
        let (mut verbs, mut options) = (Vec::new(), Vec::new());
        for call in text.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once("/usr/local/bin/dwell ")) {
            let words: Vec<_> = call.1.split(' ').collect();
            let is_verb = |word: &&&str| word.chars().all(|letter| letter.is_ascii_lowercase());
            verbs.push(words.iter().take_while(is_verb).copied().collect::<Vec<_>>());
            options.extend(words);
        }
        options.extend(
            text.lines().filter_map(|line| line.split_once("OPTIONS=")).flat_map(|(_, words)| words.split(' ')),
        );
        assert!(!verbs.is_empty(), "{unit}");
        let helps = verbs.iter().map(|verb| dwell(&[verb, &["--help"][..]].concat())).collect::<Vec<_>>();
        assert!(helps.iter().all(|help| help.status == Some(0)), "{unit}: {verbs:?}");
        for option in options.iter().map(|word| word.trim_end_matches('"')).filter(|word| word.starts_with("--")) {
            assert!(helps.iter().any(|help| help.stdout.contains(option)), "{unit}: {option}");
        }
        for line in
            ["Type=notify", "WatchdogSec=", "MemoryMax=", "TasksMax=", "NoNewPrivileges=yes", "ProtectSystem=strict"]
        {
            assert!(text.contains(line), "{unit}: {line}");
        }
        // What ends by a SIGHUP has ended cleanly, as systemd sees it.
        assert!(text.contains("Restart=always"), "{unit}");
    }
}

#[test]
fn what_units_store_is_removed_with_their_package() {
    let stored = UNITS.iter().flat_map(|unit| words(unit, "StateDirectory"));
    let stored: BTreeSet<_> = stored.map(|folder| folder.split('/').next().unwrap().to_owned()).collect();
    assert!(stored.len() > 3, "{stored:?}");
    for script in ["dist/deb/postrm", "dist/rpm/dwell.spec"] {
        let text = read(script);
        let loops = text.lines().find_map(|line| line.trim().strip_prefix("for unit in ")?.strip_suffix("; do"));
        let of_loop = loops.unwrap().split(' ').map(|unit| format!("dwell-{unit}"));
        let removed: BTreeSet<_> =
            of_loop.chain(text.contains("rm -rf /var/lib/dwell\n").then(|| "dwell".into())).collect();
        assert_eq!(removed, stored, "{script}");
    }
}

/// Where a service sends what systemd wants to know.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn start() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager { folder, socket }
    }

    /// The variables that systemd sets, for env(1).
    fn environment(&self) -> [String; 2] {
        let socket = self.folder.path().join("notify");
        [format!("NOTIFY_SOCKET={}", socket.display()), "WATCHDOG_USEC=600000".to_owned()]
    }

    fn next(&self) -> String {
        let mut bytes = [0; 100];
        let length = loop {
            match self.socket.recv(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received.expect("a notification"),
            }
        };
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    }

    fn sees_it_run(&self) {
        assert_eq!([(); 3].map(|()| self.next()), ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    }

    fn has_seen_it_end(&self) {
        while self.next() != "STOPPING=1" {}
        self.socket.set_nonblocking(true).unwrap();
        assert!(self.socket.recv(&mut [0]).is_err(), "nothing follows");
    }
}

#[test]
fn root_systemd_learns_when_a_service_is_ready_that_it_runs_and_that_it_ends() {
    if skipped() {
        return;
    }
    let scene = Scene::new("notify", 0);
    let (key, store) = (scene.path("fleet.key"), scene.path("store.db"));
    assert_eq!(dwell(&["collect", "--new-key", &key]).status, Some(0));
    for service in [
        &["rtt", "-i", "lo", "--format", "none"][..],
        &["response", "-i", "lo", "--format", "none"],
        &["agent", "--collector", "127.0.0.1:4790", "--key-file", &key, "--buffer-dir", "none"],
        &["collect", "--listen", "127.0.0.1:4790", "--store", &store, "--key-file", &key],
    ] {
        let manager = Manager::start();
        let [socket, watchdog] = manager.environment();
        let command = [&[&*socket, &watchdog, DWELL], service].concat();
        let process = spawn(&scene.client, "env", &command);
        manager.sees_it_run();
        process.interrupt();
        manager.has_seen_it_end();
    }
}

#[test]
fn root_systemd_learns_of_a_balancer_too() {
    if skipped() {
        return;
    }
    let scene = Scene::new("ready", 1);
    scene.configure("", "policy = \"latency\"", &[0]);
    let manager = Manager::start();
    let [socket, watchdog] = manager.environment();
    scene.run_by(&["env", &socket, &watchdog]);
    manager.sees_it_run();
    scene.end();
    manager.has_seen_it_end();
}

#[test]
fn systemd_accepts_the_units_and_rates_their_exposure_low() {
    let folder = tempfile::tempdir().unwrap();
    // Units of this host do not matter, and a host without systemd has none.
    let analyze = |arguments: &[&str]| {
        run(Command::new("systemd-analyze").args(arguments).env("SYSTEMD_UNIT_PATH", folder.path()), b"")
    };
    if lacks_program("systemd-analyze") {
        return;
    }
    if !analyze(&["--help"]).stdout.contains("--offline") {
        skip("systemd-analyze is too old to examine a file");
        return;
    }
    for unit in OF_SYSTEM {
        std::fs::write(folder.path().join(unit), "[Unit]\n").unwrap();
    }
    for unit in UNITS {
        let path = folder.path().join(unit);
        let text =
            read(&format!("dist/systemd/{unit}")).replace("/usr/local/bin/dwell", DWELL).replace("/bin/kill", DWELL);
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        let verified = analyze(&["verify", "--man=no", &path]);
        assert_eq!(verified.status, Some(0), "{verified}");
        // An unknown key is a warning.
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
    for taken in ["new", "taken-over"] {
        scene.run_by(&by);
        eventually("both answer pings", || (0..2).all(|server| scene.backend(server)["health"] == "up"));
        assert_eq!(scene.status()["plane"]["start"], taken);
        assert_eq!(scene.spread(30).len(), 2);
        eventually("there are metrics", || scene.get_metrics().contains("dwell_lb_vip_backends"));
        scene.configure(top, vip, &[1, 0]);
        scene.ok(&["reload"]);
        scene.ok(&["where", "tcp:10.79.0.1:1000>198.51.100.1:80"]);
        let run = scene.end();
        assert_eq!(run.status, Some(0), "{run}");
        assert!(!run.stdout.contains("lb.unsaved"), "{run}");
    }
}

const NOBODY: u32 = 65534;

/// Runs dwell as a user of its own, with the capabilities of a unit.
fn spawn_as(unit: &str, scene: &Scene, space: &Namespace, arguments: &[&str]) -> Process {
    let (binary, nobody) = (scene.for_anybody(), NOBODY.to_string());
    let bounds = only(&words(unit, "CapabilityBoundingSet"));
    let ambient = only(&words(unit, "AmbientCapabilities"));
    let by = [
        ["--reuid", &nobody],
        ["--regid", &nobody],
        ["--inh-caps", &ambient],
        ["--ambient-caps", &ambient],
        ["--bounding-set", &bounds],
    ];
    let all = [&["--clear-groups", "--no-new-privs"][..], by.as_flattened(), &[&binary], arguments];
    spawn(space, "setpriv", &all.concat())
}

#[test]
fn root_user_and_capabilities_of_its_unit_are_enough_to_decapsulate_and_send_on() {
    if skipped() {
        return;
    }
    let scene = Scene::new("decap", 1);
    let options = ["--from", "172.16.0.0/16", "--backend", "10.79.0.0/24"];
    let space = &scene.servers[0].namespace;
    let mut process = spawn_as(UNITS[5], &scene, space, &[&["lb", "decap", "eth0"], &options[..]].concat());
    eventually("it decapsulates", || process.has_ended() || links(process.id()) > 0);
    assert!(!process.has_ended(), "{}", process.end());
    scene.configure("", "forward = \"ipip\"", &[0]);
    scene.run();
    assert_eq!(scene.spread(5).get(&0), Some(&5));
    let run = process.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
}

#[test]
fn root_user_and_capabilities_of_its_unit_are_enough_for_an_agent() {
    if skipped() {
        return;
    }
    let scene = Scene::new("agent", 0);
    let key = scene.path("fleet.key");
    let made = dwell(&["collect", "--new-key", &key]);
    assert_eq!(made.status, Some(0), "{made}");
    std::os::unix::fs::chown(Path::new(&key), Some(NOBODY), Some(NOBODY)).unwrap();
    // Nothing listens there, so measurements are queued.
    let agent = ["agent", "--collector", "127.0.0.1:4790", "--key-file", &key];
    let mut process = spawn_as(UNITS[1], &scene, &scene.client, &agent);
    eventually("it stamps", || process.has_ended() || links(process.id()) >= 10);
    assert!(!process.has_ended(), "{}", process.end());
    let run = process.interrupt();
    assert!(run.stderr.contains("measurements wait"), "{run}");
}
