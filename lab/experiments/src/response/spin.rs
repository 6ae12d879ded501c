//! What the spin bit says where only the client's packets pass: each change of the bit is a round trip after the
//! change before it. `dwell rtt` wants to see both directions, and gives nothing here.

use crate::print::SCHEMA;
use std::{collections::HashMap, fmt, path::Path};

use anyhow::Context;
use dwell_capture::Reader;
use dwell_engine::stats::quantile;
use dwell_testbed::Nanos;
use serde_json::json;

/// The share of changes that may follow in less than half of the round trip: packets that passed each other.
const MOST_TOO_FAST: f64 = 0.05;

/// Times between changes, over all connections that spin.
#[derive(Debug, Default, PartialEq)]
pub struct Spin {
    connections: usize,
    /// Those whose bit changes no faster than the network allows. Endpoints must draw the bit on some connections: a
    /// quarter of them here, as each side does so on one in eight.
    spinning: usize,
    samples: usize,
    mean_ns: Option<u64>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
}

#[derive(Default)]
struct Connection {
    value: Option<bool>,
    changed_ns: Option<u64>,
    trips_ns: Vec<u64>,
}

impl Spin {
    /// From a capture of packets to port 443, over a network with that round trip. Where that is 0, connections that
    /// draw the bit cannot be told.
    pub fn read(pcap: &Path, rtt: Nanos) -> anyhow::Result<Self> {
        let mut reader = Reader::open(pcap).with_context(|| format!("read {}", pcap.display()))?;
        let mut connections: HashMap<u16, Connection> = HashMap::new();
        while let Some(packet) = reader.next_packet()? {
            if let Some((port, value)) = spin_bit(packet.data) {
                let connection = connections.entry(port).or_default();
                connection.packet(packet.time_ns, value);
            }
        }
        Ok(Self::over(connections.values(), rtt))
    }

    fn over<'a>(connections: impl Iterator<Item = &'a Connection> + Clone, rtt: Nanos) -> Self {
        let spinning = connections.clone().filter(|connection| connection.spins(rtt));
        let mut trips: Vec<u64> = spinning.clone().flat_map(|connection| connection.trips_ns.iter().copied()).collect();
        trips.sort_unstable();
        Self {
            connections: connections.count(),
            spinning: spinning.count(),
            samples: trips.len(),
            mean_ns: trips.iter().sum::<u64>().checked_div(trips.len() as u64),
            p50_ns: quantile(&trips, 0.5),
            p95_ns: quantile(&trips, 0.95),
        }
    }

    /// As a line of JSON.
    pub fn line(&self) -> String {
        json!({
            "type": "lab.spin",
            "schema": SCHEMA,
            "connections": self.connections,
            "spinning": self.spinning,
            "samples": self.samples,
            "mean_ns": self.mean_ns,
            "p50_ns": self.p50_ns,
            "p95_ns": self.p95_ns,
        })
        .to_string()
    }
}

impl Connection {
    fn packet(&mut self, time_ns: u64, value: bool) {
        if self.value.replace(value).is_some_and(|last| last != value)
            && let Some(last_ns) = self.changed_ns.replace(time_ns)
        {
            self.trips_ns.push(time_ns.saturating_sub(last_ns));
        }
    }

    fn spins(&self, rtt: Nanos) -> bool {
        let too_fast = self.trips_ns.iter().filter(|&&trip_ns| trip_ns < rtt.0 / 2);
        let most = self.trips_ns.len() as f64 * MOST_TOO_FAST;
        !self.trips_ns.is_empty() && too_fast.count() as f64 <= most
    }
}

/// The client's port and the bit, of a QUIC packet with a short header in an Ethernet frame with IPv4, as labs have.
fn spin_bit(frame: &[u8]) -> Option<(u16, bool)> {
    let packet = frame.get(14..)?;
    let head = usize::from(*packet.first()? & 0xf) * 4;
    let is_udp = frame.get(12..14)? == [8, 0] && *packet.get(9)? == 17;
    let udp = packet.get(head..)?;
    let port = |at: usize| Some(u16::from_be_bytes(udp.get(at..at + 2)?.try_into().ok()?));
    let first = *udp.get(8)?;
    let is_short = first & 0xc0 == 0x40;
    (is_udp && is_short && port(2)? == 443).then_some((port(0)?, first & 0x20 != 0))
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.3} ms", ns as f64 / 1e6));
        write!(
            f,
            "spin bit: {} of {} connections spin, {} round trips, mean {}, median {}, 95th percentile {}",
            self.spinning,
            self.connections,
            self.samples,
            millis(self.mean_ns),
            millis(self.p50_ns),
            millis(self.p95_ns)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(port: u16, first: u8) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8 + 20];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[14 + 9] = 17;
        frame[34..36].copy_from_slice(&5000_u16.to_be_bytes());
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame[42] = first;
        frame
    }

    #[test]
    fn the_bit_is_in_the_short_headers_of_clients() {
        assert_eq!(spin_bit(&frame(443, 0x60)), Some((5000, true)));
        assert_eq!(spin_bit(&frame(443, 0x5f)), Some((5000, false)));
        assert_eq!(spin_bit(&frame(443, 0xe0)), None);
        assert_eq!(spin_bit(&frame(444, 0x60)), None);
        assert_eq!(spin_bit(&frame(443, 0x60)[..42]), None);
    }

    #[test]
    fn a_change_is_a_round_trip_after_the_change_before() {
        let mut spins = Connection::default();
        // Four packets a trip of 10.
        for n in 0..16 {
            spins.packet(n * 10 / 4, n / 4 % 2 == 1);
        }
        let mut drawn = Connection::default();
        for n in 0..16 {
            drawn.packet(n, n % 2 == 1);
        }
        let constant = Connection::default();
        let connections = [&spins, &drawn, &constant];
        let spin = Spin::over(connections.into_iter(), Nanos(10));
        assert_eq!((spin.connections, spin.spinning, spin.samples), (3, 1, 2));
        assert_eq!((spin.mean_ns, spin.p95_ns), (Some(10), Some(10)));
        let untold = Spin::over(connections.into_iter(), Nanos(0));
        assert_eq!(untold.spinning, 2);
        assert_eq!(Spin::over([].into_iter(), Nanos(10)).mean_ns, None);
    }
}
