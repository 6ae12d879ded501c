//! Which hook stamps which layer: data. A profile names them for kernels that
//! let programs in at the same kind of place.

use dwell_engine::layers::{Layer, Segment};
use libbpf_rs::{
    NF_INET_LOCAL_OUT, NF_INET_PRE_ROUTING,
    btf::{Btf, types::Typedef},
};

/// Hooks, one or more a layer.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Its name as an option's value.
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
    /// The program, in the profile's object.
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
    /// None of its own: packets bring this stamp to another layer's program.
    Carried,
}

/// All profiles. The first is the default.
#[rustfmt::skip]
pub static PROFILES: &[Profile] = &[Profile {
    name: "tracepoint",
    hooks: &[
        Hook { layer: Layer::TxSocket, name: "tp_btf/tcp_sendmsg_locked", place: Place::Tracepoint("tcp_sendmsg_locked"), program: "tx_socket", about: "before a piece of a write is copied" },
        Hook { layer: Layer::TxTcp, name: "skb/tstamp", place: Place::Carried, program: "tx_ip", about: "the time that TCP writes into a packet as it hands it down" },
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
    ],
}];

impl Profile {
    /// The profile of a name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The hooks that this kernel has. Whether it lets a program in is found out
    /// by attaching.
    pub fn present(&'static self) -> Vec<&'static Hook> {
        let btf = Btf::from_vmlinux().ok();
        let is_present = |hook: &&Hook| match (hook.place, &btf) {
            (Place::Tracepoint(name), Some(btf)) => btf
                .type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"))
                .is_some(),
            // Without types, loading says what is wrong.
            _ => true,
        };
        self.hooks.iter().filter(is_present).collect()
    }
}

/// The names of a layer's hooks, or `None` where it has none here.
pub fn names(present: &[&'static Hook], layer: Layer) -> Option<String> {
    let names: Vec<_> = present
        .iter()
        .filter(|hook| hook.layer == layer)
        .map(|hook| hook.name)
        .collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The layers that a segment lies between: a total begins at the first layer of its
/// side that there is a hook for.
pub fn ends(present: &[&'static Hook], segment: Segment) -> (Layer, Layer) {
    let (from, to) = segment.ends();
    let first = present
        .iter()
        .map(|hook| hook.layer)
        .find(|layer| layer.direction() == segment.direction());
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
            [from, to]
                .into_iter()
                .find(|layer| !hooked(*layer))
                .map(|layer| (segment, layer))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_a_hook_for_each_layer_in_order() {
        for profile in PROFILES {
            assert!(profile.hooks.is_sorted_by_key(|hook| hook.layer));
            for layer in Layer::ALL {
                assert!(
                    profile.hooks.iter().any(|hook| hook.layer == layer),
                    "{}: {}",
                    profile.name,
                    layer.name()
                );
            }
        }
    }

    #[test]
    fn a_layer_without_a_hook_is_missed_by_the_segments_at_its_sides() {
        let all: Vec<_> = PROFILES[0].hooks.iter().collect();
        assert_eq!(missing(&all), []);
        let without: Vec<_> = all
            .into_iter()
            .filter(|hook| hook.layer != Layer::RxTcp)
            .collect();
        assert_eq!(
            missing(&without),
            [
                (Segment::IpTcp, Layer::RxTcp),
                (Segment::TcpSocket, Layer::RxTcp),
                (Segment::Reordering, Layer::RxTcp)
            ]
        );
        assert_eq!(names(&without, Layer::RxTcp), None);
        assert_eq!(
            ends(&without[1..], Segment::TxTotal),
            (Layer::TxTcp, Layer::TxDriver)
        );
        assert_eq!(
            ends(&without[1..], Segment::SocketTcp),
            (Layer::TxSocket, Layer::TxTcp)
        );
        assert_eq!(
            names(&without, Layer::RxDriver).unwrap(),
            "tp_btf/napi_gro_receive_entry,tp_btf/netif_rx,tp_btf/netif_receive_skb_entry"
        );
    }
}
