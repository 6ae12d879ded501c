//! A fleet in numbers: figures with a level of their own, which rise and fall with the day, with their rack and with all others,
//! resemble those of the interval before, have heavy tails, are of few or of many bytes, and of hosts that start anew.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::*;
use crate::{baseline::Figure, layers::Segment};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const INTERVAL_NS: u64 = 10 * SECOND_NS;
/// Intervals of a week.
const WEEK: u32 = 7 * 24 * 360;
/// Hosts of a rack, services of a kind.
const OF_A_RACK: u32 = 40;
/// What a rack has in common resembles that of the interval before by this.
const RACK_LIKENESS: f64 = 0.97;

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
    /// The spread of logarithms that the subjects of a rack have in common, for some minutes at a time.
    pub rack: f64,
    /// The bytes of an interval that a figure of the middle subject is of; 0: so many that it does not matter. Subjects have more or
    /// less by a factor of three, and each fewer and more with the day.
    pub bytes: f64,
    /// How often a host starts anew in a week: it is away for one to six minutes, and then up to twice as slow for a minute or two.
    pub restarts: u32,
}

pub const NOISE: Noise = Noise {
    likeness: 0.5,
    spread: 0.15,
    wild: 5,
    bursts: 5,
    apart: 0.25,
    day: 0.7,
    rack: 0.0,
    bytes: 0.0,
    restarts: 0,
};

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
    rack: usize,
    /// Its bytes, as a multiple of those of the middle one.
    bytes: f64,
}

/// A host that starts anew: in so many intervals, and the logarithm of how much slower it is then.
#[derive(Debug, Clone, Copy)]
struct Start {
    after: u32,
    slower: f64,
}

pub struct Fleet {
    pub judge: Judge,
    noise: Noise,
    random: Xoshiro256PlusPlus,
    sources: Vec<Source>,
    common: f64,
    racks: Vec<f64>,
    starts: BTreeMap<u32, Start>,
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
            racks: Vec::new(),
            starts: BTreeMap::new(),
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
        let rack = match subject {
            Subject::Host(host) | Subject::Path { tx_host: host, .. } => host / OF_A_RACK,
            Subject::Service(port) => u32::from(port) % 5,
        };
        let bytes = if self.noise.bytes > 0.0 { self.normal().exp() } else { 1.0 };
        self.racks.resize(self.racks.len().max(rack as usize + 1), 0.0);
        self.sources.push(Source { subject, measure, level, state, day, phase, share, rack: rack as usize, bytes });
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
        let (sin, cos) = (TAU * other).sin_cos();
        self.spare = Some(length * sin);
        length * cos
    }

    /// A host is away for so many intervals, and slower by a factor then.
    pub fn start(&mut self, host: u32, after: u32, slower: f64) {
        self.starts.insert(host, Start { after, slower: slower.ln() });
    }

    /// What happens to all, to racks and to hosts in an interval.
    fn turn(&mut self) {
        self.interval += 1;
        self.common = 0.98 * self.common + 0.05 * self.normal();
        // Once in some hours something happens to all, for as long as the sum remembers it.
        if self.random.random_range(0..1_000) == 0 {
            self.common += 0.7;
        }
        let fresh = self.noise.rack * (1.0 - RACK_LIKENESS * RACK_LIKENESS).sqrt();
        for rack in 0..self.racks.len() {
            self.racks[rack] = RACK_LIKENESS * self.racks[rack] + fresh * self.normal();
        }
        self.starts.retain(|_, start| {
            match start.after.checked_sub(1) {
                Some(after) => start.after = after,
                // What it has to load anew takes a minute or two.
                None => start.slower *= (-1.0f64 / 6.0).exp(),
            }
            start.slower > 0.01
        });
        if self.noise.restarts > 0 {
            let hosts = self.racks.len() as u32 * OF_A_RACK;
            for host in 0..hosts {
                if self.random.random_range(0..WEEK) < self.noise.restarts {
                    let (after, slower) = (self.random.random_range(6..36), 1.0 + self.random.random::<f64>());
                    self.start(host, after, slower);
                }
            }
        }
    }

    /// The error of a figure of so many bytes, whose times have a spread of e, and beyond the p90 twice as many bytes at 0.6 of the
    /// time; `None` if they are too few.
    fn error(&mut self, measure: Measure, bytes: f64) -> Option<f64> {
        match measure.figure {
            Some(Figure::P99) => (bytes >= 200.0).then(|| 0.7 / (0.01 * bytes).sqrt() * self.normal()),
            Some(_) => (bytes >= 10.0).then(|| 1.25 / bytes.sqrt() * self.normal()),
            None => (bytes >= 200.0).then_some(0.0),
        }
    }

    /// How many of so many bytes are sent again, which is a share of them on average.
    fn again(&mut self, bytes: f64, share: f64) -> f64 {
        let mean = bytes * share;
        if mean > 30.0 {
            return (mean + mean.sqrt() * self.normal()).max(0.0) / bytes;
        }
        // Knuth's: a product of numbers from 0 to 1.
        let (least, mut count) = ((-mean).exp(), 0);
        let mut product = 1.0 - self.random.random::<f64>();
        while product > least {
            count += 1;
            product *= 1.0 - self.random.random::<f64>();
        }
        f64::from(count) / bytes
    }

    /// An interval in which `change` makes another value of each figure's.
    pub fn step(&mut self, change: impl Fn(Subject, Measure, f64) -> f64) -> Vec<Event> {
        self.turn();
        let Noise { likeness, spread, wild, bursts, .. } = self.noise;
        let own = (1.0 - likeness * likeness).sqrt();
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
            let start = match source.subject {
                Subject::Host(host) => self.starts.get(&host),
                Subject::Path { tx_host, rx_host } => self.starts.get(&tx_host).or(self.starts.get(&rx_host)),
                Subject::Service(_) => None,
            };
            if start.is_some_and(|start| start.after > 0) {
                continue;
            }
            let slower = start.map_or(0.0, |start| start.slower);
            let day = source.day * (TAU * (turn + source.phase)).sin();
            let together = source.share * self.common + self.racks[source.rack];
            let mut value = (source.level + day + together + slower + spread * source.state).exp();
            if chances % 10_000 < bursts {
                value *= 5.0;
            }
            value = change(source.subject, source.measure, value);
            if self.noise.bytes > 0.0 {
                let bytes = (self.noise.bytes * source.bytes * (day + 0.3 * self.normal()).exp()).floor();
                let Some(error) = self.error(source.measure, bytes) else { continue };
                value = match source.measure.figure {
                    Some(_) => value * error.exp(),
                    None => 1e6 * self.again(bytes, value / 1e6),
                };
            }
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
