//! `dwell-lab load`: the client's log of its requests, compared with the capture.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use dwell_capture::Reader;
use dwell_testbed::skip::lacks_program;
use etherparse::{LaxSlicedPacket, TransportSlice};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{LAB, Run, eventually, lab, objects, prepare, skipped};

/// A load that has ended, and what it wrote.
struct Outcome {
    run: Run,
    offset_ns: i64,
    requests: Vec<Request>,
    packets: Vec<Packet>,
    /// Times of UDP packets.
    datagrams_ns: Vec<u64>,
}

struct Request {
    sport: u64,
    id: u64,
    class: String,
    bytes: u64,
    sent_ns: u64,
    done_ns: u64,
    triggers: Option<u64>,
}

struct Packet {
    time_ns: u64,
    sport: u64,
    sequence: u32,
    to_server: bool,
    payload: Vec<u8>,
}

impl Outcome {
    /// Packets that begin so. One that was sent again, as a busy machine makes TCP do, counts once.
    fn asked(&self, beginning: &[u8]) -> usize {
        let packets = self.packets.iter();
        let asking = packets.filter(|packet| packet.payload.starts_with(beginning));
        let places: BTreeSet<_> = asking.map(|packet| (packet.sport, packet.sequence)).collect();
        places.len()
    }
}

fn load(arguments: &[&str]) -> Outcome {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (truth, pcap) = (file("truth.jsonl"), file("requests.pcap"));
    let files = ["--truth", &truth, "--pcap", &pcap];
    let run = lab(&[&["load"], arguments, &files[..]].concat());
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let text = fs::read_to_string(&truth).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let clock: Value = lines.next().unwrap();
    assert_eq!(clock["type"], "clock");
    let mut outcome = Outcome {
        run,
        offset_ns: clock["realtime_minus_monotonic_ns"].as_i64().unwrap(),
        requests: lines.map(|line| request(&line)).collect(),
        packets: Vec::new(),
        datagrams_ns: Vec::new(),
    };
    read_capture(Path::new(&pcap), &mut outcome);
    outcome
}

fn request(line: &Value) -> Request {
    let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{key}: {line}"));
    assert_eq!(line["type"], "request");
    let ends = [&line["src"], &line["dst"]].map(|end| end.as_str().unwrap());
    let known = [["10.77.1.1", "10.77.4.2"], ["10.78.0.1", "10.78.0.2"]];
    assert!(known.contains(&ends), "{line}");
    Request {
        sport: number("sport"),
        id: number("id"),
        class: line["class"].as_str().unwrap().to_owned(),
        bytes: number("bytes"),
        sent_ns: number("sent_ns"),
        done_ns: number("done_ns"),
        triggers: line["triggers"].as_u64(),
    }
}

fn read_capture(file: &Path, outcome: &mut Outcome) {
    let mut reader = Reader::open(file).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        // The capture is cut after 128 bytes.
        let sliced = LaxSlicedPacket::from_ethernet(packet.data).unwrap();
        match sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => outcome.packets.push(Packet {
                time_ns: packet.time_ns,
                sport: tcp.source_port().into(),
                sequence: tcp.sequence_number(),
                to_server: [80, 11211].contains(&tcp.destination_port()),
                payload: tcp.payload().to_vec(),
            }),
            Some(TransportSlice::Udp(_)) => outcome.datagrams_ns.push(packet.time_ns),
            _ => {}
        }
    }
}

/// What holds of every load.
fn check(outcome: &Outcome, depth: usize) {
    let Outcome { requests, packets, run, .. } = outcome;
    assert!(run.stdout.starts_with(&format!("{} requests in ", requests.len())), "{run}");
    assert!(!run.stdout.contains("missed"), "{run}");
    assert!(packets.iter().all(|packet| packet.to_server), "answers go around");
    assert!(requests.is_sorted_by_key(|request| request.sent_ns));
    let ids: BTreeSet<u64> = requests.iter().map(|request| request.id).collect();
    assert_eq!(ids.len(), requests.len());
    let by_id: BTreeMap<u64, &Request> = requests.iter().map(|request| (request.id, request)).collect();
    for request in requests {
        assert!(request.done_ns > request.sent_ns, "request {}", request.id);
        if let Some(next) = request.triggers {
            let next = by_id[&next];
            assert_eq!(next.sport, request.sport);
            assert!(next.sent_ns >= request.done_ns && next.sent_ns < request.done_ns + 1_000_000_000);
        }
        let outstanding = requests.iter().filter(|other| {
            other.sport == request.sport && other.sent_ns <= request.sent_ns && other.done_ns > request.sent_ns
        });
        assert!(outstanding.count() <= depth);
    }
}

