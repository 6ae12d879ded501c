//! What the tests share: runs of the real binary, and networks for it.

use std::{
    fmt, fs,
    io::{Read, Write},
    ops::DerefMut,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_lab::{Emulation, Guarded, Lab, LabOptions, Namespace, Nanos, Topology, workload::Ends};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

pub const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// After this time what is waited for does not come, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A run that takes longer has hung: some of the lab take most of a minute where nothing else is done.
const LONGEST: Duration = Duration::from_secs(300);

/// How a run ended, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// None if a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// For snapshots: the status and both outputs.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => writeln!(f, "exit {status}")?,
            None => writeln!(f, "ended by a signal")?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            for line in text.lines() {
                writeln!(f, "{}", format!("{name}: {line}").trim_end())?;
            }
        }
        Ok(())
    }
}

/// Runs dwell to its end, without anything on its input.
pub fn dwell(arguments: &[&str]) -> Run {
    dwell_reading(arguments, b"")
}

/// Runs dwell with this on its input, through a pipe.
pub fn dwell_reading(arguments: &[&str], input: &[u8]) -> Run {
    run(Command::new(DWELL).args(arguments), input)
}

/// Runs a command to its end.
pub fn run(command: &mut Command, input: &[u8]) -> Run {
    prepare(command).stdin(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || {
        // Who has seen enough may close its input.
        let _ = stdin.write_all(&input);
    });
    let run = Process::new(child).end();
    writer.join().unwrap();
    run
}

/// Starts a command, and reads its outputs while it runs.
pub fn start(command: &mut Command) -> Process {
    Process::new(Killed(prepare(command).spawn().unwrap()))
}

/// The same everywhere: neither terminal nor environment decides how a text is wrapped.
pub fn prepare(command: &mut Command) -> &mut Command {
    command
        .env("COLUMNS", "100")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// A child that is killed and waited for when the guard is dropped.
struct Killed(Child);

impl std::ops::Deref for Killed {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running child whose outputs are read meanwhile.
pub struct Process {
    child: Box<dyn DerefMut<Target = Child>>,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
}

impl Process {
    fn new(mut child: impl DerefMut<Target = Child> + 'static) -> Process {
        fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    pipe.read_to_end(&mut bytes).unwrap();
                }
                String::from_utf8(bytes).expect("all output is UTF-8")
            })
        }
        Process { stdout: read(child.stdout.take()), stderr: read(child.stderr.take()), child: Box::new(child) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        // Not collected yet, so the number is still that of the child.
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Run {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status.code(),
                None if begun.elapsed() > LONGEST => {
                    self.child.kill().unwrap();
                    let stderr = self.stderr.join().unwrap();
                    panic!("it did not end in {LONGEST:?}; it said: {stderr}");
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        Run { status, stdout: self.stdout.join().unwrap(), stderr: self.stderr.join().unwrap() }
    }

    pub fn interrupt(self) -> Run {
        self.signal(Signal::SIGINT);
        self.end()
    }
}

/// Starts a program in a namespace.
pub fn spawn(namespace: &Namespace, program: &str, arguments: &[&str]) -> Process {
    let child: Guarded = namespace
        .spawn(program, |command| {
            prepare(command.args(arguments));
        })
        .unwrap();
    Process::new(child)
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

/// How many BPF links a process holds.
pub fn links(pid: u32) -> usize {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return 0;
    };
    descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok())
        .filter(|text| text.contains("link_type:"))
        .count()
}

/// The BPF filters of an interface's clsact, as tc shows them.
pub fn filters(namespace: &Namespace, interface: &str) -> Vec<String> {
    ["ingress", "egress"]
        .iter()
        .flat_map(|hook| {
            let shown = tool(namespace, "tc", &["filter", "show", "dev", interface, hook]);
            shown.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| line.contains(" bpf ") && line.contains("direct-action"))
        .collect()
}

/// The programs at the hooks of an interface, by `dwell doctor`: XDP, tcx ingress, tcx egress.
pub fn programs(namespace: &Namespace, interface: &str) -> [usize; 3] {
    let arguments = ["doctor", "-i", interface, "--json"];
    let report = spawn(namespace, DWELL, &arguments).end();
    assert_eq!(report.status, Some(0), "{report}");
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let device = &report["interfaces"][0];
    assert_eq!(device["name"], interface);
    ["xdp", "tcx_ingress", "tcx_egress"].map(|hook| device[hook].as_array().unwrap().len())
}

/// Runs a tool that every Debian has.
pub fn tool_here(program: &str, arguments: &[&str]) {
    let run = run(Command::new(program).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{program} {arguments:?}: {run}");
}

/// Runs a tool in a namespace and gives what it printed.
pub fn tool(namespace: &Namespace, program: &str, arguments: &[&str]) -> String {
    let run = run(namespace.command(program).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{program} {arguments:?}: {run}");
    run.stdout
}

/// Commands of `ip`, a line each.
pub fn ip(namespace: &Namespace, lines: &str) {
    let run = run(namespace.command("ip").args(["-batch", "-"]), lines.as_bytes());
    assert_eq!(run.status, Some(0), "{lines}: {run}");
}

/// The table of a network card's counters: packets received and sent.
pub fn card_packets(namespace: &Namespace, interface: &str) -> (u64, u64) {
    let table = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let prefix = format!("{interface}:");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&prefix)).unwrap();
    let numbers: Vec<u64> = line.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[1], numbers[9])
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
        emulation: Emulation::Process(DWELL.into()),
    })
    .unwrap()
}

/// Tells why networks cannot be made here, and that the test is skipped; false where they can.
pub fn skipped() -> bool {
    let reason = dwell_lab::missing_requirement().or_else(|| {
        let may = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
        (!may).then(|| "no network namespace can be made here".to_owned())
    });
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason.is_some()
}

/// A cgroup of its own. It goes when this is dropped; the processes in it have to be gone before.
pub struct Cgroup(pub std::path::PathBuf);

impl Cgroup {
    /// `None`, with a word, where there is no cgroup v2.
    pub fn new(name: &str) -> Option<Cgroup> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| std::path::PathBuf::from(path))
        });
        let Some(root) = root else {
            eprintln!("skipped: there is no cgroup v2 here");
            return None;
        };
        let path = root.join(format!("dwell-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Some(Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Waits until something holds, for ten seconds at most.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not come true");
        thread::sleep(Duration::from_millis(10));
    }
}
