//! What watching costs real traffic: iperf3 through a vantage point, with and without dwell.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    cell::Cell,
    fs,
    io::Read,
    path::PathBuf,
    process::{ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use dwell_bench::{
    dwell,
    figures::{greatest, least, median},
    installed, pin,
    stop::Stop,
};
use dwell_lab::{Guarded, Namespace};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// iperf3 has no more in one process.
const MOST_STREAMS: u32 = 125;
const FIRST_PORT: u32 = 5201;
const WATCHED: &str = "server0";
/// Traffic flows again for so long before it is measured.
const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

struct Plan {
    rounds: usize,
    window: Duration,
    flows: Vec<u32>,
    variants: &'static [Variant],
}

/// How dwell runs.
struct Variant {
    name: &'static str,
    options: &'static [&'static str],
    /// What share of the throughput it shall leave, percent.
    goal: Option<u32>,
}

const fn variant(
    name: &'static str,
    options: &'static [&'static str],
    goal: Option<u32>,
) -> Variant {
    Variant {
        name,
        options,
        goal,
    }
}

const VARIANTS: [Variant; 6] = [
    variant(
        "every sample, jsonl",
        &["--rate-limit", "0", "--format", "jsonl"],
        Some(93),
    ),
    variant(
        "10 ms a flow, jsonl",
        &["--rate-limit", "10ms", "--format", "jsonl"],
        None,
    ),
    variant(
        "100 ms a flow, jsonl",
        &["--rate-limit", "100ms", "--format", "jsonl"],
        Some(97),
    ),
    variant(
        "1000 ms a flow, jsonl",
        &["--rate-limit", "1s", "--format", "jsonl"],
        None,
    ),
    variant(
        "every sample, not reported",
        &["--rate-limit", "0", "--format", "none"],
        None,
    ),
    variant("aggregate", &["--aggregate"], Some(97)),
];
const FEW_VARIANTS: [Variant; 2] = [
    variant(
        "every sample, jsonl",
        &["--rate-limit", "0", "--format", "jsonl"],
        Some(93),
    ),
    variant("aggregate", &["--aggregate"], Some(97)),
];

fn main() -> ExitCode {
    Stop::heeded_by(run)
}

fn run(stop: &Stop) -> Result<()> {
    let (mut quick, mut only) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--flows" => {
                let flows = arguments.next().context("--flows needs a number")?;
                only = Some(vec![
                    flows.parse().with_context(|| format!("--flows {flows}"))?,
                ]);
            }
            other => bail!("{other}: the options are --quick and --flows N"),
        }
    }
    if installed("iperf3").is_none() {
        println!("iperf3 is not installed (Debian package iperf3): nothing to measure");
        return Ok(());
    }
    if let Some(missing) = dwell_lab::missing_requirement() {
        println!("left out: {missing}");
        return Ok(());
    }
    let cpu = pin()?;
    println!(
        "\
client -- vantage -- server, all in namespaces joined by veth without any delay; iperf3 (cubic) as
fast as it goes; clients, servers, forwarding and dwell share CPU {cpu}. dwell watches both directions
of one interface. Each window with dwell lies between two without.
Shares of what passed in these two, median of the rounds (least to greatest): a second, and a second of
the CPU time that iperf3, forwarding and dwell got, which other programs on the machine disturb less.
CPU: of dwell in user space, share of theirs. missed: what the interface's counters have more than
dwell's, from an idle network to an idle network, in all rounds; lost: samples that were not delivered."
    );
    let alone = Plan {
        rounds: if quick { 2 } else { 5 },
        window: Duration::from_millis(500),
        flows: only.clone().unwrap_or(if quick {
            vec![1, 100]
        } else {
            vec![1, 10, 100, 1000]
        }),
        variants: &VARIANTS,
    };
    let joined = Plan {
        rounds: if quick { 2 } else { 3 },
        window: alone.window,
        flows: only.unwrap_or(if quick { vec![10] } else { vec![10, 1000] }),
        variants: &FEW_VARIANTS,
    };
    println!("\nOne segment a packet (gso_max_segs 1)");
    measure(&alone, true, cpu, stop)?;
    println!("\nSegmentation offload on: packets of up to 64 KB");
    measure(&joined, false, cpu, stop)
}

