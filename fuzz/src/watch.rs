//! Invariants of the RTT tracker that hold for any packet.

use std::collections::BTreeSet;

use dwell_engine::{
    filter::Filter,
    measure::{CloseReason, Event, FlowChange, Method},
    observe::{Observation, knows_link},
    rtt::{Config, Counter, Counters, RateLimit, Tracker},
};

use crate::bytes::Bytes;

/// The counters of packets that belong to no flow.
pub const SKIPS: [Counter; 10] = [
    Counter::NotIp,
    Counter::OtherProtocol,
    Counter::Truncated,
    Counter::Malformed,
    Counter::Fragment,
    Counter::TooDeep,
    Counter::Filtered,
    Counter::UnknownLink,
    Counter::Untracked,
    Counter::Contended,
];

/// Reads a configuration from three bytes, with a small table so that flows are evicted.
pub fn config(choices: &mut Bytes<'_>) -> Config {
    let [table, options, methods] = choices.array();
    let methods: Vec<_> = Method::ALL.into_iter().filter(|method| methods >> *method as u8 & 1 == 0).collect();
    Config {
        methods,
        tcp_auto: table >> 7 != 0,
        ignore_tunnels: false,
        max_flows: 4 + u32::from(table & 15),
        idle_timeout_ns: [30_000_000_000, 1_000_000_000, 50_000_000, 0][usize::from(table >> 4 & 3)],
        spin_floor_ns: [50_000, 0][usize::from(table >> 6 & 1)],
        include_handshake: options & 1 != 0,
        stamp_acks: options & 2 != 0,
        flow_events: options & 4 != 0,
        rate_limit: match options >> 3 & 3 {
            0 => RateLimit::Interval(0),
            1 => RateLimit::Interval(1_000_000),
            2 => RateLimit::RoundTrips(2.0, 0),
            _ => RateLimit::RoundTrips(0.5, 1_000_000),
        },
        filter: match options >> 5 & 3 {
            0 | 1 => Filter::default(),
            2 => Filter::parse(&["10.0.0.0/8"]).expect("a rule"),
            _ => Filter::parse(&["!fd00::/16"]).expect("a rule"),
        },
        seed: u64::from(options >> 7),
    }
}

/// A tracker whose events and counters are checked after each packet.
pub struct Watch {
    tracker: Tracker,
    config: Config,
    reached: BTreeSet<Method>,
}

/// The effect of a packet.
pub struct Observed {
    /// The events that it caused, in order.
    pub events: Vec<Event>,
    /// The counter of the reason why it belongs to no flow.
    pub skipped: Option<Counter>,
}

impl Watch {
    /// Creates a tracker with an empty table.
    pub fn new(config: Config) -> Watch {
        Watch { tracker: Tracker::new(&config), config, reached: BTreeSet::new() }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Observes a packet.
    pub fn observe(&mut self, packet: &Observation<'_>) -> Observed {
        let before = self.tracker.counters();
        let mut events = Vec::new();
        self.tracker.observe(packet, |event| events.push(event));
        let grown = Growth(before, self.tracker.counters());

        assert_eq!(grown.of(Counter::Packets), 1, "each packet is counted once");
        assert_eq!(grown.of(Counter::Bytes), u64::from(packet.wire_len));
        let skips: Vec<_> = SKIPS.into_iter().filter(|skip| grown.of(*skip) > 0).collect();
        let total: u64 = skips.iter().map(|skip| grown.of(*skip)).sum();
        assert!(total <= 1, "one packet was skipped for {skips:?}");
        let skipped = skips.first().copied();
        assert_eq!(skipped == Some(Counter::UnknownLink), !knows_link(packet.link));

        let samples = events.iter().filter(|event| matches!(event, Event::Sample(_))).count() as u64;
        assert_eq!(grown.of(Counter::Samples), samples);
        assert!(samples <= 2, "a packet completes at most one round trip and one spin loop");
        assert!(grown.of(Counter::FlowsOpened) <= 1);
        assert!(grown.of(Counter::Stamps) <= 2);
        if skipped.is_some() {
            assert!(events.is_empty(), "{skipped:?} caused {events:?}");
            assert_eq!(grown.of(Counter::FlowsOpened), 0);
        }
        for never in [Counter::EventsLost, Counter::Contended, Counter::AggregateOther] {
            assert_eq!(grown.of(never), 0, "{never:?} in a replay");
        }
        for event in &events {
            self.check(event, packet.time_ns);
        }
        Observed { events, skipped }
    }

    /// Closes idle flows.
    pub fn sweep(&mut self, time_ns: u64) -> Vec<Event> {
        let mut events = Vec::new();
        self.tracker.sweep(time_ns, |event| events.push(event));
        self.check_closed(&events, CloseReason::Idle, time_ns);
        events
    }

    /// Closes all flows.
    pub fn finish(&mut self, time_ns: u64) -> Vec<Event> {
        let mut events = Vec::new();
        self.tracker.finish(time_ns, |event| events.push(event));
        self.check_closed(&events, CloseReason::End, time_ns);
        self.tracker.finish(time_ns, |event| panic!("{event:?} after the end"));
        events
    }

    /// Returns the methods that gave samples so far.
    pub fn reached(&self) -> BTreeSet<Method> {
        self.reached.clone()
    }

    fn check_closed(&self, events: &[Event], reason: CloseReason, time_ns: u64) {
        for event in events {
            match event {
                Event::Flow(flow) if flow.change == FlowChange::Close(reason) => {
                    assert_eq!(flow.time_ns, time_ns);
                }
                event => panic!("{event:?} of a sweep"),
            }
        }
        assert!(events.is_empty() || self.config.flow_events);
    }

    fn check(&mut self, event: &Event, time_ns: u64) {
        match event {
            Event::Sample(sample) => {
                assert_eq!(sample.time_ns, time_ns);
                assert!(self.config.methods.contains(&sample.method), "{sample:?} was not configured");
                assert!(sample.min_rtt_ns <= sample.rtt_ns, "{sample:?}");
                assert!(
                    !sample.handshake || sample.method == Method::QuicHandshake || self.config.include_handshake,
                    "{sample:?}: handshakes were not configured"
                );
                self.reached.insert(sample.method);
            }
            Event::Flow(flow) => {
                assert!(self.config.flow_events, "{flow:?} was not configured");
                assert_eq!(flow.time_ns, time_ns);
            }
        }
    }
}

struct Growth(Counters, Counters);

impl Growth {
    fn of(&self, counter: Counter) -> u64 {
        self.1.get(counter).checked_sub(self.0.get(counter)).expect("counters only grow")
    }
}
