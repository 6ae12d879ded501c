//! `dwell lb decap`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_balancer::{
    control::Devices,
    neighbours::{HopUpdate, Neighbours},
};
use dwell_engine::{balance::is_special, rtt::Prefix};
use dwell_probes::{
    Interface,
    balancer::{Decap, DecapCounters, DecapOutcome, DecapRules, NextHop, Plane},
};
use dwell_records::{Source, Status, Verb};
use dwell_socket::clock::realtime_ns;
use nix::ifaddrs::getifaddrs;

use crate::{
    args::{port, positive_duration},
    exit::{Exit, Failure},
    log::log,
    source::{cost, host_name},
    statuses::{StatusArgs, Statuses},
    stop::Stop,
};

/// Decapsulate a balancer's packets on a backend whose kernel has no tunnel
///
/// Runs on a backend until Ctrl-C: decapsulates IPIP and GUE packets to an address of the interface, and passes the
/// inner packets to this host if they are for a VIP. The VIP must be an address of the host too, on a device that does
/// not answer ARP for it: `ip address add VIP/32 dev lo`. Packets to other addresses are dropped, and those of other
/// senders than --from names are left to the host's own tunnels; both are counted, and reported as they come.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb decap eth0 --vip 192.0.2.10 --from 172.16.0.0/16
  dwell lb decap eth0 --address 10.0.0.2 --gue-port 6080")]
pub struct Args {
    /// The interface that receives the balancer's packets
    interface: String,

    /// VIP whose packets are decapsulated, or a network of VIPs; may be given several times
    /// [default: the addresses of this host, as they change]
    #[arg(long, value_name = "ADDRESS[/BITS]", value_parser = vip)]
    vip: Vec<Prefix>,

    /// Network from which the balancers send, tunnel.source4 or tunnel.source6 of their configuration; may be given
    /// several times [default: any]
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    from: Vec<Prefix>,

    /// Another backend, or a network of backends, to which packets of connections that are not here may be sent on, for
    /// second_chance in the balancers' configuration; may be given several times [default: none]
    #[arg(long, value_name = "ADDRESS[/BITS]", requires = "from")]
    backend: Vec<Prefix>,

    /// Address whose packets are decapsulated; may be given several times [default: the interface's addresses, as they
    /// change]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,

    /// UDP port of GUE
    #[arg(long, value_name = "PORT", default_value_t = 6080, value_parser = port)]
    gue_port: u16,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    #[command(flatten)]
    statuses: StatusArgs,
}

/// The time between two looks for backends whose path is missing: each costs system calls.
const LOOK: Duration = Duration::from_millis(200);
/// The time between two checks whether to end.
const POLL: Duration = Duration::from_millis(50);
/// The time between two readings of the host's addresses and of the counters.
const REFRESH: Duration = Duration::from_secs(1);
/// The shortest time between two reports of refused packets.
const REPORT: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interface = Interface::find(&args.interface)?;
    let addresses = ends(args)?;
    if addresses.is_empty() {
        return Err(Failure::usage(anyhow!(
            "'{}' has no address: give one that the balancer sends to with --address",
            args.interface
        )));
    }
    if let Some((vip, backend)) = overlap(&args.vip, &args.backend) {
        return Err(Failure::usage(anyhow!(
            "--vip {vip} and --backend {backend} overlap, so that packets for a backend would count as packets for a VIP: \
             give the VIPs alone"
        )));
    }
    let stop = Stop::listen(args.duration)?;
    let rules = DecapRules {
        addresses,
        gue_port: args.gue_port,
        vips: vips(args)?,
        senders: senders(args),
        backends: args.backend.clone(),
        redirects_back: Plane::device(interface.index).is_ok_and(|device| device.is_veth),
    };
    let mut decap = Decap::load(&rules)?;
    decap.attach(&interface)?;
    let mut others = (!rules.backends.is_empty()).then(|| Others::start(&rules.backends)).transpose()?;
    explain(args, &rules);
    let mut refusals = Refusals::default();
    let statuses = Statuses::new(args.statuses, Source { host: Some(host_name()), ..Source::default() })?;
    let mut is_told = false;
    let (mut refresh_due, mut look_due, mut report_due) = (Every::new(REFRESH), Every::new(LOOK), Every::new(REPORT));
    let mut watch = || -> Result<(), Failure> {
        while !stop.is_asked() {
            thread::sleep(POLL);
            if !interface.exists() {
                let error = anyhow!(
                    "the interface '{}' is gone: nothing is decapsulated any more; start again once it is back",
                    args.interface
                );
                return Err(Failure::new(Exit::Host, error));
            }
            if let Some(others) = others.as_mut().filter(|_| look_due.comes()) {
                others.update(&mut decap, &interface)?;
            }
            if refresh_due.comes() {
                refresh(&mut decap, args, &mut is_told)?;
                let counters = decap.counters()?;
                refusals.report(&counters);
                if report_due.comes() {
                    statuses.print(status(&counters, false));
                }
            }
        }
        Ok(())
    };
    let watched = watch();
    let counters = decap.counters()?;
    statuses.print(status(&counters, true));
    log(summary(&counters, others.is_some()));
    watched.map(|()| Exit::Done)
}