fn measure(plan: &Plan, single_segments: bool, cpu: usize, stop: &Stop) -> Result<()> {
    println!(
        "{:>5}  {:<26}{:>22}{:>22}{:>6}{:>8}{:>10}{:>13}{:>7}{:>6}",
        "flows",
        "dwell",
        "a second",
        "a CPU second",
        "goal",
        "CPU",
        "samples/s",
        "packets seen",
        "missed",
        "lost"
    );
    for flows in &plan.flows {
        let net = Net::build(single_segments)?;
        let traffic = Traffic::start(&net, *flows, cpu, stop)?;
        let mut without = Vec::new();
        let mut with: Vec<Vec<Watched>> = plan.variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds {
            for (variant, with) in plan.variants.iter().zip(&mut with) {
                without.push(traffic.window(&net, plan.window, stop)?);
                let mut watched = watch(&net, &traffic, variant, plan.window, stop)?;
                watched.before = without.len() - 1;
                with.push(watched);
            }
        }
        without.push(traffic.window(&net, plan.window, stop)?);
        print_none(*flows, &without);
        for (variant, watched) in plan.variants.iter().zip(&with) {
            print(*flows, variant, watched, &without);
        }
    }
    Ok(())
}

fn print_none(flows: u32, without: &[Rate]) {
    // A window between two others, as those with dwell are: what noise does to the ratio.
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        without
            .windows(3)
            .map(|three| share(of, &three[1], &three[0], &three[2]))
            .collect()
    };
    let each = |of: fn(&Rate) -> f64| without.iter().map(of).collect::<Vec<_>>();
    println!(
        "{flows:>5}  {:<26}{:>22}{:>22}   {:.2} Gbit/s, {:.0} thousand packets/s, {:.0} % of the CPU",
        "none, against none",
        spread(&shares(Rate::by_time)),
        spread(&shares(Rate::by_cpu)),
        median(&each(Rate::by_time)) * 8.0 / 1e9,
        median(&each(|rate| rate.packets / rate.seconds)) / 1e3,
        median(&each(|rate| rate.cpu / rate.seconds)) * 100.0
    );
}

fn share(of: fn(&Rate) -> f64, it: &Rate, before: &Rate, after: &Rate) -> f64 {
    of(it) * 2.0 / (of(before) + of(after)) * 100.0
}

fn print(flows: u32, variant: &Variant, watched: &[Watched], without: &[Rate]) {
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        watched
            .iter()
            .map(|it| share(of, &it.rate, &without[it.before], &without[it.before + 1]))
            .collect()
    };
    let each = |of: fn(&Watched) -> f64| watched.iter().map(of).collect::<Vec<_>>();
    let sum = |of: fn(&Watched) -> i64| watched.iter().map(of).sum::<i64>();
    println!(
        "{flows:>5}  {:<26}{:>22}{:>22}{:>6}{:>8}{:>10.0}{:>13}{:>7}{:>6}",
        variant.name,
        spread(&shares(Rate::by_time)),
        spread(&shares(Rate::by_cpu)),
        variant
            .goal
            .map_or("-".to_owned(), |goal| format!("{goal} %")),
        format!(
            "{:.1} %",
            median(&each(|watched| watched.cpu / watched.rate.cpu)) * 100.0
        ),
        median(&each(|watched| watched.samples_a_second)),
        sum(|watched| watched.seen),
        sum(|watched| watched.missed),
        sum(|watched| watched.lost),
    );
}

fn spread(shares: &[f64]) -> String {
    format!(
        "{:.1} % ({:.0} to {:.0})",
        median(shares),
        least(shares),
        greatest(shares)
    )
}

/// What passed in a window.
#[derive(Clone, Copy)]
struct Rate {
    bytes: f64,
    packets: f64,
    seconds: f64,
    /// Seconds of CPU time that all who take part got.
    cpu: f64,
}

impl Rate {
    fn by_time(&self) -> f64 {
        self.bytes / self.seconds
    }

