//! Packets that a capture has several times. A mirror of several ports, a bridge and `-i any` on a host that forwards show each
//! one where it comes in and where it goes out, and a capture that was merged of two places shows it at both. Without their
//! interface, which older formats lack, the further ones would count as sent again.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use dwell_engine::observe::Observation;

/// The longest time from a packet to its copies.
const LONGEST_NS: u64 = 1_000_000;
/// Packets among which a copy is looked for.
const MOST: usize = 64;
/// Packets after which a capture with hardly any copies is taken to have none.
const TRIED: u64 = 10_000;
const HARDLY: u64 = TRIED / 100;
/// From one copy of so many packets on, a capture is known to have copies.
const KNOWN: u64 = 5;
/// Segments among which those are looked for that have passed at another place, and the least number that tells.
const MOST_AFAR: usize = 16_384;
const LEAST_AFAR: u64 = 50;
/// How much of a segment of TCP is compared, from its IP header on: both headers, with the checksum of what follows. Of others, all
/// is: inner headers may be long, and the checksum of a tunnel may be constant.
const COMPARED: usize = 100;
const TCP: u8 = 6;
/// ICMP, UDP, and ICMPv6: whoever sends them again waits for longer than a copy takes. A tunnel may have a segment of TCP in it.
const NEVER_SENT_AGAIN_SO_SOON: [u8; 3] = [1, UDP, 58];
const UDP: u8 = 17;
/// UDP ports of VXLAN and Geneve.
const TUNNELS: [u16; 3] = [4789, 8472, 6081];
const SYN: u8 = 2;

/// Recognizes packets that passed before.
#[derive(Default)]
pub struct Repeats {
    recent: VecDeque<(Identity, u64)>,
    all: Found,
    /// Of packets that no retransmission looks like.
    unique: Found,
    afar: Afar,
}

/// How many packets were looked at, and how many of them had passed before.
#[derive(Default)]
struct Found {
    looked: u64,
    found: u64,
}

impl Repeats {
    /// Returns the number of packets that passed just before.
    pub fn count(&self) -> u64 {
        self.all.found
    }

    /// Returns the number of segments that had passed before at another place, if the capture is of several places.
    pub fn afar(&self) -> Option<u64> {
        let Found { looked, found } = self.afar.segments;
        (looked >= LEAST_AFAR && found * 3 > looked).then_some(found)
    }

    /// Returns true if the same packet has passed on the same interface just before.
    pub fn has(&mut self, packet: &Observation<'_>) -> bool {
        let has_hardly_any = [&self.all, &self.afar.segments].iter().all(|it| it.found < HARDLY);
        if self.all.looked >= TRIED && has_hardly_any {
            return false;
        }
        self.all.looked += 1;
        let Some(identity) = Identity::of(packet) else { return false };
        let is_old = |(_, time_ns): &(Identity, u64)| packet.time_ns.abs_diff(*time_ns) > LONGEST_NS;
        while self.recent.front().is_some_and(is_old) || self.recent.len() == MOST {
            self.recent.pop_front();
        }
        // Where times go back, old ones may be in between.
        let before = self.recent.iter().find(|it| it.0.packet == identity.packet && !is_old(it));
        let is_copy = before.is_some_and(|(before, _)| {
            // Within a data center a retransmission is as quick as a copy.
            identity.is_unique
                || before.frame != identity.frame
                || self.unique.found * KNOWN >= self.unique.looked.max(1)
        });
        if identity.is_unique {
            self.unique.looked += 1;
            self.unique.found += u64::from(is_copy);
        }
        if is_copy {
            self.all.found += 1;
            return true;
        }
        if identity.is_numbered_data {
            self.afar.observe(identity.packet);
        }
        self.recent.push_back((identity, packet.time_ns));
        false
    }
}

/// Segments with data and an identification of IPv4: one that is sent again has another identification, and so the same segment
/// a second time was captured at another place.
#[derive(Default)]
struct Afar {
    passed: VecDeque<u64>,
    known: HashSet<u64>,
    segments: Found,
}

impl Afar {
    fn observe(&mut self, segment: u64) {
        self.segments.looked += 1;
        if !self.known.insert(segment) {
            self.segments.found += 1;
            return;
        }
        if self.passed.len() == MOST_AFAR
            && let Some(oldest) = self.passed.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.passed.push_back(segment);
    }
}

/// What tells a packet from others.
struct Identity {
    /// A hash of what copies of it have in common: not the header of the link, but for its VLANs, which tell flows apart, and not
    /// what a router changes.
    packet: u64,
    /// A hash of the rest. Where it differs, the packet has passed at another interface.
    frame: u64,
    /// Whether no retransmission looks like it: it has an identification, or is of a protocol that sends nothing again so soon.
    is_unique: bool,
    is_numbered_data: bool,
}

