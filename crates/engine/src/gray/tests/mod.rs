//! Fleets in which nothing differs, and in which one subject does.

mod fleet;

use super::*;
use crate::histogram::Histogram;

use fleet::{APPLICATION, Fleet, LOSS, NOISE, Noise, QUEUEING, SECOND_NS, time};

/// Enough intervals for a past.
const LEARNED: u64 = 400;

/// Without what varies by chance.
const CALM: Noise =
    Noise { likeness: 0.0, spread: 0.02, wild: 0, bursts: 0, apart: 0.0, day: 0.0, rack: 0.0, bytes: 0.0, restarts: 0 };

fn begun(events: &[Event]) -> usize {
    events.iter().filter(|event| event.end.is_none()).count()
}

#[test]
fn a_fleet_in_which_nobody_differs_raises_no_more_alarms_than_its_budget() {
    // A budget of many per week, so that there are some in a few hours if there are too many.
    const HOURS: f64 = 1.0;
    const EXPECTED: f64 = 5.0;
    let budget = EXPECTED * 7.0 * 24.0 / HOURS;
    for (seed, noise) in [
        (1, NOISE),
        (2, Noise { likeness: 0.0, spread: 0.4, ..NOISE }),
        (3, Noise { likeness: 0.7, spread: 0.3, wild: 20, bursts: 100, ..NOISE }),
    ] {
        let mut fleet = Fleet::new(seed, noise, budget).with_hosts(60).with_paths(20, 2).with_services(10);
        fleet.run(100);
        let alarms = begun(&fleet.run((HOURS * 360.0) as u64));
        eprintln!("{noise:?}: {alarms} alarms, at most {EXPECTED} expected");
        assert!(alarms as f64 <= EXPECTED + 3.0 * EXPECTED.sqrt(), "{noise:?}: {alarms}");
    }
}

/// Fleets as they may be: the second of few bytes and much noise, the third with long queues that last.
const HONEST: [Noise; 3] = [
    Noise { rack: 0.1, bytes: 1_000.0, restarts: 2, ..NOISE },
    Noise { rack: 0.1, bytes: 200.0, restarts: 2, likeness: 0.2, spread: 0.4, ..NOISE },
    Noise { rack: 0.15, bytes: 1_000.0, restarts: 7, likeness: 0.8, spread: 0.3, bursts: 50, ..NOISE },
];

/// Where each interval resembles the one before, and racks are slower for minutes at a time, few values are certain of nothing.
#[test]
fn a_fleet_with_long_queues_and_varying_racks_raises_no_alarm_in_an_hour() {
    let mut fleet = Fleet::new(14, HONEST[2], 1.0).with_hosts(60).with_paths(60, 2);
    fleet.run(100);
    assert_eq!(begun(&fleet.run(360)), 0);
}

#[test]
fn a_host_that_starts_anew_may_be_slow_for_some_minutes() {
    let mut fleet = Fleet::new(15, CALM, 1.0).with_hosts(8);
    fleet.run(LEARNED);
    fleet.start(2, 36, 5.0);
    assert_eq!(fleet.run(100), []);
}

/// One in which racks have little in common.
const QUIET: [Noise; 1] = [Noise { rack: 0.03, bytes: 3_000.0, restarts: 2, apart: 0.1, ..NOISE }];

/// Simulates a week of 1,000 hosts: `cargo test --release -p dwell-engine -- --ignored week --nocapture`.
fn a_week_has_at_most_one_false_alarm(seed: u64, noise: Noise) {
    let mut fleet = Fleet::new(seed, noise, 1.0).with_hosts(1_000).with_paths(1_000, 2).with_services(50);
    let mut alarms = 0;
    for day in 1..=7 {
        let events = fleet.run(24 * 360);
        events.iter().for_each(|event| eprintln!("{event:?}"));
        alarms += begun(&events);
        eprintln!("{noise:?}: {alarms} false alarms in {day} days, of {} figures", fleet.judge.series);
    }
    assert!(alarms <= 1, "{noise:?}: {alarms}");
}

#[test]
#[ignore = "takes minutes"]
fn a_week_of_a_thousand_hosts_has_at_most_one_false_alarm() {
    a_week_has_at_most_one_false_alarm(11, HONEST[0]);
}

