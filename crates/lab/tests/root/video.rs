//! A video with deadlines over a bottleneck.

use std::time::Duration;

use dwell_lab::socket::Bottleneck;
use dwell_lab::socket::video::{Options, Outcome, Server, compare, run};
use dwell_lab::{BitsPerSecond, LinkSpec, Nanos, QueueLimit};

use crate::support::{Script, skipped};

/// What became of the frames at 10 Mbit/s and round trips of 50 ms, behind a queue of 400 ms.
fn film(server: Server, exe: &Script) -> Outcome {
    let one_way = Nanos::from_millis(25);
    let outcome = run(&Options {
        bottleneck: Bottleneck::Fifo(LinkSpec {
            rate_bits_per_second: BitsPerSecond::new(10_000_000),
            queue: Some(QueueLimit::Packets(333)),
            ..LinkSpec::delay(one_way)
        }),
        back: one_way,
        server,
        congestion: "cubic".to_owned(),
        time: Duration::from_secs(12),
        exe: exe.path(),
    });
    let outcome = outcome.unwrap();
    println!(
        "{}: {} captured, {} sent, {} late, median {}",
        server.name(),
        outcome.captured,
        outcome.sent,
        outcome.late(),
        outcome.quantile(0.5).unwrap()
    );
    outcome
}

#[test]
fn root_frames_are_in_time_where_the_server_knows_what_waits() {
    if skipped() {
        return;
    }
    let exe = Script::emulator("video");
    let naive = film(Server::Naive, &exe);
    let informed = film(Server::Informed, &exe);
    for outcome in [&naive, &informed] {
        assert_eq!(outcome.captured, 360);
        assert_eq!(outcome.delays.len() as u64, outcome.sent, "all arrive");
        assert!(outcome.quantile(0.0).unwrap() > Nanos::from_millis(25));
    }
    assert!(naive.late_share().unwrap() > 0.5);
    assert!(informed.in_time_share().unwrap() > 2.0 * naive.in_time_share().unwrap());
}

/// Not a test: the table of the guide.
#[test]
#[ignore = "takes minutes"]
fn root_compare() {
    let exe = Script::emulator("video-compare");
    for row in compare(Duration::from_secs(60), &exe.path()).unwrap() {
        let outcome = row.outcome.unwrap();
        let ms = |share| outcome.quantile(share).unwrap().as_millis_f64();
        println!(
            "{:<9} {:<14} {:>6} {:>6} {:>6.1} % {:>8.2} {:>8.0} {:>8.0} {:>8.0}",
            row.discipline,
            row.server.name(),
            outcome.sent,
            outcome.skipped(),
            outcome.late_share().unwrap() * 100.0,
            outcome.bits_per_second().unwrap() / 1e6,
            ms(0.5),
            ms(0.95),
            ms(0.99)
        );
    }
}
