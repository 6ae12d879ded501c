//! Devices that are not plain Ethernet cards.

use std::{collections::BTreeMap, net::IpAddr};

use dwell_testbed::{Namespace, Nanos, workload::Ends};
use serde_json::Value;

use crate::{
    live_traffic::{GO_ON, ping, ping_pong},
    records::{counters, counts, median, of_type, round_trips},
    response::epochs_of,
    response_live,
    support::{Pair, card_packets, run, skipped, watch},
};

#[test]
fn root_loopback_shows_each_packet_once() {
    if skipped() {
        return;
    }
    let namespace = Namespace::create("loopback").unwrap();
    let before = card_packets(&namespace, "lo").1;
    let dwell = watch(&namespace, &["-i", "lo", "--format", "jsonl", "--methods", "tcp-timestamp,icmp,icmpv6"]);
    for address in ["127.0.0.1", "::1"] {
        let ends = Ends { client: &namespace, server: &namespace, address: address.parse::<IpAddr>().unwrap() };
        ping(10).run(ends, &GO_ON).unwrap();
        ping_pong(300).run(ends, &GO_ON).unwrap();
    }
    let sent = card_packets(&namespace, "lo").1 - before;
    let run = dwell.interrupt();
    let trips = round_trips(&of_type(&run.stdout, "rtt.sample"));
    let icmp = |method: &str, address: &str| trips[&(method.to_owned(), address.to_owned())].len();
    assert_eq!((icmp("icmp", "127.0.0.1"), icmp("icmpv6", "::1")), (10, 10));
    // The card counts what was sent; seen twice, it would be about double.
    let seen = counters(&run.stderr)["packets"];
    assert!(seen <= sent, "{seen} of {sent}");
    assert!(seen > sent / 2 + sent / 4, "{seen} of {sent}");
    for address in ["127.0.0.1", "::1"] {
        let key = ("tcp-timestamp".to_owned(), address.to_owned());
        assert!(median(&trips[&key]) < Nanos::from_millis(20), "{trips:?}");
    }
}

/// Whether this kernel makes such a device.
fn makes(namespace: &Namespace, arguments: &str) -> bool {
    let command = format!("link add {arguments}");
    let made = run(namespace.command("ip").args(command.split(' ')), b"");
    if made.status != Some(0) {
        dwell_testbed::skip::skip(format_args!("no device of this kind here: {}", made.stderr.trim()));
    }
    made.status == Some(0)
}

/// A device without link headers: VXLAN-GPE carries bare IP packets, as WireGuard and tun do.
#[test]
fn root_a_device_without_link_headers() {
    if skipped() {
        return;
    }
    let pair = Pair::start("bare");
    let device = "bare0 type vxlan dstport 4790 gpe external";
    if !makes(&pair.left, device) || !makes(&pair.right, device) {
        return;
    }
    for (namespace, own, other, way) in [(&pair.left, 1, 2, "10.78.0.2"), (&pair.right, 2, 1, "10.78.0.1")] {
        crate::support::ip(
            namespace,
            &format!(
                "addr add 10.79.0.{own}/32 dev bare0\n\
                 addr add fd79::{own}/128 dev bare0 nodad\n\
                 link set bare0 up\n\
                 route add 10.79.0.{other}/32 encap ip id 7 dst {way} dev bare0\n\
                 route add fd79::{other}/128 encap ip id 7 dst {way} dev bare0\n"
            ),
        );
    }
    let watchers = [&[][..], &["--attach", "clsact"]]
        .map(|options| watch(&pair.left, &[&["-i", "bare0", "--format", "jsonl"], options].concat()));
    for address in ["10.79.0.2", "fd79::2"] {
        let ends = Ends { address: address.parse().unwrap(), ..pair.ends() };
        ping(10).run(ends, &GO_ON).unwrap();
        ping_pong(300).run(ends, &GO_ON).unwrap();
    }
    let found = watchers.map(|dwell| {
        let run = dwell.interrupt();
        let told = counters(&run.stderr);
        assert!(!told.contains_key("malformed") && !told.contains_key("not ip"), "{run}");
        // On a busy machine samples may come faster than they are read, which the status tells.
        assert!(matches!(run.status, Some(0 | 4)), "{run}");
        (run.status == Some(0), counts(&round_trips(&of_type(&run.stdout, "rtt.sample"))))
    });
    if found.iter().all(|(is_complete, _)| *is_complete) {
        assert_eq!(found[0], found[1]);
    }
    let found = found.map(|(_, counts)| counts);
    let count = |method: &str, address: &str| {
        let key = (method.to_owned(), address.to_owned());
        found[0].get(&key).copied().unwrap_or(0)
    };
    assert_eq!(count("icmp", "10.79.0.2"), 10, "{found:?}");
    assert_eq!(count("icmpv6", "fd79::2"), 10, "{found:?}");
    for address in ["10.79.0.1", "10.79.0.2", "fd79::1", "fd79::2"] {
        assert!(count("tcp-timestamp", address) + count("tcp-seq", address) > 10, "{address}: {found:?}");
    }
}

