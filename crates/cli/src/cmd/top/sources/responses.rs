//! How long servers take to respond on the connections of this host, by the packets on its interfaces.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    fs,
    hash::BuildHasher,
    time::Duration,
};

use dwell_engine::{
    filter::Filter,
    layers::Ends,
    response::{Config, Record, Watch, estimate},
    rtt::Counter,
    top::{FlowKey, RowKey, Table},
};
use dwell_probes::{
    Error, Interface, TcHookKind,
    response::{Options, Probe},
};
use dwell_socket::clock::monotonic_ns;
use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

use crate::{
    args::nanos,
    cmd::top::{Args, INTERVAL},
};

/// The shortest and the longest epoch.
const EPOCHS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(60)];

/// The attached programs. Dropping it detaches them.
pub struct Responses {
    probe: Probe,
    config: Config,
    /// Whether each interval is the last one: then all epochs end with it.
    ends_epochs: bool,
}

impl Responses {
    /// Watches the interfaces that are up and have an address. `None` where this process may not do that, and where the kernel
    /// has no tcx, whose links go with the process, however it ends. Also returns why the interfaces that refuse the program do, for
    /// people to read.
    pub fn attach(args: &Args, filter: &Filter) -> (Option<Responses>, Option<String>) {
        let [shortest, longest] = EPOCHS;
        // The only epoch of `--once` is ended with the run.
        let epoch = if args.once { longest } else { args.interval.unwrap_or(INTERVAL).clamp(shortest, longest) };
        let epoch_ns = nanos(epoch);
        // Epochs begin now.
        let phase_ns = epoch_ns - monotonic_ns() % epoch_ns;
        let config = Config { epoch_ns, phase_ns, ..Config::default() };
        let watch = Watch {
            config: config.clone(),
            filter: filter.clone(),
            max_flows: args.max_flows,
            seed: RandomState::new().hash_one(std::process::id()),
            ..Watch::default()
        };
        let Ok(mut probe) = Probe::load(&Options { tc: TcHookKind::Tcx, ..Options::new(watch) }) else {
            return (None, None);
        };
        let (mut attached, mut refused) = (0, Vec::new());
        for name in interfaces() {
            match Interface::find(&name).and_then(|interface| probe.attach(&interface)) {
                Ok(()) => attached += 1,
                Err(error) => refused.push((name, error.to_string())),
            }
        }
        // Where all refuse it, that is the kernel, which `dwell doctor` tells.
        match attached {
            0 => (None, None),
            _ => (Some(Responses { probe, config, ends_epochs: args.once }), notice(&refused)),
        }
    }

    /// Ends the epochs that are over, and reads them as [`Responses::read`] does. Returns the number of epochs since the start that
    /// came too fast to be read.
    ///
    /// # Errors
    ///
    /// If the kernel does not let the programs be read.
    pub fn end_interval(&mut self, table: &mut Table) -> Result<u64, Error> {
        match self.ends_epochs {
            true => self.probe.finish()?,
            false => self.probe.sweep()?,
        }
        self.read(Some(table))?;
        self.probe.make_room()?;
        Ok(self.probe.counters()?.get(Counter::EventsLost) + self.probe.unreadable_events())
    }

    /// Adds the responses of epochs that have ended to the flows of sockets, or passes over them where there is no table. To be
    /// called several times per second, so that there is room for more.
    ///
    /// # Errors
    ///
    /// If the kernel does not let them be read.
    pub fn read(&mut self, mut table: Option<&mut Table>) -> Result<(), Error> {
        let (config, now_ns) = (&self.config, monotonic_ns());
        self.probe.drain(|record| {
            if let (Some(table), Some(response_ns)) = (table.as_deref_mut(), believed(&record, config)) {
                add(&record, response_ns, now_ns, table);
            }
        })
    }
}

/// Adds a response to the flow of a socket. Where both ends are on this host, both have one.
fn add(record: &Record, response_ns: u64, now_ns: u64, table: &mut Table) {
    let flow = FlowKey { ends: Ends { src: record.src, dst: record.dst }, protocol: record.protocol };
    for flow in [flow, flow.reversed()] {
        if table.row(&RowKey::Flow(flow)).is_some() {
            table.response(now_ns, flow.ends.src, flow.ends.dst, flow.protocol, response_ns);
        }
    }
}

/// Returns the estimate of an epoch, if there is one to be believed of a flow that ports tell apart.
pub fn believed(record: &Record, config: &Config) -> Option<u64> {
    let estimate = estimate(config, &record.epoch);
    estimate.response_ns.filter(|_| estimate.is_valid() && record.key.has_ports())
}

/// Describes which interfaces are not watched, and why the first of them refuses the program.
fn notice(refused: &[(String, String)]) -> Option<String> {
    let (_, error) = refused.first()?;
    let names: Vec<_> = refused.iter().map(|(name, _)| name.as_str()).collect();
    Some(format!("no response latency of flows on {}: {error}", names.join(", ")))
}

/// Returns the interfaces that are up and have an address. One of the link alone does not count: ports of a bridge have those,
/// whose packets the bridge shows too; nor does a VLAN of one that counts itself.
fn interfaces() -> Vec<String> {
    let addressed = getifaddrs().into_iter().flatten().filter(|interface| {
        let is_v4 = interface.address.is_some_and(|address| address.as_sockaddr_in().is_some());
        let v6 = interface.address.as_ref().and_then(|address| Some(address.as_sockaddr_in6()?.ip()));
        let is_addressed = is_v4 || v6.is_some_and(|v6| !v6.is_unicast_link_local());
        is_addressed && interface.flags.contains(InterfaceFlags::IFF_UP)
    });
    let names: BTreeSet<String> = addressed.map(|interface| interface.interface_name).collect();
    // A kernel without VLANs has no such file.
    let vlans = fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    names.iter().filter(|name| !is_vlan_of(name, &names, &vlans)).cloned().collect()
}

/// Whether an interface is a VLAN of one of these, which all of its packets pass too. `vlans` has a line `NAME | ID | PARENT` for
/// each VLAN.
fn is_vlan_of(name: &str, parents: &BTreeSet<String>, vlans: &str) -> bool {
    vlans.lines().any(|line| {
        let mut words = line.split('|').map(str::trim);
        words.next() == Some(name) && words.nth(1).is_some_and(|parent| parents.contains(parent))
    })
}

#[cfg(test)]
mod tests {
    use super::{is_vlan_of, notice};

    /// As the kernel writes it (`vlan_seq_show` of net/8021q/vlanproc.c).
    const VLANS: &str = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
        eth0.5         | 5  | eth0\neth1.7         | 7  | eth1\n";

    #[test]
    fn packets_of_a_vlan_are_not_watched_a_second_time() {
        let names = ["eth0", "eth0.5", "eth1.7", "lo"].map(str::to_owned).into();
        let watched = ["eth0", "eth0.5", "eth1.7", "lo"].map(|name| !is_vlan_of(name, &names, VLANS));
        assert_eq!(watched, [true, false, true, true], "eth1 has no address");
        assert!(!is_vlan_of("eth0.5", &names, ""));
    }

    #[test]
    fn interfaces_that_refuse_the_program_are_named() {
        assert_eq!(notice(&[]), None);
        let refused = ["eth1", "tun0"].map(|name| (name.to_owned(), format!("cannot attach to {name}")));
        assert_eq!(
            notice(&refused).as_deref(),
            Some("no response latency of flows on eth1, tun0: cannot attach to eth1")
        );
    }
}
