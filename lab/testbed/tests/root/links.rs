//! What is asked of a link is what packets meet. Times are bounded below by what is emulated; above, only generously,
//! since a busy machine adds what it likes.

use std::{net::IpAddr, sync::atomic::AtomicBool, time::Duration};

use dwell_testbed::{
    BitsPerSecond, Bytes, DropReason, Emulation, Fate, Lab, LabOptions, Link, LinkPair, LinkSpec, Namespace, Nanos,
    Probability, QueueLimit, Role, Topology, Trace,
    workload::{Bulk, Ends, Ping, PingPong},
};

use crate::support::skipped;

static GO_ON: AtomicBool = AtomicBool::new(false);

fn lab(name: &str, topology: Topology) -> Lab {
    Lab::start(&LabOptions { name: name.to_owned(), topology, emulation: Emulation::Thread }).unwrap()
}

fn least_ping(client: &Namespace, server: &Namespace, address: impl Into<IpAddr>) -> Nanos {
    let ping = Ping { count: 10, interval: Duration::from_millis(20) };
    let report = ping.run(Ends { client, server, address: address.into() }, &GO_ON).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    report.round_trips.quantile(0.0).unwrap()
}

#[test]
fn root_a_delay_of_10_ms_one_way_shows() {
    if skipped() {
        return;
    }
    let client = LinkPair { to_vantage: LinkSpec::delay(Nanos::from_millis(10)), ..LinkPair::default() };
    let lab = lab("delay", Topology::Line { client, server: LinkPair::default() });
    for ends in [Ends::v4(&lab), Ends::v6(&lab)] {
        let ping = least_ping(ends.client, ends.server, ends.address);
        assert!(ping >= Nanos::from_millis(10) && ping < Nanos::from_millis(18), "{ping}");
        let exchange = PingPong { duration: Duration::from_millis(500), longest: Bytes(5_000), seed: 1 };
        let trips = exchange.run(ends, &GO_ON).unwrap();
        let least = trips.quantile(0.0).unwrap();
        assert!(least >= Nanos::from_millis(10) && least < Nanos::from_millis(18), "{least}");
    }
}

#[test]
fn root_the_vantage_point_is_between_the_delays() {
    if skipped() {
        return;
    }
    let lab = lab("between", Topology::line(Nanos::from_millis(40), Nanos::from_millis(10)));
    let client = least_ping(lab.vantage(), lab.client(), Lab::address_v4(Role::Client));
    assert!(client >= Nanos::from_millis(40) && client < Nanos::from_millis(50), "{client}");
    let server = least_ping(lab.vantage(), lab.server(), Lab::address_v6(Role::Server));
    assert!(server >= Nanos::from_millis(10) && server < Nanos::from_millis(20), "{server}");
}

#[test]
fn root_loss_takes_exactly_the_packets_the_seed_says() {
    if skipped() {
        return;
    }
    const COUNT: u32 = 400;
    let lossy = LinkSpec { loss: Probability::new(0.1).unwrap(), seed: 11, ..LinkSpec::default() };
    let client = LinkPair { to_vantage: lossy.clone(), ..LinkPair::default() };
    let lab = lab("loss", Topology::Line { client, server: LinkPair::default() });
    let ping = Ping { count: COUNT, interval: Duration::from_millis(3) };
    let report = ping.run(Ends::v4(&lab), &GO_ON).unwrap();
    assert!(report.unknown < COUNT / 10, "{report:?}");

    let mut link = Link::new(lossy, Nanos::ZERO);
    let expected: Vec<u32> =
        (1..=COUNT).filter(|_| link.offer(Nanos::ZERO, Bytes(84)) == Fate::Drop(DropReason::Loss)).collect();
    assert!((20..60).contains(&expected.len()), "about 10 % of {COUNT}: {}", expected.len());
    let known = expected.iter().copied().filter(|&sequence| sequence <= COUNT - report.unknown);
    assert_eq!(report.lost, known.collect::<Vec<_>>());
    let report = lab.stop().unwrap().unwrap();
    assert_eq!(report.direction("client to vantage").unwrap().dropped_loss, expected.len() as u64);
}

#[test]
fn root_a_rate_limits_a_bulk_transfer() {
    if skipped() {
        return;
    }
    let slow = LinkSpec {
        delay_ns: Nanos::from_millis(5),
        rate_bits_per_second: BitsPerSecond::new(10_000_000),
        queue: Some(QueueLimit::Bytes(Bytes(10_000))),
        ..LinkSpec::default()
    };
    let client = LinkPair { to_vantage: slow, from_vantage: LinkSpec::delay(Nanos::from_millis(5)) };
    let lab = lab("rate", Topology::Line { client, server: LinkPair::default() });
    let bulk = Bulk { seconds: 3, rate: None, download: false, congestion: None }.run(Ends::v4(&lab), &GO_ON).unwrap();
    // Three seconds, and what the queue holds at their end.
    assert!(bulk.received.0 <= 3 * 1_250_000 + 10_000, "{bulk:?}");
    assert!(bulk.received.0 >= 1_250_000, "{bulk:?}");
    let report = lab.stop().unwrap().unwrap();
    assert!(report.direction("client to vantage").unwrap().dropped_queue_full > 0, "{report}");
}

#[test]
fn root_the_vantage_point_of_a_triangle_sees_one_direction() {
    if skipped() {
        return;
    }
    let [up, over, back] = [4, 3, 8].map(Nanos::from_millis);
    let lab = lab("triangle", Topology::triangle(up, over, back));
    let ping = least_ping(lab.client(), lab.server(), Lab::address_v4(Role::Server));
    assert!(ping >= Nanos::from_millis(15) && ping < Nanos::from_millis(25), "{ping}");
    let ping = least_ping(lab.client(), lab.server(), Lab::address_v6(Role::Server));
    assert!(ping >= Nanos::from_millis(15) && ping < Nanos::from_millis(25), "{ping}");

    let counts = lab.vantage().enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let server = counts.lines().find_map(|line| line.trim().strip_prefix("server0:")).unwrap();
    let fields: Vec<u64> = server.split_ascii_whitespace().map(|field| field.parse().unwrap()).collect();
    let (received, sent) = (fields[1], fields[9]);
    assert!(sent >= 20, "the requests: {sent}");
    assert!(received < 10, "no answers, only what a new link says of itself: {received}");
}

/// However long a lab has been there, its runs are alike.
#[test]
fn root_a_trace_begins_with_the_first_packet() {
    if skipped() {
        return;
    }
    // All of the first 2 s at once, then nothing for an hour.
    let lines: String = (0..200).map(|n| format!("{}\n", n * 10)).collect();
    let mut pair = LinkPair::default();
    pair.to_vantage.trace = Some(Trace::parse(&format!("{lines}3600000\n")).unwrap());
    let topology = Topology::Line { client: pair, server: LinkPair::default() };
    let lab = lab("test-trace", topology);
    std::thread::sleep(Duration::from_millis(2500));
    let ping = lab
        .client()
        .command("ping")
        .args(["-c", "1", "-W", "5", &Lab::address_v4(Role::Server).to_string()])
        .output()
        .unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
}
