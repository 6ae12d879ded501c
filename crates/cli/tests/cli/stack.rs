//! `dwell stack` on real connections, against what the application's own clock, and the rate of a
//! queueing discipline, say of the same bytes.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    metrics::{are_documented, get, value},
    records::{number, of_type, text},
    support::{DWELL, Pair, Process, Run, eventually, ip, links, skipped, spawn, tool},
};

pub const PORT: u16 = 5201;
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Starts it, and waits until all layers are stamped.
pub fn stamp(namespace: &Namespace, arguments: &[&str]) -> Process {
    stamp_port(namespace, PORT, arguments)
}

/// Ten tracepoints, and two netfilter hooks of each IP version.
pub fn links_that_stamp() -> usize {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    if has_ipv6 { 14 } else { 12 }
}

pub fn stamp_port(namespace: &Namespace, port: u16, arguments: &[&str]) -> Process {
    let port = port.to_string();
    let always = ["stack", "--format", "jsonl", "--port", &port];
    let mut process = spawn(namespace, DWELL, &[&always[..], arguments].concat());
    let wanted = links_that_stamp();
    eventually("all layers are stamped", || process.has_ended() || links(process.id()) == wanted);
    if process.has_ended() {
        panic!("it does not watch:\n{}", process.end());
    }
    process
}

/// Of a type: "stack.segment" or "stack.status".
pub fn objects_of(run: &Run, kind: &str) -> Vec<Value> {
    of_type(&run.stdout, kind)
}

pub fn objects(run: &Run) -> Vec<Value> {
    objects_of(run, "stack.segment")
}

/// By direction and segment; of the only interval that had bytes.
pub fn segments(run: &Run) -> BTreeMap<(String, String), Value> {
    assert_eq!(run.status, Some(0), "{run}");
    let mut segments = BTreeMap::new();
    for object in objects(run) {
        let key = (text(&object, "direction").to_owned(), text(&object, "segment").to_owned());
        segments.insert(key, object);
    }
    segments
}

pub fn of<'a>(run: &'a BTreeMap<(String, String), Value>, direction: &str, segment: &str) -> &'a Value {
    &run[&(direction.to_owned(), segment.to_owned())]
}

/// Of the server, on the right.
pub fn listen(pair: &Pair) -> TcpListener {
    let listen = || TcpListener::bind((SERVER, PORT)).unwrap();
    pair.right.enter(listen).unwrap()
}

