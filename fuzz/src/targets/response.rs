//! Arbitrary packets at the tracker of `dwell response`.

use std::{collections::BTreeSet, io::Cursor};

use dwell_capture::Reader;
use dwell_engine::{
    measure::Method,
    observe::Observation,
    response::{Answers, Config, Epsilon, Estimator, Key, Record, Rto, Tracker, Watch, estimate},
    rtt::Counter,
};
use dwell_records::{Format, Jsonl, Response, Source, Text};

use super::scene::Stage;
use crate::{bytes::Bytes, frame, watch::SKIPS};

/// A tracker that checks each of its records.
struct CheckedTracker {
    tracker: Tracker,
    watch: Watch,
    /// Number of packets in all records.
    recorded_packets: u64,
    out: Vec<u8>,
}

/// Reads a configuration from three bytes: estimator and key, table, epoch and other parameters.
fn watch(choices: &mut Bytes<'_>) -> Watch {
    let [kind, table, knobs] = choices.array();
    Watch {
        config: Config {
            estimator: [Estimator::Auto, Estimator::Pirate, Estimator::Gap(300_000), Estimator::SynAck]
                [usize::from(kind & 3)],
            epoch_ns: [1_000_000_000, 10_000_000, 60_000_000_000, 100_000_000][usize::from(knobs & 3)],
            phase_ns: u64::from(knobs >> 2 & 3) * 123_456_789,
            modes: 1 + (knobs >> 4) % 10,
            epsilon: match kind >> 6 {
                0 => Epsilon::Relative(0.5),
                1 => Epsilon::Absolute(100_000),
                2 => Epsilon::Relative(0.0),
                _ => Epsilon::Absolute(0),
            },
            floor: [0.05, 0.0][usize::from(table >> 7)],
            rto: [Rto::Auto, Rto::From(30_000_000)][usize::from(table >> 6 & 1)],
            coalesce_acks: table >> 5 & 1 == 0,
            mark_small: table >> 4 & 1 == 0,
            ..Config::default()
        },
        key: Key::ALL[usize::from(kind >> 2) % Key::ALL.len()],
        max_flows: 4 + u32::from(table & 15),
        ..Watch::default()
    }
}

impl CheckedTracker {
    fn new(choices: &mut Bytes<'_>) -> CheckedTracker {
        let watch = watch(choices);
        CheckedTracker { tracker: Tracker::new(&watch), watch, recorded_packets: 0, out: Vec::new() }
    }

    fn observe(&mut self, packet: &Observation<'_>) {
        let mut records = Vec::new();
        self.tracker.sweep(packet.time_ns, |record| records.push(record));
        self.tracker.observe(packet, |record| records.push(record));
        records.iter().for_each(|record| self.check(record));
    }

    /// Closes all flows, and checks that each packet was either skipped, or is in a record, or in an epoch that shows nothing.
    fn finish(mut self, last_ns: u64) -> BTreeSet<Method> {
        let mut records = Vec::new();
        self.tracker.finish(last_ns, |record| records.push(record));
        records.iter().for_each(|record| self.check(record));
        let counters = self.tracker.counters();
        let unused = SKIPS.iter().chain(&[Counter::Server, Counter::Stray, Counter::Unreported]);
        let skipped: u64 = unused.map(|counter| counters.get(*counter)).sum();
        assert_eq!(self.recorded_packets + skipped, counters.get(Counter::Packets));
        assert_eq!(counters.get(Counter::EventsLost), 0);
        BTreeSet::new()
    }

    fn check(&mut self, record: &Record) {
        let (epoch, config) = (&record.epoch, &self.watch.config);
        self.recorded_packets += u64::from(epoch.packets);
        assert!(epoch.packets > 0, "{record:?}");
        assert!(epoch.requests <= epoch.packets, "{record:?}");
        assert_eq!(epoch.epoch_ns, config.epoch_ns);
        // Epochs wrap around at both ends of the range of time.
        if epoch.start_ns < 1 << 63 {
            let aligned = epoch.start_ns + config.phase_ns;
            assert_eq!(aligned % config.epoch_ns, 0, "{record:?}");
        }
        if self.watch.key != Key::Auto {
            assert_eq!(record.key, self.watch.key);
        }
        self.check_modes(record);
        self.check_estimate(record);
    }

