//! Balancers that agree through a store in memory.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dwell_engine::steer::Measured;

use super::{
    exchange::Shareable,
    fake::Fake,
    member::{Identity, MOST_MEMBERS, Member, News},
    quic::{QuicReport, ServerReport},
    report::{BackendReport, Report, View, VipReport},
    set::{FORMAT, VipWeights, WeightSet},
    store::StoreError,
};
use crate::config::MOST_BACKENDS;

const PREFIX: &str = "/dwell/lb/";
const STEP: Duration = Duration::from_millis(200);
/// The Unix time of the tests, in milliseconds.
const UNIX_MS: u64 = 1_700_000_000_000;

/// A balancer, its connection to the store, and its time.
struct One {
    member: Member<Fake>,
    store: Fake,
    now: Instant,
    last: News,
}

impl One {
    fn new(store: &Fake, name: &str, instance: u64) -> One {
        let store = store.connect();
        let silence = Duration::from_secs(6);
        let identity = Identity { prefix: PREFIX.into(), name: name.into(), instance, silence };
        let now = Instant::now();
        One { member: Member::new(store.connect_same(), identity, now), store, now, last: News::default() }
    }

    /// Polls, some time later.
    fn poll(&mut self) -> &News {
        self.now += STEP;
        self.last = self.member.poll(self.now, UNIX_MS);
        &self.last
    }

    fn report(&mut self) {
        let report = Report { format: FORMAT, ..Report::default() };
        self.member.report(&report, self.now);
    }

    fn propose(&mut self, digest: &str) {
        let weights = VipWeights { digest: digest.into(), ..VipWeights::default() };
        self.member.propose(BTreeMap::from([("web".to_owned(), weights)]));
    }

    fn leads(&self) -> bool {
        self.last.situation.leads
    }
}

fn number_and_digest(set: &Option<WeightSet>) -> Option<(u64, &str)> {
    set.as_ref().map(|set| (set.number, set.vips["web"].digest.as_str()))
}

/// Two balancers of which the first leads.
fn two(store: &Fake) -> [One; 2] {
    let mut both = [One::new(store, "a", 1), One::new(store, "b", 2)];
    for _ in 0..4 {
        for one in &mut both {
            one.poll();
        }
    }
    assert!(both[0].leads() && !both[1].leads());
    for one in &both {
        assert_eq!(one.last.situation.members, ["a", "b"]);
        assert_eq!(one.last.situation.leader.as_deref(), Some("a"));
    }
    both
}

#[test]
fn the_first_seed_is_that_of_all() {
    let store = Fake::default();
    assert_eq!(One::new(&store, "a", 1).member.begin(7).map(|begun| begun.0), Ok(7));
    assert_eq!(One::new(&store, "b", 2).member.begin(8).map(|begun| begun.0), Ok(7));
    store.put("/dwell/lb/seed", b"seven");
    let refused = One::new(&store, "c", 3).member.begin(9).expect_err("it is not a number");
    assert_eq!(refused, StoreError::Refused("the store's key /dwell/lb/seed is not a number".into()));
}

#[test]
fn a_set_reaches_all_with_the_same_time_and_a_late_one_takes_it_at_once() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    a.propose("one");
    assert_eq!(number_and_digest(&a.poll().set), Some((1, "one")));
    assert_eq!(number_and_digest(&b.poll().set), Some((1, "one")));
    assert_eq!(a.last.set, b.last.set);
    assert_eq!(b.last.set.as_ref().map(|set| set.from_ms), Some(UNIX_MS + 500));
    assert_eq!(b.poll().set, None, "it is not new any more");
    // Whoever does not lead writes nothing.
    b.propose("two");
    assert_eq!((b.poll().set.clone(), a.poll().set.clone()), (None, None));
    let (_, sets) = One::new(&store, "c", 3).member.begin(1).expect("the store answers");
    assert_eq!(number_and_digest(&sets.first().cloned()), Some((1, "one")));
}

