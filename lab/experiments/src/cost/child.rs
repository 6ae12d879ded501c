//! CPU time and maximum memory of a child process.
//!
//! The kernel keeps one maximum resident size for all children together. To know that of one child, this executable
//! runs itself with [`HELPER`], and that process has a single child.

use std::{
    ffi::{OsStr, OsString},
    io::{BufWriter, Read, Write},
    path::Path,
    process::{ChildStdin, Command, Stdio, exit},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};

const HELPER: &str = "--measure-child";

/// The resources that a child process used.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// The time from its start to its end.
    pub wall: Duration,
    /// The CPU time in user space and kernel.
    pub cpu: Duration,
    /// The maximum resident size. A few megabytes of it may be the helper's own.
    pub memory_bytes: u64,
    /// The last line of its standard error.
    pub last_words: String,
}

/// Does the helper's work, and does not return, if this process is a helper. Must be called first in `main`.
pub fn help() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(HELPER)) {
        return;
    }
    let program = arguments.next().expect("the helper is given a program");
    let status =
        Command::new(program).args(arguments).stdout(Stdio::null()).status().ok().and_then(|status| status.code());
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) {
        let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
        let cpu = micros(usage.user_time()) + micros(usage.system_time());
        eprintln!("\n{cpu} {}", usage.max_rss());
    }
    exit(status.unwrap_or(1));
}

/// Runs a program with empty input, and discards its output.
pub fn run(program: &Path, arguments: &[&OsStr]) -> Result<Cost> {
    run_fed(program, arguments, |_| Ok(()))
}

/// Runs a program. `feed` writes its standard input.
pub fn run_fed(
    program: &Path,
    arguments: &[&OsStr],
    feed: impl FnOnce(&mut BufWriter<ChildStdin>) -> Result<()>,
) -> Result<Cost> {
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .arg(HELPER)
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stderr = child.stderr.take().context("it is a pipe")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let mut stdin = BufWriter::with_capacity(1 << 16, child.stdin.take().context("it is a pipe")?);
    let fed = feed(&mut stdin).and_then(|()| Ok(stdin.flush()?));
    drop(stdin);
    let status = child.wait()?;
    let wall = begun.elapsed();
    let text = reader.join().expect("reading does not panic")?;
    let shown = || [program.as_os_str()].iter().chain(arguments).map(OsString::from).collect::<Vec<_>>();
    ensure!(status.success(), "{:?} failed ({status}): {}", shown(), text.trim());
    fed?;
    let (words, usage) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    let mut numbers = usage.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(cpu_us)), Some(Ok(memory_kib))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("no usage of {:?} in {text:?}", shown());
    };
    Ok(Cost {
        wall,
        cpu: Duration::from_micros(cpu_us),
        memory_bytes: memory_kib * 1024,
        last_words: words.trim_end().lines().last().unwrap_or_default().to_owned(),
    })
}
