//! `dwell lb decap`.

use std::{collections::BTreeSet, net::IpAddr, thread, time::Duration};

use anyhow::anyhow;
use dwell_probes::{Interface, balancer::Decap};
use nix::ifaddrs::getifaddrs;

use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    stop::Stop,
    tell::tell,
};

/// Decapsulate a balancer's packets on a backend whose kernel has no tunnel
///
/// Runs on a backend until Ctrl-C: decapsulates IPIP and GUE packets to an address of the interface, and passes the
/// inner packets to this host. The VIP must be an address of the host too, on a device that does not answer ARP for
/// it: `ip address add VIP/32 dev lo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb decap eth0
  dwell lb decap eth0 --address 10.0.0.2 --gue-port 6080")]
pub struct Args {
    /// The interface that receives the balancer's packets
    interface: String,

    /// Address whose packets are decapsulated; may be repeated [default: the interface's addresses]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,

    /// UDP port of GUE
    #[arg(long, value_name = "PORT", default_value_t = 6080, value_parser = clap::value_parser!(u16).range(1..))]
    gue_port: u16,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,
}

/// The time between two checks whether to end.
const POLL: Duration = Duration::from_millis(50);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interface = Interface::find(&args.interface)?;
    let addresses = match args.address.as_slice() {
        [] => addresses_of(&args.interface)?,
        addresses => addresses.to_vec(),
    };
    if addresses.is_empty() {
        return Err(Failure::usage(anyhow!(
            "'{}' has no address: give one that the balancer sends to with --address",
            args.interface
        )));
    }
    let stop = Stop::listen(args.duration)?;
    let mut decap = Decap::load(&addresses, args.gue_port)?;
    decap.attach(&interface)?;
    let list: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    tell(format_args!("decapsulating packets to {} on {}", list.join(", "), args.interface));
    while !stop.is_asked() {
        thread::sleep(POLL);
        if !interface.exists() {
            return Err(Failure::new(Exit::Host, anyhow!("the interface '{}' is gone", args.interface)));
        }
    }
    let counters = decap.counters()?;
    tell(format_args!(
        "{} packets decapsulated from IPIP, {} from GUE; {} were malformed",
        counters.ipip, counters.gue, counters.malformed
    ));
    Ok(Exit::Done)
}

fn addresses_of(interface: &str) -> Result<Vec<IpAddr>, Failure> {
    let all = getifaddrs().map_err(|error| Failure::new(Exit::Host, error))?;
    let ours = all.filter(|address| address.interface_name == interface).filter_map(|address| {
        let storage = address.address?;
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    let ours: BTreeSet<IpAddr> = ours.collect();
    Ok(ours.into_iter().collect())
}
