//! A fleet in numbers: figures with a level of their own, which rise and fall with the day and with all others, resemble those
//! of the interval before, and have heavy tails.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::*;
use crate::{baseline::Figure, layers::Segment};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const INTERVAL_NS: u64 = 10 * SECOND_NS;

/// How figures vary.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// The correlation of an interval with the one before.
    pub likeness: f64,
    /// The spread of logarithms; 0.2 is about 20 %.
    pub spread: f64,
    /// How many innovations of 100 are four times as large.
    pub wild: u32,
    /// How many intervals of 10,000 take five times as long.
    pub bursts: u32,
    /// By how much what happens to all may happen more or less to a subject, as a share.
    pub apart: f64,
    /// By how much the logarithm rises and falls with the day, differently for each subject.
    pub day: f64,
}

pub const NOISE: Noise = Noise { likeness: 0.5, spread: 0.15, wild: 5, bursts: 5, apart: 0.25, day: 0.7 };

/// A figure of a subject.
struct Source {
    subject: Subject,
    measure: Measure,
    /// The logarithm of its usual value.
    level: f64,
    state: f64,
    day: f64,
    phase: f64,
    /// Its part in what happens to all.
    share: f64,
}

pub struct Fleet {
    pub judge: Judge,
    noise: Noise,
    random: Xoshiro256PlusPlus,
    sources: Vec<Source>,
    common: f64,
    spare: Option<f64>,
    interval: u64,
}

pub fn time(segment: PathSegment, figure: Figure) -> Measure {
    Measure { component: Component::Time(segment), figure: Some(figure) }
}

pub const QUEUEING: PathSegment = PathSegment::Host(Segment::Queueing);
pub const APPLICATION: PathSegment = PathSegment::Host(Segment::Application);
pub const LOSS: Measure = Measure { component: Component::Retransmitted, figure: None };

impl Fleet {
    pub fn new(seed: u64, noise: Noise, budget: f64) -> Fleet {
        Fleet {
            judge: Judge::new(Config { interval_ns: INTERVAL_NS, budget }),
            noise,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            sources: Vec::new(),
            common: 0.0,
            spare: None,
            interval: 0,
        }
    }

    /// Adds a figure of a subject whose usual value is near this one.
    pub fn add(&mut self, subject: Subject, measure: Measure, usual: f64) {
        let level = usual.ln() + 0.5 * self.normal();
        let (state, day) = (self.normal(), self.noise.day * self.random.random::<f64>());
        let (phase, share) =
            (0.1 * self.random.random::<f64>(), 1.0 + self.noise.apart * (2.0 * self.random.random::<f64>() - 1.0));
        self.sources.push(Source { subject, measure, level, state, day, phase, share });
    }

    /// Adds hosts with the median and the p99 of two segments.
    pub fn with_hosts(mut self, hosts: u32) -> Fleet {
        for host in 0..hosts {
            for (segment, usual) in [(QUEUEING, 200e3), (APPLICATION, 1e6)] {
                self.add(Subject::Host(host), time(segment, Figure::Median), usual);
                self.add(Subject::Host(host), time(segment, Figure::P99), usual * 8.0);
            }
        }
        self
    }

    /// Adds paths from each host to the next ones, with the network's times and loss.
    pub fn with_paths(mut self, hosts: u32, each: u32) -> Fleet {
        for tx_host in 0..hosts {
            for step in 1..=each {
                let path = Subject::Path { tx_host, rx_host: (tx_host + step) % hosts };
                self.add(path, time(PathSegment::Network, Figure::Median), 500e3);
                self.add(path, time(PathSegment::Network, Figure::P99), 3e6);
                self.add(path, LOSS, 1_000.0);
            }
        }
        self
    }

    pub fn with_services(mut self, services: u16) -> Fleet {
        for port in 1..=services {
            self.add(Subject::Service(port), time(PathSegment::EndToEnd, Figure::Median), 2e6);
            self.add(Subject::Service(port), time(PathSegment::EndToEnd, Figure::P99), 20e6);
        }
        self
    }

    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (one, other): (f64, f64) = (self.random.random(), self.random.random());
        let length = (-2.0 * (1.0 - one).ln()).sqrt();
        self.spare = Some(length * (TAU * other).sin());
        length * (TAU * other).cos()
    }

    /// An interval in which `change` makes another value of each figure's.
    pub fn step(&mut self, change: impl Fn(Subject, Measure, f64) -> f64) -> Vec<Event> {
        self.interval += 1;
        let Noise { likeness, spread, wild, bursts, .. } = self.noise;
        let own = (1.0 - likeness * likeness).sqrt();
        self.common = 0.98 * self.common + 0.05 * self.normal();
        // Once in some hours something happens to all, for as long as the sum remembers it.
        if self.random.random_range(0..1_000) == 0 {
            self.common += 0.7;
        }
        let turn = self.interval as f64 / 8_640.0;
        let mut sources = std::mem::take(&mut self.sources);
        let mut figures = Vec::with_capacity(sources.len());
        for source in &mut sources {
            let mut fresh = self.normal();
            let chances = self.random.random_range(0..1_000_000);
            if chances < wild * 10_000 {
                fresh *= 4.0;
            }
            source.state = likeness * source.state + own * fresh;
            let day = source.day * (TAU * (turn + source.phase)).sin();
            let mut value = (source.level + day + source.share * self.common + spread * source.state).exp();
            if chances % 10_000 < bursts {
                value *= 5.0;
            }
            let value = change(source.subject, source.measure, value);
            figures.push((source.subject, source.measure, value as u64));
        }
        self.sources = sources;
        self.judge.interval(self.interval * INTERVAL_NS, figures)
    }

    /// That many intervals in which nothing is changed.
    pub fn run(&mut self, intervals: u64) -> Vec<Event> {
        (0..intervals).flat_map(|_| self.step(|_, _, value| value)).collect()
    }
}
