//! `dwell why -r` of a store: where bytes were that two hosts have stamped, each trouble in a store of its own.

use std::path::PathBuf;

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, PathSegment, Segment},
    measure::Endpoint,
};
use dwell_store::{IntervalRow, PathMethod, PathRow, Store, Writing, Written};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    records::{number, objects, text},
    support::{Run, dwell, dwell_reading},
    wire::{capture, everyday},
};

const SECOND_NS: u64 = 1_000_000_000;
/// 2026-11-21T14:00:00Z
const BEGIN_NS: i64 = 1_795_269_600_000_000_000;
pub const MS: u64 = 1_000_000;

/// From the client to the server.
fn ends(port: u16) -> Ends {
    let end = |address: [u8; 4], port| Endpoint { address: address.into(), port };
    Ends { src: end([10, 78, 0, 1], 40_000 + port % 1000), dst: end([10, 78, 0, 2], port) }
}

/// What a byte takes in each segment of the path, the shortest and the usual one.
pub struct Times {
    pub socket_tcp: (u64, u64),
    pub queueing: (u64, u64),
    pub network: (u64, u64),
    pub application: (u64, u64),
}

pub const QUICK: Times = Times {
    socket_tcp: (10_000, 20_000),
    queueing: (1_000, 2_000),
    network: (50_000, 60_000),
    application: (5_000, 9_000),
};

impl Times {
    fn of(&self, segment: PathSegment) -> Option<(u64, u64)> {
        let sum = |parts: &[(u64, u64)]| parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let Times { socket_tcp, queueing, network, application } = *self;
        Some(match segment {
            PathSegment::Host(Segment::SocketTcp) => socket_tcp,
            PathSegment::Host(Segment::TcpIp | Segment::DriverIp | Segment::IpTcp) => (1_000, 1_000),
            PathSegment::Host(Segment::IpDriver | Segment::Queueing) => queueing,
            PathSegment::Network => network,
            PathSegment::Host(Segment::TcpSocket | Segment::Application) => application,
            PathSegment::EndToEnd => sum(&[socket_tcp, (3_000, 3_000), queueing, network, application]),
            PathSegment::Host(_) => return None,
        })
    }
}

fn histogram((least, usual): (u64, u64)) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.record(least);
    histogram.record_many(usual, 99);
    histogram
}

/// Ten seconds of a flow, as a collector has it.
pub fn path(store: &mut Writing<'_>, hosts: [&str; 2], port: u16, times: &Times) -> Written<()> {
    write(store, hosts, port, None, times)
}

/// The same, where the receiver sees other addresses than the sender.
pub fn translated(store: &mut Writing<'_>, hosts: [&str; 2], port: u16, times: &Times) -> Written<()> {
    let Ends { src, dst } = ends(port);
    let moved = |end: Endpoint, address: [u8; 4]| Endpoint { address: address.into(), ..end };
    let rx_flow = Ends { src: moved(src, [10, 99, 0, 1]), dst: moved(dst, [10, 99, 0, 2]) };
    write(store, hosts, port, Some(rx_flow), times)
}

fn write(store: &mut Writing<'_>, [tx, rx]: [&str; 2], port: u16, rx_flow: Option<Ends>, times: &Times) -> Written<()> {
    for second in 1..=10 {
        for segment in PathSegment::ALL {
            let Some(of_segment) = times.of(segment) else { continue };
            store.path(&PathRow {
                time_ns: BEGIN_NS + second * SECOND_NS.cast_signed(),
                length_ns: SECOND_NS,
                tx_host: Some(tx),
                rx_host: Some(rx),
                flow: Some(ends(port)),
                rx_flow,
                segment,
                resent: false,
                method: PathMethod::Matched,
                histogram: &histogram(of_segment),
                bound_ns: segment.direction().is_none().then_some(500),
                clamped: 0,
                doubtful: 0,
            })?;
        }
    }
    Ok(())
}

pub struct Stored(TempDir);