    fn check_modes(&self, record: &Record) {
        let epoch = &record.epoch;
        let modes = &epoch.mode[..usize::from(epoch.modes)];
        assert!(epoch.modes <= self.watch.config.modes);
        assert!(modes.is_sorted_by(|a, b| a.max_ns < b.min_ns), "{record:?}");
        for mode in modes {
            assert!(mode.count > 0 && mode.min_ns <= mode.max_ns, "{record:?}");
            let mean_ns = mode.sum_ns / u64::from(mode.count);
            assert!((mode.min_ns..=mode.max_ns).contains(&mean_ns), "{record:?}");
        }
        if !modes.is_empty() {
            let gaps: u32 = modes.iter().map(|mode| mode.count).sum();
            assert_eq!(gaps, epoch.gaps);
            assert!(epoch.gaps + epoch.discarded + epoch.idle <= epoch.requests);
        }
    }

    fn check_estimate(&mut self, record: &Record) {
        let result = estimate(&self.watch.config, &record.epoch);
        assert!((0.0..=1.0).contains(&result.confidence), "{result:?}");
        if result.is_valid() {
            assert!(result.batches > 0, "{result:?} of {record:?}");
        }
        let percentiles = Answers::of(&record.epoch, &result).map(|answers| {
            let counted: u64 = answers.buckets().map(|bucket| bucket.count).sum();
            assert_eq!(counted, result.batches, "{record:?}");
            [0.5, 0.9, 0.95, 0.99].map(|q| answers.quantile(q))
        });
        let response = Response {
            record,
            percentiles,
            response_ns: result.response_ns,
            ibg_ns: result.ibg_ns,
            batches: result.batches,
            method: Some(result.method.name()),
            truth: Some(result.truth.name()),
            confidence: result.confidence,
            reason: result.reason.map(|reason| reason.name()),
            show_modes: true,
        };
        let source = Source::default();
        let formats: [Box<dyn Format>; 2] = [Box::<Text>::default(), Box::<Jsonl>::default()];
        for mut format in formats {
            self.out.clear();
            format.write(&dwell_records::Record::Response(&response), &source, &mut self.out);
            assert!(self.out.ends_with(b"\n"), "whole lines only");
            std::str::from_utf8(&self.out).expect("text");
        }
    }
}

/// Reads records of seven bytes, for requests and ACKs of a few flows: sender, time step, transport, sequence number, ACK
/// number, flags, length. Time may go backwards.
pub fn response(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut checked = CheckedTracker::new(&mut choices);
    let mut now_ns = 1_000_000_000_000;
    for [who, delta, transport, seq, ack, flags, length] in choices.records() {
        let stage = Stage::new(who);
        now_ns = match delta {
            0..=0xef => now_ns + Stage::delta_ns(delta),
            _ => now_ns - (Stage::delta_ns(delta & 15) << 8).min(now_ns / 2),
        };
        let (from, to) = stage.endpoints(40_000 + u16::from(transport >> 4), 443);
        let payload = vec![seq; usize::from(length) * 8];
        let (proto, l4) = match transport & 7 {
            0..=3 => {
                let number = |step: u8, unit: u32| u32::from(step).wrapping_mul(unit);
                let (seq, ack) = (number(seq, 300), number(ack, 1448));
                let head = frame::tcp((from.port, to.port), seq, ack, flags, 1000, &[]);
                (6, [head, payload].concat())
            }
            4 => {
                let quic = [&[flags | 0x40, 0, 0, 0, 1][..], &payload].concat();
                (17, frame::udp((from.port, to.port), &quic))
            }
            5 => {
                let data = [&[4, 0, 0, 0, ack, 0, 0, 0][..], &payload].concat();
                (17, frame::udp((from.port, to.port), &data))
            }
            6 => (50, [&[0, 0, 0, ack][..], &payload].concat()),
            _ => (flags, payload),
        };
        let frame = frame::ip(stage.link(), proto, from, to, &l4, l4.len());
        checked.observe(&Observation {
            time_ns: now_ns,
            interface: 0,
            link: frame.link,
            data: &frame.data,
            wire_len: frame.data.len() as u32,
        });
    }
    checked.finish(now_ns)
}

/// Replays a capture file, as `dwell response -r` does. Three bytes select the configuration; the rest is the file.
pub fn response_replay(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut checked = CheckedTracker::new(&mut choices);
    let file = Cursor::new(choices.rest().to_vec());
    let Ok(mut reader) = Reader::from_read("input", Box::new(file)) else {
        return BTreeSet::new();
    };
    let mut last_ns = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        let data = Box::<[u8]>::from(packet.data);
        checked.observe(&Observation {
            time_ns: packet.time_ns,
            interface: packet.interface,
            link: packet.link.0,
            data: &data,
            wire_len: packet.wire_len,
        });
        last_ns = packet.time_ns;
    }
    checked.finish(last_ns)
}
