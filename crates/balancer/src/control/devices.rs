//! The devices by which packets leave: whether they take what XDP programs send, and what to do where one does not.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::{Duration, Instant},
};

use dwell_probes::{
    Interface, XdpMode,
    balancer::{Delivery, Device, Forward, NextHop, Plane, PlaneOptions, TransmitCounts, Transmits},
};
use nix::errno::Errno;

use super::{Balancer, ControlError, Event};
use crate::{api::DeviceStatus, config::Config};

/// The time between two tests of a device that takes nothing.
const RETEST: Duration = Duration::from_secs(1);

/// The devices by which packets leave.
pub struct Devices {
    /// What watches them, or why nothing does.
    transmits: Result<Transmits, String>,
    by_index: BTreeMap<u32, RunningDevice>,
    /// What helps where nothing makes a device take packets.
    alternative: &'static str,
}

struct RunningDevice {
    device: Device,
    counts: TransmitCounts,
    /// Why it takes nothing, and the remedy; none if it takes frames, or is not known not to.
    problem: Option<String>,
    tested: Option<Instant>,
}

impl Devices {
    /// Watches no device yet. Where the kernel cannot tell what devices refuse, none has a problem.
    pub fn start(alternative: &'static str) -> Devices {
        let transmits = Transmits::start().map_err(|error| error.to_string());
        Devices { transmits, by_index: BTreeMap::new(), alternative }
    }

    /// Why nothing leaves by a device; none if packets do.
    pub fn problem(&self, index: u32) -> Option<&str> {
        self.by_index.get(&index)?.problem.as_deref()
    }

    /// Why refused frames are not counted; none if they are.
    pub(super) fn blindness(&self) -> Option<&str> {
        self.transmits.as_ref().err().map(String::as_str)
    }

    pub(super) fn status(&self) -> Vec<DeviceStatus> {
        let is_counted = self.transmits.is_ok();
        let status = |running: &RunningDevice| DeviceStatus {
            name: running.device.name.clone(),
            refused_tx: is_counted.then_some(running.counts.refused_tx),
            refused_redirect: is_counted.then_some(running.counts.refused_redirect),
            problem: running.problem.clone(),
        };
        self.by_index.values().map(status).collect()
    }

    /// Counts what the devices of these next hops have refused, and tests those that may take nothing. Frames that are
    /// sent back by XDP_TX leave by a ring of the driver, which no test reaches. Returns the devices that take frames
    /// now and did not before, or the other way round.
    pub fn update(&mut self, hops: &[NextHop], ingress: u32, mode: Option<XdpMode>) -> BTreeSet<u32> {
        let used: BTreeMap<u32, &NextHop> = hops.iter().map(|hop| (hop.interface, hop)).collect();
        let Ok(transmits) = &mut self.transmits else { return BTreeSet::new() };
        self.by_index.retain(|index, _| {
            let is_used = used.contains_key(index);
            if !is_used {
                let _ = transmits.forget(*index);
            }
            is_used
        });
        let mut turned = BTreeSet::new();
        for (index, hop) in used {
            let running = match self.by_index.entry(index) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let Ok(device) = Plane::device(index) else { continue };
                    if transmits.watch(index).is_err() {
                        continue;
                    }
                    let counts = TransmitCounts::default();
                    entry.insert(RunningDevice { device, counts, problem: None, tested: None })
                }
            };
            let is_tested = mode == Some(XdpMode::Native) && (index != ingress || running.device.is_veth);
            let had_problem = running.problem.is_some();
            running.update(transmits, hop, is_tested, self.alternative);
            if had_problem != running.problem.is_some() {
                turned.insert(index);
            }
        }
        turned
    }
}

impl RunningDevice {
    fn update(&mut self, transmits: &mut Transmits, hop: &NextHop, is_tested: bool, alternative: &str) {
        let before = self.counts;
        self.counts = transmits.counts(hop.interface).unwrap_or(before);
        let takes_nothing = self.counts.refused() > before.refused() && self.counts.taken == before.taken;
        let is_due = match self.tested {
            None => true,
            Some(tested) => takes_nothing || (self.problem.is_some() && tested.elapsed() >= RETEST),
        };
        if !is_tested {
            self.problem = None;
        } else if is_due {
            self.tested = Some(Instant::now());
            self.problem = match transmits.test(hop) {
                Ok(Some(Delivery::Refused(errno))) => Some(refusal(&self.device, errno, alternative)),
                _ => None,
            };
            // The test frame that was taken is no client's packet.
            self.counts = transmits.counts(hop.interface).unwrap_or(self.counts);
        }
    }
}

