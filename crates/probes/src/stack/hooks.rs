//! Which hook stamps which layer: data. A family names hooks of one kind, and a
//! profile in which order families are asked for a hook of a layer.

use dwell_engine::layers::{Layer, Segment};
use libbpf_rs::{NF_INET_LOCAL_OUT, NF_INET_PRE_ROUTING};

use super::kernel::{Kernel, Lack};
use crate::Error;

/// Families of hooks, the preferred one first.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Its name as an option's value.
    pub name: &'static str,
    /// Each layer is stamped by the first family that has a hook of it here.
    pub families: &'static [Family],
}

/// Hooks of one kind, one or more a layer.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name in output.
    pub name: &'static str,
    /// In the order of a byte's way.
    pub hooks: &'static [Hook],
}

/// A place in the kernel where a layer is stamped.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// Which layer.
    pub layer: Layer,
    /// Its name in output.
    pub name: &'static str,
    /// How the program gets there.
    pub(super) place: Place,
    /// The program, in the objects.
    pub(super) program: &'static str,
    /// Why there, and when it fires.
    pub about: &'static str,
}

/// How a program gets to its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A tracepoint with types, by its name.
    Tracepoint(&'static str),
    /// A netfilter hook of both IP versions.
    Netfilter(i32),
    /// The entry of a kernel function, by its name.
    Fentry(&'static str),
    /// The same, by a breakpoint.
    Kprobe(&'static str),
    /// None of its own: packets bring this stamp to the program of IP.
    Carried,
}

#[rustfmt::skip]
const TRACEPOINTS: Family = Family { name: "tracepoint", hooks: &[
    Hook { layer: Layer::TxSocket, name: "tp_btf/tcp_sendmsg_locked", place: Place::Tracepoint("tcp_sendmsg_locked"), program: "tx_socket", about: "before a piece of a write is copied" },
    Hook { layer: Layer::TxTcp, name: "skb/tstamp", place: Place::Carried, program: "", about: "the time that TCP writes into a packet as it hands it down" },
    Hook { layer: Layer::TxIp, name: "netfilter/LOCAL_OUT", place: Place::Netfilter(NF_INET_LOCAL_OUT), program: "tx_ip", about: "after IP has made its header" },
    Hook { layer: Layer::TxQueue, name: "tp_btf/net_dev_queue", place: Place::Tracepoint("net_dev_queue"), program: "tx_queue", about: "before the queueing discipline" },
    Hook { layer: Layer::TxDriver, name: "tp_btf/net_dev_start_xmit", place: Place::Tracepoint("net_dev_start_xmit"), program: "tx_driver", about: "after the queueing discipline and segmentation in software" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/napi_gro_receive_entry", place: Place::Tracepoint("napi_gro_receive_entry"), program: "rx_driver_napi", about: "drivers with NAPI: before packets are joined (GRO)" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/netif_rx", place: Place::Tracepoint("netif_rx"), program: "rx_driver", about: "drivers without NAPI: veth, loopback" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/netif_receive_skb_entry", place: Place::Tracepoint("netif_receive_skb_entry"), program: "rx_driver_at_once", about: "drivers that hand packets on at once: tun, bridges" },
    Hook { layer: Layer::RxIp, name: "netfilter/PRE_ROUTING", place: Place::Netfilter(NF_INET_PRE_ROUTING), program: "rx_ip", about: "after IP has checked its header" },
    Hook { layer: Layer::RxTcp, name: "tp_btf/tcp_probe", place: Place::Tracepoint("tcp_probe"), program: "rx_tcp", about: "an established connection takes the packet, after the socket's backlog" },
    Hook { layer: Layer::RxReady, name: "tp_btf/sk_data_ready", place: Place::Tracepoint("sk_data_ready"), program: "rx_ready", about: "the application is told that bytes are in order" },
    Hook { layer: Layer::RxSocket, name: "tp_btf/tcp_rcv_space_adjust", place: Place::Tracepoint("tcp_rcv_space_adjust"), program: "rx_socket", about: "after a piece was copied to the application" },
] };

const WRITE: &str = "a write begins, before it waits for room";
const SENDFILE: &str = "the same of sendfile(2), until Linux 6.4";
const OUTPUT: &str = "after IP has made its header and its netfilter hook";
const DELIVER: &str = "after IP has found that the packet is for this host";
const ESTABLISHED: &str = "an established connection takes the packet, after the socket's backlog";
const READABLE: &str = "the application is told that bytes are in order";
const COPIED: &str = "after a piece was copied to the application";

/// Where tracepoints cannot do without: those of queue and driver are as old as BPF.
macro_rules! at_entry {
    ($kind:literal, $place:path) => {
        Family {
            name: $kind,
            hooks: &[
                at_entry!($kind, $place, TxSocket, "tcp_sendmsg_locked", WRITE),
                at_entry!($kind, $place, TxSocket, "do_tcp_sendpages", SENDFILE),
                at_entry!($kind, $place, TxIp, "ip_output", OUTPUT),
                at_entry!($kind, $place, TxIp, "ip6_output", OUTPUT),
                at_entry!($kind, $place, RxIp, "ip_local_deliver", DELIVER),
                at_entry!($kind, $place, RxIp, "ip6_input", DELIVER),
                at_entry!($kind, $place, RxTcp, "tcp_rcv_established", ESTABLISHED),
                at_entry!($kind, $place, RxReady, "sock_def_readable", READABLE),
                at_entry!($kind, $place, RxSocket, "tcp_rcv_space_adjust", COPIED),
            ],
        }
    };
    ($kind:literal, $place:path, $layer:ident, $function:literal, $about:expr) => {
        Hook {
            layer: Layer::$layer,
            name: concat!($kind, "/", $function),
            place: $place($function),
            program: concat!($kind, "_", $function),
            about: $about,
        }
    };
}

const FENTRIES: Family = at_entry!("fentry", Place::Fentry);
const KPROBES: Family = at_entry!("kprobe", Place::Kprobe);

/// All profiles. The first is the default.
#[rustfmt::skip]
pub static PROFILES: &[Profile] = &[
    Profile { name: "auto", families: &[TRACEPOINTS, FENTRIES, KPROBES] },
    Profile { name: "tracepoint", families: &[TRACEPOINTS] },
    Profile { name: "fentry", families: &[FENTRIES, TRACEPOINTS] },
    Profile { name: "kprobe", families: &[KPROBES, TRACEPOINTS] },
];

/// A hook of the default profile, and whether this host uses it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Which hook.
    pub hook: &'static Hook,
    /// Of which family.
    pub family: &'static str,
    /// What it lacks here, if anything.
    pub lack: Option<Lack>,
    /// Whether it is used: it lacks nothing, and no family that is preferred has one
    /// of the layer.
    pub used: bool,
}

impl Profile {
    /// The profile of a name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The hooks that this kernel has and that are to be used, in the order of a byte's
    /// way. Whether it lets the programs in is found out by attaching.
    pub(super) fn choose(&'static self, kernel: &Kernel) -> Result<Vec<&'static Hook>, Error> {
        // What was asked for by name is not quietly replaced.
        if let Some(first) = self.families.first()
            && first.name == self.name
            && !first.hooks.iter().any(|hook| kernel.lack(hook.place).is_none())
        {
            return Err(Error::Family { family: first.name });
        }
        Ok(self.used(|hook| kernel.lack(hook.place).is_none()))
    }

    /// Of each layer, the hooks that are there of the first family that has one. No other
    /// is asked for, as asking may be a trial.
    fn used(&'static self, is_there: impl Fn(&Hook) -> bool) -> Vec<&'static Hook> {
        let of_layer = |layer| {
            let mut families = self.families.iter().map(|family| -> Vec<_> {
                let hooks = family.hooks.iter();
                hooks.filter(|hook| hook.layer == layer && is_there(hook)).collect()
            });
            families.find(|hooks| !hooks.is_empty())
        };
        let mut hooks: Vec<_> = Layer::ALL.into_iter().filter_map(of_layer).flatten().collect();
        // What packets bring to the program of IP goes without it.
        if !hooks.iter().any(|hook| hook.layer == Layer::TxIp) {
            hooks.retain(|hook| hook.place != Place::Carried);
        }
        hooks
    }
}

/// What the default profile uses here, and what it would use otherwise: in the order of a
/// byte's way, the preferred first.
pub fn candidates() -> Vec<Candidate> {
    let kernel = Kernel::of_this_host();
    let used = PROFILES[0].used(|hook| kernel.lack(hook.place).is_none());
    let mut candidates: Vec<_> = PROFILES[0]
        .families
        .iter()
        .flat_map(|family| family.hooks.iter().map(|hook| (family.name, hook)))
        .map(|(family, hook)| Candidate {
            hook,
            family,
            lack: kernel.lack(hook.place),
            used: used.iter().any(|other| other.name == hook.name),
        })
        .collect();
    candidates.sort_by_key(|candidate| candidate.hook.layer);
    candidates
}

/// The names of a layer's hooks, or `None` where it has none here.
pub fn names(present: &[&'static Hook], layer: Layer) -> Option<String> {
    let names: Vec<_> = present.iter().filter(|hook| hook.layer == layer).map(|hook| hook.name).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The layers that a segment lies between: a total begins at the first layer of its
/// side that there is a hook for.
pub fn ends(present: &[&'static Hook], segment: Segment) -> (Layer, Layer) {
    let (from, to) = segment.ends();
    let first = present.iter().map(|hook| hook.layer).find(|layer| layer.direction() == segment.direction());
    match first {
        Some(first) if segment.is_whole() => (first, to),
        _ => (from, to),
    }
}

/// Segments of which an end has no hook here, with the layer that is missing.
pub fn missing(present: &[&'static Hook]) -> Vec<(Segment, Layer)> {
    let hooked = |layer: Layer| present.iter().any(|hook| hook.layer == layer);
    Segment::ALL
        .into_iter()
        .filter(|segment| !segment.is_whole())
        .filter_map(|segment| {
            let (from, to) = segment.ends();
            [from, to].into_iter().find(|layer| !hooked(*layer)).map(|layer| (segment, layer))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_a_hook_for_each_layer_in_order() {
        for profile in PROFILES {
            let hooks = profile.used(|_| true);
            assert!(hooks.is_sorted_by_key(|hook| hook.layer));
            assert_eq!(missing(&hooks), [], "{}", profile.name);
        }
    }

    #[test]
    fn a_layer_is_stamped_by_the_first_family_that_has_a_hook_here_and_by_no_other() {
        let absent = ["tp_btf/tcp_sendmsg_locked", "netfilter/LOCAL_OUT"];
        let hooks = PROFILES[0].used(|hook| !absent.contains(&hook.name) && hook.name != "fentry/ip_output");
        let names = |layer| names(&hooks, layer).unwrap();
        assert_eq!(names(Layer::TxSocket), "fentry/tcp_sendmsg_locked,fentry/do_tcp_sendpages");
        assert_eq!(names(Layer::TxIp), "fentry/ip6_output");
        assert_eq!(names(Layer::RxIp), "netfilter/PRE_ROUTING");
        let hooks = PROFILES[0].used(|hook| !absent.contains(&hook.name) && !matches!(hook.place, Place::Fentry(_)));
        assert_eq!(hooks[0].name, "kprobe/tcp_sendmsg_locked");
        let hooks = PROFILES[2].used(|_| true);
        assert_eq!(hooks[0].name, "fentry/tcp_sendmsg_locked");
        assert_eq!(super::names(&hooks, Layer::TxTcp).unwrap(), "skb/tstamp");
        let hooks = PROFILES[1].used(|hook| hook.layer != Layer::TxIp);
        assert_eq!(super::names(&hooks, Layer::TxTcp), None);
    }

    #[test]
    fn a_layer_without_a_hook_is_missed_by_the_segments_at_its_sides() {
        let all: Vec<_> = PROFILES[0].families[0].hooks.iter().collect();
        assert_eq!(missing(&all), []);
        let without: Vec<_> = all.into_iter().filter(|hook| hook.layer != Layer::RxTcp).collect();
        assert_eq!(
            missing(&without),
            [(Segment::IpTcp, Layer::RxTcp), (Segment::TcpSocket, Layer::RxTcp), (Segment::Reordering, Layer::RxTcp)]
        );
        assert_eq!(names(&without, Layer::RxTcp), None);
        assert_eq!(ends(&without[1..], Segment::TxTotal), (Layer::TxTcp, Layer::TxDriver));
        assert_eq!(ends(&without[1..], Segment::SocketTcp), (Layer::TxSocket, Layer::TxTcp));
        assert_eq!(
            names(&without, Layer::RxDriver).unwrap(),
            "tp_btf/napi_gro_receive_entry,tp_btf/netif_rx,tp_btf/netif_receive_skb_entry"
        );
    }
}
