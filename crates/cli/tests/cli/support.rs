//! What the tests share: runs of the real binary, and networks for it.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Emulation, Lab, LabOptions, Namespace, Nanos, Topology, json_schema, workload::Ends};
use nix::{libc, sys::signal::Signal};
use serde_json::Value;

#[allow(unused_imports, reason = "not each of the two test binaries uses all")]
pub use dwell_testbed::harness::{
    Cgroup, Process, Run, card_packets, eventually, filters, has_kernel_pids, has_owners_noted, ip, links, prepare,
    run, skipped, spawn, start, tool, tool_here,
};

pub const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// After this time what is waited for does not come, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs dwell to its end, without anything on its input.
pub fn dwell(arguments: &[&str]) -> Run {
    dwell_reading(arguments, b"")
}

/// Runs dwell with this on its input, through a pipe.
pub fn dwell_reading(arguments: &[&str], input: &[u8]) -> Run {
    run(Command::new(DWELL).args(arguments), input)
}

/// One line of JSON that must match what `dwell schema` prints for its type.
pub fn object(line: &str) -> Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| serde_json::from_str(&dwell(&["schema"]).stdout).unwrap());
    let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let kind = object["type"].as_str().unwrap_or_else(|| panic!("no type: {line}"));
    json_schema::check_as(schema, kind, &object).unwrap_or_else(|error| panic!("{error}: {line}"));
    object
}

/// A named pipe that is full and that nobody reads: who waits for its reader waits for ever.
pub struct FullPipe {
    path: PathBuf,
    pipe: File,
}

impl FullPipe {
    pub fn new(folder: &Path) -> FullPipe {
        let path = folder.join("full-pipe");
        tool_here("mkfifo", &[path.to_str().unwrap()]);
        // A pipe ends with its last reader and its last writer: this is both.
        let both = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let mut pipe = both.unwrap();
        while pipe.write(&[b'\n'; 4096]).is_ok() {}
        FullPipe { path, pipe }
    }

    /// Starts dwell in a namespace, with the pipe as its standard output.
    pub fn spawn(&self, namespace: &Namespace, arguments: &[&str]) -> Process {
        let through = ["-c", "exec \"$@\" >\"$0\"", self.path.to_str().unwrap(), DWELL];
        spawn(namespace, "sh", &[&through, arguments].concat())
    }

    /// Takes what is in the pipe: empty lines, and what was written since.
    pub fn read(&mut self) -> String {
        let mut bytes = Vec::new();
        // It ends where it would have to wait.
        let _ = self.pipe.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }
}

/// Starts `dwell rtt` in a namespace and waits until it watches: from then on it sees every packet.
pub fn watch(namespace: &Namespace, arguments: &[&str]) -> Process {
    let mut process = spawn(namespace, DWELL, &[&["rtt"], arguments].concat());
    let interfaces: Vec<_> = arguments.windows(2).filter(|pair| pair[0] == "-i").map(|pair| pair[1]).collect();
    let clsact = arguments.contains(&"clsact");
    let begun = Instant::now();
    loop {
        let attached = match clsact {
            true => filters(namespace, interfaces[0]).len() == 2,
            // Loopback shows each packet twice, and is watched on one side only.
            false => {
                let places = |interface: &&str| if *interface == "lo" { 1 } else { 2 };
                links(process.id()) == interfaces.iter().map(places).sum::<usize>()
            }
        };
        if attached {
            return process;
        }
        if process.has_ended() || begun.elapsed() > PATIENCE {
            process.signal(Signal::SIGKILL);
            panic!("it does not watch:\n{}", process.end());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The programs at the hooks of an interface, by `dwell doctor`: XDP, tcx ingress, tcx egress.
pub fn programs(namespace: &Namespace, interface: &str) -> [usize; 3] {
    let arguments = ["doctor", "rtt", "-i", interface, "--format", "jsonl"];
    let report = spawn(namespace, DWELL, &arguments).end();
    assert_eq!(report.status, Some(0), "{report}");
    let report = object(&report.stdout);
    let device = &report["interfaces"][0];
    assert_eq!(device["name"], interface);
    ["xdp", "tcx_ingress", "tcx_egress"].map(|hook| device[hook].as_array().unwrap().len())
}

/// Two hosts and a cable: "left0" of one is 10.78.0.1, "right0" of the other 10.78.0.2.
pub struct Pair {
    pub left: Namespace,
    pub right: Namespace,
}

impl Pair {
    pub fn start(name: &str) -> Pair {
        let pair = Pair {
            left: Namespace::create(&format!("{name}-left")).unwrap(),
            right: Namespace::create(&format!("{name}-right")).unwrap(),
        };
        let there = pair.right.name();
        ip(
            &pair.left,
            &format!(
                "link add left0 type veth peer name right0 netns {there}\n\
                 addr add 10.78.0.1/24 dev left0\nlink set left0 up\n"
            ),
        );
        ip(&pair.right, "addr add 10.78.0.2/24 dev right0\nlink set right0 up\n");
        pair
    }

    /// From left to right.
    pub fn ends(&self) -> Ends<'_> {
        Ends { client: &self.left, server: &self.right, address: [10, 78, 0, 2].into() }
    }
}

pub const CLIENT_RTT: Nanos = Nanos(20_000_000);
pub const SERVER_RTT: Nanos = Nanos(5_000_000);

/// A client 20 ms away from the vantage point, and a server 5 ms.
pub fn line(name: &str) -> Lab {
    Lab::start(&LabOptions {
        name: name.to_owned(),
        topology: Topology::line(CLIENT_RTT, SERVER_RTT),
        emulation: Emulation::Thread,
    })
    .unwrap()
}
