//! Samples that are gathered in groups, as the kernel gathers them.

use dwell_engine::rtt::{Aggregate, Counter, Groups};

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
        let mut groups = Groups::new(Aggregate { prefix4: 32, prefix6: 128, max_groups });
        for sample in &run.samples {
            groups.add(sample);
        }
        assert_eq!(groups.count(run.counters).get(Counter::AggregateOther), other, "{max_groups} groups");
        groups.take();
        assert_eq!(groups.count(run.counters).get(Counter::AggregateOther), other, "after the interval");
    }
}