#[test]
fn root_each_request_of_a_page_is_answered_and_is_one_packet() {
    if skipped() {
        return;
    }
    let arguments = "web --mode page --depth 4 --connections 6 --threads 2 --rate 400 --duration 2s --seed 3";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 4);
    let Outcome { requests, packets, offset_ns, .. } = &outcome;
    assert!((60..1_500).contains(&requests.len()), "{}", requests.len());
    let flows: BTreeSet<u64> = requests.iter().map(|request| request.sport).collect();
    assert_eq!(flows.len(), 6);

    // In reverse, so that the first of several with one path is kept.
    let asks: BTreeMap<String, &Packet> =
        packets.iter().rev().filter_map(|packet| Some((path(packet)?, packet))).collect();
    assert_eq!(outcome.asked(b"GET "), requests.len());
    for request in requests {
        let packet = asks[&format!("/{}/{}/{}", request.class, request.bytes, request.id)];
        assert_eq!(packet.sport, request.sport);
        // Half a millisecond for what the clocks drift apart in two seconds.
        let real = |monotonic: u64| monotonic.checked_add_signed(*offset_ns).unwrap();
        let (earliest, latest) = (real(request.sent_ns) - 500_000, real(request.done_ns) + 500_000);
        assert!((earliest..latest).contains(&packet.time_ns), "request {}", request.id);
        // The server works for a millisecond at least.
        assert!(request.done_ns - request.sent_ns >= 1_000_000);
    }
    let followed = requests.iter().filter(|request| request.triggers.is_some()).count();
    assert!(followed > requests.len() / 2, "{followed}");
}

/// The path that a packet asks for.
fn path(packet: &Packet) -> Option<String> {
    let text = String::from_utf8_lossy(&packet.payload);
    Some(text.strip_prefix("GET ")?.split_once(' ')?.0.to_owned())
}

#[test]
fn root_requests_that_go_together_are_one_packet_where_that_is_asked_for() {
    if skipped() {
        return;
    }
    let arguments = "web --mode batch --coalesce --connections 2 --rate 80 --duration 1s";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 4);
    // On a busy machine a batch may go out with the one before it.
    let packets = outcome.asked(b"GET ");
    assert!(packets > 0 && packets * 4 <= outcome.requests.len(), "{packets} for {} requests", outcome.requests.len());
}

#[test]
fn root_a_server_works_on_one_request_of_a_connection_or_on_all() {
    if skipped() {
        return;
    }
    let arguments = "web --mode batch --service constant --connections 2 --rate 80 --duration 1s --discipline";
    let longest_of_batches = |discipline: &str| {
        let words: Vec<&str> = arguments.split(' ').chain([discipline]).collect();
        let outcome = load(&words);
        check(&outcome, 4);
        let mut latencies: Vec<u64> =
            outcome.requests.iter().map(|request| request.done_ns - request.sent_ns).collect();
        latencies.sort_unstable();
        // A quarter are the last of their batch.
        latencies.split_off(latencies.len() * 3 / 4)
    };
    // Each takes 5 ms. The fourth is sent a little later than the first.
    let in_order = longest_of_batches("in-order");
    assert!(in_order[0] > 18_000_000, "{in_order:?}");
    let concurrent = longest_of_batches("concurrent");
    assert!((5_000_000..12_000_000).contains(&concurrent[0]), "{concurrent:?}");
}

#[test]
fn root_memcached_answers_each_request() {
    if skipped() {
        return;
    }
    if lacks_program("memcached") {
        return;
    }
    let arguments = "memcached --depth 3 --connections 4 --rate 400 --duration 1s";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 3);
    let count = |class: &str| outcome.requests.iter().filter(|request| request.class == class).count();
    assert!(count("get") > 50 && count("set") > 50);
    assert_eq!(count("get") + count("set"), outcome.requests.len());
    assert_eq!(outcome.asked(b"get "), count("get"));
    assert!(outcome.requests.iter().all(|request| (40..=10_000).contains(&request.bytes)));
}

/// Returns the objects that `dwell-lab response` prints.
fn told(arguments: &str) -> Vec<Value> {
    let words = ["response", "--format", "jsonl"];
    let run = lab(&words.into_iter().chain(arguments.split(' ')).collect::<Vec<_>>());
    assert_eq!(run.status, Some(0), "{run}");
    objects(&run)
}

#[test]
fn root_the_distribution_of_others_is_beside_the_estimates() {
    if skipped() {
        return;
    }
    for (load, programs, batches) in [
        ("wrk --duration 1s", ["wrk", "nginx"], 20..200),
        ("redis --duration 2s", ["redis-benchmark", "redis-server"], 40..400),
    ] {
        if programs.iter().any(|program| lacks_program(program)) {
            continue;
        }
        // Epochs are short, so that several are whole.
        let options = "--depth 4 --connections 2 --rtt 20ms --size 1000 --interval 250ms --estimator pirate";
        // The programs measure themselves on the host that they load: a busy one disturbs the two in their own ways.
        let is_near = (0..4).any(|_| {
            let line = told(&format!("{load} {options}")).remove(0);
            let latency = &line["load"]["latency"];
            let number = |key: &str| latency[key].as_f64().unwrap_or_else(|| panic!("{key}: {line}"));
            assert!(batches.contains(&(number("batches") as i32)), "{line}");
            // Each of the two connections may end in a batch that is not whole.
            let left_over = line["load"]["requests"].as_u64().unwrap() - 4 * number("batches") as u64;
            assert!(left_over <= 2 * 3, "{line}");
            assert!(number("mean_ns") >= 20e6, "{line}");
            assert!(number("p50_ns") >= 20e6 && number("p99_ns") <= number("max_ns"), "{line}");
            assert!(line["estimates"].as_u64().unwrap() >= 2, "{line}");
            assert!(line["error"].is_number(), "{line}");
            let error = line["p50_ns"].as_f64().unwrap() / number("p50_ns") - 1.0;
            error.abs() < 0.1
        });
        assert!(is_near, "{load}");
    }
}

