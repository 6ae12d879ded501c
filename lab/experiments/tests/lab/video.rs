//! A video with deadlines over a bottleneck.

use std::{thread, time::Duration};

use dwell_experiments::socket::video::{Options, Outcome, Queue, Server, run};
use dwell_testbed::Nanos;

use crate::support::{programs, skipped};

/// What became of the frames at 10 Mbit/s and round trips of 50 ms, behind a queue of 400 ms.
fn film(server: Server) -> Outcome {
    let time = Duration::from_secs(12);
    let outcome = run(&Options::behind(Queue::Fifo, server, time, &programs()));
    let outcome = outcome.unwrap();
    eprintln!(
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
    let (naive, informed) = thread::scope(|scope| {
        let naive = scope.spawn(|| film(Server::Naive));
        let informed = film(Server::Informed);
        (naive.join().unwrap(), informed)
    });
    for outcome in [&naive, &informed] {
        assert_eq!(outcome.captured, 360);
        assert_eq!(outcome.delays.len() as u64, outcome.sent, "all arrive");
        assert!(outcome.quantile(0.0).unwrap() > Nanos::from_millis(25));
    }
    assert!(naive.late_share().unwrap() > 0.5);
    assert!(informed.in_time_share().unwrap() > 2.0 * naive.in_time_share().unwrap());
}