/// A connection from left to right: the ends of the client and the server.
pub fn connect(pair: &Pair, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = pair.left.enter(|| TcpStream::connect(SocketAddr::from((SERVER, PORT))).unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    (client, server)
}

/// Sends messages of 640 bytes, and reads each before the next.
fn send(client: &mut TcpStream, server: &mut TcpStream, messages: usize) {
    for _ in 0..messages {
        client.write_all(&[1; 640]).unwrap();
        server.read_exact(&mut [0; 640]).unwrap();
    }
}

/// Sends 200 sampled bytes to the right, and checks that dwell stamps them there.
fn receives_what_is_sent(pair: &Pair) {
    let dwell = stamp(&pair.right, &["--interval", "1h", "--sample-bytes", "64"]);
    let (mut client, mut server) = connect(pair, &listen(pair));
    send(&mut client, &mut server, 20);
    let run = segments(&dwell.interrupt());
    let total = of(&run, "rx", "total");
    // A kernel may miss an event now and then.
    assert!((100..=200).contains(&number(total, "count")), "{total}");
    adds_up(&run, "rx", &["driver-ip", "ip-tcp", "tcp-socket"]);
}

/// Sums are exact, so they add up to the nanosecond, but for means rounded down.
fn adds_up(run: &BTreeMap<(String, String), Value>, direction: &str, names: &[&str]) {
    let total = of(run, direction, "total");
    let count = number(total, "count");
    let sum: u64 = names
        .iter()
        .map(|name| {
            let segment = of(run, direction, name);
            assert_eq!(number(segment, "count"), count, "{segment}");
            number(segment, "mean_ns")
        })
        .sum();
    let mean = number(total, "mean_ns");
    assert!((sum..=sum + names.len() as u64).contains(&mean), "{sum} and {mean}");
}

#[test]
fn root_an_application_that_reads_late_is_where_the_time_goes() {
    if skipped() {
        return;
    }
    const NAP: Duration = Duration::from_millis(200);
    const BYTES: usize = 32 << 10;
    let pair = Pair::start("stack-late");
    let dwell = stamp(&pair.right, &["--interval", "1h", "--sample-bytes", "1024"]);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    let begun = Instant::now();
    client.write_all(&[1; BYTES]).unwrap();
    thread::sleep(NAP);
    server.read_exact(&mut [0; BYTES]).unwrap();
    let longest = begun.elapsed();
    let run = segments(&dwell.interrupt());

    let waited = of(&run, "rx", "application");
    let grid = (BYTES / 1024) as u64;
    // A kernel may miss an event now and then.
    assert!((grid / 2..=grid).contains(&number(waited, "count")), "{waited}");
    let between = NAP.as_nanos() as u64 / 2..=longest.as_nanos() as u64;
    for figure in ["min_ns", "mean_ns", "max_ns"] {
        assert!(between.contains(&number(waited, figure)), "{waited}");
    }
    assert_eq!(waited["part_of"], "tcp-socket");
    assert!(waited["share"].as_f64().unwrap() > 0.9, "{waited}");
    assert_eq!(waited["hook_from"], "tp_btf/sk_data_ready");
    assert_eq!(waited["hook_to"], "tp_btf/tcp_rcv_space_adjust");
    adds_up(&run, "rx", &["driver-ip", "ip-tcp", "tcp-socket"]);
    assert_eq!(number(of(&run, "tx", "total"), "count"), 0);
    eprintln!("slept {NAP:?}, all took {longest:?}: {waited}");
}

#[test]
fn root_what_the_receiver_has_no_room_for_waits_in_the_senders_socket() {
    if skipped() {
        return;
    }
    const NAP: Duration = Duration::from_millis(300);
    const BYTES: usize = 128 << 10;
    let pair = Pair::start("stack-window");
    let dwell = stamp(&pair.left, &["--interval", "1h", "--sample-bytes", "4096"]);
    let listener = listen(&pair);
    nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::RcvBuf, &8192).unwrap();
    let (mut client, mut server) = connect(&pair, &listener);
    nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::SndBuf, &(4 * BYTES)).unwrap();
    let begun = Instant::now();
    client.write_all(&[1; BYTES]).unwrap();
    let written = begun.elapsed();
    assert!(written < NAP, "the write did not fit into the socket");
    thread::sleep(NAP);
    server.read_exact(&mut vec![0; BYTES]).unwrap();
    let longest = begun.elapsed();
    let run = segments(&dwell.interrupt());

    let waited = of(&run, "tx", "socket-tcp");
    let most = longest.as_nanos() as u64;
    // All but what the window took at once left after the nap.
    assert!((NAP.as_nanos() as u64..=most).contains(&number(waited, "max_ns")), "{waited}");
    assert!((NAP.as_nanos() as u64 / 2..=most).contains(&number(waited, "p50_ns")), "{waited}");
    assert!(waited["share"].as_f64().unwrap() > 0.9, "{waited}");
    adds_up(&run, "tx", &["socket-tcp", "tcp-ip", "ip-driver"]);
    eprintln!("slept {NAP:?}, all took {longest:?}: {waited}");
}

