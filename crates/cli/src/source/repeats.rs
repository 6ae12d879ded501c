//! Packets that a capture has twice: a mirror of two ports, a bridge and `-i any` on a host that forwards show each one where it
//! comes in and where it goes out. Without their interface, which older formats lack, the second would count as sent again.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
};

use dwell_engine::observe::Observation;

/// The longest time from a packet to its copy: a retransmission takes longer, and has another identification in IPv4.
const LONGEST_NS: u64 = 1_000_000;
/// Packets among which a copy is looked for.
const MOST: usize = 64;
/// Packets after which a capture with hardly any copies is taken to have none.
const TRIED: u64 = 10_000;
const HARDLY: u64 = TRIED / 100;
/// How much of a packet is compared, from its IP header on: both headers, with the checksum of what follows.
const COMPARED: usize = 100;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// Recognizes packets that passed before.
#[derive(Default)]
pub struct Repeats {
    recent: VecDeque<(u64, u64)>,
    looked: u64,
    found: u64,
}

impl Repeats {
    /// Returns the number of packets that passed before.
    pub fn count(&self) -> u64 {
        self.found
    }

    /// Returns true if the same packet has passed on the same interface just before.
    pub fn has(&mut self, packet: &Observation<'_>) -> bool {
        if self.looked >= TRIED && self.found < HARDLY {
            return false;
        }
        self.looked += 1;
        let Some(identity) = identity(packet) else { return false };
        let is_old = |(_, time_ns): &(u64, u64)| packet.time_ns.saturating_sub(*time_ns) > LONGEST_NS;
        while self.recent.front().is_some_and(is_old) || self.recent.len() == MOST {
            self.recent.pop_front();
        }
        if let Some(before) = self.recent.iter().position(|(known, _)| *known == identity) {
            // A third one is another packet's copy, if the capture has each twice.
            self.recent.remove(before);
            self.found += 1;
            return true;
        }
        self.recent.push_back((identity, packet.time_ns));
        false
    }
}

/// Returns what the copies of a packet have in common, and no other packet has: not the link's header, and not what a router
/// changes. `None` where other packets may have the same: acknowledgements of TCP without an identification.
fn identity(packet: &Observation<'_>) -> Option<u64> {
    let ip = packet.data.get(ip_offset(packet)?..)?;
    let length = |at: usize| ip.get(at..at + 2).map(|bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
    // What a router changes: time to live and checksum, or the hop limit.
    let (changed, header, end, protocol, has_number): (&[usize], _, _, _, _) = match ip.first()? >> 4 {
        4 => (&[8, 10, 11], usize::from(ip[0] & 15) * 4, length(2)?, *ip.get(9)?, length(4)? != 0),
        6 => (&[7], 40, 40 + length(4)?, *ip.get(6)?, false),
        _ => return None,
    };
    if !has_number && protocol == TCP {
        let (length, flags) = (usize::from(ip.get(header + 12)? >> 4) * 4, ip.get(header + 13)?);
        if flags & SYN == 0 && header + length >= end {
            return None;
        }
    }
    let mut bytes = [0; COMPARED];
    let length = ip.len().min(COMPARED);
    bytes[..length].copy_from_slice(&ip[..length]);
    changed.iter().for_each(|byte| bytes[*byte] = 0);
    let mut hasher = DefaultHasher::new();
    (packet.interface, bytes).hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns where the IP header begins, behind up to two VLAN tags.
fn ip_offset(packet: &Observation<'_>) -> Option<usize> {
    const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];
    let is_tag = |at: &usize| packet.data.get(*at..*at + 2).is_some_and(|kind| TAGS.iter().any(|tag| tag == kind));
    match packet.link {
        0 | 108 => Some(4),
        1 => Some(14 + 4 * [12, 16].iter().take_while(|at| is_tag(at)).count()),
        12 | 14 | 101 | 228 | 229 => Some(0),
        113 => Some(16),
        276 => Some(20),
        _ => None,
    }
}
