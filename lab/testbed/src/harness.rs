//! Helpers for tests of binaries: runs of a program with both outputs, tools, and waiting for conditions.

#![allow(clippy::unwrap_used, missing_docs, reason = "what does not hold fails the test")]

use std::{
    fmt, fs,
    io::{Read, Write},
    ops::DerefMut,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Guarded, Namespace, skip};

/// After this time a run has hung: some experiments take most of a minute on a quiet machine.
const LONGEST: Duration = Duration::from_secs(300);

/// The exit status and the outputs of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The exit status; `None` if a signal ended the program.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Writes the status and both outputs, for snapshots.
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

/// Makes output the same everywhere: neither the terminal nor the environment decides how a text is wrapped.
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

/// A running child whose outputs are read while it runs.
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
                    // What it started may have the pipe still.
                    thread::sleep(Duration::from_secs(1));
                    let stderr = if self.stderr.is_finished() { self.stderr.join().unwrap() } else { "-".to_owned() };
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

/// Returns the number of BPF links that a process holds, without that by which owners of sockets are noted.
pub fn links(pid: u32) -> usize {
    link_descriptions(pid).filter(|text| !notes_owners(text)).count()
}

/// Returns true if a process has the owners of sockets noted, or none does here: in a PID namespace of its own processes have
/// other IDs than the kernel's.
pub fn has_owners_noted(pid: u32) -> bool {
    !has_kernel_pids() || link_descriptions(pid).any(|text| notes_owners(&text))
}

/// Returns whether processes have the IDs that the kernel knows them by.
pub fn has_kernel_pids() -> bool {
    /// `PROC_PID_INIT_INO` of the kernel.
    const INITIAL: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL)
}

fn notes_owners(link: &str) -> bool {
    link.contains("inet_sock_set_state")
}

fn link_descriptions(pid: u32) -> impl Iterator<Item = String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
    texts.filter(|text| text.contains("link_type:"))
}

/// Returns the BPF filters of an interface's clsact qdisc, as tc shows them.
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

/// Runs a tool that every Debian system has.
pub fn tool_here(program: &str, arguments: &[&str]) {
    let run = run(Command::new(program).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{program} {arguments:?}: {run}");
}

/// Runs a tool in a namespace and returns its output.
pub fn tool(namespace: &Namespace, program: &str, arguments: &[&str]) -> String {
    let run = run(namespace.command(program).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{program} {arguments:?}: {run}");
    run.stdout
}

/// Runs commands of `ip`, one per line.
pub fn ip(namespace: &Namespace, lines: &str) {
    let run = run(namespace.command("ip").args(["-batch", "-"]), lines.as_bytes());
    assert_eq!(run.status, Some(0), "{lines}: {run}");
}

/// Returns the counters of a network device: packets received and sent.
pub fn card_packets(namespace: &Namespace, interface: &str) -> (u64, u64) {
    let table = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let prefix = format!("{interface}:");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&prefix)).unwrap();
    let numbers: Vec<u64> = line.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[1], numbers[9])
}

/// Returns whether the calling test is skipped because networks cannot be made here.
///
/// # Panics
/// In CI (`CI=true`), where this process is root and every program is installed.
pub fn skipped() -> bool {
    if let Some(lack) = crate::missing_requirement() {
        return skip::required(&lack);
    }
    let may = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        skip::skip("no network namespace can be made here");
    }
    !may || skip::lacks_root()
}

/// A new cgroup. It is removed when this is dropped, and its processes must have ended before.
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    /// Makes the cgroup. Reports that it is skipped, and returns `None`, if there is no cgroup v2.
    pub fn new(name: &str) -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        });
        let Some(root) = root else {
            skip::skip("there is no cgroup v2 here");
            return None;
        };
        let path = root.join(format!("dwell-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Some(Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Waits until a condition holds; panics if it does not within a minute.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    wait(what, Duration::from_millis(10), holds);
}

/// As [`eventually`], for what takes seconds on an idle machine: the condition is looked at less often.
pub fn patiently(what: &str, holds: impl FnMut() -> bool) {
    wait(what, Duration::from_millis(50), holds);
}

fn wait(what: &str, pause: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not come true");
        thread::sleep(pause);
    }
}
