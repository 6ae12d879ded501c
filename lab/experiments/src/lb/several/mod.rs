//! Several balancers of one VIP behind equal-cost multipath, while weights and routes move, one dies and one joins.

mod breaks;
mod hosts;
mod load;
pub(super) mod verb;

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use breaks::{Break, ResetWatch};
use dwell_testbed::{Error, Result, program::PATIENCE, signals::Signals};
use hosts::{BALANCERS, Hosts, SERVERS};
use load::{Connections, Found, Servers};
use rand::{RngExt, seq::SliceRandom};
use serde_json::Value;

use super::{
    allow_connections,
    process::{Balancer, BalancerPaths},
    star::{FRONT, PORT, VIP},
};
use crate::loads::random::generator;

/// Time between two changes of the routes.
const REHASH: Duration = Duration::from_secs(1);
/// Parts of a run: in each another server is slow, and another one is drained in the first half.
const STEPS: u32 = 10;
/// The part in which a balancer dies, and that in which one joins.
const DEATH: u32 = 3;
const BIRTH: u32 = 5;

struct Plan<'a> {
    has_second_chance: bool,
    connections: usize,
    time: Duration,
    seed: u64,
    dwell: &'a Path,
    folder: &'a Path,
}

/// What a run found.
struct Outcome {
    opened: u64,
    requests: u64,
    breaks: Vec<Break>,
    /// Changes of routes.
    rehashes: u64,
    /// Sets of weights from the start of the load to its end.
    sets: u64,
    /// Packets of connections that the balancer did not know and that could go on to further backends, at the
    /// balancers that are there at the end.
    second_chances: u64,
}

/// The balancers that routes lead to, and how often these have changed.
struct Routes<'a> {
    hosts: &'a Hosts,
    living: Mutex<Vec<usize>>,
    stop: AtomicBool,
}

