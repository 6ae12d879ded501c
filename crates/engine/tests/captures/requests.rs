//! icmp and dns, compared with tshark: every request has its answer.

use dwell_engine::measure::Method;

use crate::support::{Stats, capture};

#[test]
fn a04_each_echo_of_both_families_is_tsharks() {
    let Some(a04) = capture("A04") else { return };
    let samples = a04.samples(&[Method::Icmp, Method::Icmpv6]);
    let theirs = Stats::from_json(&a04.reference["ref"]["tshark"]["icmp_resptime_ms"]);
    assert_eq!(theirs.n, 792);
    Stats::of(&samples).assert_is(theirs, "all echoes");
    for method in [Method::Icmp, Method::Icmpv6] {
        let of_it = samples.iter().filter(|sample| sample.method == method);
        assert_eq!(of_it.count(), 396, "{method}");
    }
    let mut answering: Vec<_> = samples.iter().map(|sample| sample.dst).collect();
    answering.sort();
    for one in answering.chunks(99) {
        assert!(one.iter().all(|end| *end == one[0]), "99 of each of 8");
    }
}

#[test]
fn dns_answers_are_tsharks() {
    for (id, answers) in [("A05", 92), ("A03", 14)] {
        let Some(capture) = capture(id) else { return };
        let samples = capture.samples(&[Method::Dns]);
        let theirs = Stats::from_json(&capture.reference["ref"]["tshark"]["dns_time_ms"]);
        assert_eq!(theirs.n, answers);
        Stats::of(&samples).assert_is(theirs, id);
    }
}