/// Who has such servers reads what all know of them, and who has none does not.
#[test]
fn what_is_known_of_quic_servers_reaches_all_that_have_some_and_ends_with_its_balancer() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    let mut c = One::new(&store, "c", 3);
    let report = |load| {
        let servers = BTreeMap::from([([10, 0, 0, 1].into(), ServerReport { load, heavy: Vec::new() })]);
        QuicReport { format: FORMAT, vips: BTreeMap::from([("web".to_owned(), servers)]) }
    };
    let known = |one: &One| {
        let of = one.last.quic.iter().flatten();
        of.map(|(name, report)| (name.clone(), report.vips["web"].values().map(|server| server.load).sum()))
            .collect::<Vec<(String, u64)>>()
    };
    a.member.report_quic(&report(7));
    b.member.report_quic(&report(8));
    a.poll();
    for one in [&mut b, &mut a, &mut c] {
        one.poll();
    }
    assert_eq!((known(&b), known(&a)), (vec![("a".into(), 7)], vec![("b".into(), 8)]));
    assert_eq!(c.last.quic, None);
    assert_eq!(a.poll().quic, None, "nothing is new");
    b.member.report_quic(&report(9));
    b.poll();
    a.poll();
    assert_eq!(known(&a), [("b".into(), 9)]);
    store.put("/dwell/lb/quic/b", b"no report");
    let refused = a.last.situation.refused;
    assert_eq!(a.poll().situation.refused, refused + 1);
    assert_eq!((a.last.quic.is_some(), known(&a)), (true, Vec::new()));
    b.member.report_quic(&report(10));
    b.poll();
    a.poll();
    assert_eq!(known(&a), [("b".into(), 10)]);
    // The same once more is not written, and of a balancer whose QUIC servers are gone nothing is left.
    b.member.report_quic(&report(10));
    b.poll();
    assert_eq!(a.poll().quic, None);
    b.member.report_quic(&QuicReport { format: FORMAT, vips: BTreeMap::new() });
    b.poll();
    a.poll();
    let all = a.last.quic.as_ref().expect("it is new");
    assert!(all["b"].vips.is_empty());
    b.member.leave();
    a.poll();
    assert_eq!((a.last.quic.is_some(), known(&a)), (true, Vec::new()));
}

#[test]
fn only_the_last_sets_are_kept() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    let mut propose = |numbers: std::ops::RangeInclusive<u64>, digest: &dyn Fn(u64) -> String| {
        for number in numbers {
            a.propose(&digest(number));
            assert_eq!(a.poll().set.as_ref().map(|set| set.number), Some(number));
        }
        store.keys().into_iter().filter(|key| key.contains("/sets/")).count()
    };
    assert_eq!(propose(1..=640, &|number| number.to_string()), 600);
    assert_eq!(number_and_digest(&b.poll().set), Some((640, "640")), "the newest of those that were missed");
    let skipped: Vec<u64> = b.last.skipped.iter().map(|set| set.number).collect();
    assert_eq!(skipped, [639, 638, 637]);
    // Large ones are fewer.
    assert_eq!(propose(641..=642, &|_| "x".repeat(100_000)), 83);
    assert_eq!(propose(643..=644, &|_| "x".repeat(1_000_000)), 16);
}

#[test]
fn another_leads_when_the_lease_of_the_leader_ends_and_the_deposed_one_writes_nothing() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    a.propose("one");
    a.poll();
    // The leader is cut off, and its lease ends.
    a.store.set_away(true);
    a.propose("of a, too late");
    a.poll();
    store.expire(store.lease_of("/dwell/lb/leader"));
    b.poll();
    assert!(b.leads(), "{:?}", b.last);
    assert_eq!(b.last.situation.members, ["b"]);
    b.propose("two");
    assert_eq!(number_and_digest(&b.poll().set), Some((2, "two")));
    a.store.set_away(false);
    for _ in 0..4 {
        a.poll();
    }
    assert!(!a.leads());
    assert_eq!(a.last.situation.members, ["a", "b"], "it is back as one of them");
    b.poll();
    assert_eq!(b.last.set, None, "nothing of it was written");
    let (_, sets) = One::new(&store, "c", 3).member.begin(1).expect("the store answers");
    let numbers: Vec<u64> = sets.iter().map(|set| set.number).collect();
    assert_eq!((numbers, number_and_digest(&sets.first().cloned())), (vec![2, 1], Some((2, "two"))));
}

#[test]
fn a_deposed_leader_that_does_not_know_it_is_refused_by_the_store() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    store.expire(store.lease_of("/dwell/lb/leader"));
    b.poll();
    assert!(b.leads() && a.leads(), "both believe it");
    a.propose("of a");
    a.poll();
    assert!(!a.leads());
    b.propose("of b");
    assert_eq!(number_and_digest(&b.poll().set), Some((1, "of b")));
}

