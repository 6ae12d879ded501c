//! Clients, servers and wires, without a balancer.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use dwell_testbed::harness::skipped;

use super::*;
use crate::lb::{
    client::{ClientPlan, run_client},
    scenario::{Speed, Work},
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

fn client(rate: f64, begin: Instant) -> ClientPlan {
    ClientPlan {
        to: Star::vip(),
        rate,
        requests: 4,
        think: None,
        has_own_files: false,
        begin,
        time: Duration::from_secs(2),
        seed: 1,
        number: 0,
    }
}

fn server(times: Speed, begin: Instant) -> ServerPlan {
    ServerPlan {
        work: Work::Fixed(Duration::from_millis(10)),
        speed: times,
        seed: 1,
        begin: Arc::new(OnceLock::from(begin)),
    }
}

#[test]
fn root_one_worker_makes_requests_wait_for_each_other() {
    let Some(star) = star() else { return };
    let begin = Instant::now() + Duration::from_millis(300);
    let running = Server::start(&star.servers[0], 0, server(Speed::default(), begin));
    // 20 connections of 4 requests of 10 ms a second: 80 % of what it can do
    let seen = star.clients[0].enter(|| run_client(client(20.0, begin))).unwrap().unwrap();
    assert_eq!(seen.broken.len(), 0);
    assert_eq!(seen.answers.len() as u64, 4 * seen.connections);
    let served = running.stop().unwrap();
    assert_eq!(served.answered, seen.answers.len() as u64);
    assert_eq!(served.late.len(), seen.answers.len());
    let least = seen.answers.iter().map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(10), "{least:?}");
    // a second worker would let no request wait a whole service
    let waited = |latency: &Duration| *latency >= Duration::from_millis(20);
    assert!(seen.answers.iter().any(|(_, latency)| waited(latency)));
}

#[test]
fn root_a_server_is_slow_when_it_is_to_be() {
    let Some(star) = star() else { return };
    let begin = Instant::now() + Duration::from_millis(300);
    let half = Duration::from_secs(1);
    let speed = Speed(vec![(half, Some(4.0))]);
    let running = Server::start(&star.servers[0], 0, server(speed, begin));
    let seen = star.clients[1].enter(|| run_client(client(2.0, begin))).unwrap().unwrap();
    drop(running);
    let later = seen.answers.iter().filter(|(at, _)| *at > half);
    let least = later.map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(40), "{least:?}");
    let earlier = seen.answers.iter().filter(|(at, _)| *at < half);
    let least = earlier.map(|(_, latency)| *latency).min();
    assert!(least.unwrap() >= Duration::from_millis(10), "{least:?}");
}

#[test]
fn root_connections_of_a_killed_server_break_and_are_told() {
    let Some(star) = star() else { return };
    let begin = Instant::now() + Duration::from_millis(300);
    let speed = Speed(vec![(Duration::from_millis(800), None), (Duration::from_millis(1400), Some(1.0))]);
    let running = Server::start(&star.servers[0], 0, server(speed, begin));
    let seen = star.clients[0].enter(|| run_client(client(20.0, begin))).unwrap().unwrap();
    drop(running);
    let ms = |ms| Duration::from_millis(ms);
    assert!(!seen.broken.is_empty());
    assert!(seen.broken.iter().all(|at| (ms(500)..ms(1600)).contains(at)));
    assert!(seen.answers.iter().any(|(at, _)| *at > ms(1600)));
    assert!(!seen.answers.iter().any(|(at, _)| (ms(950)..ms(1350)).contains(at)));
}
