//! A QUIC connection between two hosts, seen at a vantage point between them.

use std::{cmp::Reverse, collections::BinaryHeap, sync::OnceLock};

use crate::wire::{ETHERNET, Frame, Side, ethernet, frame, udp};

pub const V1: u32 = 1;
pub const V2: u32 = 0x6b33_43cf;

/// Returns a datagram that starts with a long header.
pub fn long(at_ms: f64, from: Side, version: u32, kind: u8) -> Frame {
    let mut payload = vec![0xc0 | kind << 4];
    payload.extend(version.to_be_bytes());
    payload.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    payload.resize(1200, 0x55);
    datagram(at_ms, from, &payload)
}

/// Returns a datagram of one short-header packet.
pub fn short(at_ms: f64, from: Side, spin: bool) -> Frame {
    static MADE: OnceLock<[Frame; 2]> = OnceLock::new();
    let made = MADE.get_or_init(|| SIDES.map(|side| datagram(0.0, side, &[0x40; 60])));
    let mut data = made[from as usize].data.clone();
    data[14 + 20 + 8] |= u8::from(spin) << 5;
    frame(at_ms, ETHERNET, data)
}

pub fn datagram(at_ms: f64, from: Side, payload: &[u8]) -> Frame {
    let ports = match from {
        Side::Client => (50_000, 443),
        Side::Server => (443, 50_000),
    };
    frame(at_ms, ETHERNET, ethernet(&udp(from, ports.0, ports.1, payload)))
}

/// A small generator of pseudo-random numbers (splitmix64).
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// How an endpoint sets the spin bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    Genuine,
    Constant(bool),
    /// A new random value for each packet.
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// The server sends steadily, the client acknowledges every second packet.
    Download { gap_us: u64 },
    /// The client sends steadily, the server acknowledges every second packet.
    Upload { gap_us: u64 },
    /// A request, an answer of some packets, a pause. With one packet per answer, only one packet is in flight at any
    /// time.
    Requests { packets: u64, think_us: u64 },
    /// Both sides send steadily, as in a call.
    Call { gap_us: u64 },
}

#[derive(Clone, Copy)]
pub struct Path {
    /// The one-way delay from the vantage point.
    pub to_client_us: u64,
    pub to_server_us: u64,
    /// One packet in this number reaches the vantage point late; 0 for none.
    pub late_one_in: u64,
}

#[derive(Clone, Copy)]
pub struct Connection {
    pub client: Spin,
    pub server: Spin,
    pub traffic: Traffic,
    pub path: Path,
    pub duration_ms: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Consecutive packets, the last of which may request an answer.
    Send {
        from: usize,
        more: u64,
        asks: bool,
    },
    Arrive {
        at: usize,
        number: u64,
        spin: bool,
        asks: bool,
    },
}

struct Host {
    rule: Spin,
    spin: bool,
    sent: u64,
    highest: u64,
    received: u64,
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// Returns what the vantage point sees of the connection, including the handshake.
pub fn seen(connection: &Connection, dice: &mut Dice) -> Vec<Frame> {
    let Path { to_client_us, to_server_us, late_one_in } = connection.path;
    let way_us = [to_client_us, to_server_us];
    let ms = |us: u64| us as f64 / 1000.0;
    let start_us = 2 * (to_client_us + to_server_us) + 2000;
    let mut frames = vec![
        long(ms(to_client_us), Side::Client, V1, 0),
        long(ms(to_client_us + 2 * to_server_us + 500), Side::Server, V1, 0),
        long(ms(3 * to_client_us + 2 * to_server_us + 900), Side::Client, V1, 2),
    ];
    let mut hosts =
        [connection.client, connection.server].map(|rule| Host { rule, spin: false, sent: 0, highest: 0, received: 0 });
    let mut queue = BinaryHeap::new();
    let mut order = 0;
    let mut at = |queue: &mut BinaryHeap<_>, time_us: u64, event: Event| {
        order += 1;
        queue.push(Reverse((time_us, order, event)));
    };
    let send = |from, more, asks| Event::Send { from, more, asks };
    if !matches!(connection.traffic, Traffic::Download { .. }) {
        at(&mut queue, start_us, send(0, 0, true));
    }
    if matches!(connection.traffic, Traffic::Download { .. } | Traffic::Call { .. }) {
        at(&mut queue, start_us + 300, send(1, 0, true));
    }
    let end_us = start_us + connection.duration_ms * 1000;
    while let Some(Reverse((now_us, _, event))) = queue.pop() {
        if now_us > end_us {
            break;
        }
        match event {
            Event::Send { from, more, asks } => {
                let host = &mut hosts[from];
                let spin = match host.rule {
                    Spin::Genuine => host.spin,
                    Spin::Constant(value) => value,
                    Spin::Random => dice.flip(),
                };
                host.sent += 1;
                let mut passes_us = now_us + way_us[from] + dice.below(20);
                if late_one_in > 0 && dice.below(late_one_in) == 0 {
                    passes_us += 200 + dice.below(1500);
                }
                frames.push(short(ms(passes_us), SIDES[from], spin));
                let arrival = Event::Arrive { at: 1 - from, number: host.sent, spin, asks: asks && more == 0 };
                at(&mut queue, passes_us + way_us[1 - from], arrival);
                if more > 0 {
                    at(&mut queue, now_us + 100, send(from, more - 1, asks));
                }
                let steady = match connection.traffic {
                    Traffic::Download { gap_us } if from == 1 => gap_us,
                    Traffic::Upload { gap_us } if from == 0 => gap_us,
                    Traffic::Call { gap_us } => gap_us,
                    _ => continue,
                };
                let next_us = now_us + steady / 2 + dice.below(steady);
                at(&mut queue, next_us, send(from, 0, true));
            }
            Event::Arrive { at: to, number, spin, asks } => {
                let host = &mut hosts[to];
                if number > host.highest {
                    host.highest = number;
                    host.spin = spin != (to == 0);
                }
                host.received += 1;
                let second = host.received.is_multiple_of(2);
                let (wait_us, reply) = match connection.traffic {
                    Traffic::Requests { think_us, .. } if asks && to == 0 => (think_us, send(0, 0, true)),
                    Traffic::Requests { packets, .. } if asks => (50, send(1, packets - 1, true)),
                    Traffic::Requests { .. } if to == 0 && second => (20, send(0, 0, false)),
                    Traffic::Download { .. } if to == 0 && second => (20, send(0, 0, false)),
                    Traffic::Upload { .. } if to == 1 && second => (20, send(1, 0, false)),
                    _ => continue,
                };
                at(&mut queue, now_us + wait_us + dice.below(30), reply);
            }
        }
    }
    frames.sort_by_key(|frame| frame.time_ns);
    frames
}
