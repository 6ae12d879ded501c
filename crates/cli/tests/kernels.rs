//! `dwell stack` on kernels that this host does not run, in virtual machines: which hook stamps which layer there, and
//! that it does. `make vm` fetches the kernels, and shows the table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    time::Duration,
};

use dwell_testbed::{Guest, GuestOptions, Namespace, skip::skip};
use serde_json::Value;
use tempfile::NamedTempFile;

/// Where `tests/vm/kernels` has put them.
const KERNELS: &str = "DWELL_KERNELS";
const PATIENCE: Duration = Duration::from_secs(600);
const PROFILES: [&str; 4] = ["auto", "tracepoint", "fentry", "kprobe"];
const SAMPLE_BYTES: usize = 4096;

const FILE_BYTES: usize = 4_000_000;

const PORT: u16 = 5201;
const HOST4: &str = "10.78.9.1";
const HOST6: &str = "fd78:9::1";
const GUEST4: &str = "10.78.9.2";
const GUEST6: &str = "fd78:9::2";

/// What other options bring into the programs, which have to load with it.
const EVERYTHING: &str = "--pid 1 --cgroup /sys/fs/cgroup --filter !192.0.2.0/24 --raw --flows \
    --include-retransmissions --sample-interval 1ms --cpu-budget 1% --duration 100ms";

/// A layer, and a segment of which it is an end: true if that begins there.
const LAYERS: [(&str, &str, &str, bool); 10] = [
    ("tx-socket", "tx", "socket-tcp", true),
    ("tx-tcp", "tx", "tcp-ip", true),
    ("tx-ip", "tx", "ip-driver", true),
    ("tx-queue", "tx", "queueing", true),
    ("tx-driver", "tx", "ip-driver", false),
    ("rx-driver", "rx", "driver-ip", true),
    ("rx-ip", "rx", "ip-tcp", true),
    ("rx-tcp", "rx", "tcp-socket", true),
    ("rx-ready", "rx", "application", true),
    ("rx-socket", "rx", "application", false),
];

