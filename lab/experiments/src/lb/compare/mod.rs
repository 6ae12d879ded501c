//! `dwell lb` next to the balancers that users would take instead, on the same load in the same run.

mod goals;
mod programs;
pub(super) mod verb;

use std::{path::Path, time::Duration};

use dwell_testbed::{Result, signals::Signals};
use jiff::Timestamp;
use nix::sys::resource::{UsageWho, getrusage};
use programs::Program;

use super::{Field, Options, Outcome, Policy, Scenario, Star, Work, connects, start_balancer};
use crate::{loads::cost::Cost, usage::group_cpu_time};

/// A way to spread connections over servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// `dwell lb` with weights by response latency.
    Latency,
    /// `dwell lb` with Maglev hashing and equal weights, which is how Katran selects servers.
    Maglev,
    HaproxyLeast,
    HaproxyTurns,
    NginxLeast,
    NginxTurns,
    IpvsLeast,
    IpvsMaglev,
}

impl Contender {
    pub(super) const ALL: [Contender; 8] = [
        Contender::Latency,
        Contender::Maglev,
        Contender::HaproxyLeast,
        Contender::HaproxyTurns,
        Contender::NginxLeast,
        Contender::NginxTurns,
        Contender::IpvsLeast,
        Contender::IpvsMaglev,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Contender::Latency => "dwell lb, latency",
            Contender::Maglev => "dwell lb, maglev",
            Contender::HaproxyLeast => "HAProxy, leastconn",
            Contender::HaproxyTurns => "HAProxy, roundrobin",
            Contender::NginxLeast => "nginx, least_conn",
            Contender::NginxTurns => "nginx, round robin",
            Contender::IpvsLeast => "IPVS, wlc",
            Contender::IpvsMaglev => "IPVS, mh",
        }
    }

    /// The policy of `dwell lb`; `None` if it is another program.
    pub(super) fn policy(self) -> Option<Policy> {
        match self {
            Contender::Latency => Some(Policy::Latency),
            Contender::Maglev => Some(Policy::Maglev),
            _ => None,
        }
    }
}

/// What a run of a contender showed.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) outcome: Outcome,
    /// Processor time of the balancer: its processes, and its programs in the kernel where the kernel counts them.
    /// `None` if all of it is the kernel's, which does not say.
    pub(super) balancer: Option<Duration>,
    /// Processor time of clients, servers and the balancer together.
    pub(super) all: Duration,
}

impl Measured {
    /// The time from the start until the last answer.
    pub(super) fn lasted(&self) -> Duration {
        self.outcome.clients.answers.iter().map(|(sent, latency)| *sent + *latency).max().unwrap_or_default()
    }
}

/// Runs clients and servers through a contender.
pub(super) fn run(star: &Star, options: &Options, contender: Contender, signals: &Signals) -> Result<Measured> {
    let field = Field::start(star, options)?;
    match contender.policy() {
        Some(policy) => {
            let own = Options { policy, ..options.clone() };
            let balancer = start_balancer(star, &own)?;
            balancer.wait_until("a connection through", || star.clients[0].enter(connects))?;
            let started_at = Timestamp::now();
            let cost = || {
                let process = balancer.process().map(group_cpu_time).unwrap_or_default();
                let programs = balancer.process().and_then(Cost::of).map_or(0, |cost| cost.ran_ns.0);
                process + Duration::from_nanos(programs)
            };
            let mut measured = measure(field, signals, || Some(cost()))?;
            measured.outcome.weight_changes = balancer.stop(started_at)?;
            Ok(measured)
        }
        None => {
            let program = Program::start(star, contender, &options.folder)?;
            measure(field, signals, || program.process().map(group_cpu_time))
        }
    }
}

fn measure(field: Field<'_>, signals: &Signals, balancer: impl Fn() -> Option<Duration>) -> Result<Measured> {
    let before = (own_cpu_time(), balancer());
    let outcome = field.play(signals, |_| Ok(()))?;
    let balancer = balancer().zip(before.1).map(|(after, before)| after.saturating_sub(before));
    let all = own_cpu_time().saturating_sub(before.0) + balancer.unwrap_or_default();
    Ok(Measured { outcome, balancer, all })
}

/// The processor time of this process: clients and servers, and what the kernel does for their packets. Where the kernel
/// charges that to the process it interrupts, the time of dwell's programs is in there too, so that their sum is never
/// too low.
fn own_cpu_time() -> Duration {
    let micros = |time: nix::sys::time::TimeVal| (time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs();
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
        .unwrap_or_default()
}

/// Connections that are open at the same time for the throughput of a contender, and the requests on each.
const BUSY_CONNECTIONS: f64 = 64.0;
const BUSY_REQUESTS: u32 = 1_000;
/// The time in which they open.
const BUSY_OPENING: Duration = Duration::from_millis(100);
/// The work of a server for such a request.
const BUSY_WORK: Duration = Duration::from_micros(1);

/// Options of a run in which each connection sends the next request as soon as it has an answer, so that the machine is
/// the limit.
pub(super) fn busy(seed: u64, dwell: &Path, folder: &Path) -> Options {
    let (scenario, work) = (Scenario::Tail, Work::Fixed(BUSY_WORK));
    let rate = BUSY_CONNECTIONS / BUSY_OPENING.as_secs_f64() * f64::from(BUSY_REQUESTS);
    Options {
        scenario,
        policy: Policy::Maglev,
        load: rate / scenario.capacity(work, seed),
        time: BUSY_OPENING,
        work,
        requests: BUSY_REQUESTS,
        settings: Vec::new(),
        seed,
        dwell: dwell.to_owned(),
        folder: folder.to_owned(),
    }
}