/// Passes the addresses of the host on as they are now. Those that cannot be read for a moment stay as they are, and those of an
/// interface with another name now. `is_told` is true as long as new ones are not served, which is reported once.
fn refresh(decap: &mut Decap, args: &Args, is_told: &mut bool) -> Result<(), Failure> {
    if let Ok(vips) = vips(args) {
        decap.set_vips(&vips)?;
    }
    let ends = ends(args).ok().filter(|ends| !ends.is_empty());
    let Some(ends) = ends else { return Ok(()) };
    let failed = decap.set_addresses(&ends).err();
    let was_told = std::mem::replace(is_told, failed.is_some());
    if let Some(error) = failed.filter(|_| !was_told) {
        log(format_args!("new addresses of '{}' are not served: {error}", args.interface));
    }
    Ok(())
}

/// Describes what became of all packets.
fn summary(counters: &DecapCounters, may_send_on: bool) -> String {
    let second = match may_send_on {
        false => String::new(),
        true => format!(
            "; of those with a second chance, {} were kept, {} sent on, {} dropped without a path",
            counters.get(DecapOutcome::Kept),
            counters.get(DecapOutcome::SentOn),
            counters.get(DecapOutcome::NoRoute)
        ),
    };
    format!(
        "{} packets decapsulated from IPIP, {} from GUE; {} were malformed{second}{}",
        counters.get(DecapOutcome::Ipip),
        counters.get(DecapOutcome::Gue),
        counters.get(DecapOutcome::Malformed),
        Refusals::text(counters).map(|text| format!("; {text}")).unwrap_or_default()
    )
}

/// A time that comes again and again.
struct Every {
    period: Duration,
    last: Instant,
}

impl Every {
    /// It comes after a period for the first time.
    fn new(period: Duration) -> Every {
        Every { period, last: Instant::now() }
    }

    /// Returns whether it has come, and begins another period if so.
    fn comes(&mut self) -> bool {
        let comes = self.last.elapsed() >= self.period;
        if comes {
            self.last = Instant::now();
        }
        comes
    }
}

/// The status: how many packets had which outcome. None is lost, as each has one.
fn status(counters: &DecapCounters, last: bool) -> Status {
    let named =
        DecapOutcome::ALL.into_iter().map(|outcome| (outcome.name().replace('-', "_").into(), counters.get(outcome)));
    Status {
        verb: Verb::Decap,
        time_ns: Some(realtime_ns()),
        last,
        lost: 0,
        cost: cost(&[]),
        counters: named.collect(),
        verdict: None,
    }
}

