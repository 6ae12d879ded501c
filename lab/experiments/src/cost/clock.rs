//! The accuracy of comparing the clocks of two hosts. The truth is known, because two namespaces share one clock, and
//! an experiment adds a known offset to one of them.
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    goals::{self, MAX_CLOCK_ERROR_NS, MIN_CLOCK_WITHIN},
    stop::Stop,
};
use anyhow::{Context, Result, ensure};
use dwell_engine::clock::{Clock, Exchange, Experiment, Fit, Key, Session, best, pause};
use dwell_probes::clock::{ClockMode, Method, Prober, Reflector, ReflectorOptions, Round, Station};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::Namespace;

use crate::goal::Goal;

const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 79, 1, 1);
const AGENT: Ipv4Addr = Ipv4Addr::new(10, 79, 1, 2);

/// The offset that an experiment adds to the agent's clock.
const OFFSET_NS: i64 = 1_234_567_890;
/// The drift that an experiment adds to the agent's clock.
const DRIFT_PPB: i64 = 50_000;

/// The number of agents that are asked rarely.
const SPARSE: u32 = 50;
/// The pause between two rounds of these agents.
const SPARSE_PAUSE: Duration = Duration::from_secs(64);

/// The rate of the queue at the collector's device.
const QUEUE_BITS_PER_SECOND: f64 = 10e6;
/// The time that a packet waits in this queue, at least.
const QUEUE_SECONDS: f64 = 0.02;

/// The number of rounds by XDP per round by sockets, which wait in the queue.
const QUEUED_SOCKET_EVERY: usize = 10;

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Goal>> {
    let rounds = if options.quick { 100 } else { 1_000 };
    println!(
        "\
Clocks of two namespaces, over veth: rounds of 20 exchanges, methods in turn; µs. Each round uses the
exchange with the shortest round trip. |error|: of a time converted after each round, and just
before the next, by offset and drift from the rounds so far. With an experiment, the agent's clock is
{OFFSET_NS} ns ahead and drifts by {DRIFT_PPB} ppb. Queue: {:.0} ms of packets and more wait at the collector.
64 s apart: {SPARSE} agents asked as collectors do, then |error| all through 64 s without a round.
Goals, by XDP: |error| is at most {} µs at p99, and {} % of errors are within their bound.

{:<28}{:<8}{:>7}{:>11}{:>11}{:>10}{:>10}{:>11}{:>11}{:>9}",
        QUEUE_SECONDS * 1e3,
        MAX_CLOCK_ERROR_NS / 1_000,
        MIN_CLOCK_WITHIN * 100.0,
        "condition",
        "method",
        "rounds",
        "trip p50",
        "|err| p50",
        "p99",
        "max",
        "bound p50",
        "bound p99",
        "within %"
    );
    let mut goals = Vec::new();
    for (name, is_queued, is_experiment) in [
        ("idle", false, false),
        ("idle, experiment", false, true),
        ("sender's queue", true, false),
        ("sender's queue, experiment", true, true),
    ] {
        let pair = Pair::start()?;
        let experiment = match is_experiment {
            false => Experiment::default(),
            true => Experiment { since_ns: monotonic_ns(), offset_ns: OFFSET_NS, drift_ppb: DRIFT_PPB },
        };
        let figures = match is_queued {
            false => pair.measure(experiment, rounds, 1, stop)?,
            true => pair.while_queued(|| pair.measure(experiment, rounds, QUEUED_SOCKET_EVERY, stop))?,
        };
        for (method, figures) in ["xdp", "sockets"].into_iter().zip(figures) {
            let (line, goal) = figures.judge(name);
            println!("{name:<28}{method:<8}{line}");
            goals.extend((method == "xdp").then_some(goal));
        }
    }
    if rounds == 1_000 {
        let name = "64 s apart, experiment";
        let (line, goal) = Pair::start()?.measure_sparsely(stop)?.judge(name);
        println!("{name:<28}{:<8}{line}", "xdp");
        goals.push(goal);
    }
    Ok(goals)
}

/// Ends a thread's loop, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A collector, and an agent.
struct Pair {
    collector: Namespace,
    agent: Namespace,
}

/// The figures of a method.
#[derive(Default)]
struct Figures {
    round_trips: Vec<u64>,
    errors: Vec<u64>,
    bounds: Vec<u64>,
    within: usize,
    steps: usize,
}

impl Pair {
    fn start() -> Result<Pair> {
        let pair = Pair {
            collector: Namespace::create("bench-clock-collector")?,
            agent: Namespace::create("bench-clock-agent")?,
        };
        let there = pair.agent.name();
        run_in(&pair.collector, &format!("ip link add c0 type veth peer name a0 netns {there}"))?;
        for (namespace, device, address) in [(&pair.collector, "c0", COLLECTOR), (&pair.agent, "a0", AGENT)] {
            run_in(namespace, &format!("ip addr add {address}/24 dev {device}"))?;
            run_in(namespace, &format!("ip link set {device} up"))?;
        }
        Ok(pair)
    }