    fn by_cpu(&self) -> f64 {
        self.bytes / self.cpu
    }
}

/// One run of dwell.
struct Watched {
    rate: Rate,
    /// Seconds of CPU time of dwell itself.
    cpu: f64,
    samples_a_second: f64,
    seen: i64,
    missed: i64,
    lost: i64,
    /// Which of the windows without dwell came before.
    before: usize,
}

fn watch(
    net: &Net,
    traffic: &Traffic,
    variant: &Variant,
    window: Duration,
    stop: &Stop,
) -> Result<Watched> {
    traffic.pause(net, stop)?;
    let paused = Instant::now();
    let mut arguments = vec!["rtt", "-i", WATCHED];
    arguments.extend(variant.options);
    let mut dwell = net.vantage.spawn(dwell()?, |command| {
        command
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
    })?;
    let pid = dwell.id();
    wait_until_attached(net, &mut dwell, stop)?;
    let idle = net.counters()?;
    let begun = Instant::now();
    traffic.idle.set(paused.elapsed());
    traffic.resume()?;
    stop.sleep(SETTLE)?;
    let cpu_before = cpu_time(pid);
    let rate = traffic.rate(net, Some(pid), window, stop)?;
    let cpu = (cpu_time(pid) - cpu_before).as_secs_f64();
    traffic.pause(net, stop)?;
    let active = begun.elapsed();
    let crossed = net.counters()?.since(&idle);
    send(&dwell, Signal::SIGTERM)?;
    let mut told = String::new();
    dwell
        .stderr
        .take()
        .context("it is a pipe")?
        .read_to_string(&mut told)?;
    let status = dwell.wait()?;
    traffic.resume()?;
    let figure = |name: &str| figure(&told, name);
    let (Some(packets), Some(bytes), Some(samples), Some(lost)) = (
        figure("packets"),
        figure("bytes"),
        figure("samples"),
        figure("events lost"),
    ) else {
        bail!("dwell {arguments:?} ({status}) told no figures: {told}");
    };
    // A packet of several segments is as many to dwell, and one to the interface: bytes tell.
    let missed = if crossed.bytes == bytes {
        0
    } else {
        (crossed.packets - packets).max(1)
    };
    Ok(Watched {
        rate,
        cpu,
        samples_a_second: samples as f64 / active.as_secs_f64(),
        seen: packets,
        missed: if net.single_segments {
            crossed.packets - packets
        } else {
            missed
        },
        lost,
        before: 0,
    })
}

/// The number before the name in "12 packets, 3 samples, 0 events lost, 900 bytes".
fn figure(told: &str, name: &str) -> Option<i64> {
    let line = told.lines().find_map(|line| line.strip_prefix("dwell: "))?;
    line.split(", ")
        .filter_map(|part| part.split_once(' '))
        .find(|(_, what)| *what == name)
        .and_then(|(number, _)| number.parse().ok())
}

/// A link each direction shows among its descriptors; a kernel without tcx has filters instead.
fn wait_until_attached(net: &Net, dwell: &mut Guarded, stop: &Stop) -> Result<()> {
    let folder = PathBuf::from(format!("/proc/{}/fdinfo", dwell.id()));
    wait(stop, "dwell to attach", || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let links = entries
            .filter_map(|entry| fs::read_to_string(entry.path()).ok())
            .filter(|text| text.contains("link_type:"))
            .count();
        if links >= 2 {
            return Ok(true);
        }
        if let Some(status) = dwell.try_wait()? {
            let mut told = String::new();
            dwell
                .stderr
                .take()
                .context("it is a pipe")?
                .read_to_string(&mut told)?;
            bail!("dwell ended ({status}): {}", told.trim());
        }
        let filters = net
            .vantage
            .command("tc")
            .args(["filter", "show", "dev", WATCHED, "egress"])
            .output()?;
        Ok(String::from_utf8_lossy(&filters.stdout).contains("bpf"))
    })
}

/// Of all threads of a process.
fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let ns = tasks
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(ns)
}

