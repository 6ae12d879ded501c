//! How long servers take to respond on the connections of this host, by the packets on its interfaces.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
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
    /// has no tcx, whose links go with the process, however it ends.
    pub fn attach(args: &Args, filter: &Filter) -> Option<Responses> {
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
        let mut probe = Probe::load(&Options { tc: TcHookKind::Tcx, ..Options::new(watch) }).ok()?;
        let attached = interfaces().iter().filter(|interface| probe.attach(interface).is_ok()).count();
        (attached > 0).then_some(Responses { probe, config, ends_epochs: args.once })
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

/// Returns the interfaces that are up and have an address. One of the link alone does not count: ports of a bridge have those,
/// whose packets the bridge shows too.
fn interfaces() -> Vec<Interface> {
    let addressed = getifaddrs().into_iter().flatten().filter(|interface| {
        let is_v4 = interface.address.is_some_and(|address| address.as_sockaddr_in().is_some());
        let v6 = interface.address.as_ref().and_then(|address| Some(address.as_sockaddr_in6()?.ip()));
        let is_addressed = is_v4 || v6.is_some_and(|v6| !v6.is_unicast_link_local());
        is_addressed && interface.flags.contains(InterfaceFlags::IFF_UP)
    });
    let names: BTreeSet<String> = addressed.map(|interface| interface.interface_name).collect();
    names.iter().filter_map(|name| Interface::find(name).ok()).collect()
}