impl Stored {
    pub fn new(write: impl FnOnce(&mut Writing<'_>) -> Written<()>) -> Stored {
        let stored = Stored(tempfile::tempdir().unwrap());
        Store::open(&stored.path()).unwrap().write(write).unwrap();
        stored
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    pub fn why(&self, arguments: &[&str]) -> (Run, Value) {
        let path = self.path();
        let run = dwell(&[&["why", "--format", "jsonl", "-r", path.to_str().unwrap()], arguments].concat());
        let verdict = objects(&run.stdout).pop().unwrap_or_else(|| panic!("{run}"));
        (run, verdict)
    }
}

#[test]
fn the_segment_that_has_the_time_is_named_with_both_hosts() {
    let troubles = [
        ("send-backlog", "send-backlog", Times { socket_tcp: (MS, 400 * MS), ..QUICK }, "ssh web "),
        ("local-queue", "local-queue", Times { queueing: (MS, 80 * MS), ..QUICK }, "ssh web "),
        ("path-queue", "path-queue", Times { network: (10 * MS, 150 * MS), ..QUICK }, "ssh web "),
        ("distance", "distance", Times { network: (40 * MS, 41 * MS), ..QUICK }, "ssh web "),
        ("slow-reader", "reader", Times { application: (MS, 90 * MS), ..QUICK }, "ssh db "),
    ];
    for (cause, part, times, remedy) in troubles {
        let stored = Stored::new(|store| {
            path(store, ["web", "db"], 5432, &times)?;
            // Others have other troubles, and worse ones.
            path(store, ["web", "cache"], 6379, &Times { application: (MS, 900 * MS), ..QUICK })
        });
        let (run, verdict) = stored.why(&[":5432"]);
        assert_eq!((run.status, &verdict["cause"]), (Some(0), &cause.into()), "{verdict}");
        // No queue shows that the path is full.
        let certainty = if cause == "send-backlog" { "possible" } else { "sure" };
        assert_eq!(verdict["certainty"], certainty, "{verdict}");
        assert!(text(&verdict, "sentence").starts_with("From web to db: "), "{verdict}");
        assert_eq!((number(&verdict, "connections"), number(&verdict, "observed_ns")), (1, 10 * SECOND_NS));
        assert_eq!(verdict["time"], "2026-11-21T14:00:10.000000000Z");
        let parts = verdict["parts"].as_array().unwrap();
        let share = |name: &str| parts.iter().find(|one| one["part"] == name).unwrap()["share"].as_f64().unwrap();
        assert!(share(part) > 0.9, "{cause}: {verdict}");
        let sum: f64 = parts.iter().map(|part| part["share"].as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{verdict}");
        // The evidence is the mean of each segment.
        let facts = verdict["facts"].as_array().unwrap();
        let network = facts.iter().find(|fact| fact["what"] == "in the network").unwrap();
        assert_eq!(network["ns"], histogram(times.network).mean_ns().unwrap());
        assert!(facts.iter().all(|fact| fact["method"] == "byte stamps"), "{verdict}");
        let first = text(&verdict["remedies"][0], "command");
        assert_eq!(first, format!("{remedy}sudo dwell why :5432"));
    }
    let healthy = Stored::new(|store| path(store, ["web", "db"], 5432, &QUICK));
    let (run, verdict) = healthy.why(&["10.78.0.2:5432"]);
    assert_eq!((run.status, &verdict["outcome"]), (Some(0), &"healthy".into()), "{verdict}");
}

/// A byte that was sent again has a row per segment; two of the segments are the totals of a host, and one is the whole path.
#[test]
fn bytes_that_were_sent_again_are_counted_once() {
    const BYTES: u64 = 1_000;
    let waiting = Times { application: (MS, 2 * MS), ..QUICK };
    for (resent, is_loss) in [(6, false), (24, true)] {
        let stored = Stored::new(|store| {
            path(store, ["web", "db"], 5432, &waiting)?;
            let mut row = |segment, resent, histogram: &Histogram| {
                store.path(&PathRow {
                    time_ns: BEGIN_NS + SECOND_NS.cast_signed(),
                    length_ns: SECOND_NS,
                    tx_host: Some("web"),
                    rx_host: Some("db"),
                    flow: Some(ends(5432)),
                    rx_flow: None,
                    segment,
                    resent,
                    method: PathMethod::Matched,
                    histogram,
                    bound_ns: segment.direction().is_none().then_some(500),
                    clamped: 0,
                    doubtful: 0,
                })
            };
            let mut overtaken = Histogram::default();
            overtaken.record_many(90 * MS, BYTES);
            row(PathSegment::Host(Segment::TcpSocket), false, &overtaken)?;
            row(PathSegment::Host(Segment::Reordering), false, &overtaken)?;
            let mut again = Histogram::default();
            again.record_many(300 * MS, resent);
            PathSegment::ALL.into_iter().try_for_each(|segment| row(segment, true, &again))
        });
        let (run, verdict) = stored.why(&[":5432"]);
        assert_eq!(
            (run.status, verdict["cause"] == "loss"),
            (Some(0), is_loss),
            "{resent} of {}: {verdict}",
            2 * BYTES
        );
    }
}

#[test]
fn a_store_of_one_host_says_what_it_does_not_know() {
    let slow = Times { application: (MS, 90 * MS), ..QUICK };
    let stored = Stored::new(|store| {
        for segment in [Segment::DriverIp, Segment::IpTcp, Segment::TcpSocket, Segment::Application, Segment::RxTotal] {
            let times = slow.of(PathSegment::Host(segment)).unwrap_or((91 * MS, 91 * MS));
            store.interval(&IntervalRow {
                time_ns: BEGIN_NS,
                time_clamped: false,
                length_ns: SECOND_NS,
                host: "db",
                flow: Some(ends(5432)),
                namespace: None,
                segment,
                resent: false,
                histogram: &histogram(times),
                hooks: None,
            })?;
        }
        Ok(())
    });
    let (run, verdict) = stored.why(&[":5432"]);
    assert_eq!((run.status, &verdict["cause"]), (Some(0), &"slow-reader".into()), "{verdict}");
    assert!(text(&verdict, "sentence").starts_with("Received by db: "), "{verdict}");
    assert!(text(&verdict["unseen"][0], "what").contains("other end of db, which has no agent"), "{verdict}");
}

/// Of a server alone, with a client in its own network and one far away. Half of the shortest round trip of each stands for the
/// network, once per second; bytes are stamped in other numbers.
#[test]
fn the_distance_of_one_of_two_peers_is_no_queue() {
    const BYTES_A_SECOND: u64 = 50;
    let peers = [(443, 250_000), (444, 100 * MS)];
    let stored = Stored::new(|store| {
        for second in 1..=10 {
            let time_ns = BEGIN_NS + second * SECOND_NS.cast_signed();
            for (port, half_ns) in peers {
                let flow = Some(Ends { src: ends(port).dst, dst: ends(port).src });
                let mut network = Histogram::default();
                network.record(half_ns);
                store.path(&PathRow {
                    time_ns,
                    length_ns: SECOND_NS,
                    tx_host: Some("web"),
                    rx_host: None,
                    flow,
                    rx_flow: None,
                    segment: PathSegment::Network,
                    resent: false,
                    method: PathMethod::Estimated,
                    histogram: &network,
                    bound_ns: None,
                    clamped: 0,
                    doubtful: 0,
                })?;
                for segment in [Segment::SocketTcp, Segment::TcpIp, Segment::IpDriver, Segment::TxTotal] {
                    let (least, usual) = QUICK.of(PathSegment::Host(segment)).unwrap_or((12_000, 23_000));
                    let mut histogram = Histogram::default();
                    histogram.record(least);
                    histogram.record_many(usual, BYTES_A_SECOND - 1);
                    let interval = IntervalRow {
                        time_ns,
                        time_clamped: false,
                        length_ns: SECOND_NS,
                        host: "web",
                        flow,
                        namespace: None,
                        segment,
                        resent: false,
                        histogram: &histogram,
                        hooks: None,
                    };
                    store.interval(&interval)?;
                }
            }
        }
        Ok(())
    });
    let (run, verdict) = stored.why(&["10.78.0.2"]);
    assert_eq!((run.status, &verdict["cause"]), (Some(0), &"distance".into()), "{verdict}");
    let parts = verdict["parts"].as_array().unwrap();
    let share =
        |name: &str| parts.iter().find(|one| one["part"] == name).map_or(0.0, |one| one["share"].as_f64().unwrap());
    assert_eq!(share("path-queue"), 0.0, "{verdict}");
    // A byte takes 50 ms in the mean of both, and some 20 µs in the sender.
    assert!(share("distance") > 0.99, "{verdict}");
    let fact = |what: &str| {
        let facts = verdict["facts"].as_array().unwrap();
        facts.iter().find(|fact| fact["what"] == what).unwrap_or_else(|| panic!("{what}: {verdict}")).clone()
    };
    assert_eq!(fact("stamped bytes")["count"], 20 * BYTES_A_SECOND);
    let network = fact("in the network");
    assert!(number(&network, "ns").abs_diff(50_125_000) < MS, "{network}");
    assert_eq!(network["method"], "half of the shortest round trip");
}

#[test]
fn without_stamps_of_the_target_the_last_verdict_is_told() {
    let stored = Stored::new(|store| path(store, ["web", "db"], 5432, &QUICK));
    let (run, verdict) = stored.why(&[":443"]);
    assert_eq!((run.status, &verdict["outcome"]), (Some(4), &"no-traffic".into()), "{verdict}");
    assert!(text(&verdict["unseen"][0], "what").contains("the store has none of it"), "{verdict}");
    // A verdict on a capture, in the same store.
    let name = stored.path();
    let said = dwell_reading(&["why", "-r", "-", ":443", "--store", name.to_str().unwrap()], &capture(&everyday()));
    let (_, verdict) = stored.why(&[":443"]);
    let told = text(&verdict["unseen"][0], "what");
    let sentence = said.stdout.lines().next().unwrap();
    assert!(told.contains("at 2026-01-02T03:04:05Z dwell why said of it") && told.contains(sentence), "{told} {said}");
}

#[test]
fn a_store_of_latencies_alone_says_what_it_has_and_which_verb_draws_it() {
    let stored = Stored::new(|_| Ok(()));
    let name = stored.path();
    let name = name.to_str().unwrap();
    dwell_reading(&["rtt", "-r", "-", "--store", name], &capture(&everyday()));
    for (target, has) in [(&[":443"][..], true), (&[], true), (&[":444"], false)] {
        let (run, verdict) = stored.why(target);
        assert_eq!((run.status, &verdict["outcome"]), (Some(4), &"no-traffic".into()), "{verdict}");
        assert!(text(&verdict, "sentence").starts_with("The store has no stamped bytes of the target"), "{verdict}");
        let unseen = verdict["unseen"].as_array().unwrap();
        let figures = unseen.iter().find(|unseen| text(unseen, "what").contains("of `dwell rtt` say"));
        assert_eq!(figures.is_some(), has, "{target:?}: {verdict}");
        let draws = |figures: &Value| text(figures, "remedy").contains(&format!("`dwell report -r {name}"));
        assert!(figures.is_none_or(draws), "{verdict}");
    }
}

#[test]
fn a_time_or_a_target_that_a_store_cannot_have_is_refused() {
    let stored = Stored::new(|store| path(store, ["web", "db"], 5432, &Times { socket_tcp: (MS, 400 * MS), ..QUICK }));
    let name = stored.path();
    let name = name.to_str().unwrap();
    for (arguments, says) in [
        (&["why", "-r", name, "4242"][..], "a store has none"),
        (&["why", "-r", name, "--filter", "10.0.0.0/8"], "--filter is for captures"),
        (&["why", "-r", name, ":5432", "--since", "2027-01-01T00:00:00Z"], "widen the time"),
        (&["why", ":5432", "--since", "1h"], "--read"),
    ] {
        let run = dwell(arguments);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says), "{run}");
    }
    let run = dwell_reading(&["why", "-r", "-", "--since", "1h"], &capture(&everyday()));
    assert_eq!((run.status, run.stderr.contains("are for a store")), (Some(2), true), "{run}");
    // The last three of ten seconds.
    let (_, verdict) = stored.why(&[":5432", "--since", "3s"]);
    assert_eq!(number(&verdict, "observed_ns"), 3 * SECOND_NS);
    let bytes = verdict["facts"].as_array().unwrap().iter().find(|fact| fact["what"] == "stamped bytes").unwrap();
    assert_eq!(bytes["count"], 300);
}

#[test]
fn a_store_and_a_capture_that_are_cut_off_are_refused_or_read_up_to_there() {
    let stored = Stored::new(|store| path(store, ["web", "db"], 5432, &QUICK));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut");
    let name = file.to_str().unwrap();
    let bytes = std::fs::read(stored.path()).unwrap();
    for length in [100, bytes.len() / 2, bytes.len() - 100] {
        std::fs::write(&file, &bytes[..length]).unwrap();
        let run = dwell(&["why", "-r", name, ":5432"]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(4), ""), "{length} bytes: {run}");
        assert!(run.stderr.contains(name) && run.stderr.contains("damaged or cut off"), "{length} bytes: {run}");
    }
    let whole = capture(&everyday());
    std::fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    let run = dwell(&["why", "-r", name]);
    // There is a verdict on what is there.
    assert!(run.status == Some(4) && run.stdout.contains("Certainty"), "{run}");
    assert!(run.stderr.contains("is cut off inside the record") && run.stderr.contains("copy the file again"), "{run}");
}