/// All is given to the device at once, and leaves as the bucket fills: a known time for each byte.
#[test]
fn root_a_queueing_discipline_of_known_rate_is_measured() {
    if skipped() {
        return;
    }
    const BYTES: usize = 40 << 10;
    const BURST: u64 = 3000;
    let pair = Pair::start("stack-tbf");
    ip(&pair.left, "route replace 10.78.0.0/24 dev left0 initcwnd 60 congctl cubic\n");
    let shape = "qdisc add dev left0 root tbf rate 8mbit burst 3000 limit 200000";
    tool(&pair.left, "tc", &shape.split(' ').collect::<Vec<_>>());
    let dwell = stamp(&pair.left, &["--interval", "1h", "--sample-bytes", "1024"]);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    client.write_all(&[1; BYTES]).unwrap();
    server.read_exact(&mut [0; BYTES]).unwrap();
    let run = segments(&dwell.interrupt());

    // 8 Mbit/s are 1 byte in a microsecond; packets of 1448 bytes have 66 of headers.
    let leaves_us = |byte: u64| ((byte / 1448 + 1) * 1514).saturating_sub(BURST);
    let grid = || (0..BYTES as u64).step_by(1024);
    let truth_ns = grid().map(leaves_us).sum::<u64>() * 1000 / grid().count() as u64;
    let queued = of(&run, "tx", "queueing");
    let mean_ns = number(queued, "mean_ns");
    eprintln!("the rate says {truth_ns} ns: {queued}");
    assert!(number(queued, "count") >= grid().count() as u64 / 2);
    // A busy machine adds some, and takes nothing away but what the phase of the grid does.
    let factor = mean_ns as f64 / truth_ns as f64;
    assert!((0.9..1.5).contains(&factor), "{factor} of {truth_ns} ns");
    assert!(queued["share"].as_f64().unwrap() > 0.9, "{queued}");
    adds_up(&run, "tx", &["socket-tcp", "tcp-ip", "ip-driver"]);
}

/// The application's ends and the packet's differ below IP.
#[test]
fn root_what_is_sent_through_translated_addresses_is_followed() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-nat");
    let redirect =
        format!("-t nat -A OUTPUT -p tcp -d 10.78.0.9 --dport {PORT} -j DNAT --to-destination {SERVER}:{PORT}");
    tool(&pair.left, "iptables-legacy", &redirect.split(' ').collect::<Vec<_>>());
    let dwell = stamp(&pair.left, &["--interval", "1h", "--sample-bytes", "64"]);
    let listener = listen(&pair);
    let mut client = pair.left.enter(|| TcpStream::connect((Ipv4Addr::new(10, 78, 0, 9), PORT)).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    send(&mut client, &mut server, 20);
    let run = segments(&dwell.interrupt());
    let total = of(&run, "tx", "total");
    assert!((100..=200).contains(&number(total, "count")), "{total}");
    adds_up(&run, "tx", &["socket-tcp", "tcp-ip", "ip-driver"]);
}

/// Each byte by itself says the same as all of them together.
#[test]
fn root_each_stamped_byte_can_be_told() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-raw");
    let arguments = ["--interval", "1h", "--sample-bytes", "64", "--raw"];
    let sender = stamp(&pair.left, &arguments);
    let receiver = stamp(&pair.right, &arguments);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    send(&mut client, &mut server, 20);
    let (sender, receiver) = (sender.interrupt(), receiver.interrupt());
    let bytes = |run: &Run| -> BTreeMap<u64, Value> {
        let objects = objects_of(run, "stack.byte").into_iter();
        objects.map(|byte| (number(&byte, "seq"), byte)).collect()
    };
    let stamp = |byte: &Value, layer: &str| number(&byte["stamp_ns"], layer);
    let (sent, read) = (bytes(&sender), bytes(&receiver));
    let whole = |run: &Run, direction: &str| -> (u64, u64) {
        let objects = objects(run);
        let total = objects.iter().find(|object| object["segment"] == "total" && object["direction"] == direction);
        let total = total.unwrap();
        (number(total, "count"), number(total, "mean_ns"))
    };
    for (bytes, (count, mean_ns), [first, last]) in [
        (&sent, whole(&sender, "tx"), ["tx-socket", "tx-driver"]),
        (&read, whole(&receiver, "rx"), ["rx-driver", "rx-socket"]),
    ] {
        let took = bytes
            .values()
            .filter(|byte| byte["stamp_ns"][first].is_u64())
            .map(|byte| stamp(byte, last) - stamp(byte, first));
        let sum: u64 = took.sum();
        assert_eq!(bytes.len() as u64, count);
        assert!(count >= 100, "{sender}");
        if bytes.values().all(|byte| byte["stamp_ns"][first].is_u64()) {
            assert_eq!(sum / count, mean_ns);
        }
    }
    // Two namespaces have one clock: what is sent is there later, by its own number.
    let both = sent.iter().filter_map(|(seq, byte)| Some((byte, read.get(seq)?)));
    let crossed: Vec<_> = both
        .filter(|(_, byte)| byte["stamp_ns"]["rx-driver"].is_u64())
        .map(|(from, to)| (stamp(from, "tx-driver"), stamp(to, "rx-driver")))
        .collect();
    assert!(crossed.len() >= 100, "{receiver}");
    assert!(crossed.iter().all(|(left, came)| left < came), "{crossed:?}");
}

