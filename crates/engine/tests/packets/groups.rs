//! Samples that are gathered in groups, as the kernel gathers them.

use dwell_engine::{
    measure::{Endpoint, Sample},
    rtt::{Aggregate, Counter, Counters, Groups, Prefixes},
};

use crate::wire::{client, run, server, small};

#[test]
fn samples_without_a_group_of_their_own_are_counted() {
    let run = run(
        &small(),
        [
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            server(30.0).data(1, 50).ack(150).ts(9, 5),
            client(40.0).ack(51).ts(6, 9),
        ],
    );
    assert_eq!(run.samples.len(), 2);
    for (max_groups, other) in [(1, 2), (2, 1), (3, 0)] {
        let mut groups = Groups::new(Aggregate { prefix4: 32, prefix6: 128, max_groups, ..Aggregate::default() });
        for sample in &run.samples {
            groups.add(sample);
        }
        assert_eq!(groups.count(run.counters).get(Counter::AggregateOther), other, "{max_groups} groups");
        groups.take(0);
        assert_eq!(groups.count(run.counters).get(Counter::AggregateOther), other, "after the interval");
    }
}

/// A sample of this round trip to an address, at a time in milliseconds.
fn sample_to(address: &str, at_ms: u64, rtt_ns: u64) -> Sample {
    let run = run(&small(), [client(10.0).data(100, 50).ack(1).ts(5, 1), server(30.0).ack(150).ts(9, 5)]);
    let dst = Endpoint { address: address.parse().unwrap(), port: 80 };
    Sample { dst, time_ns: at_ms * 1_000_000, rtt_ns, ..run.samples[0] }
}

const LIST: &str = "
# customers
10.0.0.0/8       all of ten
10.1.0.0/16      customer A   # with a comment
10.1.2.3         one host
2001:db8::/32    six
2001:db8:1::/48
::ffff:198.51.100.0/120 mapped
::/0             any of IPv6
";

#[test]
fn the_longest_listed_prefix_counts_and_others_have_a_fixed_length() {
    let prefixes = Prefixes::parse(LIST).unwrap();
    let aggregate = Aggregate { prefixes: prefixes.clone(), ..Aggregate::default() };
    for (address, prefix, name) in [
        ("10.9.9.9", "10.0.0.0/8", Some("all of ten")),
        ("10.1.9.9", "10.1.0.0/16", Some("customer A")),
        ("10.1.2.3", "10.1.2.3/32", Some("one host")),
        ("192.0.2.77", "192.0.2.0/24", None),
        ("2001:db8:9::1", "2001:db8::/32", Some("six")),
        ("2001:db8:1:2::1", "2001:db8:1::/48", Some("2001:db8:1::/48")),
        ("2001:db9::1", "::/0", Some("any of IPv6")),
        ("198.51.100.9", "198.51.100.0/24", Some("mapped")),
    ] {
        let found = aggregate.prefix(address.parse().unwrap());
        assert_eq!((found.to_string().as_str(), prefixes.name(&found)), (prefix, name), "{address}");
    }
}

#[test]
fn a_list_with_a_fault_names_its_line() {
    for (list, line, what) in [
        ("10.0.0.0/8 a\n10.0.0.0/33 b", 2, "'10.0.0.0/33' is not an IP address or network"),
        ("nonsense", 1, "'nonsense' is not"),
        ("10.0.0.0/8 a\n\n10.3.0.0/8 b", 3, "10.0.0.0/8 is listed twice"),
        ("10.0.0.0/8 a\n::ffff:10.0.0.0/104 b", 2, "10.0.0.0/8 is listed twice"),
        ("10.0.0.0/8 a\u{1b}[2J", 1, "control character"),
    ] {
        let error = Prefixes::parse(list).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn a_group_without_samples_makes_room_for_another() {
    let aggregate = Aggregate { max_groups: 3, idle_ns: 60_000_000_000, ..Aggregate::default() };
    let mut groups = Groups::new(aggregate);
    let keys = |groups: &mut Groups, now_ms: u64| -> Vec<String> {
        let taken = groups.take(now_ms * 1_000_000);
        taken.iter().map(|group| group.key.map_or("other".into(), |key| key.prefix.to_string())).collect()
    };
    groups.add(&sample_to("10.0.0.1", 1_000, 5));
    groups.add(&sample_to("10.0.1.1", 2_000, 5));
    groups.add(&sample_to("10.0.2.1", 3_000, 5));
    assert_eq!(keys(&mut groups, 10_000), ["10.0.0.0/24", "10.0.1.0/24", "other"]);
    groups.add(&sample_to("10.0.1.1", 50_000, 5));
    assert_eq!(keys(&mut groups, 61_500), ["10.0.1.0/24"]);
    groups.add(&sample_to("10.0.2.1", 62_000, 5));
    assert_eq!(keys(&mut groups, 70_000), ["10.0.2.0/24"]);
    let counters = groups.count(Counters::sum([]));
    assert_eq!((counters.get(Counter::GroupsFreed), counters.get(Counter::AggregateOther)), (1, 1));
}
