//! `dwell agent`, killed at any moment while it measures real traffic.

use std::{thread, time::Duration};

use nix::sys::signal::Signal;
use rusqlite::Connection;

use crate::{
    fleet::{Chat, ended, pair, patiently},
    stack::SERVER,
    support::skipped,
};

/// What moments are drawn from.
const SEED: u64 = 7;
const KILLS: i64 = 12;
/// Intervals of one run follow each other, but for the conversion of their times.
const APART_NS: i64 = 20_000_000;

#[test]
fn root_an_agent_that_is_killed_at_random_moments_under_load_doubles_nothing_and_rows_say_what_is_lost() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-kills");
    let collector = office.collect(&pair.left, &[]);
    let more = ["--interval", "100ms"];
    let mut a = office.agent(&pair.left, "a", &more);
    office.waits_for_agents(1);
    let mut chat = Chat::open(&pair.left, &pair.right, SERVER);
    let (mut said, mut drawn) = (0, SEED);
    let mut talk = |parts: u64| {
        for _ in 0..parts {
            chat.say(5);
            said += 5 * 10;
            thread::sleep(Duration::from_millis(7));
        }
    };
    for _ in 0..KILLS {
        // Knuth's generator: its upper bits are good enough.
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        talk(20 + (drawn >> 33) % 60);
        a.signal(Signal::SIGKILL);
        a.end();
        a = office.agent(&pair.left, "a", &more);
    }
    talk(30);
    let killed = || office.number("SELECT count(*) FROM lost WHERE why = 'killed'");
    patiently("each end is noted", || killed() == Some(KILLS));
    ended(a, 0);
    ended(collector, 0);
    assert_eq!(office.number("SELECT count(*) FROM lost"), Some(KILLS));
    let doubled = "SELECT count(*) FROM (SELECT 1 FROM interval
        GROUP BY time_ns, host_id, ifnull(flow_id, 0), segment, direction, retransmitted HAVING count(*) > 1)";
    assert_eq!(office.number(doubled), Some(0));
    let told = "SELECT sum(count) FROM intervals WHERE src IS NULL AND segment = 'total' AND direction = 'tx'";
    let told = office.number(told).unwrap();
    assert!((1..=said).contains(&told), "{told} of {said}");
    // Where nothing was measured, a row says so.
    let store = Connection::open(office.path("store")).unwrap();
    let spans = |sql: &str| -> Vec<(i64, i64)> {
        let mut spans = store.prepare(sql).unwrap();
        let spans = spans.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        spans.map(Result::unwrap).collect()
    };
    let measured = spans(
        "SELECT time_ns - interval_ns, time_ns FROM intervals
            WHERE src IS NULL AND segment = 'total' AND direction = 'tx' AND retransmitted = 0 ORDER BY time_ns",
    );
    let lost = spans("SELECT from_ns, to_ns FROM lost");
    assert!(measured.len() > 12 * 3, "{}", measured.len());
    for (before, after) in measured.iter().zip(&measured[1..]) {
        let (from_ns, to_ns) = (before.1, after.0);
        let is_told = lost.iter().any(|(lost_from_ns, lost_to_ns)| *lost_from_ns <= to_ns && from_ns <= *lost_to_ns);
        assert!(to_ns - from_ns < APART_NS || is_told, "nothing from {from_ns} to {to_ns}, and lost is {lost:?}");
    }
}