/// A system without such threads, or where they cannot be seen, has none.
fn forwarder(cpu: usize) -> Option<u32> {
    let wanted = format!("ksoftirqd/{cpu}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        (name.trim() == wanted).then(|| entry.file_name().to_str()?.parse().ok())?
    })
}

fn send(child: &Guarded, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).context("process numbers are small")?;
    Ok(kill(Pid::from_raw(pid), signal)?)
}

struct Net {
    client: Namespace,
    vantage: Namespace,
    server: Namespace,
    single_segments: bool,
}

/// What has crossed the watched interface, in both directions.
#[derive(Clone, Copy)]
struct Counters {
    packets: i64,
    bytes: i64,
}

impl Counters {
    fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Net {
    const SERVER: &str = "10.78.2.2";

    fn build(single_segments: bool) -> Result<Net> {
        let net = Net {
            client: Namespace::create("bench")?,
            vantage: Namespace::create("bench")?,
            server: Namespace::create("bench")?,
            single_segments,
        };
        let macs = [
            "02:00:0a:4e:01:01",
            "02:00:0a:4e:01:02",
            "02:00:0a:4e:02:01",
            "02:00:0a:4e:02:02",
        ];
        net.vantage.enter(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")
                .context("cannot let the vantage forward")
        })??;
        // After a pause connections would start slowly, with fewer packets at a time, which
        // changes the cost of a packet far more than dwell does.
        net.client.enter(|| {
            fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0")
                .context("cannot let connections go on as they were after a pause")
        })??;
        let (client, server) = (net.client.name(), net.server.name());
        let segments = if single_segments {
            "gso_max_segs 1"
        } else {
            ""
        };
        ip(
            &net.vantage,
            &format!(
                "link add client0 address {} type veth peer name vantage0 address {} netns {client}
             link add {WATCHED} address {} type veth peer name vantage0 address {} netns {server}
             link set client0 addrgenmode none {segments} up
             link set {WATCHED} addrgenmode none {segments} up
             address add 10.78.1.1/24 dev client0
             address add 10.78.2.1/24 dev {WATCHED}
             neighbour replace 10.78.1.2 lladdr {} dev client0
             neighbour replace {} lladdr {} dev {WATCHED}",
                macs[0],
                macs[1],
                macs[2],
                macs[3],
                macs[1],
                Self::SERVER,
                macs[3]
            ),
        )?;
        for (namespace, subnet, mac) in [(&net.client, 1, macs[0]), (&net.server, 2, macs[2])] {
            ip(
                namespace,
                &format!(
                    "link set vantage0 addrgenmode none {segments} up
                 address add 10.78.{subnet}.2/24 dev vantage0
                 neighbour replace 10.78.{subnet}.1 lladdr {mac} dev vantage0
                 route add default via 10.78.{subnet}.1"
                ),
            )?;
        }
        Ok(net)
    }

    fn counters(&self) -> Result<Counters> {
        let text = self
            .vantage
            .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let (_, figures) = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .find(|(name, _)| *name == WATCHED)
            .context("the watched interface is gone")?;
        let figures: Vec<i64> = figures
            .split_whitespace()
            .filter_map(|figure| figure.parse().ok())
            .collect();
        ensure!(figures.len() == 16, "/proc/net/dev has no 16 columns");
        Ok(Counters {
            bytes: figures[0] + figures[8],
            // A packet that the other end had no room for was seen all the same.
            packets: figures[1] + figures[9] + figures[11],
        })
    }
}

