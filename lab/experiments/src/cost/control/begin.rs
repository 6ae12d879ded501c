//! How soon after its start a process has something to say.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use dwell_testbed::Guarded;

use super::Bench;

/// The end of a process whose end nobody waits for, at the latest.
const LIFE: &str = "60s";

/// Starts balancers where there was none.
pub fn new_balancer(bench: &Bench<'_>) -> Result<Vec<Duration>> {
    bench.configure("", 1, 10, 0)?;
    let start = |_| {
        bench.pinned.remove();
        // The kernel frees maps in the background.
        bench.stop.sleep(bench.interval)?;
        until_balancer_answers(bench, "new")
    };
    (0..bench.rounds).map(start).collect()
}

/// Starts balancers that take over from a process that has died.
pub fn next_balancer(bench: &Bench<'_>) -> Result<Vec<Duration>> {
    bench.configure("", 1, 10, 0)?;
    bench.pinned.remove();
    until_balancer_answers(bench, "new")?;
    let start = |_| {
        bench.stop.sleep(bench.interval)?;
        until_balancer_answers(bench, "taken-over")
    };
    (0..bench.rounds).map(start).collect()
}

pub fn sample(bench: &Bench<'_>) -> Result<Vec<Duration>> {
    (0..bench.rounds).map(|_| bench.stop.check().and_then(|()| until_first_sample(bench))).collect()
}

pub fn doctor(bench: &Bench<'_>) -> Result<Vec<Duration>> {
    let run = |_| {
        bench.stop.check()?;
        let begun = Instant::now();
        let doctor = Command::new(&bench.dwell).arg("doctor").output()?;
        // 1 says that something is missing here.
        ensure!(matches!(doctor.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&doctor.stderr));
        Ok(begun.elapsed())
    };
    (0..bench.rounds).map(run).collect()
}

/// Starts a process in the namespace, without a program in between that takes time.
fn start<A: AsRef<OsStr>>(bench: &Bench<'_>, arguments: &[A], stdout: Stdio) -> Result<Guarded> {
    let mut command = Command::new(&bench.dwell);
    command.args(arguments).args(["--duration", LIFE]);
    command.stdin(Stdio::null()).stdout(stdout).stderr(bench.log()?).process_group(0);
    Ok(Guarded(bench.namespace.enter(|| command.spawn())??))
}

/// Starts a balancer, waits for its answer, and kills it: its data plane stays. `kind` is that of the start.
fn until_balancer_answers(bench: &Bench<'_>, kind: &str) -> Result<Duration> {
    let config = bench.config();
    let begun = Instant::now();
    let mut balancer = start(bench, &[OsStr::new("lb"), OsStr::new("run"), config.as_os_str()], Stdio::null())?;
    let status = bench.wait_for_status(|| Ok(balancer.try_wait()?.is_some()))?;
    let took = begun.elapsed();
    let start = &status["plane"]["start"];
    ensure!(start == kind, "the balancer says that its start was {start}, not {kind}");
    Ok(took)
}

/// Measures a TCP connection on loopback that is never silent for long.
fn until_first_sample(bench: &Bench<'_>) -> Result<Duration> {
    let (near, far) = bench.namespace.enter(|| -> std::io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        near.set_nodelay(true)?;
        Ok((near, listener.accept()?.0))
    })??;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| ping_pong(near, far, &is_over));
        let begun = Instant::now();
        let taken = start(bench, &["rtt", "-i", "lo", "--format", "jsonl"], Stdio::piped()).and_then(|mut rtt| {
            let lines = BufReader::new(rtt.stdout.take().context("it is a pipe")?).lines();
            for line in lines {
                if line?.contains("\"rtt.sample\"") {
                    return Ok(begun.elapsed());
                }
            }
            anyhow::bail!("dwell rtt has no sample: {}", bench.said())
        });
        is_over.store(true, Ordering::Relaxed);
        taken
    })
}

/// Sends a byte to and fro each millisecond. An error ends it, and what waits for samples says so.
fn ping_pong(mut near: TcpStream, mut far: TcpStream, is_over: &AtomicBool) {
    let mut byte = [0];
    let mut exchange = || -> std::io::Result<()> {
        near.write_all(&byte)?;
        far.read_exact(&mut byte)?;
        far.write_all(&byte)?;
        near.read_exact(&mut byte)
    };
    while !is_over.load(Ordering::Relaxed) && exchange().is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}
