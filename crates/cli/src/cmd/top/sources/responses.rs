//! How long servers take to respond on the connections of this host, by the packets on its interfaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use dwell_engine::{
    filter::Filter,
    layers::Ends,
    response::{Config, Method, Reason, Record, Watch, estimate},
    roles::Role,
    rtt::Counter,
    top::{FlowKey, Response, RowKey, Table},
    units::nanos,
};
use dwell_probes::{
    Error, Interface, TcHookKind,
    response::{Options, Probe},
};
use dwell_socket::clock::monotonic_ns;
use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

use crate::cmd::top::{Args, INTERVAL};

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
            seed: crate::source::seed(),
            ..Watch::default()
        };
        let Ok(mut probe) = Probe::load(&Options { tc: TcHookKind::Tcx, ..Options::new(watch) }) else {
            return (None, None);
        };
        let mut refused = Vec::new();
        let watched = watch_each(&interfaces(), &parents(Path::new("/sys/class/net")), |name| {
            let attached = Interface::find(name).and_then(|interface| probe.attach(&interface));
            attached.map_err(|error| refused.push((name.to_owned(), error.to_string()))).is_ok()
        });
        // Where all refuse it, that is the kernel, which `dwell doctor` tells.
        match watched {
            false => (None, None),
            true => (Some(Responses { probe, config, ends_epochs: args.once }), notice(&refused)),
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
            if let (Some(table), Some(response)) = (table.as_deref_mut(), response_of(&record, config)) {
                add(&record, response, now_ns, table);
            }
        })
    }
}

/// Adds a response to the flow of a socket. Where both ends are on this host, both have one.
fn add(record: &Record, response: Response, now_ns: u64, table: &mut Table) {
    let flow = FlowKey { ends: Ends { src: record.src, dst: record.dst }, protocol: record.protocol };
    for (flow, role) in [(flow, Role::Client), (flow.reversed(), Role::Server)] {
        if table.row(&RowKey::Flow(flow)).is_some() {
            table.response(now_ns, flow, role, response);
        }
    }
}

/// Returns what an epoch of a flow that ports tell apart has shown; `None` if it has neither an estimate nor a reason that says
/// who sets the pace.
pub fn response_of(record: &Record, config: &Config) -> Option<Response> {
    let (epoch, estimate) = (&record.epoch, estimate(config, &record.epoch));
    // The most that answers can have taken whose ends late ACKs hide: an estimate between that and next to nothing says less.
    let most_ns = epoch.answered_ns.checked_div(epoch.answered.into()).filter(|_| estimate.method == Method::Turns);
    let response = match estimate.reason {
        Some(
            Reason::ThinkTime
            | Reason::TimerDriven
            | Reason::BulkUpload
            | Reason::Paced
            | Reason::Multiplexed
            | Reason::TooDeep,
        ) => Some(Response::Unknown),
        Some(_) => estimate.response_ns.max(most_ns).map(Response::Doubted),
        None => estimate.response_ns.map(Response::Believed),
    };
    response.filter(|_| record.key.has_ports())
}

/// Describes which interfaces are not watched, and why the first of them refuses the program.
fn notice(refused: &[(String, String)]) -> Option<String> {
    let (_, error) = refused.first()?;
    let names: Vec<_> = refused.iter().map(|(name, _)| name.as_str()).collect();
    Some(format!("no response latency of flows on {}: {error}", names.join(", ")))
}

/// Returns the interfaces that are up and have an address. One of the link alone does not count: ports of a bridge have those,
/// whose packets the bridge shows too.
fn interfaces() -> BTreeSet<String> {
    let addressed = getifaddrs().into_iter().flatten().filter(|interface| {
        let is_v4 = interface.address.is_some_and(|address| address.as_sockaddr_in().is_some());
        let v6 = interface.address.as_ref().and_then(|address| Some(address.as_sockaddr_in6()?.ip()));
        let is_addressed = is_v4 || v6.is_some_and(|v6| !v6.is_unicast_link_local());
        is_addressed && interface.flags.contains(InterfaceFlags::IFF_UP)
    });
    addressed.map(|interface| interface.interface_name).collect()
}

/// Returns the VLANs among the devices in a folder as `/sys/class/net`, which everybody may read, with the interface that each is
/// a part of.
fn parents(devices: &Path) -> BTreeMap<String, String> {
    let vlans = fs::read_dir(devices).into_iter().flatten().flatten().filter(|device| {
        let event = fs::read_to_string(device.path().join("uevent"));
        event.is_ok_and(|text| text.lines().any(|line| line == "DEVTYPE=vlan"))
    });
    let parent = |vlan: fs::DirEntry| {
        let links = fs::read_dir(vlan.path()).ok()?.flatten();
        let mut lower = links.filter_map(|link| Some(link.file_name().to_str()?.strip_prefix("lower_")?.to_owned()));
        Some((vlan.file_name().into_string().ok()?, lower.next()?))
    };
    vlans.filter_map(parent).collect()
}

/// Attaches to the interfaces, except to a VLAN whose packets are watched at the interface that it is a part of. Returns whether
/// `attach` has succeeded at any.
fn watch_each(
    interfaces: &BTreeSet<String>,
    parents: &BTreeMap<String, String>,
    mut attach: impl FnMut(&str) -> bool,
) -> bool {
    // A VLAN may be a part of another VLAN, and comes after it here.
    let above = |name: &String| std::iter::successors(parents.get(name), move |above| parents.get(*above)).take(8);
    let mut ordered: Vec<_> = interfaces.iter().collect();
    ordered.sort_by_key(|name| above(name).count());
    let mut watched = BTreeSet::new();
    for name in ordered {
        if !above(name).any(|above| watched.contains(above)) && attach(name) {
            watched.insert(name);
        }
    }
    !watched.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel has them (`uevent` of net/core/net-sysfs.c, `lower_*` of net/core/dev.c).
    #[test]
    fn packets_of_a_vlan_are_watched_once() {
        let devices = tempfile::tempdir().unwrap();
        let add = |name: &str, parent: Option<&str>| {
            let device = devices.path().join(name);
            fs::create_dir(&device).unwrap();
            let kind = if parent.is_some() { "DEVTYPE=vlan\n" } else { "" };
            fs::write(device.join("uevent"), format!("{kind}INTERFACE={name}\nIFINDEX=7\n")).unwrap();
            if let Some(parent) = parent {
                std::os::unix::fs::symlink(format!("../{parent}"), device.join(format!("lower_{parent}"))).unwrap();
            }
        };
        add("eth0", None);
        add("a.5", Some("eth0"));
        add("a.5.6", Some("a.5"));
        add("a.7", Some("eth1"));
        add("br0", None);
        let names = ["a.5", "a.5.6", "a.7", "br0", "eth0"].map(str::to_owned).into();
        let attached = |refuses: &str| {
            let mut tried = Vec::new();
            let watched = watch_each(&names, &parents(devices.path()), |name| {
                tried.push(name.to_owned());
                !refuses.split(' ').any(|refusing| refusing == name)
            });
            (watched, tried.join(" "))
        };
        assert_eq!(attached(""), (true, "br0 eth0 a.7".to_owned()), "eth1 has no address");
        assert_eq!(attached("eth0"), (true, "br0 eth0 a.5 a.7".to_owned()), "a parent that refuses it shows nothing");
        assert_eq!(attached("eth0 a.5"), (true, "br0 eth0 a.5 a.7 a.5.6".to_owned()));
        assert!(!attached("eth0 a.5 a.5.6 a.7 br0").0);
        assert_eq!(parents(&devices.path().join("none")), BTreeMap::new());
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
