//! The layers of this host: which connections are followed through them, and what is measured of them.

use std::{fs, path::PathBuf};

use clap::builder::PossibleValuesParser;
use dwell_engine::layers::{Config, Counter, Counters};
use dwell_probes::stack::{self, Interval, Monitor, NamespaceNames, Options, PROFILES, Profile};
use dwell_records::{Status, Verb};

use super::{cost, filter::FilterArgs};
use crate::{
    args::positive_share,
    exit::{Exit, Failure},
};

/// Which connections to follow, by which hooks, and at what cost.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct StackArgs {
    #[command(flatten)]
    pub flows: FilterArgs,

    /// Only connections of this process, after it has written to or read from them; may be given several times
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,

    /// Only connections of processes in this cgroup (v2) or below it, in addition to those of --pid
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Also connections of all other network namespaces of this host, such as those of containers
    #[arg(long)]
    pub all_namespaces: bool,

    /// Use at most this share of the host's processor time: stamp fewer bytes if needed
    #[arg(long, value_name = "SHARE", value_parser = positive_share)]
    cpu_budget: Option<f64>,

    /// Which kernel hooks to use: the best one for each layer, or those of one family where the
    /// kernel has them (`dwell doctor` shows which)
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0].name, value_parser = PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name)))]
    hooks: String,
}

impl StackArgs {
    /// What to stamp, one of `sample_bytes` bytes of each connection.
    pub fn config(&self, sample_bytes: u32) -> Result<Config, Failure> {
        Ok(Config {
            sample_bytes,
            port: self.flows.port,
            filter: self.flows.without_port()?,
            namespace: (!self.all_namespaces).then(own_namespace).transpose()?,
            seed: super::seed(),
            ..Config::default()
        })
    }

    /// Starts to stamp. With `max_flows`, that many flows are kept apart.
    pub fn attach(&self, config: Config, max_flows: Option<u32>) -> Result<Monitor, Failure> {
        let options = Options {
            config,
            max_flows,
            processes: self.pid.clone(),
            cgroup: self.cgroup.clone(),
            profile: Profile::find(&self.hooks).expect("clap accepts names of profiles only"),
        };
        Ok(Monitor::attach(&options, self.cpu_budget)?)
    }
}

/// Names of the network namespaces that sockets and devices are in.
pub struct Namespaces {
    /// The one that this thread is in, which is shown without a name.
    own: u32,
    names: NamespaceNames,
}

impl Namespaces {
    /// Knows no name yet.
    pub fn of_this_host() -> Result<Namespaces, Failure> {
        Ok(Namespaces { own: own_namespace()?, names: NamespaceNames::default() })
    }

    /// Whether a number is that of the namespace that this thread is in.
    pub fn is_own(&self, number: u32) -> bool {
        number == self.own
    }

    /// The name of a namespace; `None` for the one that this thread is in.
    pub fn name(&mut self, number: u32) -> Option<&str> {
        (!self.is_own(number)).then(|| self.names.name(number))
    }

    /// Forgets the names, as an interval has ended: the kernel gives the number of a namespace that is gone to another one.
    pub fn forget(&mut self) {
        self.names.clear();
    }
}

fn own_namespace() -> Result<u32, Failure> {
    stack::own_namespace().map_err(|error| Failure::new(Exit::Host, error))
}

/// The name of this host.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

/// Returns what was lost and what it cost to follow bytes, up to the end of an interval.
pub fn stack_status(verb: Verb, interval: &Interval, last: bool) -> Status {
    Status {
        verb,
        time_ns: Some(interval.end_ns),
        last,
        lost: stack_lost(&interval.counters, interval.unreadable_passages),
        cost: cost(&interval.run_times),
        counters: interval.counts(),
        verdict: None,
    }
}

/// Returns the number of bytes that were stamped and whose time is not reported, though no option left them out. Of a read that was
/// too long to be examined it is not known how many bytes are missing: it counts once.
pub fn stack_lost(counters: &Counters, unreadable_passages: u64) -> u64 {
    let lost = [Counter::TracesLost, Counter::TxDisplaced, Counter::RxDisplaced, Counter::RxUnwalked];
    lost.into_iter().map(|counter| counters.get(counter)).sum::<u64>() + unreadable_passages
}
