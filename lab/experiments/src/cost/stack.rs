//! The cost of `dwell stack` for the connections that it stamps, and for others.
use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    dwell,
    figures::{greatest, least, median, spread},
    kernel_objects::{links_of, maps, run_ns_of},
    limits::{self, Figure, Finding, unknown},
    pin,
    stop::Stop,
};
use anyhow::{Result, ensure};
use dwell_engine::layers::Config;
use dwell_probes::{
    count_run_times,
    stack::{Options, PROFILES, Probe, own_namespace},
};
use dwell_testbed::{Guarded, Pair};
use nix::sys::resource::{UsageWho, getrusage};

const PORT: u16 = 5201;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Pair::RIGHT), PORT);
const WINDOW: Duration = Duration::from_millis(500);

/// Tracepoints, and netfilter hooks of IPv4.
const LINKS: usize = 11;
const PATIENCE: Duration = Duration::from_secs(10);

/// A way to run `dwell stack`.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    sender: bool,
    receiver: bool,
    /// The port of the stamped connections, if it is not that of the traffic.
    port: u16,
    sample_bytes: u32,
    options: &'static [&'static str],
    /// The duration of a window.
    window: Duration,
}

const NONE: Variant = Variant {
    name: "none, against none",
    sender: false,
    receiver: false,
    port: PORT,
    sample_bytes: 1 << 14,
    options: &[],
    window: WINDOW,
};

const BOTH: &str = "both";
const BUDGET: &str = "both, --cpu-budget 1%";

const VARIANTS: [Variant; 7] = [
    NONE,
    Variant { name: "sender", sender: true, ..NONE },
    Variant { name: "receiver", receiver: true, ..NONE },
    Variant { name: BOTH, sender: true, receiver: true, ..NONE },
    Variant { name: "both, 1 byte in 65536", sender: true, receiver: true, sample_bytes: 1 << 16, ..NONE },
    Variant {
        name: BUDGET,
        sender: true,
        receiver: true,
        options: &["--cpu-budget", "1%"],
        // works and rests
        window: Duration::from_secs(4),
        ..NONE
    },
    Variant { name: "both, of another port", sender: true, receiver: true, port: 9, ..NONE },
];

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    let rounds = if options.quick { 3 } else { 11 };
    if let Some(missing) = dwell_testbed::missing_requirement() {
        return Ok(unknown([&limits::STAMPED, &limits::BUDGET, &limits::UNSELECTED], &missing));
    }
    println!(
        "\
One TCP connection (cubic) between two namespaces joined by veth; its sender, its receiver and what the
programs cost are all in this process. Each window with dwell lies between two without: median of the
rounds (least to greatest). Bytes per second are disturbed by other work on this machine, CPU time per byte
less so. Programs: what they ran, share of all processors' time, as the kernel counts it in windows of
its own (its accounting makes them dearer)."
    );
    let mut findings = Vec::new();
    for (title, pace) in [("Flat out", None), ("At 1 Gbit/s", Some(125_000_000))] {
        println!("\n{title}");
        let left = measure(rounds, pace, stop)?;
        if pace.is_none() {
            let of = |variant: &str| left.iter().find(|(name, _)| *name == variant).map(|(_, left)| *left);
            for (variant, limit) in [(BOTH, &limits::STAMPED), (BUDGET, &limits::BUDGET)] {
                findings.push(limit.judge("", of(variant).ok_or("not measured")));
            }
        }
    }
    println!("\nNanoseconds per run of each program, flat out, with the kernel's accounting in them");
    hooks(stop)?;
    println!("\nPrograms of another port, without the accounting");
    let unselected = unselected(rounds, stop)?;
    findings.push(limits::UNSELECTED.judge("", Ok(unselected)));
    println!("\nMemory");
    memory()?;
    Ok(findings)
}

