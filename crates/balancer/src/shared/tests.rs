//! Balancers that agree through a store in memory.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    fake::Fake,
    member::{Identity, MOST_MEMBERS, Member, News},
    report::Report,
    set::{FORMAT, VipWeights, WeightSet},
    store::StoreError,
};

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
    let (_, set) = One::new(&store, "c", 3).member.begin(1).expect("the store answers");
    assert_eq!(number_and_digest(&set), Some((1, "one")));
}

#[test]
fn only_the_last_sets_are_kept() {
    let store = Fake::default();
    let [mut a, mut b] = two(&store);
    for number in 1..=40u64 {
        a.propose(&number.to_string());
        assert_eq!(a.poll().set.as_ref().map(|set| set.number), Some(number));
    }
    let sets = store.keys().into_iter().filter(|key| key.contains("/sets/")).count();
    assert_eq!(sets, 16);
    assert_eq!(number_and_digest(&b.poll().set), Some((40, "40")), "the newest of those that were missed");
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
    let (_, newest) = One::new(&store, "c", 3).member.begin(1).expect("the store answers");
    assert_eq!(number_and_digest(&newest), Some((2, "two")));
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
