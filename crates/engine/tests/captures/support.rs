//! Captures from other sources, and what other programs measured in them.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use dwell_capture::Reader;
use dwell_engine::{
    measure::{Event, Method, Sample},
    observe::Observation,
    rtt::{Config, Counters, Tracker},
};
use serde_json::Value;

use crate::skip::skip;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");

/// Returns the folder with the captures, which are not part of this repository.
pub fn folder() -> Option<PathBuf> {
    let folder = Path::new(FOLDER);
    if folder.is_dir() {
        return Some(folder.to_owned());
    }
    skip("there are no captures of others");
    None
}

/// A capture with its references.
pub struct Capture {
    pub path: PathBuf,
    pub reference: Value,
}

/// Opens the capture with this name, such as "A01".
pub fn capture(id: &str) -> Option<Capture> {
    let folder = folder()?;
    let text = fs::read(folder.join(format!("refs/{id}.json"))).unwrap();
    let reference: Value = serde_json::from_slice(&text).unwrap();
    let listed = PathBuf::from(reference["file"].as_str().unwrap());
    Some(Capture { path: folder.join(listed.file_name().unwrap()), reference })
}

/// One packet of a capture.
#[derive(Clone)]
pub struct Packet {
    pub time_ns: u64,
    pub interface: u32,
    pub link: u32,
    pub data: Vec<u8>,
    pub wire_len: u32,
}

/// Reads all packets up to the first damaged one.
pub fn packets(path: &Path) -> Vec<Packet> {
    let mut packets = Vec::new();
    let Ok(mut reader) = Reader::open(path) else {
        return packets;
    };
    while let Ok(Some(packet)) = reader.next_packet() {
        packets.push(Packet {
            time_ns: packet.time_ns,
            interface: packet.interface,
            link: packet.link.0,
            data: packet.data.to_vec(),
            wire_len: packet.wire_len,
        });
    }
    packets
}

pub struct Replay {
    pub samples: Vec<Sample>,
    pub counters: Counters,
}

pub fn replay(config: &Config, packets: &[Packet]) -> Replay {
    let mut tracker = Tracker::new(config);
    let mut samples = Vec::new();
    for packet in packets {
        let observation = Observation {
            time_ns: packet.time_ns,
            interface: packet.interface,
            link: packet.link,
            data: &packet.data,
            wire_len: packet.wire_len,
        };
        tracker.observe(&observation, |event| {
            if let Event::Sample(sample) = event {
                samples.push(sample);
            }
        });
    }
    Replay { samples, counters: tracker.counters() }
}

pub fn only(methods: &[Method]) -> Config {
    Config { methods: methods.to_vec(), max_flows: 4096, ..Config::default() }
}

impl Capture {
    /// Returns what these methods measure in the capture.
    pub fn samples(&self, methods: &[Method]) -> Vec<Sample> {
        replay(&only(methods), &packets(&self.path)).samples
    }
}

/// The count and distribution of latencies, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    pub n: usize,
    pub min: f64,
    pub p50: f64,
    pub mean: f64,
    pub max: f64,
}

impl Stats {
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Stats {
        let mut ms: Vec<f64> = samples.into_iter().map(|sample| sample.rtt_ns as f64 / 1e6).collect();
        ms.sort_by(f64::total_cmp);
        let n = ms.len();
        Stats {
            n,
            min: ms.first().copied().unwrap_or(f64::NAN),
            p50: ms.get(n / 2).copied().unwrap_or(f64::NAN),
            mean: ms.iter().sum::<f64>() / n as f64,
            max: ms.last().copied().unwrap_or(f64::NAN),
        }
    }

    /// Parses a reference such as `{"n": 3, "min": 1.0, …}`.
    pub fn from_json(value: &Value) -> Stats {
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        Stats {
            n: value["n"].as_u64().unwrap_or(0) as usize,
            min: number("min"),
            p50: number("p50"),
            mean: number("mean"),
            max: number("max"),
        }
    }

    /// Asserts equality to the microsecond, to which references are rounded.
    #[track_caller]
    pub fn assert_is(&self, reference: Stats, what: &str) {
        let same = |x: f64, y: f64| (x - y).abs() < 0.0011;
        assert!(
            self.n == reference.n
                && same(self.min, reference.min)
                && same(self.p50, reference.p50)
                && same(self.mean, reference.mean)
                && same(self.max, reference.max),
            "{what}: {self} and not {reference}"
        );
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { n, min, p50, mean, max } = self;
        write!(f, "{n}/{min:.3}/{p50:.3}/{mean:.3}/{max:.3}")
    }
}

/// Selects the samples that this endpoint answered.
pub fn to<'a>(samples: &'a [Sample], endpoint: &str) -> Vec<&'a Sample> {
    samples.iter().filter(|sample| sample.dst.to_string() == endpoint).collect()
}