/// Returns the bytes per second that are left with each variant, in percent.
fn measure(rounds: usize, pace: Option<u32>, stop: &Stop) -> Result<Vec<(&'static str, Figure)>> {
    let net = Net::start(pace)?;
    println!("{:<24}{:>24}{:>24}{:>10}", "dwell", "bytes per second", "CPU time per byte", "programs");
    let mut without = vec![net.window(WINDOW, stop)?];
    let mut with: Vec<Vec<Window>> = VARIANTS.iter().map(|_| Vec::new()).collect();
    let mut programs = Vec::new();
    for _ in 0..rounds {
        for (variant, with) in VARIANTS.iter().zip(&mut with) {
            let stamping = Stamping::start(&net, *variant, stop)?;
            let mut window = net.window(variant.window, stop)?;
            window.before = without.len() - 1;
            with.push(window);
            drop(stamping);
            without.push(net.window(WINDOW, stop)?);
        }
    }
    for variant in &VARIANTS {
        let _accounting = count_run_times();
        let stamping = Stamping::start(&net, *variant, stop)?;
        let (begun, before) = (Instant::now(), stamping.run_ns());
        stop.sleep(variant.window)?;
        let ran = (stamping.run_ns() - before) as f64;
        programs.push(ran / begun.elapsed().as_nanos() as f64 / cpus() as f64);
    }
    let mut left = Vec::new();
    for ((variant, with), share) in VARIANTS.iter().zip(&with).zip(programs) {
        let against = |of: fn(&Window) -> f64| -> Vec<f64> {
            let ratio = |window: &Window| {
                let [before, after] = [window.before, window.before + 1];
                of(window) * 200.0 / (of(&without[before]) + of(&without[after]))
            };
            with.iter().map(ratio).collect()
        };
        let bytes = against(|window| window.bytes / window.seconds);
        left.push((variant.name, Figure::of(&bytes)));
        println!(
            "{:<24}{:>24}{:>24}{:>10}",
            variant.name,
            spread(&bytes),
            spread(&against(|window| window.cpu / window.bytes)),
            format!("{:.2} %", share * 100.0),
        );
    }
    let rates: Vec<f64> = without.iter().map(|window| window.bytes * 8e-9 / window.seconds).collect();
    let cpu: Vec<f64> = without.iter().map(|window| window.cpu / window.seconds).collect();
    println!("without: {:.2} Gbit/s at {:.0} % of a processor", median(&rates), median(&cpu) * 100.0);
    Ok(left)
}

/// Returns the cost of a program that has nothing to stamp, in nanoseconds per run, as the CPU time of a round trip: messages of one byte and
/// their echoes, with both ends on one processor, and without the kernel's accounting.
fn unselected(rounds: usize, stop: &Stop) -> Result<Figure> {
    let net = Net::build()?;
    let (mut client, mut server) = net.connect()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
    }
    pin()?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
    });
    let mut round_trip_ns = || -> Result<f64> {
        const TRIPS: u32 = 20_000;
        stop.check()?;
        let cpu = cpu_seconds()?;
        for _ in 0..TRIPS {
            client.write_all(&[1])?;
            client.read_exact(&mut [0])?;
        }
        Ok((cpu_seconds()? - cpu) * 1e9 / f64::from(TRIPS))
    };
    let config = Config { port: Some(9), namespace: Some(net.pair.left.enter(own_namespace)??), ..Config::default() };
    let (mut extra, mut runs) = (Vec::new(), 0.0);
    let mut before = round_trip_ns()?;
    for _ in 0..rounds {
        let mut probe = Probe::load(&Options::new(config.clone(), &PROFILES[0]))?;
        probe.attach()?;
        let with = round_trip_ns()?;
        let accounting = count_run_times();
        let counted: u64 = probe.run_times().iter().map(|(_, runs, _)| runs).sum();
        round_trip_ns()?;
        let all: u64 = probe.run_times().iter().map(|(_, runs, _)| runs).sum();
        runs = (all - counted) as f64 / 20_000.0;
        drop(accounting);
        drop(probe);
        let after = round_trip_ns()?;
        extra.push(with - f64::midpoint(before, after));
        before = after;
    }
    drop(client);
    drop(echo.join());
    let each: Vec<f64> = extra.iter().map(|ns| ns / runs).collect();
    println!(
        "round trip {before:.0} ns, {runs:.1} runs in it: {:.0} ns per run ({:.0} to {:.0})",
        median(&each),
        least(&each),
        greatest(&each)
    );
    Ok(Figure::of(&each))
}

fn hooks(stop: &Stop) -> Result<()> {
    let net = Net::start(None)?;
    let accounting = count_run_times();
    ensure!(accounting.is_some(), "the kernel does not count run times");
    println!("{:<20}{:>12}{:>12}", "program", "selected", "other port");
    // each side's own programs: those of the other see its packets too, and leave
    for (side, prefix) in [(&net.pair.left, "tx_"), (&net.pair.right, "rx_")] {
        let selected = side.enter(|| run_times(PORT, stop))??;
        let other = side.enter(|| run_times(9, stop))??;
        for ((name, runs, ns), (_, other_runs, other_ns)) in selected.into_iter().zip(other) {
            if name.starts_with(prefix) {
                println!("{name:<20}{:>12}{:>12}", ns / runs, other_ns / other_runs);
            }
        }
    }
    Ok(())
}

/// Returns how long the programs of one side ran per second.
fn run_times(port: u16, stop: &Stop) -> Result<Vec<(&'static str, u64, u64)>> {
    let config = Config { port: Some(port), namespace: Some(own_namespace()?), ..Config::default() };
    let mut probe = Probe::load(&Options::new(config, &PROFILES[0]))?;
    probe.attach()?;
    stop.sleep(2 * WINDOW)?;
    Ok(probe.run_times())
}