    /// Measures rounds by XDP, and one by sockets after every `socket_every` of them.
    fn measure(&self, experiment: Experiment, rounds: usize, socket_every: usize, stop: &Stop) -> Result<[Figures; 2]> {
        let options = ReflectorOptions { experiment, ..ReflectorOptions::default() };
        let reflector = self.agent.enter(|| Reflector::attach(&options))??;
        let [mut by_xdp, mut by_socket] = [Figures::default(), Figures::default()];
        self.collector.enter(|| -> Result<()> {
            let mut prober = prober(&Station::open(1, ClockMode::Generic), &reflector, 0)?;
            let mut clocks = [Clock::default(), Clock::default()];
            for number in 0..rounds {
                stop.check()?;
                by_xdp.convert(&clocks[0], experiment);
                let round = prober.round(20)?;
                let reason = &round.reason;
                ensure!(round.method == Method::Xdp, "not by XDP: {reason:?}");
                by_xdp.add(&mut clocks[0], &round);
                by_xdp.convert(&clocks[0], experiment);
                if number % socket_every == 0 {
                    by_socket.convert(&clocks[1], experiment);
                    // With a queue, each exchange waits for it.
                    let exchanges = if socket_every == 1 { 20 } else { 5 };
                    by_socket.add(&mut clocks[1], &prober.round_by_socket(exchanges)?);
                    by_socket.convert(&clocks[1], experiment);
                }
            }
            Ok(())
        })??;
        Ok([by_xdp, by_socket])
    }

    /// Measures at a collector's intervals, until they reach 64 s.
    fn measure_sparsely(&self, stop: &Stop) -> Result<Figures> {
        let experiment = Experiment { since_ns: monotonic_ns(), offset_ns: OFFSET_NS, drift_ppb: DRIFT_PPB };
        let options = ReflectorOptions { experiment, ..ReflectorOptions::default() };
        let reflector = self.agent.enter(|| Reflector::attach(&options))??;
        let mut all = Figures::default();
        self.collector.enter(|| -> Result<()> {
            let station = Station::open(SPARSE, ClockMode::Generic);
            let mut agents = (0..SPARSE)
                .map(|id| Ok((prober(&station, &reflector, id)?, Clock::default())))
                .collect::<Result<Vec<_>>>()?;
            for rounds in 1.. {
                for (prober, clock) in &mut agents {
                    all.add(clock, &prober.round(20)?);
                }
                if pause(rounds, SPARSE_PAUSE) >= SPARSE_PAUSE {
                    break;
                }
                stop.sleep(pause(rounds, SPARSE_PAUSE))?;
            }
            let ends = Instant::now() + SPARSE_PAUSE;
            while Instant::now() < ends {
                for (_, clock) in &agents {
                    all.convert(clock, experiment);
                }
                stop.sleep(Duration::from_millis(500))?;
            }
            Ok(())
        })??;
        Ok(all)
    }

    fn while_queued<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        run_in(&self.collector, "tc qdisc add dev c0 root tbf rate 10mbit burst 10kb limit 1mb")?;
        let socket = self.collector.enter(|| UdpSocket::bind((COLLECTOR, 0)))??;
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (begun, mut sent) = (Instant::now(), 0.0);
                while !ends.load(Ordering::Relaxed) {
                    let seconds = begun.elapsed().as_secs_f64() + QUEUE_SECONDS;
                    while sent < seconds * QUEUE_BITS_PER_SECOND / 8.0 {
                        // What does not fit in the queue is not missed.
                        let _ = socket.send_to(&[0; 1000], (AGENT, 9));
                        sent += 1042.0;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let _ends = Ends(&ends);
            body()
        })
    }
}

fn prober(station: &Station, reflector: &Reflector, number: u32) -> Result<Prober> {
    let session = Session { id: number.into(), key: Key(*b"known to the two") };
    reflector.admit(&session, IpAddr::V4(COLLECTOR))?;
    let agent = SocketAddr::from((AGENT, reflector.port()));
    Ok(station.prober(session, None, agent)?)
}

impl Figures {
    fn add(&mut self, clock: &mut Clock, round: &Round) {
        if let Some(round_trip) = best(&round.exchanges).and_then(Exchange::round_trip_ns) {
            self.round_trips.push(round_trip);
        }
        if let Fit::Stepped { .. } = clock.add(&round.exchanges) {
            self.steps += 1;
        }
    }

    /// Converts the agent's present time to the collector's clock, which is the true one.
    fn convert(&mut self, clock: &Clock, experiment: Experiment) {
        let now_ns = monotonic_ns();
        let Some(converted) = clock.convert(experiment.claimed(now_ns)) else {
            return;
        };
        let error = converted.ns.abs_diff(now_ns);
        self.errors.push(error);
        self.bounds.push(converted.bound_ns);
        self.within += usize::from(error <= converted.bound_ns);
    }

    /// The cells of a table, and the goal under this condition.
    fn judge(mut self, condition: &str) -> (String, Goal) {
        let share = self.within as f64 / self.errors.len().max(1) as f64;
        for values in [&mut self.round_trips, &mut self.errors, &mut self.bounds] {
            values.sort_unstable();
        }
        let of = |values: &[u64], share: f64| {
            let at = (values.len() as f64 * share) as usize;
            values.get(at).or(values.last()).copied().unwrap_or_default()
        };
        let us = |ns: u64| ns as f64 / 1e3;
        let p99 = of(&self.errors, 0.99);
        let goal = goals::clock(condition, p99, share, self.steps);
        let line = format!(
            "{:>7}{:>11.2}{:>11.3}{:>10.3}{:>10.3}{:>11.2}{:>11.2}{:>9.2}",
            self.round_trips.len(),
            us(of(&self.round_trips, 0.5)),
            us(of(&self.errors, 0.5)),
            us(p99),
            us(of(&self.errors, 1.0)),
            us(of(&self.bounds, 0.5)),
            us(of(&self.bounds, 0.99)),
            share * 100.0,
        );
        (line, goal)
    }
}

fn run_in(namespace: &Namespace, command: &str) -> Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().context("a command has a program")?;
    let output = namespace.command(program).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command}: {said}");
    Ok(())
}
