//! TCP segments of a few flows.

use std::collections::{BTreeSet, HashMap};

use dwell_engine::measure::Method;

use super::scene::{Meaning, Packet, Scene};
use crate::{bytes::Bytes, frame};

/// What one side of a flow has sent, so that inputs with few bits set stay in sequence. Both number spaces are about to
/// wrap.
#[derive(Clone, Copy)]
struct Side {
    next_seq: u32,
    tsval: u32,
}

impl Default for Side {
    fn default() -> Side {
        Side { next_seq: u32::MAX - 1000, tsval: u32::MAX - 20 }
    }
}

/// Bits of the kind.
mod kind {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const NO_ACK: u8 = 8;
    pub const NO_TS: u8 = 16;
    pub const SACK: u8 = 32;
    pub const ODD_OPTIONS: u8 = 64;
    pub const WINDOW: u8 = 128;
}

/// Reads records of seven bytes: sender, time step, sequence number (offset from the next in sequence, in hundreds of
/// bytes), acknowledgement (offset from the peer's next sequence number), timestamps (steps of TSval, age of the echo),
/// kind, length.
pub fn tcp(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut scene = Scene::new(&mut choices);
    let mut sides: HashMap<(u8, bool), Side> = HashMap::new();
    for [who, delta, seq, ack, ts, kind, len] in choices.records() {
        let stage = scene.stage(who, delta);
        let (from, to) = stage.endpoints(40_000, 80);
        let peer = *sides.entry((stage.flow, !stage.forward)).or_default();
        let side = sides.entry((stage.flow, stage.forward)).or_default();
        let hundreds = |from: u32, n: u8| from.wrapping_add_signed(i32::from(n as i8) * 100);

        let payload = match len {
            0..=0xf0 => u32::from(len & 15) * 100,
            _ => u32::from(len & 15) * 4000,
        };
        let seq = match seq {
            0x80 => side.next_seq ^ 1 << 31,
            seq => hundreds(side.next_seq, seq),
        };
        let acks = kind & kind::NO_ACK == 0;
        let ack = match ack {
            0x80 => peer.next_seq ^ 1 << 31,
            ack => hundreds(peer.next_seq, ack),
        };
        let occupied = payload + u32::from(kind & kind::SYN != 0) + u32::from(kind & kind::FIN != 0);
        let end = seq.wrapping_add(occupied);
        if end.wrapping_sub(side.next_seq) as i32 > 0 {
            side.next_seq = end;
        }
        side.tsval = match ts >> 4 {
            15 => side.tsval.wrapping_add(1 << 31),
            step => side.tsval.wrapping_add(step.into()),
        };
        let tsecr = match ts & 15 {
            15 => 0,
            age => peer.tsval.wrapping_sub(age.into()),
        };
        let ts = (kind & kind::NO_TS == 0).then_some((side.tsval, tsecr));

        let mut options = Vec::new();
        if kind & kind::ODD_OPTIONS != 0 {
            options.extend([2, 4, 5, 180, 1, 3, 3, 7, 4, 2]);
            options.resize(options.len() + usize::from(len >> 4), 1);
        }
        if let Some((value, echo)) = ts {
            if kind & kind::ODD_OPTIONS == 0 {
                options.extend([1, 1]);
            }
            options.extend([8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        // A truncated timestamp option is ignored.
        let ts = ts.filter(|_| options.len() <= 40);
        if kind & kind::SACK != 0 {
            options.extend([5, 10]);
            options.extend(ack.wrapping_add(100).to_be_bytes());
            options.extend(ack.wrapping_add(200).to_be_bytes());
        }
        options.truncate(40);
        let flags = kind & (kind::FIN | kind::SYN | kind::RST) | if acks { 16 } else { 0 };
        let window = if kind & kind::WINDOW == 0 { 1000 } else { 1000 + u16::from(len >> 4) };
        let l4 = frame::tcp((from.port, to.port), seq, if acks { ack } else { 0 }, flags, window, &options);
        let l4_len = l4.len() + payload as usize;
        let meaning = Meaning::Tcp { seq, end, ack: acks.then_some(ack), ts };
        scene.feed(stage, Packet { proto: 6, from, to, l4, l4_len, meaning });
    }
    scene.finish()
}