#[test]
fn root_each_request_over_http3_is_answered() {
    if skipped() {
        return;
    }
    let arguments = "http3 --mode batch --depth 3 --connections 4 --threads 2 --rate 200 --duration 1s";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 3);
    let requests = &outcome.requests;
    // Each connection has a batch at least, however busy the machine is.
    assert!((12..1_000).contains(&requests.len()), "{}", requests.len());
    let flows: BTreeSet<u64> = requests.iter().map(|request| request.sport).collect();
    assert_eq!(flows.len(), 4);
    assert!(outcome.packets.is_empty(), "all is UDP");
    assert!(outcome.datagrams_ns.len() >= requests.len());
    // The server works for a millisecond at least.
    let quickest = requests.iter().map(|request| request.done_ns - request.sent_ns);
    assert!(quickest.min().unwrap() >= 1_000_000);
    assert!(requests.iter().any(|request| request.triggers.is_some()));
}

#[test]
fn root_a_tunnel_makes_one_encrypted_flow_of_all_connections() {
    if skipped() || ["wireguard-go", "wg"].iter().any(|program| lacks_program(program)) {
        return;
    }
    let arguments = "web --mode batch --depth 2 --connections 3 --rate 60 --duration 1s --tunnel wireguard";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 2);
    assert!(!outcome.requests.is_empty());
    assert!(outcome.packets.is_empty(), "all is UDP");
    assert!(outcome.datagrams_ns.len() > outcome.requests.len());
}

/// The log of all connections in a tunnel is compared with the estimates of its single flow.
#[test]
fn root_estimates_of_a_tunnel_are_beside_the_truth_of_all_its_connections() {
    if skipped() || ["wireguard-go", "wg"].iter().any(|program| lacks_program(program)) {
        return;
    }
    let lines = told(
        "web --mode batch --depth 1 --connections 1 --rate max --duration 3s --tunnel wireguard --interval 500ms --estimator pirate",
    );
    let line = lines.iter().find(|line| line["truth"] == "causal").unwrap();
    assert!(line["estimates"].as_u64().unwrap() >= 3, "{line}");
    // Single requests take 1 to 20 ms.
    assert!(line["error"]["size_p50"].as_f64().unwrap() < 0.2, "{line}");
}

#[test]
fn root_packets_that_are_lost_or_late_hinder_no_answer() {
    if skipped() {
        return;
    }
    let arguments = "web --mode batch --connections 4 --rate 200 --duration 1s --rtt 8ms --loss 0.01 --reorder 0.25";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 4);
    let quickest = outcome.requests.iter().map(|request| request.done_ns - request.sent_ns).min();
    assert!(quickest.unwrap() >= 9_000_000, "8 ms of network, 1 ms of service");
}

#[test]
fn root_other_traffic_takes_its_share_of_the_bottleneck() {
    if skipped() {
        return;
    }
    let arguments = "web --connections 2 --rate 20 --duration 1s --bottleneck 20M --cross 0.5";
    let outcome = load(&arguments.split(' ').collect::<Vec<_>>());
    check(&outcome, 4);
    let times = &outcome.datagrams_ns;
    let lasted_s = (times[times.len() - 1] - times[0]) as f64 / 1e9;
    let bits = (times.len() * (1_400 + 28) * 8) as f64;
    let share = bits / lasted_s / 20e6;
    assert!((0.4..0.6).contains(&share), "{share} over {lasted_s} s");
}

#[test]
fn root_an_interrupted_load_leaves_nothing() {
    if skipped() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let pcap = folder.path().join("requests.pcap");
    let mut command = Command::new(LAB);
    let command = prepare(&mut command).args(["load", "web", "--duration", "60s", "--pcap"]);
    let mut load = command.arg(&pcap).spawn().unwrap();
    eventually("the start of the capture", || pcap.exists());
    let own = format!("dwell-load-{}-", load.id());
    assert_eq!(namespaces(&own).len(), 6);
    // The client may or may not run yet.
    thread::sleep(Duration::from_millis(200));
    kill(Pid::from_raw(load.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(load.wait().unwrap().code(), Some(4));
    assert_eq!(namespaces(&own), Vec::<PathBuf>::new());
}

fn namespaces(beginning: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning));
    names.map(|entry| entry.path()).collect()
}
