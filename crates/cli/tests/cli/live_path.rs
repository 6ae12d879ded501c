//! Losses, marks and round trips of real connections, compared with what the kernels of their ends count themselves.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

use dwell_testbed::{
    Emulation, Lab, LabOptions, LinkPair, LinkSpec, Namespace, Probability, Role, Topology,
    harness::{Process, tool},
    skip::lacks_program,
};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    records::{number, of_type, text},
    support::{CLIENT_RTT, SERVER_RTT, skipped, watch},
};

const PORT: u16 = 7007;
const SENT_BYTES: usize = 1_500_000;

/// A client 20 ms away from the vantage point and a server 5 ms, with this share of the packets lost on the way from the
/// client: `before` the vantage point, and `behind` it.
fn lossy(name: &str, before: f64, behind: f64) -> Lab {
    let losing = |link: LinkSpec, share| LinkSpec { loss: Probability::new(share).unwrap(), seed: 11, ..link };
    let (client, server) = (LinkPair::with_rtt(CLIENT_RTT), LinkPair::with_rtt(SERVER_RTT));
    let lab = Lab::start(&LabOptions {
        name: name.to_owned(),
        topology: Topology::Line {
            client: LinkPair { to_vantage: losing(client.to_vantage.clone(), before), ..client },
            server: LinkPair { from_vantage: losing(server.from_vantage.clone(), behind), ..server },
        },
        emulation: Emulation::Thread,
    })
    .unwrap();
    // The emulator loses packets; each is one segment then.
    lab.client().ip("link set vantage0 gso_max_segs 1\n").unwrap();
    lab
}

/// Runs a test on one CPU: packets of one connection that several CPUs send can overtake each other.
fn on_one_cpu(test: impl FnOnce() + Send) {
    let test = || {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        sched_setaffinity(this, &one).unwrap();
        test();
    };
    thread::scope(|scope| scope.spawn(test).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Sends messages of this many bytes from the client to the server, each when the last was answered, and returns what
/// `ss` shows of the connection, the time until it was established, and until each answer was there, in nanoseconds.
fn talk(lab: &Lab, messages: usize, bytes: usize) -> (BTreeMap<String, String>, Vec<u64>) {
    let listener = lab.server().enter(|| TcpListener::bind((Lab::address_v4(Role::Server), PORT)).unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = vec![0; bytes];
            while stream.read_exact(&mut message).is_ok() {
                stream.write_all(b".").unwrap();
            }
        });
        let talk = || {
            let mut begun = Instant::now();
            let mut stream = TcpStream::connect((Lab::address_v4(Role::Server), PORT)).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut times = Vec::new();
            let mut lap = |begun: Instant| times.push(begun.elapsed().as_nanos() as u64);
            lap(begun);
            for _ in 0..messages {
                begun = Instant::now();
                stream.write_all(&vec![7; bytes]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                lap(begun);
            }
            (sender_info(lab.client()), times)
        };
        lab.client().enter(talk).unwrap()
    })
}