#[test]
fn root_each_flow_is_told_by_itself_and_flows_add_up() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-flows");
    let arguments = ["--interval", "1h", "--sample-bytes", "64", "--flows"];
    let all = stamp(&pair.left, &arguments);
    let few = stamp(&pair.left, &[&arguments[..], &["--max-flows", "2"]].concat());
    let first = stamp(&pair.left, &[&arguments[..], &["--by", "count", "--top", "1"]].concat());
    let listener = listen(&pair);
    for messages in 1..=3 {
        let (mut client, mut server) = connect(&pair, &listener);
        send(&mut client, &mut server, messages);
    }
    let (all, few, first) = (all.interrupt(), few.interrupt(), first.interrupt());
    let totals = |run: &Run, of_flows: bool| -> Vec<u64> {
        objects(run)
            .iter()
            .filter(|object| object["segment"] == "total" && object["direction"] == "tx")
            .filter(|object| object["flow"].is_object() == of_flows)
            .map(|object| number(object, "count"))
            .collect()
    };
    let flows = totals(&all, true);
    assert_eq!(flows.len(), 3, "{all}");
    assert!(flows.is_sorted_by(|one, next| one >= next), "{flows:?}");
    // 30, 20 and 10 grid bytes; a kernel may miss an event now and then
    assert!(flows[0] > 20 && flows[2] <= 10, "{flows:?}");
    assert_eq!(totals(&all, false), [flows.iter().sum::<u64>()], "{all}");
    let flow = objects(&all).into_iter().find(|object| object["flow"].is_object()).unwrap();
    assert_eq!(flow["flow"]["src"], "10.78.0.1");
    assert_eq!(flow["flow"]["dst"], "10.78.0.2");
    assert_eq!(flow["flow"]["dport"], PORT);
    assert_eq!(flow["flow"]["proto"], "TCP");

    // The one with the most bytes, and how many others there are.
    let [largest] = totals(&first, true)[..] else { panic!("{first}") };
    assert!(largest > 20, "{first}");
    assert_eq!(objects_of(&first, "stack.status").last().unwrap()["counters"]["flows_cut"], 2, "{first}");
    let alone = spawn(&pair.left, DWELL, &["stack", "--top", "1"]).end();
    assert_eq!(alone.status, Some(2), "{alone}");
    assert!(alone.stderr.contains("--by and --top are for --flows"), "{alone}");

    assert_eq!(totals(&few, true).len(), 2, "{few}");
    assert!(few.stderr.contains("more flows than --max-flows"), "{few}");
}