#[test]
#[ignore = "takes minutes"]
fn a_week_of_few_bytes_and_much_noise_has_at_most_one_false_alarm() {
    a_week_has_at_most_one_false_alarm(12, HONEST[1]);
}

#[test]
#[ignore = "takes minutes"]
fn a_week_of_long_queues_has_at_most_one_false_alarm() {
    a_week_has_at_most_one_false_alarm(13, HONEST[2]);
}

/// Runs until something begins.
fn first(fleet: &mut Fleet, change: impl Fn(Subject, Measure, f64) -> f64) -> Option<Event> {
    fleet.run(LEARNED);
    (0..60).find_map(|_| fleet.step(&change).into_iter().find(|event| event.end.is_none()))
}

#[test]
fn who_becomes_slow_or_loses_is_named_within_minutes() {
    who_is_named(Noise { apart: 0.1, ..NOISE });
}

/// Among four, nobody else would have enough peers.
#[test]
fn who_differs_in_one_figure_is_a_peer_in_the_others() {
    let mut fleet = Fleet::new(22, CALM, 1.0).with_hosts(4);
    fleet.run(LEARNED);
    let slow = |subject: Subject, measure: Measure, ns: f64| match (subject, measure.component) {
        (Subject::Host(3), Component::Time(APPLICATION)) => ns * 5.0,
        _ => ns,
    };
    let both = |subject: Subject, measure: Measure, ns: f64| match (subject, measure.component) {
        (Subject::Host(2), Component::Time(QUEUEING)) => ns * 5.0,
        _ => slow(subject, measure, ns),
    };
    let [begin] = (0..60).flat_map(|_| fleet.step(slow)).collect::<Vec<_>>()[..] else {
        panic!("it does not begin once")
    };
    assert_eq!((begin.finding.subject, begin.end), (Subject::Host(3), None));
    let [other] = (0..60).flat_map(|_| fleet.step(both)).collect::<Vec<_>>()[..] else { panic!("the other does not") };
    assert_eq!((other.finding.subject, other.end, other.finding.peers), (Subject::Host(2), None, 3));
}

/// Prints after how many intervals 20 hosts of 1,000 are named of which all figures grow, or all paths lose more:
/// `cargo test --release -p dwell-engine -- --ignored named_how --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn who_becomes_slow_is_named_how_soon() {
    const HOUR: usize = 360;
    let of_time =
        |factor: f64| move |measure: Measure, value: f64| if measure == LOSS { value } else { value * factor };
    let of_loss = |share: f64| move |measure: Measure, value: f64| if measure == LOSS { value + share } else { value };
    type Twist = Box<dyn Fn(Measure, f64) -> f64>;
    let cases: [(&str, Twist); 6] = [
        ("20 % slower", Box::new(of_time(1.2))),
        ("twice as slow", Box::new(of_time(2.0))),
        ("three times as slow", Box::new(of_time(3.0))),
        ("five times as slow", Box::new(of_time(5.0))),
        ("1 % is lost", Box::new(of_loss(10e3))),
        ("3 % are lost", Box::new(of_loss(30e3))),
    ];
    for (noise, (what, change)) in
        QUIET.iter().chain(&HONEST).flat_map(|noise| cases.iter().map(move |case| (noise, case)))
    {
        let mut fleet = Fleet::new(40, *noise, 1.0).with_hosts(1_000).with_paths(1_000, 2).with_services(50);
        fleet.run(LEARNED);
        let slow = |subject: Subject| subject.hosts().into_iter().flatten().find(|host| host % 50 == 10);
        let mut first: BTreeMap<u32, usize> = BTreeMap::new();
        for interval in 1..=HOUR {
            let twist = |subject, measure, value| if slow(subject).is_some() { change(measure, value) } else { value };
            let begun = fleet.step(twist).into_iter().filter(|event| event.end.is_none());
            for host in begun.filter_map(|event| slow(event.finding.subject)) {
                first.entry(host).or_insert(interval);
            }
        }
        let mut soon: Vec<usize> = first.into_values().collect();
        soon.sort_unstable();
        eprintln!("{noise:?}: {what}: {} of 20, after {soon:?}", soon.len());
    }
}