#[test]
fn a_store_that_is_away_for_a_moment_is_no_news_and_for_longer_it_is_told() {
    let store = Fake::default();
    let [mut a, _b] = two(&store);
    a.propose("one");
    a.poll();
    a.store.set_away(true);
    for _ in 0..5 {
        assert_eq!(a.poll().situation.problem, None);
        assert!(a.leads());
    }
    a.poll();
    assert_eq!(a.last.situation.problem.as_deref(), Some("no route"));
    assert!(!a.leads(), "it cannot know");
    assert_eq!((&a.last.situation.leader, a.last.situation.members.len()), (&None, 0));
    a.store.set_away(false);
    a.poll();
    assert_eq!(a.last.situation.problem, None);
    assert!(a.leads(), "its lease has not ended");
    assert_eq!(a.last.set, None, "the last set is known");
}

#[test]
fn reports_reach_the_leader_and_end_with_their_balancer() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    b.report();
    b.poll();
    let names = |news: &News| news.reports.as_ref().map(|reports| reports.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(a.poll()), Some(vec!["b".to_owned()]));
    assert_eq!(names(a.poll()), None, "it is not new any more");
    b.report();
    b.poll();
    assert_eq!(names(a.poll()), None, "it says the same");
    b.member.report(&Report { format: FORMAT, is_held: true, ..Report::default() }, b.now);
    b.poll();
    assert_eq!(names(b.poll()), None, "it does not lead");
    assert_eq!(names(a.poll()), Some(vec!["b".to_owned()]));
    b.member.leave();
    assert_eq!(names(a.poll()), Some(vec![]));
    assert_eq!(a.last.situation.members, ["a"]);
}

#[test]
fn a_new_leader_reads_all_reports() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    let mut c = One::new(&store, "c", 3);
    for _ in 0..3 {
        c.poll();
    }
    c.report();
    c.poll();
    a.member.leave();
    b.poll();
    assert!(b.leads());
    let reports = b.poll().reports.as_ref().expect("one is new to it");
    assert_eq!(reports.keys().collect::<Vec<_>>(), ["c"]);
}

#[test]
fn a_control_loop_that_stands_still_loses_its_lease() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    let lease = store.lease_of("/dwell/lb/leader");
    let before = store.kept();
    a.now += Duration::from_secs(2);
    a.poll();
    assert_eq!(store.kept(), before + 1);
    a.now += Duration::from_secs(7);
    let kept = a.poll().situation.clone();
    assert!(kept.leads);
    assert_eq!(store.kept(), before + 1);
    store.expire(lease);
    a.poll();
    assert!(!a.leads());
    assert_eq!(a.last.situation.members, ["b"], "it does not come back by itself");
    b.poll();
    assert!(b.leads());
    a.report();
    a.poll();
    a.poll();
    assert_eq!(a.last.situation.members, ["a", "b"]);
}

#[test]
fn a_store_that_begins_anew_is_followed() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    for digest in ["one", "two", "three"] {
        a.propose(digest);
        a.poll();
    }
    assert_eq!(number_and_digest(&b.poll().set), Some((3, "three")));
    store.wipe();
    for _ in 0..4 {
        a.poll();
        b.poll();
    }
    assert!(a.leads());
    assert_eq!(b.last.situation.members, ["a", "b"]);
    a.propose("four");
    assert_eq!(number_and_digest(&a.poll().set), Some((1, "four")));
    assert_eq!(number_and_digest(&b.poll().set), Some((1, "four")));
}

#[test]
fn a_name_that_another_process_has_is_told_and_free_again_when_that_has_gone() {
    let store = Fake::default();
    let [mut a, _b] = two(&store);
    let mut twin = One::new(&store, "a", 9);
    for _ in 0..3 {
        twin.poll();
    }
    assert!(twin.last.situation.is_name_taken && !twin.leads());
    assert!(!a.poll().situation.is_name_taken && a.leads());
    a.member.leave();
    for _ in 0..3 {
        twin.poll();
    }
    assert!(!twin.last.situation.is_name_taken);
    assert!(twin.last.situation.members.contains(&"a".to_owned()));
}