fn memory() -> Result<()> {
    let options = Options { max_flows: Some(10_000), ..Options::new(Config::default(), &PROFILES[0]) };
    let _probe = Probe::load(&options)?;
    let all: u64 = maps().iter().map(|map| map.memory_bytes).sum();
    println!("10,000 flows apart: {:.1} MiB of maps", all as f64 / (1 << 20) as f64);
    for map in maps().iter().take(3) {
        println!("  {:<16} {:.1} MiB", map.name, map.memory_bytes as f64 / (1 << 20) as f64);
    }
    Ok(())
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Two hosts with a connection that is always busy.
struct Net {
    pair: Pair,
    ended: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

struct Window {
    before: usize,
    seconds: f64,
    bytes: f64,
    cpu: f64,
}

impl Net {
    fn start(pace: Option<u32>) -> Result<Net> {
        let mut net = Net::build()?;
        let (client, server) = net.connect()?;
        nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::TcpCongestion, &"cubic".into())?;
        let ended = || Arc::clone(&net.ended);
        net.threads = vec![sender(client, pace, ended()), receiver(server, ended(), Arc::clone(&net.read))];
        Ok(net)
    }

    /// The client's and the server's ends of the connection.
    fn connect(&self) -> Result<(TcpStream, TcpStream)> {
        let listener = self.pair.right.enter(|| TcpListener::bind(SERVER))??;
        let client = self.pair.left.enter(|| TcpStream::connect(SERVER))??;
        Ok((client, listener.accept()?.0))
    }

    fn build() -> Result<Net> {
        Ok(Net { pair: Pair::start("bench-stack")?, ended: Arc::default(), read: Arc::default(), threads: Vec::new() })
    }

    fn window(&self, length: Duration, stop: &Stop) -> Result<Window> {
        let (begun, cpu, bytes) = (Instant::now(), cpu_seconds()?, self.bytes());
        stop.sleep(length)?;
        Ok(Window {
            before: 0,
            seconds: begun.elapsed().as_secs_f64(),
            bytes: self.bytes() - bytes,
            cpu: cpu_seconds()? - cpu,
        })
    }

    fn bytes(&self) -> f64 {
        self.read.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Sends as fast as possible, or at a pace in bytes per second, like an application with that much data.
fn sender(mut socket: TcpStream, pace: Option<u32>, ended: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        let chunk = vec![1; 128 << 10];
        let begun = Instant::now();
        let mut sent = 0_u64;
        drop(socket.set_write_timeout(Some(Duration::from_millis(200))));
        while !ended.load(Ordering::Relaxed) {
            if let Some(pace) = pace {
                let due = Duration::from_secs_f64(sent as f64 / f64::from(pace));
                thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            match socket.write(&chunk) {
                Ok(bytes) => sent += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
}

fn receiver(mut socket: TcpStream, ended: Arc<AtomicBool>, read: Arc<AtomicU64>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 128 << 10];
        drop(socket.set_read_timeout(Some(Duration::from_millis(200))));
        while !ended.load(Ordering::Relaxed) {
            match socket.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => drop(read.fetch_add(bytes as u64, Ordering::Relaxed)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
}

/// `dwell stack`, running on the sides that a variant names.
struct Stamping {
    processes: Vec<Guarded>,
}

impl Stamping {
    fn start(net: &Net, variant: Variant, stop: &Stop) -> Result<Stamping> {
        let dwell = dwell()?;
        let port = variant.port.to_string();
        let sample_bytes = variant.sample_bytes.to_string();
        let mut stamping = Stamping { processes: Vec::new() };
        for (is_wanted, namespace) in [(variant.sender, &net.pair.left), (variant.receiver, &net.pair.right)] {
            if !is_wanted {
                continue;
            }
            let process = namespace.spawn(&dwell, |command| {
                command
                    .args(["stack", "--port", &port, "--sample-bytes", &sample_bytes])
                    .args(variant.options)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
            })?;
            stamping.processes.push(process);
        }
        let begun = Instant::now();
        while stamping.processes.iter().any(|process| links_of(process.id()) < LINKS) {
            ensure!(begun.elapsed() < PATIENCE, "dwell stack does not stamp");
            stop.sleep(Duration::from_millis(5))?;
        }
        if variant.options.contains(&"--cpu-budget") {
            stop.sleep(Duration::from_secs(3))?;
        }
        Ok(stamping)
    }

    /// Returns the nanoseconds that the programs have run, if the kernel counts them.
    fn run_ns(&self) -> u64 {
        let pids: Vec<_> = self.processes.iter().map(|process| process.id()).collect();
        run_ns_of(&pids)
    }
}