fn who_is_named(noise: Noise) {
    let path = Subject::Path { tx_host: 3, rx_host: 5 };
    let of = |subject: Subject, measure: Measure, change: fn(f64) -> f64| {
        move |other: Subject, by: Measure, value: f64| match (other, by) == (subject, measure) {
            true => change(value),
            false => value,
        }
    };
    let network = time(PathSegment::Network, Figure::Median);
    let end_to_end = time(PathSegment::EndToEnd, Figure::Median);
    let host = Subject::Host(7);
    let (queueing, application) = (time(QUEUEING, Figure::Median), time(APPLICATION, Figure::P99));
    type Twist = fn(f64) -> f64;
    let cases: [(Subject, Measure, Twist); 5] = [
        (host, queueing, |ns| ns * 2.0 + 100e3),
        (host, application, |ns| ns * 2.0),
        (path, network, |ns| ns + 20e6),
        (path, LOSS, |share| share + 30e3),
        (Subject::Service(2), end_to_end, |ns| ns * 2.0),
    ];
    for (subject, measure, change) in cases {
        let mut fleet = Fleet::new(20, noise, 1.0).with_hosts(50).with_paths(20, 4).with_services(8);
        let begun = first(&mut fleet, of(subject, measure, change));
        let Some(Event { finding, .. }) = begun else { panic!("{subject:?} by {measure:?}") };
        assert_eq!((finding.subject, finding.measure), (subject, measure));
        assert!(finding.value > finding.expected && finding.per_week <= 1.0 && finding.peers >= 7, "{finding:?}");
    }
}

/// Bytes of one host of four wait for 50 ms and not for less than a microsecond, when its past is short.
#[test]
fn an_abrupt_change_of_one_host_of_four_is_named_as_soon_as_most_recent_intervals_show_it() {
    let mut fleet = Fleet::new(21, CALM, 1.0).with_hosts(4);
    let soon = |_, measure: Measure, ns: f64| if measure.component == Component::Time(QUEUEING) { 600.0 } else { ns };
    (0..75).for_each(|_| assert_eq!(fleet.step(soon), []));
    let late = |subject, measure: Measure, ns: f64| match (subject, measure.component) {
        // As what it would be varies.
        (Subject::Host(2), Component::Time(QUEUEING)) => 50e6 * ns / 200e3,
        _ => soon(subject, measure, ns),
    };
    let begun = (1..=60).find_map(|interval| Some((interval, *fleet.step(late).first()?)));
    let Some((interval, Event { finding, end: None, .. })) = begun else { panic!("it does not begin: {begun:?}") };
    assert_eq!((finding.subject, finding.measure.component), (Subject::Host(2), Component::Time(QUEUEING)));
    assert!(interval < 25, "after {interval} intervals");
}

#[test]
fn what_happens_to_all_is_nobodys_and_one_to_whom_it_happens_twice_is_named() {
    let mut fleet = Fleet::new(30, NOISE, 1.0).with_hosts(30);
    fleet.run(LEARNED);
    let all = (0..200).flat_map(|_| fleet.step(|_, _, ns| ns * 3.0)).collect::<Vec<_>>();
    assert_eq!(all, []);
    let twice = |subject, _, ns: f64| if subject == Subject::Host(4) { ns * 9.0 } else { ns * 3.0 };
    let events: Vec<_> = (0..60).flat_map(|_| fleet.step(twice)).collect();
    let [event] = events[..] else { panic!("{events:?}") };
    assert_eq!((event.finding.subject, event.end), (Subject::Host(4), None));
    let Finding { value, past, expected, .. } = event.finding;
    assert!(past < expected && expected * 2 < value, "{event:?}");
}