#[test]
fn what_strangers_put_there_is_counted_and_changes_nothing() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    a.propose("one");
    a.poll();
    b.poll();
    for key in ["sets/x", "sets/00000000000000000003", "seen/b", "members/ü", "members/"] {
        store.put(&format!("{PREFIX}{key}"), b"garbage");
    }
    let news = b.poll();
    assert_eq!((news.set.as_ref(), news.situation.refused), (None, 4));
    // Those below members/ are seen again and again; the leader reads the report too.
    assert_eq!(a.poll().situation.refused, 5);
    a.propose("two");
    assert_eq!(number_and_digest(&a.poll().set), Some((4, "two")), "past the number that is taken");
    assert_eq!(number_and_digest(&b.poll().set), Some((4, "two")));
    let before = b.last.situation.refused;
    for at in 0..100 {
        store.put(&format!("{PREFIX}members/m{at}"), b"1");
    }
    let news = b.poll();
    assert!(news.situation.members.len() <= MOST_MEMBERS && news.situation.refused > before, "{news:?}");
    store.put(&format!("{PREFIX}sets/{:020}", u64::MAX), b"garbage");
    a.poll();
    a.propose("three");
    assert_eq!(a.poll().set, None, "there is no next number");
}

#[test]
fn keys_of_strangers_hide_no_set_from_whoever_begins() {
    let store = Fake::default();
    let [mut a, _b] = two(&store);
    for at in 0..8 {
        store.put(&format!("{PREFIX}sets/x{at}"), b"garbage");
    }
    a.propose("one");
    a.poll();
    let (_, sets) = One::new(&store, "c", 3).member.begin(1).expect("the store answers");
    assert_eq!(number_and_digest(&sets.first().cloned()), Some((1, "one")));
}

#[test]
fn a_report_of_as_many_backends_as_there_may_be_is_stored_at_worst_without_histograms() {
    let measured = Measured {
        connections: 123_456,
        samples: 1_234_567,
        intervals: 30,
        weight: 12_345_678.125,
        weighted_ns: 1.0e20 / 3.0,
        squares: [1.0e22 / 3.0, 1.0e32 / 3.0, 1.0e42 / 3.0],
        histogram: (0..100).map(|part| (300 + part, 1.0e3 / 3.0)).collect(),
    };
    let backend = BackendReport {
        view: View { is_up: Some(false), is_unreachable: true, is_draining: true },
        requests: 123_456_789,
        active: 1_234_567,
        measured: Some(measured),
    };
    let address = |at: usize| std::net::Ipv6Addr::from(0x2001_0db8_1111_2222_3333_4444_5555_0000 + at as u128).into();
    let vip = VipReport {
        digest: "0123456789abcdef".into(),
        of: (0..MOST_BACKENDS).map(|at| (address(at), backend.clone())).collect(),
    };
    let report = Report { format: FORMAT, vips: BTreeMap::from([("web".into(), vip)]), ..Report::default() };
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    b.member.report(&report, b.now);
    assert_eq!(b.poll().situation.refused, 0);
    let of = &a.poll().reports.as_ref().expect("it is new")["b"].vips["web"].of;
    assert_eq!(of.len(), MOST_BACKENDS);
    assert!(of.values().all(|of| of.measured.as_ref().is_some_and(|measured| measured.connections == 123_456)));
}

#[test]
fn values_with_more_backends_than_there_may_be_are_refused() {
    let of = |count: usize| (0..count).map(|at| (std::net::Ipv4Addr::from(at as u32).into(), Default::default()));
    for (count, is_one) in [(MOST_BACKENDS, true), (MOST_BACKENDS + 1, false)] {
        let vips = BTreeMap::from([("web".to_owned(), VipWeights { of: of(count).collect(), ..Default::default() })]);
        let set = WeightSet { format: FORMAT, vips, ..WeightSet::default() };
        let bytes = serde_json::to_vec(&set).expect("it can be written");
        assert_eq!(WeightSet::parse(&bytes).is_some(), is_one);
        let of = |count: usize| (0..count).map(|at| (std::net::Ipv4Addr::from(at as u32).into(), Default::default()));
        let vips = BTreeMap::from([("web".to_owned(), VipReport { of: of(count).collect(), ..Default::default() })]);
        let report = Report { format: FORMAT, vips, ..Report::default() };
        assert_eq!(Report::parse(&report.to_bytes()).is_some(), is_one);
        let vips = (0..count).map(|at| (at.to_string(), VipReport::default())).collect();
        let report = Report { format: FORMAT, vips, ..Report::default() };
        assert_eq!(Report::parse(&report.to_bytes()).is_some(), is_one);
    }
}