/// Says that a device takes no frames of XDP programs, and what to do.
fn refusal(device: &Device, errno: Option<i32>, alternative: &str) -> String {
    let name = &device.name;
    let errno = errno.map(Errno::from_raw);
    let remedy = match errno {
        Some(Errno::ENETDOWN) => format!("run `ip link set {name} up`"),
        Some(Errno::ENXIO | Errno::EOPNOTSUPP) if device.is_veth => {
            let peer = device.peer.and_then(|index| Plane::device(index).ok());
            let command = match peer {
                Some(peer) => format!("`ethtool -K {} gro on`", peer.name),
                None => format!(
                    "`ethtool -K PEER gro on` in the network namespace of its other end, whose number `ip link show \
                     {name}` shows behind the @"
                ),
            };
            format!("it is a veth whose other end does not poll: run {command}, or {alternative}")
        }
        _ => alternative.into(),
    };
    let reason = errno.map_or(String::new(), |errno| format!(" ({})", errno.desc()));
    format!("'{name}' takes no packets from XDP{reason}, so that none arrives: {remedy}")
}

/// Sets what runs the program, and how packets go back, by the kind of the interface.
///
/// What a driver of a veth runs depends on its other end, which is often out of reach, and on the checksum offload of all
/// clients' hosts. So the network stack runs the program there, which needs neither, as long as all packets go back
/// unchanged where they came from: it joins segments, which fit no tunnel and no redirect.
pub(super) fn adapt(options: &mut PlaneOptions, config: &Config, interface: &Interface) {
    let is_veth = Plane::device(interface.index).is_ok_and(|device| device.is_veth);
    if !is_veth {
        return;
    }
    let mode = match (config.xdp, &config.chain) {
        (_, Some(_)) => Plane::mode_at(interface).unwrap_or_default(),
        (XdpMode::Any, None) if goes_back(config, interface) => XdpMode::Generic,
        (wanted, None) => wanted,
    };
    options.mode = mode;
    options.redirects_back = mode != XdpMode::Generic;
}

/// Whether all packets leave unchanged by the interface where they arrive, as far as there are routes.
fn goes_back(config: &Config, interface: &Interface) -> bool {
    let is_back = |address| Plane::interface_to(address).map_or(true, |index| index == interface.index);
    config
        .vips
        .iter()
        .all(|vip| vip.forward == Forward::L2 && vip.backends.iter().all(|backend| is_back(backend.address)))
}

impl Balancer {
    /// Watches the devices by which packets leave now. True if one has turned out to take packets, or none.
    pub(super) fn update_devices(&mut self) -> Result<bool, ControlError> {
        let hops: Vec<NextHop> = self.known_hops.values().copied().collect();
        let mode = Plane::mode_at(&self.interface);
        let turned = self.devices.update(&hops, self.interface.index, mode);
        let changed = self.known_hops.iter().filter(|(_, hop)| turned.contains(&hop.interface));
        let events: Vec<Event> = changed
            .map(|(address, hop)| Event::Reach {
                address: *address,
                problem: self.devices.problem(hop.interface).map(str::to_owned),
            })
            .collect();
        events.iter().for_each(|event| self.emit(event));
        Ok(!turned.is_empty())
    }

    /// Warns of what the devices do to packets.
    pub(super) fn device_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(why) = self.devices.blindness() {
            warnings.push(format!("packets that devices refuse are not counted: {why}"));
        }
        if self.figures.has_unfinished {
            warnings.push(format!(
                "most connections begin with a checksum that the client's host has left to its device, which XDP in the \
                 driver of '{}' cannot complete: backends discard such packets. Run `ethtool -K DEVICE tx off` for the \
                 clients' devices, or set xdp = \"generic\"",
                self.interface.name
            ));
        }
        if Plane::mode_at(&self.interface) == Some(XdpMode::Generic) && !goes_back(&self.config, &self.interface) {
            warnings.push(format!(
                "the network stack runs XDP for '{}', and joins segments that then are too long for tunnels and other \
                 devices: set xdp = \"native\" if its driver can, or run `ethtool -K {} gro off`",
                self.interface.name, self.interface.name
            ));
        }
        warnings
    }
}
