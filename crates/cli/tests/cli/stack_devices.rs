//! `dwell stack --devices` on the way between namespaces.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use dwell_testbed::Namespace;
use serde_json::Value;

use crate::{
    records::{number, text},
    stack::{SERVER, links_that_stamp, objects_of},
    support::{DWELL, eventually, ip, links, skipped, spawn, tool},
};

/// No other test's: the devices of all namespaces are followed, and traffic of others would displace ours.
const PORT: u16 = 5211;

/// A container behind a bridge, whose uplink is slow: the time is at the uplink's queue, which
/// neither end of the connection sees.
#[test]
fn root_each_device_on_the_way_of_a_container_is_timed() {
    if skipped() {
        return;
    }
    const BYTES: usize = 40 << 10;
    let [inside, host, far] =
        ["inside", "host", "far"].map(|name| Namespace::create(&format!("stack-{name}")).unwrap());
    ip(&inside, &format!("link add eth0 type veth peer name port0 netns {}\n", host.name()));
    ip(&host, &format!("link add uplink type veth peer name eth0 netns {}\n", far.name()));
    ip(
        &host,
        "link add br0 type bridge\nlink set port0 master br0\nlink set uplink master br0\n\
         link set br0 up\nlink set port0 up\nlink set uplink up\n",
    );
    for (namespace, address) in [(&inside, "10.78.0.1/24"), (&far, "10.78.0.2/24")] {
        ip(namespace, &format!("addr add {address} dev eth0\nlink set eth0 up\n"));
    }
    let shape = "qdisc add dev uplink root tbf rate 8mbit burst 3000 limit 200000";
    tool(&host, "tc", &shape.split(' ').collect::<Vec<_>>());
    let port = PORT.to_string();
    let arguments = ["stack", "--format", "jsonl", "--port", &port];
    let more = ["--interval", "1h", "--sample-bytes", "1024", "--devices"];
    let dwell = spawn(&inside, DWELL, &[&arguments[..], &more].concat());
    let wanted = links_that_stamp() + 6;
    eventually("devices are watched", || links(dwell.id()) == wanted);
    let listener = far.enter(|| TcpListener::bind((SERVER, PORT)).unwrap()).unwrap();
    let mut client = inside.enter(|| TcpStream::connect((SERVER, PORT)).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; BYTES]).unwrap();
    server.read_exact(&mut [0; BYTES]).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");

    let place = |place: &Value| {
        let namespace = place["namespace"].as_str().unwrap_or("here");
        (text(place, "device").to_owned(), namespace.to_owned(), text(place, "point").to_owned())
    };
    // Not each byte has each hop: some virtual machines run no BPF programs in a few softirqs.
    let hops: Vec<_> = objects_of(&run, "stack.hop")
        .into_iter()
        .filter(|hop| hop["origin"]["device"] == "eth0" && hop["origin"]["namespace"].is_null())
        .filter(|hop| number(hop, "count") > BYTES as u64 / 1024 / 2)
        .map(|hop| (place(&hop["from"]), place(&hop["to"]), hop))
        .collect();
    let way = [
        ("eth0", "here", "queue"),
        ("eth0", "here", "out"),
        ("port0", "host", "in"),
        ("uplink", "host", "queue"),
        ("uplink", "host", "out"),
        ("eth0", "far", "in"),
    ];
    assert_eq!(hops.len(), way.len() - 1, "{run}");
    for ((from, to, _), places) in hops.iter().zip(way.windows(2)) {
        for (found, (device, namespace, point)) in [from, to].into_iter().zip(places) {
            assert_eq!((found.0.as_str(), found.2.as_str()), (*device, *point), "{run}");
            assert!(found.1.contains(namespace), "{run}");
        }
    }
    // At 1 byte in a microsecond, a burst of ten packets waits for 12 ms.
    let slow = number(&hops[3].2, "max_ns");
    assert!(slow > 11_000_000, "{slow} ns");
    for quick in [0, 1, 2, 4] {
        let p50 = number(&hops[quick].2, "p50_ns");
        assert!(p50 < slow / 2, "{quick}: {p50} ns");
    }
}