/// In the machine: each profile on what a server sends by sendfile over IPv4, and what it gets in one large write over
/// IPv6; over loopback, and then over the network, from the namespace. What the profile says follows a line with its
/// name.
fn script() -> String {
    let mut script = format!(
        r"echo KERNEL $(uname -r)
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set eth0 up
ip addr add {GUEST4}/24 dev eth0
ip addr add {GUEST6}/64 dev eth0
mkdir -p /www/cgi-bin
yes | head -c {FILE_BYTES} >/www/file
cat >/www/cgi-bin/count <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\n\n%d' $(wc -c)
END
cat >/www/cgi-bin/done <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\n\n'
touch /done
END
chmod +x /www/cgi-bin/*
httpd -p [::]:{PORT} -h /www
"
    );
    let traffic = traffic("127.0.0.1", "::1", "/www/file").join("\n");
    for profile in PROFILES {
        let _ = write!(
            script,
            "rm -f /out /done
dwell stack --hooks {profile} --devices --port {PORT} --sample-bytes {SAMPLE_BYTES} --format jsonl >/out 2>/err &
pid=$!
while [ -d /proc/$pid ] && [ ! -s /out ]; do sleep 0.1; done
if [ -d /proc/$pid ]; then
{traffic}
echo READY {profile}
until [ -e /done ]; do sleep 0.1; done
kill -INT $pid
fi
wait $pid
echo PROFILE {profile} $?
cat /out /err
dwell stack --hooks {profile} {EVERYTHING} >/out 2>&1
echo EVERYTHING $?
"
        );
    }
    script + "echo DOCTOR\ndwell doctor\n"
}

/// Commands that make the machine's server send the file, and receive it. Each prints how many bytes arrived.
fn traffic(v4: &str, v6: &str, file: &str) -> [String; 2] {
    [
        format!("echo GOT $(busybox wget -q -O- http://{v4}:{PORT}/file | wc -c)"),
        format!("echo GOT $(busybox wget -q -O- --post-file={file} http://[{v6}]:{PORT}/cgi-bin/count)"),
    ]
}

/// What a profile did on a kernel.
#[derive(Debug, Default)]
struct Outcome {
    exit: i32,
    /// Of all intervals, by direction and segment: how many bytes, and the sum of their times.
    segments: BTreeMap<(String, String), (u64, u64)>,
    /// The hooks, by layer.
    hooks: BTreeMap<&'static str, String>,
    /// Those that are an end of a segment that bytes were in.
    fired: BTreeSet<String>,
    /// From device to device.
    hops: u64,
    /// How the run with other options ended.
    everything: i32,
    /// How many stamps are missing of bytes that went all the way.
    missed: u64,
    said: Vec<String>,
}

impl Outcome {
    fn add(&mut self, object: &Value) {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        // A kernel may miss an event now and then.
        if object["type"] == "stack.hop" {
            self.hops += object["latency"]["count"].as_u64().unwrap_or_default();
        }
        if object["type"] == "stack.status" {
            let counters = object["counters"].as_object().into_iter().flatten();
            let missed = counters.filter(|(name, _)| name.starts_with("missed_"));
            self.missed = missed.filter_map(|(_, count)| count.as_u64()).sum();
        }
        if object["type"] != "stack.segment" || !object["flow"].is_null() {
            return;
        }
        let (direction, segment) = (text("direction"), text("segment"));
        let count = object["latency"]["count"].as_u64().unwrap_or_default();
        let mean_ns = object["latency"]["mean_ns"].as_u64().unwrap_or_default();
        for (layer, of, part, begins) in LAYERS {
            let hook = text(if begins { "hook_from" } else { "hook_to" });
            if of == direction && part == segment && !hook.is_empty() {
                self.hooks.insert(layer, hook);
            }
        }
        if count > 0 {
            self.fired.extend([text("hook_from"), text("hook_to")]);
        }
        let sum = self.segments.entry((direction, segment)).or_default();
        sum.0 += count;
        sum.1 += mean_ns * count;
    }

    fn of(&self, direction: &str, segment: &str) -> (u64, u64) {
        let key = (direction.to_owned(), segment.to_owned());
        self.segments.get(&key).copied().unwrap_or_default()
    }

    /// How its bytes were stamped at a layer, in a word of the table.
    fn cell(&self, layer: &str) -> &str {
        match self.hooks.get(layer) {
            Some(hook) if !self.fired.contains(hook) => "NONE",
            Some(hook) => hook.split('/').next().unwrap(),
            None => "-",
        }
    }

    /// That all bytes were seen on both sides, and what they took adds up.
    fn check(&self, what: &str) {
        assert_eq!(self.everything, 0, "{what}: {self:#?}");
        assert!(self.hops > 0, "{what}: {self:#?}");
        for (direction, parts) in [
            ("tx", ["socket-tcp", "tcp-ip", "ip-driver", "unexplained"]),
            ("rx", ["driver-ip", "ip-tcp", "tcp-socket", "unexplained"]),
        ] {
            let (bytes, total_ns) = self.of(direction, "total");
            let least = (3 * FILE_BYTES / SAMPLE_BYTES * 9 / 10) as u64;
            assert!(bytes >= least, "{what}: {direction} {bytes} of {least} bytes: {self:#?}");
            assert!(self.missed <= bytes / 10, "{what}: a hook does not always fire: {self:#?}");
            let sum_ns: u64 = parts.iter().map(|part| self.of(direction, part).1).sum();
            // Each mean is rounded down.
            let lost_ns = bytes * parts.len() as u64;
            assert!(
                sum_ns.abs_diff(total_ns) <= lost_ns,
                "{what}: the parts of {direction} take {sum_ns} ns of {total_ns}: {self:#?}"
            );
        }
    }
}

/// By profile; and what doctor says.
fn outcomes(console: &str) -> (String, Vec<(String, Outcome)>, String) {
    let mut kernel = String::new();
    let mut outcomes: Vec<(String, Outcome)> = Vec::new();
    let (profiles, doctor) = console.split_once("\nDOCTOR\n").unwrap_or((console, ""));
    for line in profiles.lines() {
        let words: Vec<_> = line.split(' ').collect();
        if let ["KERNEL", version] = words[..] {
            kernel = version.to_owned();
        } else if let ["PROFILE", name, exit] = words[..] {
            let exit = exit.parse().unwrap();
            outcomes.push((name.to_owned(), Outcome { exit, ..Outcome::default() }));
        } else if let ["EVERYTHING", exit] = words[..] {
            outcomes.last_mut().unwrap().1.everything = exit.parse().unwrap();
        } else if let Some((_, outcome)) = outcomes.last_mut() {
            match serde_json::from_str(line) {
                Ok(object) => outcome.add(&object),
                Err(_) => outcome.said.push(line.to_owned()),
            }
        }
    }
    (kernel, outcomes, doctor.to_owned())
}

/// Runs the script, and talks to its server. Gives what it shows.
fn run_guest(folder: &Path, namespace: &Namespace) -> String {
    let mut options = GuestOptions::new(folder, script());
    options.programs = vec![env!("CARGO_BIN_EXE_dwell").into()];
    options.tap = Some("guest".into());
    let guest = Guest::start(&options, namespace).unwrap();
    for address in [format!("{HOST4}/24"), format!("{HOST6}/64")] {
        let mut ip = namespace.command("ip");
        ip.args(["addr", "add", &address, "dev", "guest"]);
        assert!(ip.status().unwrap().success());
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&vec![b'y'; FILE_BYTES]).unwrap();
    let [get, send] = traffic(GUEST4, GUEST6, file.path().to_str().unwrap());
    let end = format!("busybox wget -q -O- http://{GUEST4}:{PORT}/cgi-bin/done");
    for profile in PROFILES {
        let ready = format!("READY {profile}\n");
        let ended = format!("PROFILE {profile} ");
        guest.wait_for(&[&ready, &ended], PATIENCE).unwrap();
        if guest.output().contains(&ready) {
            let got = format!("GOT {FILE_BYTES}\n");
            assert_eq!(shell(namespace, &get), got);
            assert_eq!(shell(namespace, &send), got);
            assert_eq!(shell(namespace, &end), "");
        }
    }
    guest.wait(PATIENCE).unwrap()
}

fn shell(namespace: &Namespace, line: &str) -> String {
    let output = namespace.command("sh").args(["-c", line]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Lines of the table, one a profile.
fn try_kernel(folder: &Path) -> Vec<String> {
    let namespace = Namespace::create("kernel").unwrap();
    let console = run_guest(folder, &namespace);
    let (kernel, outcomes, doctor) = outcomes(&console);
    assert_eq!(outcomes.len(), PROFILES.len(), "{console}");
    let got = format!("GOT {FILE_BYTES}");
    assert!(console.lines().filter(|line| line.starts_with("GOT")).all(|line| line == got), "{console}");
    eprintln!("{kernel}\n{doctor}");
    let mut lines = Vec::new();
    for (profile, outcome) in outcomes {
        let what = format!("{kernel} {profile}");
        let mut line = format!("{kernel:<31}{profile:<11}");
        if outcome.exit == 0 {
            outcome.check(&what);
            for (layer, ..) in LAYERS {
                let _ = write!(line, "{:<11}", outcome.cell(layer));
            }
        } else {
            assert_eq!(outcome.exit, 3, "{what}: {outcome:#?}");
            line.push_str(&outcome.said.join(" "));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[test]
fn root_each_layer_is_stamped_on_each_kernel_that_is_there() {
    let Some(folder) = env::var_os(KERNELS) else {
        skip(format_args!("{KERNELS} names no folder with kernels: `make vm`"));
        return;
    };
    if let Some(lack) = Guest::missing_requirement().or_else(dwell_testbed::missing_requirement) {
        skip(lack);
        return;
    }
    let kernels = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut kernels: Vec<_> = kernels.filter(|path| path.join("boot").is_dir()).collect();
    kernels.sort();
    let mut table = format!("{:<31}{:<11}", "kernel", "profile");
    for (layer, ..) in LAYERS {
        let _ = write!(table, "{layer:<11}");
    }
    for kernel in kernels {
        for line in try_kernel(&kernel) {
            table = format!("{}\n{line}", table.trim_end());
        }
    }
    eprintln!("{table}");
    assert!(!table.contains("NONE"), "a hook that never fired:\n{table}");
}
