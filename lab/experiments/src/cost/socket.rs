//! The cost of `dwell run` for the programs that it runs, and of watching from outside.
use std::{
    ffi::OsStr,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use super::{
    child, dwell,
    figures::{greatest, least, median},
    installed,
    limits::{self, Figure, Finding, unknown},
    stop::Stop,
};
use anyhow::{Context, Result, bail, ensure};
use dwell_testbed::{
    BitsPerSecond, Emulation, Guarded, Lab, LabOptions, LinkPair, LinkSpec, Namespace, Nanos, Pair, QueueLimit, Role,
    Topology,
};
use nix::sys::resource::{Resource, setrlimit};

const SENDERS: u16 = 40;
const FIRST_PORT: u16 = 5201;
/// The number of connections. Both ends of each belong to the same process.
const CONNECTIONS: usize = 5_000;

/// The command line before the program.
const PLAIN: &[&str] = &[];
const RUN: &[&str] = &["run", "--summary", "--"];
const MINIMIZE: &[&str] = &["run", "--summary", "--minimize", "--"];

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    let (rounds, parts) = if options.quick { (3, 1) } else { (15, 10) };
    if let Some(missing) = dwell_testbed::missing_requirement() {
        return Ok(unknown([&limits::RUN, &limits::OUTSIDE], &missing));
    }
    if installed("iperf3").is_none() {
        return Ok(unknown([&limits::RUN, &limits::OUTSIDE], "iperf3 is not installed"));
    }
    println!(
        "\
Programs with dwell and without, in turns: median of the rounds (least to greatest), each with dwell as
a ratio to the mean of the two without around it."
    );
    println!("\nOne iperf3, flat out over veth: bits per second");
    let left = flat_out(rounds, stop)?;
    println!("\n{SENDERS} processes that send over veth: CPU time for the same bytes");
    let pair = Pair::start("bench-socket")?;
    let ends = Ends { sender: &pair.left, receiver: &pair.right, address: Pair::RIGHT };
    senders(&ends, parts * 200_000_000, rounds.min(5), stop)?;
    drop(pair);
    println!("\nThe same over 1 Gbit/s and 50 ms");
    let lab = slow_lab()?;
    let ends = Ends { sender: lab.client(), receiver: lab.server(), address: Lab::address_v4(Role::Server) };
    senders(&ends, parts * 15_000_000, rounds.min(5), stop)?;
    lab.stop()?;
    println!("\n{} sockets watched from outside", 2 * CONNECTIONS);
    let mut found = vec![limits::RUN.judge("", Ok(left))];
    found.extend(outside(stop)?.into_iter().map(|(format, percent)| limits::OUTSIDE.judge(format, Ok(percent))));
    Ok(found)
}

struct Ends<'a> {
    sender: &'a Namespace,
    receiver: &'a Namespace,
    address: Ipv4Addr,
}

fn slow_lab() -> Result<Lab> {
    Ok(Lab::start(&LabOptions {
        name: "bench-socket".into(),
        topology: Topology::Line {
            client: LinkPair {
                to_vantage: LinkSpec {
                    rate_bits_per_second: BitsPerSecond::new(1_000_000_000),
                    queue: Some(QueueLimit::Packets(4000)),
                    ..LinkSpec::delay(Nanos::from_millis(25))
                },
                from_vantage: LinkSpec::delay(Nanos::from_millis(25)),
            },
            server: LinkPair::default(),
        },
        emulation: Emulation::Process(std::env::current_exe()?),
    })?)
}

/// Runs a round of each variant, with a plain run before and after. Returns the percentage of the plain runs with `dwell run`.
fn ratios(rounds: usize, stop: &Stop, mut figure: impl FnMut(&[&str]) -> Result<f64>) -> Result<Figure> {
    let with = [("dwell run", RUN), ("dwell run --minimize", MINIMIZE)];
    let mut found = [Vec::new(), Vec::new()];
    let mut plain = vec![figure(PLAIN)?];
    for _ in 0..rounds {
        for ((_, prefix), ratios) in with.iter().zip(&mut found) {
            stop.check()?;
            let before = *plain.last().context("there is one")?;
            let now = figure(prefix)?;
            let after = figure(PLAIN)?;
            plain.push(after);
            ratios.push(200.0 * now / (before + after));
        }
    }
    println!("  plain: {:.3e} ({:.3e} to {:.3e})", median(&plain), least(&plain), greatest(&plain));
    for ((name, _), ratios) in with.iter().zip(&found) {
        println!("  {name}: {:.1} % ({:.1} to {:.1})", median(ratios), least(ratios), greatest(ratios));
    }
    Ok(Figure::of(&found[0]))
}

