//! `dwell agent`: what the layers of this host tell, for a collector.

mod clock;
mod metrics;
mod send;

use std::{net::SocketAddr, time::Duration};

use anyhow::anyhow;
use dwell_engine::{layers::Config, rtt::FilterRule};
use dwell_fleet::{
    CollectorAddress, Event, Uplink,
    wire::{AgentName, Hello},
};

use self::{clock::Answer, send::Reporter};
use crate::{
    args::{positive_duration, sample_bytes, socket},
    exit::{Exit, Failure},
    identity::IdentityArgs,
    served::Served,
    source::{StackArgs, boot_id, host_name},
    stop::Stop,
    tell::tell,
};

/// At the end, for the collector to store what it has not.
const PATIENCE: Duration = Duration::from_secs(5);

/// Send what the layers of this host tell to a collector
///
/// Measures as `dwell stack` does, and sends it to `dwell collect`, which joins what several hosts
/// tell of the same bytes. While the collector is away, what is measured waits within --buffer, and
/// the oldest goes first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell agent --collector collector.example:4790 --key-file fleet.key
  dwell agent --collector 192.0.2.9:4790 --key-file fleet.key --port 443 --name web-1
  dwell agent --collector collector.example:4790 --cert web-1.pem --key web-1.key --ca ca.pem")]
#[group(skip)]
pub struct Args {
    /// Where `dwell collect` listens
    #[arg(long, value_name = "HOST:PORT")]
    collector: CollectorAddress,

    #[command(flatten)]
    identity: IdentityArgs,

    /// A name that no other agent of the collector has; by default that of the host
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    selection: StackArgs,

    /// Time over which segments are summed up
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Stamp one byte in so many of a connection: a power of two from 64 to 16777216, the same on
    /// all hosts
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = sample_bytes)]
    sample_bytes: u32,

    /// Flows to keep apart in an interval; of others only the sums are told
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_flows: u32,

    /// Megabytes that may wait for the collector
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    buffer: u32,

    /// Serve metrics for Prometheus at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS", value_parser = socket)]
    metrics: Option<SocketAddr>,
}

/// Rules that the programs have room for.
const MOST_RULES: usize = 16;

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let identity = args.identity.identity()?;
    let name = args.name.clone().unwrap_or_else(host_name);
    let answer = Answer::start();
    let hello =
        Hello { name: AgentName::try_from(name)?, run: rand::random(), boot: boot_id()?, sync_port: answer.port() };
    let mut config = Config { passages: true, again: true, ..args.selection.config(args.sample_bytes)? };
    // Its own connection is none of what it is to measure.
    let own = FilterRule::parse_all(&[format!("!:{}", args.collector.port())]);
    if config.filter.len() < MOST_RULES {
        config.filter.extend(own.map_err(Failure::usage)?);
    }
    let stop = Stop::listen(args.duration)?;
    let served = args.metrics.map(Served::start).transpose()?;
    let mut monitor = args.selection.attach(config, Some(args.max_flows))?;
    let collector = args.collector.clone();
    let mut answer = answer;
    let told = move |event| match event {
        Event::Authenticated { collector, secret } => answer.begin(collector, &secret),
        Event::Connected { collector } => {
            tell(format_args!("the collector at {collector} is there"));
        }
        Event::Disconnected { reason, is_new } => {
            answer.end();
            if !is_new {
                return;
            }
            tell(format_args!("no collector at {collector}: {reason}; what is measured waits"));
        }
    };
    let most_bytes = args.buffer as usize * 1_000_000;
    let uplink = Uplink::start(args.collector.clone(), identity, hello, most_bytes, told)?;
    let mut reporter = Reporter::new(uplink, served);
    let ended = monitor.run(args.interval, || stop.is_asked(), &mut reporter);
    monitor.detach();
    let last = monitor.end_interval(&mut reporter);
    let left = reporter.finish(PATIENCE);
    monitor.pauses().into_iter().for_each(tell);
    ended.and(last)?;
    match (left.batches, left.dropped) {
        (0, 0) => Ok(Exit::Done),
        (waiting, dropped) => Err(Failure::new(
            Exit::Incomplete,
            anyhow!(
                "of what was measured, the collector has not stored {waiting} batches, and \
                 {dropped} more were given up for want of room (--buffer)"
            ),
        )),
    }
}