/// The card sees the tags, the VLAN's own device does not.
#[test]
fn root_tagged_frames_are_measured_on_the_card_and_on_the_vlan() {
    if skipped() {
        return;
    }
    let pair = Pair::start("vlan");
    if !makes(&pair.left, "link left0 name left0.5 type vlan id 5")
        || !makes(&pair.right, "link right0 name right0.5 type vlan id 5")
    {
        return;
    }
    for (namespace, device, own) in [(&pair.left, "left0.5", 1), (&pair.right, "right0.5", 2)] {
        crate::support::ip(namespace, &format!("addr add 10.79.0.{own}/24 dev {device}\nlink set {device} up\n"));
    }
    let watchers = ["left0", "left0.5"].map(|device| watch(&pair.left, &["-i", device, "--format", "jsonl"]));
    let responses = ["right0", "right0.5"].map(|device| {
        let arguments = ["-i", device, "--interval", "100ms", "--flow-key", "5tuple", "--format", "jsonl"];
        (response_live::respond(&pair.right, device, &arguments), device)
    });
    let ends = Ends { address: [10, 79, 0, 2].into(), ..pair.ends() };
    ping(10).run(ends, &GO_ON).unwrap();
    ping_pong(300).run(ends, &GO_ON).unwrap();
    let [(card, on_card), (vlan, on_vlan)] = watchers.map(|dwell| {
        let run = dwell.interrupt();
        let samples = of_type(&run.stdout, "rtt.sample");
        let mut tunnels: Vec<_> = samples.iter().map(|sample| sample["tunnel"].to_string()).collect();
        tunnels.dedup();
        (counts(&round_trips(&samples)), tunnels)
    });
    assert_eq!((on_card, on_vlan), (vec![r#""vlan 5""#.to_owned()], vec!["null".to_owned()]));
    assert_eq!(card, vlan);
    assert_eq!(card[&("icmp".to_owned(), "10.79.0.2".to_owned())], 10);
    assert_ne!(card, BTreeMap::new());
    for (dwell, device) in responses {
        let run = dwell.interrupt();
        let epochs = epochs_of(&run.stdout);
        let tunnel = if device == "right0" { "vlan 5".into() } else { Value::Null };
        assert!(!epochs.is_empty() && epochs.iter().all(|epoch| epoch["tunnel"] == tunnel), "{device}: {run}");
        assert!(epochs.iter().all(|epoch| epoch["interface"] == device), "{device}: {run}");
    }
}

/// The uplink of a node carries what is inside of an overlay.
#[test]
fn root_an_overlay_is_measured_on_the_uplink_and_on_its_own_device() {
    if skipped() {
        return;
    }
    let pair = Pair::start("vxlan");
    let overlay =
        |device: &str, remote| format!("vx0 type vxlan id 7 dstport 4789 remote 10.78.0.{remote} dev {device}");
    if !makes(&pair.left, &overlay("left0", 2)) || !makes(&pair.right, &overlay("right0", 1)) {
        return;
    }
    for (namespace, own) in [(&pair.left, 1), (&pair.right, 2)] {
        crate::support::ip(namespace, &format!("addr add 10.79.0.{own}/24 dev vx0\nlink set vx0 up\n"));
    }
    let watchers = ["left0", "vx0"].map(|device| watch(&pair.left, &["-i", device, "--format", "jsonl"]));
    let ends = Ends { address: [10, 79, 0, 2].into(), ..pair.ends() };
    ping(10).run(ends, &GO_ON).unwrap();
    ping_pong(300).run(ends, &GO_ON).unwrap();
    let [uplink, own] = watchers.map(|dwell| of_type(&dwell.interrupt().stdout, "rtt.sample"));
    assert!(uplink.iter().all(|sample| sample["tunnel"].is_string()), "{uplink:?}");
    assert!(own.iter().all(|sample| sample["tunnel"].is_null()), "{own:?}");
    let [uplink, own] = [uplink, own].map(|samples| counts(&round_trips(&samples)));
    assert_eq!(uplink, own);
    assert_eq!(uplink[&("icmp".to_owned(), "10.79.0.2".to_owned())], 10);
}

/// A bridge carries frames whose hosts it does not belong to.
#[test]
fn root_a_port_of_a_bridge() {
    if skipped() {
        return;
    }
    let pair = Pair::start("bridge");
    let middle = Namespace::create("bridge-middle").unwrap();
    if !makes(&middle, "bridge0 type bridge") {
        return;
    }
    // The cable between the two is cut and led through the bridge.
    crate::support::ip(&pair.left, "link delete left0\n");
    let there = middle.name();
    for (namespace, device, port, own) in [(&pair.left, "left0", "port1", 1), (&pair.right, "right0", "port2", 2)] {
        crate::support::ip(
            namespace,
            &format!(
                "link add {device} type veth peer name {port} netns {there}\n\
                 addr add 10.78.0.{own}/24 dev {device}\nlink set {device} up\n"
            ),
        );
        crate::support::ip(&middle, &format!("link set {port} master bridge0 up\n"));
    }
    crate::support::ip(&middle, "link set bridge0 up\n");
    let dwell = watch(&middle, &["-i", "port1", "--format", "jsonl"]);
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let trips = round_trips(&of_type(&dwell.interrupt().stdout, "rtt.sample"));
    assert_eq!(trips[&("icmp".to_owned(), "10.78.0.2".to_owned())].len(), 10);
}
