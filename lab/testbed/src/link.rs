use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::Xoshiro256PlusPlus};
use serde::{Deserialize, Serialize};

use crate::{
    BitsPerSecond, Bytes, Nanos, Phases, Probability,
    trace::{Trace, TraceCursor},
};

/// The properties of one direction of a link. The default has no delay, no limit and no loss.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// The one-way propagation delay, which is added after a packet has left the queue.
    pub delay_ns: Nanos,
    /// The maximum of an extra delay, which is uniform from zero. Packets keep their order.
    pub jitter_ns: Nanos,
    /// The rate at which the queue is served; if absent, it is unlimited. Ignored if there is a `trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_second: Option<BitsPerSecond>,
    /// The limit of the queue, which includes the packet being sent. It matters only with a rate or a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// The share of packets that are lost before they reach the queue.
    pub loss: Probability,
    /// The reordering of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// A delivery trace that serves the queue instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Phases with another rate or delay. A `trace` has precedence over their rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// Random seed of this direction.
    pub seed: u64,
}

/// The limit of a link's queue. A packet that segmentation offload keeps whole counts as one. An idle link accepts a
/// packet of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimit {
    /// A number of bytes.
    Bytes(Bytes),
    /// A number of packets.
    Packets(usize),
}

/// Reordering: some packets are held longer, and later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The share of packets that are held.
    pub probability: Probability,
    /// The extra time for which they are held.
    pub extra_ns: Nanos,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at this time.
    Deliver(Nanos),
    /// It never arrives.
    Drop(DropReason),
}

/// Why a link drops a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Random loss.
    Loss,
    /// The queue was full.
    QueueFull,
}

impl LinkSpec {
    /// Returns a link that only delays.
    pub fn delay(one_way: Nanos) -> Self {
        Self { delay_ns: one_way, ..Self::default() }
    }
}

/// The model of one direction of a link. It reads no clock: times are arguments, and must not decrease.
///
/// Each random property has a generator of its own, which draws once per packet. So a change of one property does not
/// change the others' sequences, and the fate of the n-th packet can be predicted.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    start: Nanos,
    service: Service,
    waiting: VecDeque<(Nanos, Bytes)>,
    waiting_bytes: Bytes,
    last_delivery: Nanos,
    loss: Xoshiro256PlusPlus,
    reorder: Xoshiro256PlusPlus,
    jitter: Xoshiro256PlusPlus,
}

#[derive(Debug)]
enum Service {
    Unlimited,
    Rate { rate: BitsPerSecond, free_at: Nanos },
    Phases { phases: Phases, free_at: Nanos },
    Trace(TraceCursor),
}

impl Link {
    /// Returns a link whose trace and phases, if it has any, begin at `start`.
    pub fn new(spec: LinkSpec, start: Nanos) -> Self {
        let service = match (&spec.trace, &spec.phases, spec.rate_bits_per_second) {
            (Some(trace), ..) => Service::Trace(TraceCursor::new(trace.clone(), start)),
            (None, Some(phases), _) => Service::Phases { phases: phases.clone(), free_at: start },
            (None, None, Some(rate)) => Service::Rate { rate, free_at: Nanos::ZERO },
            (None, None, None) => Service::Unlimited,
        };
        let generator =
            |purpose: u64| Xoshiro256PlusPlus::seed_from_u64(spec.seed.wrapping_mul(3).wrapping_add(purpose));
        Self {
            loss: generator(0),
            reorder: generator(1),
            jitter: generator(2),
            service,
            waiting: VecDeque::new(),
            waiting_bytes: Bytes(0),
            last_delivery: Nanos::ZERO,
            start,
            spec,
        }
    }

    /// Returns the fate of a packet that arrives at the link at `now`.
    pub fn offer(&mut self, now: Nanos, bytes: Bytes) -> Fate {
        let lost = self.spec.loss.hits(self.loss.next_u64());
        let held = self.reorder.next_u64();
        let jitter = self.jitter.next_u64();
        if lost {
            return Fate::Drop(DropReason::Loss);
        }
        self.release_until(now);
        let full = match self.spec.queue {
            Some(_) if self.waiting.is_empty() => false,
            Some(QueueLimit::Bytes(limit)) => self.waiting_bytes.0 + bytes.0 > limit.0,
            Some(QueueLimit::Packets(limit)) => self.waiting.len() >= limit,
            None => false,
        };
        if full {
            return Fate::Drop(DropReason::QueueFull);
        }
        let departure = match &mut self.service {
            Service::Unlimited => now,
            Service::Rate { rate, free_at } => {
                *free_at = now.max(*free_at) + rate.serialization(bytes);
                *free_at
            }
            Service::Phases { phases, free_at } => {
                let begin = now.max(*free_at).since(self.start);
                let rate = self.spec.rate_bits_per_second;
                *free_at = self.start + phases.serve(begin, bytes, rate);
                *free_at
            }
            Service::Trace(cursor) => cursor.serve(now, bytes),
        };
        if departure > now {
            self.waiting.push_back((departure, bytes));
            self.waiting_bytes.0 += bytes.0;
        }
        // The upper 64 bits of the product spread the draw over 0 to jitter, both ends included.
        let jitter = (u128::from(jitter) * (u128::from(self.spec.jitter_ns.0) + 1)) >> 64;
        let in_order = (departure + self.delay_at(departure) + Nanos(jitter as u64)).max(self.last_delivery);
        match self.spec.reorder {
            Some(reorder) if reorder.probability.hits(held) => Fate::Deliver(in_order + reorder.extra_ns),
            _ => {
                self.last_delivery = in_order;
                Fate::Deliver(in_order)
            }
        }
    }