/// Parses a VIP.
fn vip(text: &str) -> Result<Prefix, String> {
    let prefix: Prefix = text.parse()?;
    if is_single(&prefix) && is_special(prefix.address) {
        return Err(
            "it is a loopback, link-local, multicast, broadcast or unspecified address, which cannot be a VIP".into()
        );
    }
    Ok(prefix)
}

/// Returns a VIP and a backend of which one contains the other.
fn overlap<'a>(vips: &'a [Prefix], backends: &'a [Prefix]) -> Option<(&'a Prefix, &'a Prefix)> {
    let mut pairs = vips.iter().flat_map(|vip| backends.iter().map(move |backend| (vip, backend)));
    pairs.find(|(vip, backend)| {
        let bits = vip.bits.min(backend.bits);
        Prefix::of(vip.address, bits) == Prefix::of(backend.address, bits)
    })
}

fn is_single(prefix: &Prefix) -> bool {
    prefix.bits == if prefix.address.is_ipv4() { 32 } else { 128 }
}

/// Returns the addresses of the command line; else those of the interface as they are now.
fn ends(args: &Args) -> Result<Vec<IpAddr>, Failure> {
    match args.address.as_slice() {
        [] => Ok(addresses_of(Some(&args.interface))?.into_iter().collect()),
        addresses => Ok(addresses.to_vec()),
    }
}

/// Returns the VIPs of the command line; else the addresses of this host as they are now.
fn vips(args: &Args) -> Result<Vec<Prefix>, Failure> {
    if !args.vip.is_empty() {
        return Ok(args.vip.clone());
    }
    let single = |address: IpAddr| Prefix { address, bits: if address.is_ipv4() { 32 } else { 128 } };
    let own = addresses_of(None)?.into_iter().filter(|address| !is_special(*address));
    Ok(own.map(single).collect())
}

fn senders(args: &Args) -> Vec<Prefix> {
    match args.from.as_slice() {
        [] => DecapRules::ANYBODY.to_vec(),
        senders => senders.to_vec(),
    }
}

fn explain(args: &Args, rules: &DecapRules) {
    let list = |items: Vec<String>| items.join(", ");
    let named = |prefixes: &[Prefix]| list(prefixes.iter().map(Prefix::to_string).collect());
    let ends = list(rules.addresses.iter().map(IpAddr::to_string).collect());
    let vips = match args.vip.as_slice() {
        [] => "any address of this host (--vip names the VIPs alone)".into(),
        vips => named(vips),
    };
    let senders = match args.from.as_slice() {
        [] => "any sender (--from names the balancers' networks alone)".into(),
        senders => named(senders),
    };
    let others = match args.backend.as_slice() {
        [] => String::new(),
        backends => format!("; those of connections that are elsewhere are sent on to {}", named(backends)),
    };
    log(format_args!("decapsulating packets to {ends} on {} for {vips}, from {senders}{others}", args.interface));
}

/// The paths to other backends, to which packets may be sent on.
struct Others {
    neighbours: Neighbours,
    updates: Receiver<HopUpdate>,
    /// Those that are always looked for.
    listed: BTreeSet<IpAddr>,
    wanted: BTreeSet<IpAddr>,
    known: BTreeMap<IpAddr, NextHop>,
    devices: Devices,
}

impl Others {
    /// Looks for the listed backends that are single addresses; the others follow once they are needed.
    fn start(backends: &[Prefix]) -> Result<Others, Failure> {
        let (sender, updates) = channel();
        let neighbours = Neighbours::start(sender).map_err(|error| Failure::new(Exit::Host, error))?;
        let listed = backends.iter().filter(|backend| is_single(backend)).map(|backend| backend.address).collect();
        let devices = Devices::start("leave out --backend here, and second_chance at the balancers");
        Ok(Others { neighbours, updates, listed, wanted: BTreeSet::new(), known: BTreeMap::new(), devices })
    }

