//! Clients and servers without a balancer.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use dwell_testbed::harness::skipped;

use super::*;
use crate::lb::{
    client::{ClientPlan, run_client},
    scenario::{Scenario, Slowdown, Work},
    server::{Server, ServerPlan},
};

fn star() -> Option<Star> {
    if skipped() {
        return None;
    }
    let star = Star::start().unwrap();
    star.without_balancer().unwrap();
    Some(star)
}

fn client(rate: f64, start: Instant) -> ClientPlan {
    ClientPlan {
        to: Star::vip(),
        rate,
        requests: 4,
        think: None,
        has_own_files: false,
        start,
        time: Duration::from_secs(2),
        seed: 1,
        number: 0,
    }
}

fn server(slowdown: Slowdown, start: Instant) -> ServerPlan {
    ServerPlan {
        scenario: Scenario::Tail,
        number: 0,
        work: Work::Fixed(Duration::from_millis(10)),
        slowdown,
        seed: 1,
        start: Arc::new(OnceLock::from(start)),
        processor: None,
    }
}

#[test]
fn root_one_worker_makes_requests_wait_for_each_other() {
    let Some(star) = star() else { return };
    let start = Instant::now() + Duration::from_millis(300);
    let running = Server::start(&star.servers[0], server(Slowdown::default(), start));
    // 20 connections of 4 requests of 10 ms per second: 80 % of capacity
    let result = star.clients[0].enter(|| run_client(client(20.0, start))).unwrap().unwrap();
    assert_eq!(result.broken.len(), 0);
    assert_eq!(result.answers.len() as u64, 4 * result.connections);
    let served = running.stop().unwrap();
    assert_eq!(served.answered, result.answers.len() as u64);
    assert_eq!(served.late.len(), result.answers.len());
    let least = result.answers.iter().map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(10), "{least:?}");
    // a second worker would let no request wait a whole service
    let waited = |latency: &Duration| *latency >= Duration::from_millis(20);
    assert!(result.answers.iter().any(|(_, latency)| waited(latency)));
}

#[test]
fn root_a_server_is_slow_from_its_time_on() {
    let Some(star) = star() else { return };
    let start = Instant::now() + Duration::from_millis(300);
    let half = Duration::from_secs(1);
    let slowdown = Slowdown(vec![(half, Some(4.0))]);
    let running = Server::start(&star.servers[0], server(slowdown, start));
    let result = star.clients[1].enter(|| run_client(client(2.0, start))).unwrap().unwrap();
    drop(running);
    let later = result.answers.iter().filter(|(at, _)| *at > half);
    let least = later.map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(40), "{least:?}");
    let earlier = result.answers.iter().filter(|(at, _)| *at < half);
    let least = earlier.map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(10), "{least:?}");
}

#[test]
fn root_connections_of_a_killed_server_break_and_are_counted() {
    let Some(star) = star() else { return };
    let start = Instant::now() + Duration::from_millis(300);
    let slowdown = Slowdown(vec![(Duration::from_millis(800), None), (Duration::from_millis(1400), Some(1.0))]);
    let running = Server::start(&star.servers[0], server(slowdown, start));
    let result = star.clients[0].enter(|| run_client(client(20.0, start))).unwrap().unwrap();
    drop(running);
    let ms = |ms| Duration::from_millis(ms);
    assert!(!result.broken.is_empty());
    assert!(result.broken.iter().all(|at| (ms(500)..ms(1600)).contains(at)));
    assert!(result.answers.iter().any(|(at, _)| *at > ms(1600)));
    assert!(!result.answers.iter().any(|(at, _)| (ms(950)..ms(1350)).contains(at)));
}