impl Identity {
    /// Returns the identity of a packet. `None` where other packets may have the same: acknowledgements of TCP without an
    /// identification.
    fn of(packet: &Observation<'_>) -> Option<Identity> {
        let (offset, vlans) = ip_offset(packet)?;
        let ip = packet.data.get(offset..)?;
        let word = |at: usize| ip.get(at..at + 2).map(|bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
        // What a router changes: time to live and checksum, or the hop limit.
        let (changed, header, end, protocol, has_number): (&[usize], _, _, _, _) = match ip.first()? >> 4 {
            4 => (&[8, 10, 11], usize::from(ip[0] & 15) * 4, word(2)?, *ip.get(9)?, word(4)? != 0),
            6 => (&[7], 40, 40 + word(4)?, *ip.get(6)?, false),
            _ => return None,
        };
        let (mut is_opening, mut has_data) = (false, false);
        if protocol == TCP {
            let (length, flags) = (usize::from(ip.get(header + 12)? >> 4) * 4, ip.get(header + 13)?);
            (is_opening, has_data) = (flags & SYN != 0, header + length < end);
            if !has_number && !is_opening && !has_data {
                return None;
            }
        }
        // Without the padding of a short frame. A segment that is not cut up yet may have no length.
        let end = if end > header { end.min(ip.len()) } else { ip.len() };
        let compared = if protocol == TCP { end.min(COMPARED) } else { end };
        let (mut alike, mut from) = (DefaultHasher::new(), 0);
        (interface(packet), vlans).hash(&mut alike);
        for &byte in changed {
            alike.write(ip.get(from..byte)?);
            from = byte + 1;
        }
        alike.write(ip.get(from..compared)?);
        let is_tunnel = || word(header + 2).is_some_and(|port| TUNNELS.contains(&(port as u16)));
        let is_plain = NEVER_SENT_AGAIN_SO_SOON.contains(&protocol) && !(protocol == UDP && is_tunnel());
        Some(Identity {
            packet: alike.finish(),
            frame: hash(&(&packet.data[..offset], ip.get(changed[0]))),
            is_unique: has_number || is_opening || is_plain,
            is_numbered_data: has_number && has_data,
        })
    }
}

/// Returns the interface on which a packet passed: of all interfaces (SLL2), the header has it.
fn interface(packet: &Observation<'_>) -> u32 {
    const SLL2: u32 = 276;
    let index = packet.data.get(4..8).filter(|_| packet.link == SLL2);
    index.map_or(packet.interface, |index| u32::from_be_bytes([index[0], index[1], index[2], index[3]]))
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns where the IP header begins, behind up to two VLAN tags, and the VLANs.
fn ip_offset(packet: &Observation<'_>) -> Option<(usize, [u16; 2])> {
    const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];
    let word = |at: usize| packet.data.get(at..at + 2).map(|bytes| [bytes[0], bytes[1]]);
    let mut vlans = [0; 2];
    let offset = match packet.link {
        0 | 108 => 4,
        1 => {
            let tags = [12, 16].iter().take_while(|at| word(**at).is_some_and(|kind| TAGS.contains(&kind))).count();
            for (vlan, at) in vlans.iter_mut().zip([14, 18]).take(tags) {
                // Without the priority.
                *vlan = u16::from_be_bytes(word(at)?) & 0x0fff;
            }
            14 + 4 * tags
        }
        12 | 14 | 101 | 228 | 229 => 0,
        113 => 16,
        276 => 20,
        _ => return None,
    };
    Some((offset, vlans))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: u32 = 1;

    /// A segment of TCP with data, over IPv4 with an identification, or over IPv6.
    fn segment(number: Option<u16>, vlan: Option<u16>, seq: u32) -> Vec<u8> {
        let mut data = vec![0; 12];
        if let Some(vlan) = vlan {
            data.extend([0x81, 0, (vlan >> 8) as u8, vlan as u8]);
        }
        match number {
            Some(number) => {
                data.extend([8, 0, 0x45, 0, 0, 60]);
                data.extend(number.to_be_bytes());
                data.extend([0, 0, 64, TCP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            }
            None => {
                data.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, TCP, 64]);
                data.extend([0x20; 32]);
            }
        }
        data.extend([0x9c, 0x40, 0, 80]);
        data.extend(seq.to_be_bytes());
        data.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        data.extend([7; 20]);
        data
    }

    fn has(repeats: &mut Repeats, time_ns: u64, data: &[u8]) -> bool {
        let wire_len = data.len() as u32;
        repeats.has(&Observation { time_ns, interface: 0, link: ETHERNET, data, wire_len })
    }

    #[test]
    fn each_further_copy_is_one() {
        let mut repeats = Repeats::default();
        for packet in 0..100 {
            let data = segment(Some(packet + 1), None, packet.into());
            let copies =
                [0, 1, 2, 3].map(|copy| has(&mut repeats, u64::from(packet) * 10_000_000 + copy * 1_500, &data));
            assert_eq!(copies, [false, true, true, true]);
        }
        assert_eq!((repeats.count(), repeats.afar()), (300, None));
    }

    #[test]
    fn the_same_packet_in_another_vlan_is_of_another_flow() {
        let mut repeats = Repeats::default();
        let in_vlan = |vlan| segment(Some(1), Some(vlan), 1);
        assert!(!has(&mut repeats, 0, &in_vlan(10)));
        assert!(!has(&mut repeats, 40_000, &in_vlan(20)));
        assert!(has(&mut repeats, 80_000, &in_vlan(10)));
    }

    #[test]
    fn a_packet_on_another_interface_of_a_capture_of_all_is_no_copy_and_of_no_other_place() {
        let mut repeats = Repeats::default();
        let mut pass = |time_ns: u64, interface: u8, number: u16| {
            let mut data = vec![0x08, 0, 0, 0, 0, 0, 0, interface, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0];
            data.extend(&segment(Some(number), None, number.into())[14..]);
            repeats.has(&Observation { time_ns, interface: 0, link: 276, wire_len: data.len() as u32, data: &data })
        };
        for packet in 0..1000_u16 {
            let at_ns = u64::from(packet) * 50_000_000;
            assert!(!pass(at_ns, 2, packet + 1) && !pass(at_ns + 20_000, 3, packet + 1));
            assert!(!pass(at_ns + 20_000_000, 4, packet + 1), "behind a slow path");
            assert!(pass(at_ns + 20_001_000, 4, packet + 1));
        }
        assert_eq!(repeats.afar(), None);
    }

    #[test]
    fn a_segment_without_an_identification_that_passes_again_was_sent_again_unless_the_capture_has_copies() {
        let mut repeats = Repeats::default();
        let data = segment(None, None, 1);
        assert!(!has(&mut repeats, 0, &data));
        assert!(!has(&mut repeats, 300_000, &data), "sent again within a data center");
        let mut forwarded = data.clone();
        // The hop limit.
        forwarded[14 + 7] -= 1;
        assert!(has(&mut repeats, 310_000, &forwarded));
        let mut mirrored = Repeats::default();
        let numbered = segment(Some(1), None, 1);
        assert_eq!([0, 1_000].map(|time_ns| has(&mut mirrored, time_ns, &numbered)), [false, true]);
        assert_eq!([2_000, 3_000].map(|time_ns| has(&mut mirrored, time_ns, &data)), [false, true]);
    }

    /// The kernel leaves the checksum of such a tunnel to the device, so that it is constant here.
    #[test]
    fn packets_in_a_tunnel_that_differ_in_their_inner_headers_alone_are_no_copies() {
        let mut repeats = Repeats::default();
        let tunneled = |number: u8| {
            let mut data = vec![0; 12];
            data.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 102, 17, 64]);
            data.extend([0x20; 32]);
            data.extend([0xe0, 0, 0x12, 0xb5, 0, 102, 0x40, 0xfe, 8, 0, 0, 0, 0, 0, 7, 0]);
            data.extend(segment(None, None, number.into()));
            data
        };
        for number in 0..50 {
            assert!(!has(&mut repeats, u64::from(number) * 10_000, &tunneled(number)), "{number}");
        }
        assert!(!has(&mut repeats, 600_000, &tunneled(49)), "the segment in it was sent again");
        let mut forwarded = tunneled(49);
        forwarded[14 + 7] -= 1;
        assert!(has(&mut repeats, 610_000, &forwarded));
    }

    #[test]
    fn segments_that_pass_again_much_later_are_of_another_place() {
        let pass_at_two_places = |numbers_again: u16| {
            let mut repeats = Repeats::default();
            for (after_ns, numbers) in [(0, 1), (500_000_000, 1 + numbers_again)] {
                for packet in 0..100_u16 {
                    let at_ns = after_ns + u64::from(packet) * 1_000_000;
                    assert!(!has(&mut repeats, at_ns, &segment(Some(packet + numbers), None, packet.into())));
                }
            }
            repeats.afar()
        };
        assert_eq!(pass_at_two_places(0), Some(100));
        assert_eq!(pass_at_two_places(10_000), None, "all was sent again");
    }
}