/// Most paths lose less than is told apart, and show nothing of what happens to all.
#[test]
fn what_happens_to_all_paths_that_lose_is_nobodys_however_many_lose_next_to_nothing() {
    let mut fleet = Fleet::new(34, CALM, 1.0);
    let path = |number| Subject::Path { tx_host: number, rx_host: number + 100 };
    (0..40).for_each(|number| fleet.add(path(number), LOSS, if number < 10 { 6_000.0 } else { 100.0 }));
    fleet.run(LEARNED);
    let all = (0..200).flat_map(|_| fleet.step(|_, _, share| share * 4.0)).collect::<Vec<_>>();
    assert_eq!(all, []);
    for (number, share) in [(4, 150_000.0), (30, 50_000.0)] {
        let worse = |subject, _, before: f64| if subject == path(number) { share } else { before * 4.0 };
        let events: Vec<_> = (0..60).flat_map(|_| fleet.step(worse)).collect();
        let [event] = events[..] else { panic!("{events:?}") };
        assert_eq!((event.finding.subject, event.end), (path(number), None));
        let well = (0..60).flat_map(|_| fleet.step(|_, _, share| share * 4.0)).collect::<Vec<_>>();
        assert_eq!(well.iter().map(|event| event.end).collect::<Vec<_>>(), [Some(End::Recovered)]);
    }
}

/// All others become faster: who stays as it was does not become slow.
#[test]
fn who_does_not_become_faster_with_the_others_does_not_differ() {
    let mut fleet = Fleet::new(31, CALM, 1.0).with_hosts(10);
    fleet.run(LEARNED);
    let faster = |subject, _, ns: f64| if subject == Subject::Host(4) { ns } else { ns / 3.0 };
    let events: Vec<_> = (0..100).flat_map(|_| fleet.step(faster)).collect();
    assert_eq!(events, []);
}

#[test]
fn a_change_that_is_sure_and_small_is_none() {
    for (segment, factor, plus, begins) in [
        (APPLICATION, 1.3, 0.0, false),
        (APPLICATION, 1.8, 0.0, true),
        // Twice as long, by less than matters.
        (QUEUEING, 0.1, 30e3, false),
        (QUEUEING, 0.1, 500e3, true),
    ] {
        let mut fleet = Fleet::new(32, CALM, 1.0).with_hosts(8);
        let usual = |subject, measure: Measure, ns: f64| match (subject, measure.component) {
            (Subject::Host(2), Component::Time(of)) if of == segment && segment == QUEUEING => ns * factor,
            _ => ns,
        };
        (0..LEARNED).for_each(|_| assert_eq!(fleet.step(usual), []));
        let changed = |subject, measure: Measure, ns: f64| match (subject, measure.component) {
            (Subject::Host(2), Component::Time(of)) if of == segment => ns * factor + plus,
            _ => ns,
        };
        let events: Vec<_> = (0..60).flat_map(|_| fleet.step(changed)).collect();
        assert_eq!(begun(&events), usize::from(begins), "{segment:?} {factor} {plus}: {events:?}");
    }
}

#[test]
fn a_gray_failure_ends_once_when_little_is_left_of_it_and_may_begin_again() {
    let mut fleet = Fleet::new(33, CALM, 1.0).with_hosts(8);
    let slow = |factor: f64| move |subject, _, ns: f64| if subject == Subject::Host(2) { ns * factor } else { ns };
    fleet.run(LEARNED);
    let events = |fleet: &mut Fleet, intervals: u32, factor: f64| -> Vec<Event> {
        (0..intervals).flat_map(|_| fleet.step(slow(factor))).collect()
    };
    let [begin] = events(&mut fleet, 100, 3.0)[..] else { panic!("it does not begin once") };
    assert_eq!((begin.finding.subject, begin.end), (Subject::Host(2), None));
    // Less than what begins one, and more than what ends it.
    assert_eq!(events(&mut fleet, 100, 1.4), []);
    assert_eq!(fleet.judge.open().count(), 1);
    let [end] = events(&mut fleet, 30, 1.0)[..] else { panic!("it does not end once") };
    assert_eq!((end.finding.subject, end.end, end.since_ns), (Subject::Host(2), Some(End::Recovered), begin.since_ns));
    assert!(end.finding.value < end.finding.expected * 5 / 4, "{end:?}");
    // Its time is not in the past that is compared with.
    events(&mut fleet, 100, 1.0);
    let [again] = events(&mut fleet, 30, 2.0)[..] else { panic!("it does not begin again") };
    assert_eq!(again.end, None);
    assert!(again.finding.value > again.finding.past * 3 / 2, "{again:?}");
    assert_eq!(fleet.judge.stop().len(), 1);
    assert_eq!(fleet.judge.open().count(), 0);
}

