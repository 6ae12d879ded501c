//! The layers of this host: which connections are followed through them, and what is measured of them.

use std::{collections::hash_map::RandomState, fs, hash::BuildHasher, path::PathBuf};

use clap::builder::PossibleValuesParser;
use dwell_engine::{
    histogram::Histogram,
    layers::{Config, SegmentFigures},
    rtt::FilterRule,
};
use dwell_probes::stack::{self, Hook, Monitor, Options, PROFILES, Profile};
use dwell_records::StackRow;

use crate::{
    args::percentage,
    exit::{Exit, Failure},
};

/// Which connections to follow, by which hooks, and at what cost.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct StackArgs {
    /// Connections of which one end has this port
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Connections with an end there, or with ! none of them:
    /// [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT]; may be given up to 16 times
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub filter: Vec<String>,

    /// Connections that this process writes to or reads from, from then on; may be given several times
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,

    /// Connections of processes in this cgroup (v2) or below it; with --pid, also those
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Use at most this share of the host's processor time: stamp fewer bytes if needed
    #[arg(long, value_name = "SHARE", value_parser = percentage)]
    cpu_budget: Option<f64>,

    /// Which kernel hooks to use: the best one for each layer, or those of one family where the
    /// kernel has them (`dwell doctor` shows which)
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0].name, value_parser = PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name)))]
    hooks: String,
}

impl StackArgs {
    /// What to stamp in this network namespace, one of `sample_bytes` bytes of each connection.
    pub fn config(&self, sample_bytes: u32) -> Result<Config, Failure> {
        let namespace = stack::own_namespace();
        Ok(Config {
            sample_bytes,
            port: self.port,
            filter: FilterRule::parse_all(&self.filter).map_err(Failure::usage)?,
            namespace: Some(namespace.map_err(|error| Failure::new(Exit::Host, error))?),
            seed: RandomState::new().hash_one(std::process::id()),
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

/// The name of this host.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

/// The figures of segments with the names of their hooks, as records have them.
pub fn stack_rows(
    hooks: &[&'static Hook],
    segments: &[SegmentFigures],
    histogram: impl Fn(&SegmentFigures) -> &Histogram,
) -> Vec<StackRow> {
    let missing = stack::missing(hooks);
    let rows = segments.iter().map(|figures| {
        let (from, to) = stack::ends(hooks, figures.segment);
        StackRow {
            segment: figures.segment,
            histogram: histogram(figures).clone(),
            hook_from: stack::names(hooks, from),
            hook_to: stack::names(hooks, to),
            missing: missing.iter().find(|(segment, _)| *segment == figures.segment).map(|(_, layer)| *layer),
        }
    });
    rows.collect()
}
