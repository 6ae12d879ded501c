//! Runs C programs with the library preloaded, and a table.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use dwell_engine::socket::Account;
use dwell_socket::{
    Watch,
    table::{Config, Counts, Table, VARIABLE},
};

/// Longest duration of a program; one that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// Result of a program that ran to its end, and the content of its table.
pub struct Outcome {
    /// Its standard output.
    pub output: String,
    /// The last record of each socket.
    pub accounts: BTreeMap<u64, Account>,
    /// Processes that published each socket.
    pub pids: BTreeMap<u64, BTreeSet<u32>>,
    /// Longest sender delay of each socket.
    pub sender_peaks: BTreeMap<u64, u64>,
    /// Longest receiver delay of each socket.
    pub receiver_peaks: BTreeMap<u64, u64>,
    /// Events counted in the table.
    pub counts: Counts,
    /// Exit status of the program.
    pub status: std::process::ExitStatus,
    /// The table, with sockets that may not have ended.
    pub table: Table,
}

impl Outcome {
    /// Returns the numbers of the output line that begins with `name`.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let line = self.output.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no `{name}` in:\n{}", self.output));
        line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect()
    }

    /// Returns the socket that has this name in the program's output.
    pub fn socket(&self, name: &str) -> &Account {
        let cookie = self.numbers(name)[0];
        self.accounts
            .get(&cookie)
            .unwrap_or_else(|| panic!("`{name}` ({cookie}) is not among {:?}", self.accounts.keys()))
    }

    /// Asserts that the program succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Outcome {
        assert!(self.status.success(), "{}\n{}", self.status, self.output);
        self
    }
}

/// Runs a program of `tests/programs` under libdwell_preload.so.
pub fn run(name: &str, arguments: &[&str], config: &Config) -> Outcome {
    let library = library("libdwell_preload.so");
    run_with(&program(name), arguments, config, &library.display().to_string())
}

/// Runs a program of `tests/programs` under libdwell_preload.so, and ends its standard input once the table shows what is waited
/// for.
pub fn run_until(
    name: &str,
    arguments: &[&str],
    config: &Config,
    is_seen: impl Fn(&BTreeMap<u64, Account>) -> bool,
) -> Outcome {
    let library = library("libdwell_preload.so");
    watch(&program(name), arguments, config, &library.display().to_string(), is_seen)
}

/// Runs any program with these libraries.
pub fn run_with(program: &Path, arguments: &[&str], config: &Config, preload: &str) -> Outcome {
    watch(program, arguments, config, preload, |_| true)
}

/// Runs any program with these libraries, and ends its standard input once the table shows what is waited for.
pub fn watch(
    program: &Path,
    arguments: &[&str],
    config: &Config,
    preload: &str,
    is_seen: impl Fn(&BTreeMap<u64, Account>) -> bool,
) -> Outcome {
    let mut table = Table::create(config).unwrap();
    let mut child = Command::new(program)
        .args(arguments)
        .env(VARIABLE, table.path())
        .env("LD_PRELOAD", preload)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut output).unwrap();
        output
    });
    let mut accounts = BTreeMap::new();
    let mut pids: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    let mut sender_peaks: BTreeMap<u64, u64> = BTreeMap::new();
    let mut receiver_peaks: BTreeMap<u64, u64> = BTreeMap::new();
    let mut visit = |table: &mut Table| {
        let Ok(()) = table.visit(&mut |account| {
            accounts.insert(account.cookie, *account);
            pids.entry(account.cookie).or_default().extend(account.pid);
            for (peaks, peak) in
                [(&mut sender_peaks, account.peaks.sender_ns), (&mut receiver_peaks, account.peaks.receiver_ns)]
            {
                let longest = peaks.entry(account.cookie).or_default();
                *longest = (*longest).max(peak.unwrap_or(0));
            }
        });
        if is_seen(&accounts) {
            stdin = None;
        }
    };
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        visit(&mut table);
        if reader.is_finished()
            && let Some(status) = child.try_wait().unwrap()
        {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{} is stuck", program.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    visit(&mut table);
    Outcome {
        output: reader.join().unwrap(),
        accounts,
        pids,
        sender_peaks,
        receiver_peaks,
        counts: table.counts(),
        status,
        table,
    }
}

/// Compiles a program of `tests/programs`, once.
pub fn program(name: &str) -> PathBuf {
    compile(name, &format!("{name}-{}", std::process::id()), &["-O1", "-pthread"])
}

/// Compiles a file of `tests/programs`.
pub fn compile(name: &str, to: &str, flags: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
    if !to.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
            .arg("-o")
            .arg(&to)
            .arg(source)
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    to
}

/// Returns the path of a library that cargo has built together with this test.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    // `cargo test` leaves what it builds in deps. A library next to that folder is from an earlier `cargo build`.
    [folder.join("deps").join(name), folder.join(name)]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is not in {}", folder.display()))
}

/// Returns the output of a program as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a tool and returns its output.
pub fn tool(name: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(name).args(arguments).output().unwrap();
    assert!(status.success(), "{name}: {}", text(&stderr));
    text(&stdout)
}