#[test]
fn what_lasts_for_a_day_is_usual_then_and_what_vanishes_is_gone() {
    let mut judge = Judge::new(Config { interval_ns: 600 * SECOND_NS, budget: 1.0 });
    let measure = time(APPLICATION, Figure::Median);
    let mut interval = 0;
    let mut run = |judge: &mut Judge, intervals: u64, slow: &[u32]| -> Vec<Event> {
        let mut step = || {
            interval += 1;
            // By some millionths, so that no value is as the one before.
            let ns = |host: u32| 1_000_000 + interval * 7_919 % 2_011 * 10 + u64::from(host);
            let figures = (0..6).map(|host| {
                let factor = if slow.contains(&host) { 3 } else { 1 };
                (Subject::Host(host), measure, ns(host) * factor)
            });
            let figures: Vec<_> =
                figures.filter(|(subject, ..)| *subject != Subject::Host(5) || slow.contains(&5)).collect();
            judge.interval(interval * 600 * SECOND_NS, figures)
        };
        (0..intervals).flat_map(|_| step()).collect()
    };
    run(&mut judge, 100, &[]);
    let events = run(&mut judge, 250, &[1]);
    let ends: Vec<_> = events.iter().map(|event| event.end).collect();
    assert_eq!(ends, [None, Some(End::Usual)]);
    let lasted = events[1].since_ns;
    assert_eq!(events[0].since_ns, lasted);
    // As it is usual.
    assert_eq!(run(&mut judge, 100, &[1]), []);
    let [begin] = run(&mut judge, 60, &[1, 3])[..] else { panic!("it does not begin") };
    assert_eq!(begin.finding.subject, Subject::Host(3));
    // What begins ends too, though its host is forgotten.
    let [end] = judge.forget_host(3)[..] else { panic!("it does not end") };
    assert_eq!((end.finding, end.since_ns, end.end), (begin.finding, begin.since_ns, Some(End::Gone)));
    assert_eq!((judge.open().count(), judge.series), (0, 4));
}

#[test]
fn a_subject_of_which_nothing_is_known_any_more_has_no_gray_failure() {
    let mut fleet = Fleet::new(34, CALM, 1.0).with_hosts(8);
    fleet.run(LEARNED);
    let slow = |subject, _, ns: f64| if subject == Subject::Host(2) { ns * 3.0 } else { ns };
    (0..30).for_each(|_| drop(fleet.step(slow)));
    assert_eq!(fleet.judge.open().count(), 1);
    let ends: Vec<_> = (0..60).flat_map(|_| fleet.judge.interval(0, [])).map(|event| event.end).collect();
    assert_eq!(ends, [Some(End::Gone)]);
}

#[test]
fn who_has_too_few_peers_is_not_judged() {
    for (hosts, begins) in [(3, 0), (4, 1)] {
        let mut fleet = Fleet::new(35, CALM, 1.0).with_hosts(hosts);
        fleet.run(LEARNED);
        let slow = |subject, _, ns: f64| if subject == Subject::Host(2) { ns * 5.0 } else { ns };
        let events: Vec<_> = (0..60).flat_map(|_| fleet.step(slow)).collect();
        assert_eq!(begun(&events), begins, "{hosts} hosts: {events:?}");
    }
}

#[test]
fn paths_that_differ_are_one_host_if_most_of_its_paths_do() {
    let is_of = |subject: Subject, host: u32| subject.hosts().contains(&Some(host));
    let mut fleet = Fleet::new(36, Noise { apart: 0.1, ..NOISE }, 1.0).with_paths(8, 3);
    fleet.run(LEARNED);
    let slow = |subject, measure: Measure, value: f64| match measure.component {
        Component::Time(_) if is_of(subject, 6) => value + 20e6,
        _ => value,
    };
    let events: Vec<_> = (0..60).flat_map(|_| fleet.step(slow)).collect();
    let [event] = events[..] else { panic!("{events:?}") };
    assert_eq!((event.finding.subject, event.finding.paths.map(|[_, all]| all)), (Subject::Host(6), Some(6)));
    let end: Vec<_> = fleet.run(60).iter().map(|event| (event.finding.subject, event.end)).collect();
    assert_eq!(end, [(Subject::Host(6), Some(End::Recovered))]);
}