    fn delay_at(&self, departure: Nanos) -> Nanos {
        let phases = self.spec.phases.as_ref();
        let phase = phases.map(|phases| phases.at(departure.since(self.start)).0);
        phase.and_then(|phase| phase.delay_ns).unwrap_or(self.spec.delay_ns)
    }

    fn release_until(&mut self, now: Nanos) {
        while let Some(&(departure, bytes)) = self.waiting.front() {
            if departure > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes.0 -= bytes.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    const MS: u64 = 1_000_000;
    const FULL: Bytes = Bytes(1500);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn ten_megabit(queue: Option<QueueLimit>) -> Link {
        let spec = LinkSpec {
            delay_ns: at(5),
            rate_bits_per_second: BitsPerSecond::new(10_000_000),
            queue,
            ..LinkSpec::default()
        };
        Link::new(spec, Nanos::ZERO)
    }

    #[test]
    fn a_delay_moves_every_packet_by_itself() {
        let mut link = Link::new(LinkSpec::delay(at(10)), Nanos::ZERO);
        assert_eq!(link.offer(Nanos(0), FULL), Fate::Deliver(at(10)));
        assert_eq!(link.offer(Nanos(1), Bytes(65_000)), Fate::Deliver(Nanos(10 * MS + 1)));
    }

    #[test]
    fn a_rate_queues_packets_behind_each_other() {
        let mut link = ten_megabit(None);
        // 1500 bytes take 1.2 ms at 10 Mbit/s.
        assert_eq!(link.offer(at(0), FULL), Fate::Deliver(Nanos(6_200_000)));
        assert_eq!(link.offer(at(0), FULL), Fate::Deliver(Nanos(7_400_000)));
        assert_eq!(link.offer(at(1), Bytes(750)), Fate::Deliver(Nanos(8_000_000)));
        // The link fell idle at 3 ms.
        assert_eq!(link.offer(at(20), FULL), Fate::Deliver(Nanos(26_200_000)));
    }

    #[test]
    fn a_packet_limit_counts_the_packet_being_sent() {
        let mut link = ten_megabit(Some(QueueLimit::Packets(2)));
        assert!(matches!(link.offer(at(0), FULL), Fate::Deliver(_)));
        assert!(matches!(link.offer(at(0), FULL), Fate::Deliver(_)));
        assert_eq!(link.offer(Nanos(1_199_999), FULL), Fate::Drop(DropReason::QueueFull));
        assert_eq!(link.offer(Nanos(1_200_000), FULL), Fate::Deliver(Nanos(8_600_000)));
    }

    #[test]
    fn a_byte_limit_takes_what_fits() {
        let mut link = ten_megabit(Some(QueueLimit::Bytes(Bytes(2000))));
        assert!(matches!(link.offer(at(0), FULL), Fate::Deliver(_)));
        assert_eq!(link.offer(at(0), Bytes(501)), Fate::Drop(DropReason::QueueFull));
        // 500 bytes take 0.4 ms more.
        assert_eq!(link.offer(at(0), Bytes(500)), Fate::Deliver(Nanos(6_600_000)));
        // At 1.2 ms the first has left, 500 bytes wait, and 1500 fit.
        assert_eq!(link.offer(Nanos(1_200_000), Bytes(1501)), Fate::Drop(DropReason::QueueFull));
        assert_eq!(link.offer(Nanos(1_200_000), FULL), Fate::Deliver(Nanos(7_800_000)));
    }

    #[test]
    fn an_idle_link_takes_a_packet_longer_than_its_queue() {
        let mut link = ten_megabit(Some(QueueLimit::Bytes(Bytes(1000))));
        assert_eq!(link.offer(at(0), FULL), Fate::Deliver(Nanos(6_200_000)));
        assert_eq!(link.offer(at(1), Bytes(1)), Fate::Drop(DropReason::QueueFull));
    }

    #[test]
    fn loss_follows_the_seed_and_nothing_else() {
        let spec = LinkSpec { loss: Probability::new(0.1).unwrap(), seed: 7, ..LinkSpec::default() };
        let with_queue =
            LinkSpec { rate_bits_per_second: BitsPerSecond::new(1_000_000_000), jitter_ns: at(3), ..spec.clone() };
        let lost = |spec: &LinkSpec, gap: u64| -> Vec<u64> {
            let mut link = Link::new(spec.clone(), Nanos::ZERO);
            (0..10_000).filter(|n| link.offer(at(n * gap), FULL) == Fate::Drop(DropReason::Loss)).collect()
        };
        let expected = lost(&spec, 1);
        assert!((900..1100).contains(&expected.len()), "{} of 10000", expected.len());
        assert_eq!(lost(&with_queue, 4), expected);
        assert_ne!(lost(&LinkSpec { seed: 8, ..spec.clone() }, 1), expected);
    }

    #[test]
    fn a_held_packet_is_overtaken_and_holds_nobody_up() {
        let always = Reorder { probability: Probability::new(1.0).unwrap(), extra_ns: at(4) };
        let spec = LinkSpec { delay_ns: at(10), reorder: Some(always), ..LinkSpec::default() };
        let mut link = Link::new(spec.clone(), Nanos::ZERO);
        assert_eq!(link.offer(at(0), FULL), Fate::Deliver(at(14)));

        let some = Reorder { probability: Probability::new(0.3).unwrap(), extra_ns: at(4) };
        let mut link = Link::new(LinkSpec { reorder: Some(some), seed: 1, ..spec }, Nanos::ZERO);
        let delays: Vec<u64> = (0..1000)
            .map(|n| match link.offer(at(n), FULL) {
                Fate::Deliver(time) => (time - at(n)).0 / MS,
                Fate::Drop(reason) => panic!("dropped for {reason:?}"),
            })
            .collect();
        assert!(delays.iter().all(|&ms| ms == 10 || ms == 14));
        let held = delays.iter().filter(|&&ms| ms == 14).count();
        assert!((250..350).contains(&held), "{held} of 1000");
    }

    #[test]
    fn jitter_stays_in_its_range_and_in_order() {
        let spec = LinkSpec { delay_ns: at(10), jitter_ns: at(3), ..LinkSpec::default() };
        // Packets far apart spread over the range; close together they queue up behind the latest.
        for (gap, least) in [(at(10), at(10)), (Nanos(100_000), at(11))] {
            let mut link = Link::new(spec.clone(), Nanos::ZERO);
            let mut last = Nanos::ZERO;
            let mut seen = (Nanos(u64::MAX), Nanos::ZERO);
            for n in 0..1000 {
                let now = Nanos(n * gap.0);
                let Fate::Deliver(time) = link.offer(now, FULL) else { panic!("dropped") };
                let delay = time - now;
                assert!(delay >= at(10) && delay <= at(13), "{delay}");
                assert!(time >= last);
                last = time;
                seen = (seen.0.min(delay), seen.1.max(delay));
            }
            assert!(seen.0 >= least && seen.0 < least + at(1) && seen.1 > at(12), "{seen:?}");
        }
    }

    #[test]
    fn a_trace_serves_in_place_of_a_rate() {
        let spec = LinkSpec {
            delay_ns: at(1),
            rate_bits_per_second: BitsPerSecond::new(1),
            trace: Some(Trace::parse("3\n3\n8\n").unwrap()),
            queue: Some(QueueLimit::Packets(2)),
            ..LinkSpec::default()
        };
        let mut link = Link::new(spec, at(100));
        assert_eq!(link.offer(at(101), Bytes(1504)), Fate::Deliver(at(104)));
        assert_eq!(link.offer(at(101), Bytes(1504)), Fate::Deliver(at(104)));
        assert_eq!(link.offer(at(101), Bytes(1504)), Fate::Drop(DropReason::QueueFull));
        assert_eq!(link.offer(at(103), Bytes(1504)), Fate::Deliver(at(109)));
    }

    #[test]
    fn a_link_with_phases_changes_its_rate_and_its_delay_by_them() {
        let phase = |mbit: u64, delay_ns| Phase {
            lasts_ns: at(10),
            rate_bits_per_second: BitsPerSecond::new(mbit * 1_000_000),
            delay_ns,
        };
        let spec = LinkSpec {
            delay_ns: at(1),
            phases: Some(vec![phase(10, None), phase(50, Some(at(20)))].try_into().unwrap()),
            queue: Some(QueueLimit::Packets(2)),
            ..LinkSpec::default()
        };
        let mut link = Link::new(spec, at(100));
        assert_eq!(link.offer(at(105), FULL), Fate::Deliver(Nanos(107_200_000)));
        assert_eq!(link.offer(at(105), FULL), Fate::Deliver(Nanos(108_400_000)));
        assert_eq!(link.offer(at(105), FULL), Fate::Drop(DropReason::QueueFull));
        assert_eq!(link.offer(at(115), FULL), Fate::Deliver(Nanos(135_240_000)));
        // The delay falls, and packets keep their order.
        assert_eq!(link.offer(at(121), FULL), Fate::Deliver(Nanos(135_240_000)));
    }
}