/// `ip` with one command a line.
fn ip(namespace: &Namespace, batch: &str) -> Result<()> {
    for line in batch.lines() {
        let output = namespace
            .command("ip")
            .args(line.split_whitespace())
            .output()?;
        ensure!(
            output.status.success(),
            "ip {}: {}",
            line.trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// iperf3, as many processes as the flows need.
struct Traffic {
    clients: Vec<Guarded>,
    servers: Vec<Guarded>,
    /// The kernel's thread that forwards when there is much to do.
    forwarder: Option<u32>,
    /// How long the last dwell took to attach, the network being idle.
    idle: Cell<Duration>,
}

impl Traffic {
    fn start(net: &Net, flows: u32, cpu: usize, stop: &Stop) -> Result<Traffic> {
        let mut traffic = Traffic {
            clients: Vec::new(),
            servers: Vec::new(),
            forwarder: forwarder(cpu),
            idle: Cell::default(),
        };
        let processes = flows.div_ceil(MOST_STREAMS);
        for process in 0..processes {
            let port = (FIRST_PORT + process).to_string();
            traffic.servers.push(net.server.spawn("iperf3", |command| {
                command.args(["-s", "-p", &port]).stdin(Stdio::null());
                command.stdout(Stdio::null()).stderr(Stdio::null());
            })?);
        }
        wait(stop, "iperf3 to listen", || {
            Ok(connections(&net.server, "0A")? >= processes)
        })?;
        for process in 0..processes {
            let port = (FIRST_PORT + process).to_string();
            let streams = flows / processes + u32::from(process < flows % processes);
            traffic.clients.push(net.client.spawn("iperf3", |command| {
                command.args(["-c", Net::SERVER, "-p", &port, "-P", &streams.to_string()]);
                command.args(["-C", "cubic", "-t", "86400", "-i", "0"]);
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
            })?);
            // One after another: each has its own connection for control.
            let wanted = process
                + 1
                + (0..=process)
                    .map(|p| flows / processes + u32::from(p < flows % processes))
                    .sum::<u32>();
            wait(stop, "iperf3 to connect", || {
                Ok(connections(&net.client, "01")? >= wanted)
            })?;
        }
        stop.sleep(Duration::from_secs(1))?;
        Ok(traffic)
    }

    /// A window without dwell, begun like those with it.
    fn window(&self, net: &Net, window: Duration, stop: &Stop) -> Result<Rate> {
        self.pause(net, stop)?;
        stop.sleep(self.idle.get())?;
        self.resume()?;
        stop.sleep(SETTLE)?;
        self.rate(net, None, window, stop)
    }

    /// What passes from now on; `dwell` takes part too.
    fn rate(&self, net: &Net, dwell: Option<u32>, window: Duration, stop: &Stop) -> Result<Rate> {
        let cpu = || {
            let iperf3 = self
                .clients
                .iter()
                .chain(&self.servers)
                .map(|child| child.id());
            iperf3
                .chain(dwell)
                .chain(self.forwarder)
                .map(cpu_time)
                .sum::<Duration>()
        };
        let (start, cpu_start, begun) = (net.counters()?, cpu(), Instant::now());
        stop.sleep(window)?;
        let passed = net.counters()?.since(&start);
        Ok(Rate {
            bytes: passed.bytes as f64,
            packets: passed.packets as f64,
            seconds: begun.elapsed().as_secs_f64(),
            cpu: (cpu() - cpu_start).as_secs_f64(),
        })
    }

    /// Stops the senders and waits until the network is idle.
    fn pause(&self, net: &Net, stop: &Stop) -> Result<()> {
        for client in &self.clients {
            send(client, Signal::SIGSTOP)?;
        }
        let (mut last, mut quiet) = (net.counters()?.packets, 0);
        wait(stop, "the network to become idle", || {
            thread::sleep(Duration::from_millis(20));
            let now = net.counters()?.packets;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            // Longer than the 40 ms that an ACK may be delayed.
            Ok(quiet >= 4)
        })
    }

    fn resume(&self) -> Result<()> {
        self.clients
            .iter()
            .try_for_each(|client| send(client, Signal::SIGCONT))
    }
}

/// TCP sockets of a namespace in that state, as the kernel writes it.
fn connections(namespace: &Namespace, state: &str) -> Result<u32> {
    namespace.enter(|| {
        ["tcp", "tcp6"]
            .iter()
            .map(|table| {
                let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
                let sockets = text.lines().skip(1);
                Ok(sockets
                    .filter(|line| line.split_whitespace().nth(3) == Some(state))
                    .count() as u32)
            })
            .sum()
    })?
}

fn wait(stop: &Stop, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        ensure!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        stop.sleep(Duration::from_millis(5))?;
    }
    Ok(())
}