/// What the sender's kernel says of its connection (TCP_INFO), by the names of `ss`.
fn sender_info(namespace: &Namespace) -> BTreeMap<String, String> {
    let shown = tool(namespace, "ss", &["-tinH", "dst", &format!("{}:{PORT}", Lab::address_v4(Role::Server))]);
    assert!(shown.contains("data_segs_out:"), "{shown}");
    let pairs = shown.split_ascii_whitespace().filter_map(|word| word.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Reads a count of `sender_info`. `ss` leaves out those that are 0, and shows total retransmissions after a slash.
fn count(info: &BTreeMap<String, String>, name: &str) -> u64 {
    info.get(name).map_or(0, |value| value.rsplit('/').next().unwrap().parse().unwrap())
}

/// Microseconds of a time that `ss` shows in milliseconds.
fn micros(info: &BTreeMap<String, String>, name: &str) -> u64 {
    let ms: f64 = info[name].split('/').next().unwrap().parse().unwrap();
    (ms * 1e3).round() as u64
}

/// Ends dwell and returns the totals of the connection.
fn closed_flow(dwell: Process) -> Value {
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let mut flows = of_type(&run.stdout, "rtt.flow");
    flows.retain(|flow| flow["event"] == "close" && flow["flow"]["dport"] == PORT);
    assert_eq!(flows.len(), 1, "{run}");
    flows.remove(0)
}

const FLOWS: [&str; 5] = ["-i", "server0", "--format", "jsonl", "--flow-events"];

#[test]
fn root_what_was_lost_behind_the_vantage_point_is_as_often_retransmitted_as_the_sender_says() {
    if skipped() || lacks_program("ss") {
        return;
    }
    on_one_cpu(|| {
        let lab = lossy("behind", 0.0, 0.02);
        let dwell = watch(lab.vantage(), &FLOWS);
        let (sender, _) = talk(&lab, 1, SENT_BYTES);
        let flow = closed_flow(dwell);
        let retransmissions = count(&sender, "retrans");
        assert!(retransmissions >= 5, "{sender:?}");
        assert_eq!(number(&flow, "retransmitted"), retransmissions, "{flow} {sender:?}");
        assert_eq!(number(&flow, "late"), 0, "{flow}");
        // The answer is one segment.
        assert_eq!(number(&flow, "data_segments"), count(&sender, "data_segs_out") + 1, "{flow} {sender:?}");
    });
}

#[test]
fn root_what_was_lost_before_the_vantage_point_comes_late() {
    if skipped() || lacks_program("ss") {
        return;
    }
    on_one_cpu(|| {
        let lab = lossy("before", 0.02, 0.0);
        let dwell = watch(lab.vantage(), &FLOWS);
        let (sender, _) = talk(&lab, 1, SENT_BYTES);
        let flow = closed_flow(dwell);
        let report = lab.stop().unwrap().unwrap();
        let lost = report.direction("client to vantage").unwrap().dropped_loss;
        let [late, again] = ["late", "retransmitted"].map(|name| number(&flow, name));
        let retransmissions = count(&sender, "retrans");
        assert!(lost >= 5, "{report}");
        // A retransmission that is lost itself is not seen, and one that no later segment has overtaken leaves no hole.
        assert!(late + again <= retransmissions && late <= lost, "{late} {again} of {retransmissions}, {lost} lost");
        assert!(2 * late >= lost, "{late} {again} of {retransmissions}, {lost} lost");
        let passed = number(&flow, "data_segments") - 1;
        let sent = count(&sender, "data_segs_out");
        assert!(passed <= sent && passed + lost >= sent, "{passed} of {sent}, {lost} lost");
    });
}

#[test]
fn root_marks_of_congestion_are_as_many_as_the_receiver_counts() {
    if skipped() || lacks_program("iptables-legacy") || lacks_program("ss") {
        return;
    }
    let lab = lossy("marks", 0.0, 0.0);
    for end in [lab.client(), lab.server()] {
        end.set(&[("ipv4/tcp_ecn", "1")]).unwrap();
    }
    let router = lab.namespace(Role::ClientRouter);
    let every_tenth = "-t mangle -A POSTROUTING -o vantage0 -p tcp -m ecn --ecn-ip-ect 2 \
                       -m statistic --mode nth --every 10 --packet 0 -j TOS --set-tos 3/3";
    tool(router, "iptables-legacy", &every_tenth.split_ascii_whitespace().collect::<Vec<_>>());
    let dwell = watch(lab.vantage(), &FLOWS);
    let (sender, _) = talk(&lab, 1, SENT_BYTES);
    let flow = closed_flow(dwell);
    let received = lab.server().enter(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap()).unwrap();
    let marked = netstat(&received, "IpExt", "InCEPkts");
    assert!(marked >= 50, "{flow} {sender:?}");
    assert_eq!(number(&flow, "ce"), marked, "{flow} {sender:?}");
    // The receiver repeats that there was a mark until the sender has reacted to it (RFC 3168).
    assert!(count(&sender, "delivered_ce") >= 1, "{sender:?}");
}

/// A counter of /proc/net/netstat, whose lines are pairs of names and values.
fn netstat(table: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with(&format!("{protocol}:")));
    let mut words = || lines.next().unwrap().split_ascii_whitespace();
    let index = words().position(|word| word == name).unwrap();
    words().nth(index).unwrap().parse().unwrap()
}

#[test]
fn root_round_trips_lie_between_the_path_and_what_both_ends_measure() {
    if skipped() || lacks_program("ss") {
        return;
    }
    let lab = lossy("ends", 0.0, 0.0);
    let options = ["--format", "jsonl", "--methods", "tcp-seq", "--include-handshake"];
    let at_client = watch(lab.client(), &[&["-i", "vantage0"][..], &options].concat());
    let between = watch(lab.vantage(), &[&["-i", "server0"][..], &options].concat());
    let (sender, of_program) = talk(&lab, 60, 100);
    let [at_client, between] = [at_client, between].map(|dwell| {
        let run = dwell.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
        let mut samples = of_type(&run.stdout, "rtt.sample");
        samples.retain(|sample| text(&sample["flow"], "dst") == Lab::address_v4(Role::Server).to_string());
        samples.iter().map(|sample| number(sample, "rtt_ns")).collect::<Vec<_>>()
    });
    let path_ns = CLIENT_RTT.0 + SERVER_RTT.0;
    // Of each message and the handshake: the path, then the sender's interface, then the program, and from the path's
    // middle less.
    assert_eq!([at_client.len(), between.len()], [of_program.len(); 2]);
    for ((at_client, between), of_program) in at_client.iter().zip(&between).zip(&of_program) {
        assert!(*at_client >= path_ns && at_client <= of_program, "{path_ns} {at_client} {of_program}");
        assert!(*between >= SERVER_RTT.0 && between + CLIENT_RTT.0 <= *at_client, "{between} {at_client}");
    }
    if count(&sender, "retrans") > 0 {
        return; // of what was sent again, the sender's kernel measures by its timestamps
    }
    // Whole microseconds, rounded by the kernel and by ss.
    let least = |times: &[u64]| times.iter().min().unwrap() / 1_000;
    let most = |times: &[u64]| times.iter().max().unwrap() / 1_000;
    let (min, smoothed) = (micros(&sender, "minrtt"), micros(&sender, "rtt"));
    assert!((least(&at_client) - 2..=least(&of_program) + 2).contains(&min), "{sender:?} {at_client:?}");
    assert!((least(&at_client) - 2..=most(&of_program) + 2).contains(&smoothed), "{sender:?} {at_client:?}");
}
