//! `dwell agent` and `dwell collect`, killed at any moment while they measure real traffic.

use std::{thread, time::Duration};

use nix::sys::signal::Signal;
use rusqlite::Connection;

use crate::{
    fleet::{Chat, ended, pair, patiently},
    stack::{SERVER, link_ids},
    support::{run, skipped},
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

#[test]
fn root_a_collector_that_is_killed_loses_nothing_and_doubles_nothing() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-kill");
    let mut collector = office.collect(&pair.left, &[]);
    let a = office.agent(&pair.left, "a", &["--interval", "200ms"]);
    let b = office.agent(&pair.right, "b", &["--interval", "200ms"]);
    office.waits_for_agents(2);
    let mut chat = Chat::open(&pair.left, &pair.right, SERVER);
    let mut messages = 0;
    for _ in 0..3 {
        for _ in 0..20 {
            chat.say(5);
            messages += 5;
            thread::sleep(Duration::from_millis(50));
        }
        let before = office.matched();
        patiently("an interval is told", || office.matched() > before);
        // Some bytes are written, some are only pending, and some are on the way.
        chat.say(20);
        messages += 20;
        collector.signal(Signal::SIGKILL);
        collector.end();
        chat.say(20);
        messages += 20;
        collector = office.collect(&pair.left, &[]);
    }
    let a = a.interrupt();
    let b = b.interrupt();
    assert_eq!((a.status, b.status), (Some(0), Some(0)), "{a}{b}");
    ended(collector, 0);
    let told = |host: &str, direction: &str| {
        let sql = format!(
            "SELECT sum(count) FROM intervals WHERE host = '{host}' AND src IS NULL
                AND segment = 'total' AND direction = '{direction}'"
        );
        office.number(&sql).unwrap()
    };
    let bytes = messages * 10;
    let all = (bytes * 98 / 100)..=bytes;
    let counts = (told("a", "tx"), told("b", "rx"), office.matched());
    eprintln!("of {bytes} bytes: sent, read, matched {counts:?}");
    assert!(all.contains(&counts.0) && all.contains(&counts.1), "{counts:?} of {bytes}");
    assert!(((bytes * 96 / 100)..=bytes).contains(&counts.2), "{counts:?} of {bytes}");
    let gaps = "SELECT sum(value) FROM counter WHERE name = 'batches_dropped'";
    assert_eq!(office.number(gaps), Some(0));
}

/// What an agent measured and had not sent when it was killed is sent by the next one, once.
#[test]
fn root_an_agent_that_is_killed_loses_only_what_it_had_not_written_down() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-agent-kill");
    let collector = office.collect(&pair.left, &[]);
    let more = ["--interval", "200ms"];
    let mut a = office.agent(&pair.left, "a", &more);
    office.waits_for_agents(1);
    ended(collector, 0);
    let mut chat = Chat::open(&pair.left, &pair.right, SERVER);
    let rounds = 3;
    for _ in 0..rounds {
        chat.say(20);
        // It has written them down: no collector is there.
        thread::sleep(Duration::from_millis(1_500));
        a.signal(Signal::SIGKILL);
        a.end();
        a = office.agent(&pair.left, "a", &more);
    }
    let collector = office.collect(&pair.left, &[]);
    let bytes = rounds * 20 * 10;
    let told = "SELECT sum(count) FROM intervals WHERE host = 'a' AND src IS NULL AND segment = 'total'
        AND direction = 'tx'";
    patiently("all is stored", || office.number(told) >= Some(bytes * 98 / 100));
    patiently("all runs are stored", || office.number("SELECT count(*) FROM run") == Some(4));
    let a = ended(a, 0);
    assert!(a.stderr.contains("sends what an earlier agent left"), "{a}");
    ended(collector, 0);
    assert!(office.number(told) <= Some(bytes), "nothing is doubled");
    let lost = |why: &str| office.number(&format!("SELECT count(*) FROM lost WHERE why = '{why}'"));
    assert_eq!((lost("killed"), lost("gap"), office.number("SELECT count(*) FROM lost")), (Some(3), Some(0), Some(3)));
    let left = office.number("SELECT count(*) FROM lost WHERE to_batch IS NULL AND from_ns <= to_ns");
    assert_eq!(left, Some(3), "which batches is not known, but when");
    // Of an idle host there are intervals too.
    let idle = "SELECT count(DISTINCT time_ns) FROM intervals WHERE src IS NULL AND segment = 'total' AND count = 0";
    assert!(office.number(idle) > Some(5), "{:?}", office.number(idle));
}

#[test]
fn root_of_an_agent_that_is_killed_nothing_stays_attached() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-end");
    // No collector is needed to measure.
    let agent = office.agent(&pair.left, "a", &[]);
    let ids = link_ids(agent.id());
    assert!(ids.len() >= 10, "{ids:?}");
    agent.signal(Signal::SIGKILL);
    agent.end();
    patiently("nothing is attached", || {
        ids.iter().all(|id| {
            let mut show = pair.left.command("bpftool");
            let shown = run(show.args(["link", "show", "id", id]), b"");
            shown.status != Some(0)
        })
    });
}