#[test]
fn a_host_that_differs_and_then_by_its_paths_too_has_one_gray_failure() {
    let mut fleet = Fleet::new(37, CALM, 1.0).with_hosts(8).with_paths(8, 3);
    fleet.run(LEARNED);
    let is_own =
        |subject, measure: Measure| subject == Subject::Host(6) && measure.component == Component::Time(APPLICATION);
    let own = |subject, measure, value: f64| if is_own(subject, measure) { value * 3.0 } else { value };
    let [begin] = (0..60).flat_map(|_| fleet.step(own)).collect::<Vec<_>>()[..] else { panic!("it does not begin") };
    assert_eq!((begin.finding.subject, begin.end), (Subject::Host(6), None));
    let both = |subject: Subject, measure: Measure, value: f64| match measure.component {
        Component::Time(PathSegment::Network) if subject.hosts().contains(&Some(6)) => value + 20e6,
        _ => own(subject, measure, value),
    };
    assert_eq!((0..60).flat_map(|_| fleet.step(both)).collect::<Vec<_>>(), []);
    assert_eq!(fleet.judge.open().count(), 1);
    let ends: Vec<_> = fleet.run(60).iter().map(|event| (event.finding.subject, event.since_ns, event.end)).collect();
    assert_eq!(ends, [(Subject::Host(6), begin.since_ns, Some(End::Recovered))]);
}

#[test]
fn figures_beyond_what_is_kept_are_left_out_and_counted() {
    let mut judge = Judge::new(Config { interval_ns: SECOND_NS, budget: 1.0 });
    let measure = time(PathSegment::EndToEnd, Figure::Median);
    let services = (0..MOST_OF_SERVICES as u16 + 5).map(|port| (Subject::Service(port), measure, 1));
    judge.interval(1, services);
    assert_eq!((judge.omitted(), judge.series), (5, MOST_OF_SERVICES));
    // One host cannot take the room of the paths of others.
    let measure = time(PathSegment::Network, Figure::Median);
    let paths = |tx_host, count: u32| {
        (0..count).map(move |rx_host| (Subject::Path { tx_host, rx_host: 10 + rx_host }, measure, 1))
    };
    judge.interval(2, paths(1, 40_000));
    let before = judge.omitted();
    assert!(before > 5, "{before}");
    judge.interval(3, paths(2, 50));
    assert_eq!(judge.omitted(), before);
    // What has no value any more makes room.
    let ends = (4..5 + series::SLOTS as u64).flat_map(|end_ns| judge.interval(end_ns, []));
    assert_eq!((ends.count(), judge.series, judge.of_services), (0, 0, 0));
}

#[test]
fn figures_come_from_the_histograms_of_an_interval() {
    let of = |count: u64, ns: u64| {
        let mut histogram = Histogram::default();
        histogram.record_many(ns, count);
        histogram
    };
    let mut gathered = Gathered::default();
    gathered.times(Subject::Host(1), QUEUEING, &of(150, 1_000));
    gathered.times(Subject::Host(1), QUEUEING, &of(50, 64_000));
    gathered.times(Subject::Host(2), QUEUEING, &of(9, 1_000));
    gathered.times(Subject::Host(3), QUEUEING, &Histogram::default());
    let path = |count| {
        let mut path = crate::layers::join::Path::default();
        path.segments.iter_mut().for_each(|segment| *segment = of(count, 5_000));
        path
    };
    gathered.path(1, 2, false, &path(190));
    gathered.path(1, 2, true, &path(10));
    gathered.path(2, 1, false, &path(20));
    assert_eq!(gathered.len(), 4);
    let near = |value: u64| (value + 250) / 500 * 500;
    let figures: Vec<_> = gathered.finish().into_iter().map(|(who, what, value)| (who, what, near(value))).collect();
    let (there, back) = (Subject::Path { tx_host: 1, rx_host: 2 }, Subject::Path { tx_host: 2, rx_host: 1 });
    assert_eq!(
        figures,
        [
            (Subject::Host(1), time(QUEUEING, Figure::Median), 1_000),
            (Subject::Host(1), time(QUEUEING, Figure::P99), 64_000),
            (there, time(PathSegment::Network, Figure::Median), 5_000),
            (back, time(PathSegment::Network, Figure::Median), 5_000),
            (there, LOSS, 50_000),
        ]
    );
}