impl Routes<'_> {
    fn living(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the routes until it is to stop, each time with other weights and in another order. Returns how often.
    fn keep_changing(&self, seed: u64) -> Result<u64> {
        let mut random = generator(seed, 21, 0);
        let mut count = 0;
        let start = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let mut over: Vec<_> = self.living().iter().map(|at| (*at, random.random_range(1..=3))).collect();
            over.shuffle(&mut random);
            self.hosts.spread(&over)?;
            count += 1;
            let next = start + REHASH * count;
            while !self.stop.load(Ordering::Relaxed) && Instant::now() < next {
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(count.into())
    }
}

fn run(plan: &Plan) -> Result<Outcome> {
    let signals = Signals::watch()?;
    allow_connections()?;
    let hosts = Hosts::create()?;
    let _store = hosts.start_store(plan.folder)?;
    let _tunnels = hosts.start_tunnels(plan.dwell, plan.folder)?;
    let servers = Servers::start(&hosts.servers);
    let mut balancers: Vec<_> =
        (0..BALANCERS - 1).map(|at| start_balancer(plan, &hosts, at)).collect::<Result<Vec<_>>>()?;
    let living = (0..BALANCERS - 1).collect();
    let resets = ResetWatch::start(&hosts.client, plan.folder)?;
    let routes = Routes { hosts: &hosts, living: Mutex::new(living), stop: AtomicBool::new(false) };
    let (found, rehashes, before) = thread::scope(|scope| {
        let changing = scope.spawn(|| routes.keep_changing(plan.seed));
        let played = play(plan, &signals, &routes, &servers, &mut balancers);
        routes.stop.store(true, Ordering::Relaxed);
        let rehashes = changing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        played.map(|(found, before)| (found, rehashes, before))
    })?;
    servers.stop()?;
    let resets = resets.end()?;
    let statuses = balancers.iter().map(status).collect::<Result<Vec<_>>>()?;
    let second_chance = |status: &Value| status["plane"]["packets"]["second-chance"].as_u64().unwrap_or(0);
    Ok(Outcome {
        opened: found.opened,
        requests: found.requests,
        breaks: found.broken.iter().map(|broken| broken.explain(&resets)).collect(),
        rehashes,
        sets: statuses.iter().map(set).max().unwrap_or(0).saturating_sub(before),
        second_chances: statuses.iter().map(second_chance).sum(),
    })
}

/// Opens the connections, lets happen what is to happen, and returns what the connections found, and the number of the set
/// of weights at the start.
fn play<'a>(
    plan: &'a Plan,
    signals: &Signals,
    routes: &Routes<'a>,
    servers: &Servers,
    balancers: &mut Vec<Balancer<'a>>,
) -> Result<(Found, u64)> {
    let before = set(&status(&balancers[0])?);
    let connections = Connections::open(&routes.hosts.client, plan.connections);
    let begun = Instant::now();
    while connections.opened.load(Ordering::Relaxed) < plan.connections as u64 {
        if begun.elapsed() > PATIENCE {
            let opened = connections.opened.load(Ordering::Relaxed);
            return Err(Error::Timeout(format!("{} connections, of which {opened} were open", plan.connections)));
        }
        signals.pause(Duration::from_millis(100))?;
    }
    let start = Instant::now();
    let until = |part: f64| (start + plan.time.mul_f64(part)).saturating_duration_since(Instant::now());
    for step in 0..STEPS {
        let of = |number: usize| (step as usize + number) % SERVERS;
        servers.slow_down(of(0));
        let drained = format!("server{}", of(1) + 1);
        balancers[step as usize % balancers.len()].ask(&["drain", &drained])?;
        match step {
            DEATH => {
                let dead = routes.living().remove(0);
                routes.hosts.cut_off(dead)?;
                drop(balancers.remove(0));
            }
            BIRTH => {
                balancers.push(start_balancer(plan, routes.hosts, BALANCERS - 1)?);
                routes.living().push(BALANCERS - 1);
            }
            _ => {}
        }
        signals.pause(until((f64::from(step) + 0.5) / f64::from(STEPS)))?;
        // Who asked for it may be the one that died.
        for balancer in balancers.iter() {
            let _ = balancer.ask(&["drain", &drained, "--undo"]);
        }
        signals.pause(until(f64::from(step + 1) / f64::from(STEPS)))?;
    }
    Ok((connections.end()?, before))
}

/// Starts a balancer, and waits until it has a set of weights.
fn start_balancer<'a>(plan: &'a Plan, hosts: &'a Hosts, number: usize) -> Result<Balancer<'a>> {
    let folder = plan.folder.join(format!("balancer{}", number + 1));
    std::fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
    let namespace = &hosts.balancers[number];
    let balancer = Balancer::start(namespace, plan.dwell, &folder, |paths| configuration(plan, paths, number))?;
    balancer.wait_until("a set of weights at", || Ok(status(&balancer)?["shared"]["set"].is_u64()))?;
    Ok(balancer)
}

fn configuration(plan: &Plan, paths: &BalancerPaths, number: usize) -> String {
    format!(
        "interface = \"{FRONT}\"\npin = {:?}\n\n\
         [limits]\nconnections = 65536\nvips = 16\nreals = 64\n\n\
         [api]\nsocket = {:?}\n\n\
         [shared]\nname = \"balancer{}\"\nendpoints = [\"http://{}\"]\n\n\
         [[vip]]\nname = \"lab\"\naddress = \"{VIP}\"\nport = {PORT}\nforward = \"ipip\"\npolicy = \"latency\"\n\
         second_chance = {}\nhealth = {{ kind = \"tcp\" }}\n{}",
        paths.pin,
        paths.socket,
        number + 1,
        Hosts::store_address(),
        plan.has_second_chance,
        Hosts::backends(),
    )
}

fn status(balancer: &Balancer) -> Result<Value> {
    let text = balancer.ask(&["status", "--format", "jsonl"])?;
    serde_json::from_str(&text).map_err(|why| Error::invalid("status of a balancer", why))
}

/// The number of the set of weights that a balancer has.
fn set(status: &Value) -> u64 {
    status["shared"]["set"].as_u64().unwrap_or(0)
}
