//! The hooks that stamp each layer: data. A family lists hooks of one kind, and a profile the order in which families
//! are preferred.

use dwell_engine::layers::{Layer, Segment, SegmentHooks};
use libbpf_rs::{NF_INET_LOCAL_OUT, NF_INET_PRE_ROUTING};

use super::kernel::{Kernel, Lack};
use crate::Error;

/// An order of preference among families of hooks.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// The name, as a value of `--hooks`.
    pub name: &'static str,
    /// The families, the preferred one first. Each layer is stamped by the first one that has a usable hook for it.
    pub families: &'static [Family],
}

/// Hooks of one kind, one or more per layer.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// The name in output.
    pub name: &'static str,
    /// The hooks, in the order in which a byte passes them.
    pub hooks: &'static [Hook],
}

/// A hook in the kernel where a layer is stamped.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// The layer that it stamps.
    pub layer: Layer,
    /// The name in output.
    pub name: &'static str,
    /// How the program is attached.
    pub(super) attach: Attach,
    /// The name of the program in the objects; empty where none is attached.
    pub(super) program: &'static str,
    /// Why this hook was selected, and when it fires.
    pub about: &'static str,
}

/// How a program is attached to its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attach {
    /// To a tracepoint with types, by its name.
    Tracepoint(&'static str),
    /// To a netfilter hook of both IP versions.
    Netfilter(i32),
    /// To the entry of a kernel function, by its name.
    Fentry(&'static str),
    /// To the entry of a kernel function by a breakpoint (kprobe).
    Kprobe(&'static str),
    /// Not at all: packets carry this stamp to the program of IP.
    Carried,
    /// Not at all: the program at the device's queue stamps this layer too.
    AtQueue,
}

impl Attach {
    /// Whether a program that is attached runs in one network namespace only.
    fn is_of_a_namespace(self) -> bool {
        matches!(self, Attach::Netfilter(_))
    }
}

#[rustfmt::skip]
const TRACEPOINTS: Family = Family { name: "tracepoint", hooks: &[
    Hook { layer: Layer::TxSocket, name: "tp_btf/tcp_sendmsg_locked", attach: Attach::Tracepoint("tcp_sendmsg_locked"), program: "tx_socket", about: "before a part of a write is copied" },
    Hook { layer: Layer::TxTcp, name: "skb/tstamp", attach: Attach::Carried, program: "", about: "the time that TCP writes into a packet as it passes it to IP" },
    Hook { layer: Layer::TxIp, name: "netfilter/LOCAL_OUT", attach: Attach::Netfilter(NF_INET_LOCAL_OUT), program: "tx_ip", about: "after IP has written its header" },
    Hook { layer: Layer::TxQueue, name: "tp_btf/net_dev_queue", attach: Attach::Tracepoint("net_dev_queue"), program: "tx_queue", about: "before the queueing discipline" },
    Hook { layer: Layer::TxDriver, name: "tp_btf/net_dev_start_xmit", attach: Attach::Tracepoint("net_dev_start_xmit"), program: "tx_driver", about: "after the queueing discipline and segmentation in software" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/napi_gro_receive_entry", attach: Attach::Tracepoint("napi_gro_receive_entry"), program: "rx_driver_napi", about: "drivers with NAPI: before packets are merged (GRO)" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/napi_gro_frags_entry", attach: Attach::Tracepoint("napi_gro_frags_entry"), program: "rx_driver_frags", about: "drivers with NAPI that hand on fragments: before they are merged (GRO)" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/netif_rx", attach: Attach::Tracepoint("netif_rx"), program: "rx_driver", about: "drivers without NAPI: veth, loopback" },
    Hook { layer: Layer::RxDriver, name: "tp_btf/netif_receive_skb_entry", attach: Attach::Tracepoint("netif_receive_skb_entry"), program: "rx_driver_at_once", about: "drivers that deliver packets at once: tun, bridges" },
    Hook { layer: Layer::RxIp, name: "netfilter/PRE_ROUTING", attach: Attach::Netfilter(NF_INET_PRE_ROUTING), program: "rx_ip", about: "after IP has checked its header" },
    Hook { layer: Layer::RxTcp, name: "tp_btf/tcp_probe", attach: Attach::Tracepoint("tcp_probe"), program: "rx_tcp", about: "an established connection receives the packet, after the socket's backlog" },
    Hook { layer: Layer::RxReady, name: "tp_btf/sk_data_ready", attach: Attach::Tracepoint("sk_data_ready"), program: "rx_ready", about: "the application is notified that bytes are in order" },
    Hook { layer: Layer::RxSocket, name: "tp_btf/tcp_rcv_space_adjust", attach: Attach::Tracepoint("tcp_rcv_space_adjust"), program: "rx_socket", about: "after a part was copied to the application" },
] };

const WRITE: &str = "a write starts, before it waits for room";
const SENDFILE: &str = "a sendfile(2) starts, until Linux 6.4";
const OUTPUT: &str = "after IP has written its header and passed its netfilter hook";
const DELIVER: &str = "after IP has found that the packet is for this host";
const ESTABLISHED: &str = "an established connection receives the packet, after the socket's backlog";
const READABLE: &str = "the application is notified that bytes are in order";
const COPIED: &str = "after a part was copied to the application";

/// Hooks at the entry of kernel functions, for layers whose tracepoints may be missing. Those of queue and driver are
/// as old as BPF.
macro_rules! at_entry {
    ($kind:literal, $attach:path) => {
        Family {
            name: $kind,
            hooks: &[
                at_entry!($kind, $attach, TxSocket, "tcp_sendmsg_locked", WRITE),
                at_entry!($kind, $attach, TxSocket, "do_tcp_sendpages", SENDFILE),
                at_entry!($kind, $attach, TxIp, "ip_output", OUTPUT),
                at_entry!($kind, $attach, TxIp, "ip6_output", OUTPUT),
                at_entry!($kind, $attach, RxIp, "ip_local_deliver", DELIVER),
                at_entry!($kind, $attach, RxIp, "ip6_input", DELIVER),
                at_entry!($kind, $attach, RxTcp, "tcp_rcv_established", ESTABLISHED),
                at_entry!($kind, $attach, RxReady, "sock_def_readable", READABLE),
                at_entry!($kind, $attach, RxSocket, "tcp_rcv_space_adjust", COPIED),
            ],
        }
    };
    ($kind:literal, $attach:path, $layer:ident, $function:literal, $about:expr) => {
        Hook {
            layer: Layer::$layer,
            name: concat!($kind, "/", $function),
            attach: $attach($function),
            program: concat!($kind, "_", $function),
            about: $about,
        }
    };
}

/// Hooks of devices, for kernels that have none of IP: microseconds later on the way down, and earlier on the way up.
#[rustfmt::skip]
const DEVICES: Family = Family { name: "device", hooks: &[
    Hook { layer: Layer::TxIp, name: "tp_btf/net_dev_queue", attach: Attach::AtQueue, program: "", about: "before the queueing discipline of the first device" },
    Hook { layer: Layer::RxIp, name: "tp_btf/netif_receive_skb", attach: Attach::Tracepoint("netif_receive_skb"), program: "rx_ip_at_device", about: "before the first device hands the packet to IP" },
] };

const FENTRIES: Family = at_entry!("fentry", Attach::Fentry);
const KPROBES: Family = at_entry!("kprobe", Attach::Kprobe);

/// All profiles. The first is the default.
#[rustfmt::skip]
pub static PROFILES: &[Profile] = &[
    Profile { name: "auto", families: &[TRACEPOINTS, FENTRIES, KPROBES, DEVICES] },
    Profile { name: "tracepoint", families: &[TRACEPOINTS, DEVICES] },
    Profile { name: "fentry", families: &[FENTRIES, TRACEPOINTS, DEVICES] },
    Profile { name: "kprobe", families: &[KPROBES, TRACEPOINTS, DEVICES] },
];

/// A hook of the default profile, and whether it is used on this host.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// The hook.
    pub hook: &'static Hook,
    /// The name of its family.
    pub family: &'static str,
    /// Why it cannot be used here, if it cannot.
    pub lack: Option<Lack>,
    /// Whether it is used: it is usable, and no preferred family has a usable hook for the layer.
    pub used: bool,
}

impl Profile {
    /// Finds a profile by name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Selects the hooks to use on this kernel, in the order in which a byte passes them: for one network namespace, or
    /// only those that belong to all of them. Whether the kernel allows the programs there is found out by attaching.
    pub(super) fn select(&'static self, kernel: &Kernel, of_all: bool) -> Result<Vec<&'static Hook>, Error> {
        let is_there = |hook: &Hook| !(of_all && hook.attach.is_of_a_namespace()) && kernel.lack(hook.attach).is_none();
        // A family that was requested by name is not replaced silently.
        if let Some(first) = self.families.first()
            && first.name == self.name
            && !first.hooks.iter().any(is_there)
        {
            return Err(Error::Family { family: first.name });
        }
        Ok(self.used(is_there))
    }

    /// Selects, for each layer, the usable hooks of the first family that has one. Others are not checked, as a check
    /// may be a trial.
    fn used(&'static self, is_there: impl Fn(&Hook) -> bool) -> Vec<&'static Hook> {
        let select = |layer| {
            let mut families = self.families.iter().map(|family| -> Vec<_> {
                let hooks = family.hooks.iter();
                hooks.filter(|hook| hook.layer == layer && is_there(hook)).collect()
            });
            families.find(|hooks| !hooks.is_empty())
        };
        let mut hooks: Vec<_> = Layer::ALL.into_iter().filter_map(select).flatten().collect();
        // Without the program of IP, nothing reads the stamp that packets carry.
        if !hooks.iter().any(|hook| hook.layer == Layer::TxIp) {
            hooks.retain(|hook| hook.attach != Attach::Carried);
        }
        hooks
    }
}

/// Lists the hooks of the default profile in the order in which a byte passes them, the preferred one of each layer
/// first.
pub fn candidates() -> Vec<Candidate> {
    let kernel = Kernel::of_this_host();
    let used = PROFILES[0].used(|hook| kernel.lack(hook.attach).is_none());
    let mut candidates: Vec<_> = PROFILES[0]
        .families
        .iter()
        .flat_map(|family| family.hooks.iter().map(|hook| (family.name, hook)))
        .map(|(family, hook)| Candidate {
            hook,
            family,
            lack: kernel.lack(hook.attach),
            used: used.iter().any(|other| other.name == hook.name),
        })
        .collect();
    candidates.sort_by_key(|candidate| candidate.hook.layer);
    candidates
}

/// The names of a layer's hooks, separated by commas; `None` if it has none.
pub fn names(present: &[&'static Hook], layer: Layer) -> Option<String> {
    let names: Vec<_> = present.iter().filter(|hook| hook.layer == layer).map(|hook| hook.name).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns the hooks at the ends of each segment, in the order of [`Segment::ALL`].
pub fn of_segments(present: &[&'static Hook]) -> Vec<SegmentHooks> {
    let missing = missing(present);
    let hooks = Segment::ALL.into_iter().map(|segment| {
        let (from, to) = ends(present, segment);
        SegmentHooks {
            from: names(present, from),
            to: names(present, to),
            missing: missing.iter().find(|(other, _)| *other == segment).map(|(_, layer)| *layer),
        }
    });
    hooks.collect()
}

/// The layers that a segment lies between. A total starts at the first layer of its direction that has a hook.
fn ends(present: &[&'static Hook], segment: Segment) -> (Layer, Layer) {
    let (from, to) = segment.ends();
    let first = present.iter().map(|hook| hook.layer).find(|layer| layer.direction() == segment.direction());
    match first {
        Some(first) if segment.is_whole() => (first, to),
        _ => (from, to),
    }
}

/// The segments of which one end has no hook, with the layer of that end.
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
        let hooks = PROFILES[0].used(|hook| !absent.contains(&hook.name) && !matches!(hook.attach, Attach::Fentry(_)));
        assert_eq!(hooks[0].name, "kprobe/tcp_sendmsg_locked");
        let hooks = PROFILES[2].used(|_| true);
        assert_eq!(hooks[0].name, "fentry/tcp_sendmsg_locked");
        assert_eq!(super::names(&hooks, Layer::TxTcp).unwrap(), "skb/tstamp");
        let hooks = PROFILES[1].used(|hook| hook.layer != Layer::TxIp);
        assert_eq!(super::names(&hooks, Layer::TxTcp), None);
    }

    #[test]
    fn in_all_namespaces_ip_is_stamped_where_no_program_belongs_to_one() {
        let hooks = PROFILES[0].used(|hook| !hook.attach.is_of_a_namespace());
        assert_eq!(names(&hooks, Layer::TxIp).unwrap(), "fentry/ip_output,fentry/ip6_output");
        assert_eq!(names(&hooks, Layer::RxIp).unwrap(), "fentry/ip_local_deliver,fentry/ip6_input");
        assert_eq!(missing(&hooks), []);
        let hooks = PROFILES[1].used(|hook| !hook.attach.is_of_a_namespace());
        assert_eq!(names(&hooks, Layer::TxIp).unwrap(), "tp_btf/net_dev_queue");
        assert_eq!(names(&hooks, Layer::RxIp).unwrap(), "tp_btf/netif_receive_skb");
        assert_eq!(missing(&hooks), []);
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
            "tp_btf/napi_gro_receive_entry,tp_btf/napi_gro_frags_entry,tp_btf/netif_rx,tp_btf/netif_receive_skb_entry"
        );
    }
}