#[test]
fn root_metrics_say_what_the_segments_say() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-metrics");
    let address = ["--metrics", "127.0.0.1:9469"];
    let dwell = stamp(&pair.left, &[&["--interval", "100ms", "--sample-bytes", "64"], &address[..]].concat());
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    send(&mut client, &mut server, 3);
    let mut page = String::new();
    let total = r#"dwell_stack_segment_seconds_count{direction="tx",segment="total"}"#;
    // A kernel may miss an event now and then.
    eventually("the bytes in the metrics", || {
        page = get(&pair.left, "/metrics");
        value(&page, total).is_some_and(|count| count > 20.0)
    });
    // The last bytes may be of the interval that has just begun.
    std::thread::sleep(Duration::from_millis(300));
    let page = get(&pair.left, "/metrics");
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    for (direction, segment) in [("tx", "total"), ("tx", "queueing"), ("tx", "socket-tcp")] {
        let told = objects(&run).into_iter().filter(|one| one["segment"] == segment && one["direction"] == direction);
        let count: u64 = told.map(|object| number(&object, "count")).sum();
        let series = format!("dwell_stack_segment_seconds_count{{direction=\"{direction}\",segment=\"{segment}\"}}");
        assert_eq!(value(&page, &series), Some(count as f64), "{series}: {page}");
    }
    assert_eq!(value(&page, r#"dwell_stack_left_out_total{reason="tx_displaced"}"#), Some(0.0), "{page}");
    assert!(!page.contains("10.78."), "no flow is a label: {page}");
    are_documented(&page, "stack");
    // Nothing but metrics.
    let silent =
        spawn(&pair.left, DWELL, &[&["stack", "--format", "none", "--duration", "300ms"], &address[..]].concat());
    let silent = silent.end();
    assert_eq!((silent.status, silent.stdout.as_str()), (Some(0), ""), "{silent}");
}

#[test]
fn root_other_ports_and_other_namespaces_are_left_alone() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-port");
    let others = stamp_port(&pair.left, 9, &["--sample-bytes", "64"]);
    let elsewhere = Pair::start("stack-else");
    let there = stamp(&elsewhere.left, &["--sample-bytes", "64"]);
    let filtered = stamp(&pair.left, &["--sample-bytes", "64", "--filter", "!10.78.0.2"]);
    let here = stamp(&pair.left, &["--sample-bytes", "64", "--filter", "10.78.0.0/24"]);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    client.write_all(&[1; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    let bytes = |process: Process| -> u64 {
        let run = process.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
        let objects = objects(&run);
        assert!(!objects.is_empty());
        objects.iter().map(|object| number(object, "count")).sum()
    };
    assert!(bytes(here) > 0);
    assert_eq!(bytes(there), 0);
    assert_eq!(bytes(filtered), 0);
    assert_eq!(bytes(others), 0);
}

/// What is in the table of an interval is what its flows have, byte by byte.
#[test]
fn root_intervals_have_the_same_bytes_in_each_line() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-interval");
    let arguments = ["--interval", "100ms", "--sample-bytes", "64", "--flows"];
    let dwell = stamp(&pair.left, &arguments);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    let begun = Instant::now();
    let mut messages = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        send(&mut client, &mut server, 1);
        messages += 1;
    }
    let run = dwell.interrupt();
    let objects = objects(&run);
    let mut intervals = BTreeMap::<&str, Vec<&Value>>::new();
    for object in objects.iter().filter(|object| object["direction"] == "tx") {
        intervals.entry(text(object, "time")).or_default().push(object);
    }
    let mut all = 0;
    let filled = intervals.values().filter(|objects| objects.len() > 7);
    assert!(filled.clone().count() >= 3, "{run}");
    for interval in filled {
        let of = |segment: &str, of_flow: bool| {
            let found =
                interval.iter().find(|object| object["segment"] == segment && object["flow"].is_object() == of_flow);
            found.map_or(0, |object| number(object, "count"))
        };
        let total = of("total", false);
        for segment in ["total", "socket-tcp", "ip-driver"] {
            assert_eq!(of(segment, false), total, "{segment}: {interval:?}");
            assert_eq!(of(segment, true), total, "{segment}: {interval:?}");
        }
        all += total;
    }
    assert!(all > messages * 5 && all <= messages * 10, "{all} of {messages}");
}