fn flat_out(rounds: usize, stop: &Stop) -> Result<Figure> {
    let pair = Pair::start("bench-fast")?;
    let _server = serve(&pair.right, FIRST_PORT)?;
    let dwell = dwell()?;
    listening(&pair.right, 1, stop)?;
    ratios(rounds, stop, |prefix| {
        let mut command = match prefix {
            [] => pair.left.command("iperf3"),
            prefix => {
                let mut command = pair.left.command(&dwell);
                command.args(prefix).arg("iperf3");
                command
            }
        };
        let address = Pair::RIGHT.to_string();
        command.args(["-c", &address, "-C", "cubic", "-t", "2", "-J"]);
        let output = command.stderr(Stdio::null()).output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        report["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .with_context(|| format!("iperf3 says {}", report["error"]))
    })
}

/// Sends this many bytes from each sender. Returns the CPU seconds of all senders, and of dwell.
fn senders(ends: &Ends<'_>, bytes: u64, rounds: usize, stop: &Stop) -> Result<Figure> {
    let ports = FIRST_PORT..FIRST_PORT + SENDERS;
    let servers = ports.map(|port| serve(ends.receiver, port));
    let _servers: Vec<Guarded> = servers.collect::<Result<_>>()?;
    listening(ends.receiver, SENDERS.into(), stop)?;
    let last = FIRST_PORT + SENDERS - 1;
    let script = format!(
        "for port in $(seq {FIRST_PORT} {last}); do \
         iperf3 -c {} -p $port -C cubic -n {bytes} -i 0 >/dev/null || kill $$ & done; wait",
        ends.address
    );
    let dwell = dwell()?;
    let enter = ["netns", "exec", ends.sender.name()].map(OsStr::new);
    ratios(rounds, stop, |prefix| {
        let mut arguments = enter.to_vec();
        if !prefix.is_empty() {
            arguments.push(dwell.as_os_str());
            arguments.extend(prefix.iter().map(OsStr::new));
        }
        arguments.extend(["sh", "-c", &script].map(OsStr::new));
        let cost = child::run(Path::new("ip"), &arguments)?;
        Ok(cost.cpu.as_secs_f64())
    })
}

fn serve(host: &Namespace, port: u16) -> Result<Guarded> {
    Ok(host.spawn("iperf3", |command| {
        command.args(["-s", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
    })?)
}

/// Waits until this many processes listen.
fn listening(host: &Namespace, wanted: usize, stop: &Stop) -> Result<()> {
    for _ in 0..200 {
        let told = host.command("ss").args(["-ltnH"]).output()?;
        if String::from_utf8_lossy(&told.stdout).lines().count() >= wanted {
            return Ok(());
        }
        stop.sleep(Duration::from_millis(50))?;
    }
    bail!("iperf3 does not listen")
}

/// One process holds the sockets, and another one watches them.
fn outside(stop: &Stop) -> Result<Vec<(String, f64)>> {
    let host = Namespace::create("bench-sockets")?;
    let up = host.command("ip").args(["link", "set", "lo", "up"]).status()?;
    ensure!(up.success(), "loopback cannot be set up");
    let most = 2 * CONNECTIONS as u64 + 100;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let held = host.enter(connections)??;
    ensure!(held.len() == 2 * CONNECTIONS, "connections were lost");
    // A process that has them, in their namespace: it does nothing else.
    let mut holder = host.command("sleep");
    holder.arg("600").stdin(Stdio::null());
    for connection in &held {
        nix::fcntl::fcntl(connection, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
    }
    let mut holder = holder.spawn()?;
    drop(held);
    let watched = watch(&host, holder.id(), stop);
    holder.kill()?;
    holder.wait()?;
    watched
}

/// Returns the percentage of a core by the format of the output.
fn watch(host: &Namespace, pid: u32, stop: &Stop) -> Result<Vec<(String, f64)>> {
    let dwell = dwell()?;
    let pid = pid.to_string();
    let seconds = 20.0;
    let time = format!("{seconds}s");
    let enter = ["netns", "exec", host.name()].map(OsStr::new);
    let watch = ["run", "--pid", &pid, "--poll", "1s", "--duration", &time];
    let mut found = Vec::new();
    for format in [&["--summary"][..], &["--format", "jsonl"]] {
        stop.check()?;
        let mut arguments = enter.to_vec();
        arguments.push(dwell.as_os_str());
        arguments.extend(watch.iter().chain(format).map(OsStr::new));
        let cost = child::run(Path::new("ip"), &arguments)?;
        let (format, percent) = (format.join(" "), 100.0 * cost.cpu.as_secs_f64() / seconds);
        println!(
            "  dwell run --pid --poll 1s {format}: {percent:.1} % of a core, {:.0} MB",
            cost.memory_bytes as f64 / 1e6
        );
        found.push((format, percent));
    }
    Ok(found)
}

fn connections() -> Result<Vec<TcpStream>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut held = Vec::with_capacity(2 * CONNECTIONS);
    for _ in 0..CONNECTIONS {
        held.push(TcpStream::connect(address)?);
        held.push(listener.accept()?.0);
    }
    Ok(held)
}