    /// Looks for what the program misses, and tells it what was found.
    fn update(&mut self, decap: &mut Decap, ingress: &Interface) -> Result<(), Failure> {
        let others = decap.others();
        let wanted: BTreeSet<IpAddr> = others.iter().map(|(address, _)| address).chain(&self.listed).copied().collect();
        if wanted != self.wanted {
            self.known.retain(|address, _| wanted.contains(address));
            self.neighbours.set(&wanted);
            self.wanted = wanted;
        }
        let mut changed = BTreeSet::new();
        while let Ok(HopUpdate { address, hop, is_gone }) = self.updates.try_recv() {
            match hop {
                Ok(hop) => drop(self.known.insert(address, hop)),
                Err(_) if is_gone => drop(self.known.remove(&address)),
                // A next hop that cannot be read for a moment stays.
                Err(_) => continue,
            }
            changed.insert(address);
        }
        changed.extend(self.test_devices(ingress));
        let missed = others.iter().filter(|(_, has_path)| !has_path).map(|(address, _)| *address);
        changed.extend(missed.filter(|address| self.path(address).is_some()));
        for address in changed {
            decap.set_other(address, self.path(&address))?;
        }
        Ok(())
    }

    /// The path to a backend, by a device that takes packets.
    fn path(&self, address: &IpAddr) -> Option<NextHop> {
        self.known.get(address).filter(|hop| self.devices.problem(hop.interface).is_none()).copied()
    }

    /// Finds out which devices take packets from XDP, and reports one that does not, or does again. Returns the backends whose
    /// path that changes.
    fn test_devices(&mut self, ingress: &Interface) -> Vec<IpAddr> {
        let hops: Vec<NextHop> = self.known.values().copied().collect();
        let turned = self.devices.update(&hops, ingress.index, Plane::mode_at(ingress));
        for index in &turned {
            match self.devices.problem(*index) {
                Some(problem) => log(format_args!("packets that should go on are dropped: {problem}")),
                None => log("packets that should go on are sent again"),
            }
        }
        let of = self.known.iter().filter(|(_, hop)| turned.contains(&hop.interface));
        of.map(|(address, _)| *address).collect()
    }
}

/// Packets that were not decapsulated although they came through a tunnel.
#[derive(Default)]
struct Refusals {
    reported: u64,
    last: Option<Instant>,
}

impl Refusals {
    /// The outcomes, and what they mean.
    const OUTCOMES: [(DecapOutcome, &str); 3] = [
        (DecapOutcome::Sender, "from senders that --from does not name, passed on unchanged"),
        (DecapOutcome::NotVip, "to inner addresses that are neither VIPs nor in --backend, dropped"),
        (DecapOutcome::Special, "to loopback, link-local, multicast or broadcast addresses, dropped"),
    ];

    /// Reports refused packets since the last time, now and then.
    fn report(&mut self, counters: &DecapCounters) {
        let refused = Refusals::OUTCOMES.iter().map(|(outcome, _)| counters.get(*outcome)).sum();
        let is_due = self.last.is_none_or(|last| last.elapsed() >= REPORT);
        if refused == self.reported || !is_due {
            return;
        }
        (self.reported, self.last) = (refused, Some(Instant::now()));
        if let Some(text) = Refusals::text(counters) {
            log(text);
        }
    }

    /// Describes all refused packets so far; `None` if there were none.
    fn text(counters: &DecapCounters) -> Option<String> {
        let refused = Refusals::OUTCOMES.iter().map(|(outcome, what)| (counters.get(*outcome), what));
        let parts: Vec<_> =
            refused.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!parts.is_empty()).then(|| format!("packets not decapsulated so far: {}", parts.join("; ")))
    }
}

/// Returns the addresses of an interface, or of all.
fn addresses_of(interface: Option<&str>) -> Result<BTreeSet<IpAddr>, Failure> {
    let all = getifaddrs().map_err(|error| Failure::new(Exit::Host, error))?;
    let wanted = |name: &str| interface.is_none_or(|wanted| wanted == name);
    let ours = all.filter(|address| wanted(&address.interface_name)).filter_map(|address| {
        let storage = address.address?;
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    Ok(ours.collect())
}