/// IPv6, both ends in one namespace, a connection older than the run.
#[test]
fn root_both_directions_of_a_connection_that_was_there_before() {
    if skipped() {
        return;
    }
    let namespace = Namespace::create("stack-lo").unwrap();
    ip(&namespace, "link set lo up\n");
    let (mut client, mut server) = namespace
        .enter(|| {
            let listener = TcpListener::bind(("::1", PORT)).unwrap();
            let client = TcpStream::connect(("::1", PORT)).unwrap();
            (client, listener.accept().unwrap().0)
        })
        .unwrap();
    client.write_all(&[1; 5000]).unwrap();
    server.read_exact(&mut [0; 5000]).unwrap();
    let dwell = stamp(&namespace, &["--interval", "1h", "--sample-bytes", "64"]);
    for _ in 0..20 {
        client.write_all(&[1; 640]).unwrap();
        server.read_exact(&mut [0; 640]).unwrap();
        server.write_all(&[1; 640]).unwrap();
        client.read_exact(&mut [0; 640]).unwrap();
    }
    let run = segments(&dwell.interrupt());
    for direction in ["tx", "rx"] {
        // 20 times 10 grid bytes each way; a kernel may miss an event now and then
        let total = of(&run, direction, "total");
        assert!((200..=400).contains(&number(total, "count")), "{total}");
    }
}

/// A veth with an XDP program hands packets to the stack by NAPI, as network cards do.
#[test]
fn root_a_device_with_napi_is_stamped_by_another_hook() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-napi");
    let xdp = ["response", "-i", "right0", "--hook", "xdp", "--format", "none"];
    let mut xdp = spawn(&pair.right, DWELL, &xdp);
    eventually("an XDP program is there", || xdp.has_ended() || links(xdp.id()) > 0);
    receives_what_is_sent(&pair);
    let xdp = xdp.interrupt();
    assert_eq!(xdp.status, Some(0), "{xdp}");
}

/// Makes the devices `left0` in its own network namespace and `right0` in the one that its argument names, and carries
/// frames between them. `right0` hands packets to the stack by `napi_gro_frags()`.
const FRAGS: &str = "
import ctypes, fcntl, os, select, struct, sys
TAP, NO_PI, NAPI, FRAGS, NEWNET, TUNSETIFF = 2, 0x1000, 0x10, 0x20, 0x40000000, 0x400454ca
def device(name, flags):
    tap = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack('16sH22x', name, TAP | NO_PI | flags))
    return tap
left = device(b'left0', 0)
ctypes.CDLL(None).setns(os.open('/var/run/netns/' + sys.argv[1], os.O_RDONLY), NEWNET)
right = device(b'right0', NAPI | FRAGS)
while True:
    for tap in select.select([left, right], [], [])[0]:
        try:
            os.write(right if tap == left else left, os.read(tap, 65536))
        except OSError:
            pass
";

/// Some drivers hand fragments to the stack (`napi_gro_frags`) instead of whole packets.
#[test]
fn root_a_device_that_hands_on_fragments_is_stamped() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-frags");
    pair.left.ip("link del left0").unwrap();
    let mut relay = spawn(&pair.left, "python3", &["-c", FRAGS, pair.right.name()]);
    for (namespace, address, device) in [(&pair.left, "10.78.0.1", "left0"), (&pair.right, "10.78.0.2", "right0")] {
        let up = format!("addr add {address}/24 dev {device}\nlink set {device} up");
        eventually("the device is up", || relay.has_ended() || namespace.ip(&up).is_ok());
    }
    receives_what_is_sent(&pair);
    relay.signal(Signal::SIGTERM);
    relay.end();
}

pub fn link_ids(pid: u32) -> Vec<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    descriptors
        .filter_map(|descriptor| std::fs::read_to_string(descriptor.unwrap().path()).ok())
        .filter_map(|info| {
            let line = info.lines().find_map(|line| line.strip_prefix("link_id:"));
            line.map(|id| id.trim().to_owned())
        })
        .collect()
}
