//! The cost of sampling, for several distances between stamped bytes.

use std::{
    convert::Infallible,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_app::{Exit, log::log};
use dwell_engine::layers::{Config, Segment};
use dwell_probes::{
    count_run_times,
    stack::{Options, PROFILES, Probe, own_namespace},
};
use dwell_socket::{
    Watch,
    clock::monotonic_ns,
    outside::{self, Outside, Scope},
};
use dwell_testbed::{Namespace, Pair};
use nix::time::{ClockId, clock_gettime};

use crate::{failure::Failure, print::say, stack::PORT};

const SIZES: [u32; 7] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
/// Bytes a second: 1 Gbit/s.
const RATE: f64 = 125e6;

/// The BPF programs of one side during a measurement.
struct Side {
    /// Stamped bytes.
    bytes: u64,
    /// Run time of the programs.
    run_ns: u64,
}

pub fn run(time: Duration) -> Result<Exit, Failure> {
    let Some(_counting) = count_run_times() else {
        return Err(Failure::new(
            Exit::Host,
            anyhow!("the kernel does not count what programs cost (BPF_ENABLE_STATS, Linux 5.8, needs CAP_SYS_ADMIN)"),
        ));
    };
    let pair = Pair::start("stack-sampling")?;
    let io = |error: std::io::Error| Failure::new(Exit::Host, error);
    let address = (Pair::RIGHT, PORT);
    let listener = pair.right.enter(|| TcpListener::bind(address))?.map_err(io)?;
    let client = pair.left.enter(|| TcpStream::connect(address))?.map_err(io)?;
    let (server, _) = listener.accept().map_err(io)?;
    log(format_args!("a flow of 1 Gbit/s, {time:?} at each size"));
    say(&format!(
        "{:>10}{:>16}{:>16}{:>16}{:>16}",
        "1 byte in", "sent per s", "read per s", "sender, 1 CPU", "receiver, 1 CPU"
    ))?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| send(client, &ended));
        scope.spawn(|| receive(server));
        let measured = measure(&pair, time);
        ended.store(true, Ordering::Relaxed);
        measured
    })
}

fn measure(pair: &Pair, time: Duration) -> Result<Exit, Failure> {
    for size in SIZES {
        let ready = Barrier::new(2);
        let [sender, receiver] = thread::scope(|scope| {
            [(&pair.left, Segment::TxTotal), (&pair.right, Segment::RxTotal)]
                .map(|(namespace, total)| {
                    let ready = &ready;
                    scope.spawn(move || side(namespace, size, total, ready, time))
                })
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (sender, receiver) = (sender?, receiver?);
        let rate = |side: &Side| side.bytes as f64 / time.as_secs_f64();
        let cost = |side: &Side| format!("{:.2} %", side.run_ns as f64 / time.as_nanos() as f64 * 100.0);
        say(&format!(
            "{size:>10}{:>16.0}{:>16.0}{:>16}{:>16}",
            rate(&sender),
            rate(&receiver),
            cost(&sender),
            cost(&receiver)
        ))?;
    }
    let [(sent, sender), (read, receiver)] =
        [pair.left.enter(|| socket_polls(time))??, pair.right.enter(|| socket_polls(time))??];
    say(&format!("{:>10}{sent:>16.0}{read:>16.0}{sender:>14.2} %{receiver:>14.2} %", "dwell run"))?;
    Ok(Exit::Done)
}

/// Polls the sockets from outside, as `dwell run --outside` does. Returns the delays per second and the share of one
/// CPU in percent.
fn socket_polls(time: Duration) -> Result<(f64, f64), Failure> {
    let host = |error: outside::Error| Failure::new(Exit::Host, error);
    let own = Scope::Process(std::process::id());
    let mut outside = Outside::start(own, outside::Config::default()).map_err(host)?;
    let (begun, begun_cpu) = (Instant::now(), own_cpu());
    while begun.elapsed() < time {
        let due_ns = outside.poll().map_err(host)?;
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    let cpu = own_cpu().saturating_sub(begun_cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    let mut delays = 0;
    let Ok::<_, Infallible>(()) = outside.visit(&mut |account| {
        delays += account.totals.sender.samples.max(account.totals.receiver.samples);
    });
    Ok((delays as f64 / begun.elapsed().as_secs_f64(), 100.0 * cpu))
}

/// CPU time of this thread.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn side(
    namespace: &Namespace,
    sample_bytes: u32,
    total: Segment,
    ready: &Barrier,
    time: Duration,
) -> Result<Side, Failure> {
    let stamp = || -> Result<Side, Failure> {
        let attached = attach(sample_bytes);
        ready.wait();
        let mut probe = attached?;
        let run_ns = |probe: &Probe| probe.run_times().iter().map(|(_, _, ns)| ns).sum::<u64>();
        let before = run_ns(&probe);
        thread::sleep(time);
        let ran = run_ns(&probe) - before;
        let rows = probe.take()?;
        let whole = rows.iter().find(|row| row.segment == total);
        Ok(Side { bytes: whole.map_or(0, |row| row.histogram.count()), run_ns: ran })
    };
    namespace.enter(stamp)?
}

fn attach(sample_bytes: u32) -> Result<Probe, Failure> {
    let namespace = own_namespace().map_err(|error| Failure::new(Exit::Host, error))?;
    let config = Config { sample_bytes, port: Some(PORT), namespace: Some(namespace), ..Config::default() };
    let mut probe = Probe::load(&Options::new(config, &PROFILES[0]))?;
    probe.attach()?;
    Ok(probe)
}

fn send(mut socket: TcpStream, ended: &AtomicBool) {
    let begun = Instant::now();
    let mut sent = 0.0;
    while !ended.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(sent / RATE);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        match socket.write(&[1; 64 << 10]) {
            Ok(bytes) => sent += bytes as f64,
            Err(_) => return,
        }
    }
}

/// Reads until the sender closes.
fn receive(mut socket: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
}
