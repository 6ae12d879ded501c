//! Questions of DNS in a capture, and how long their clients waited: until the first answer, whichever server gave it and however
//! often it was asked for.

use std::{collections::HashMap, net::IpAddr};

use crate::{filter::Filter, measure::Protocol, names::DOMAIN, rtt::native::Payload};

/// Questions without an answer that are followed at once; the oldest make room.
const MAX_OPEN: usize = 1024;
/// A client that asks again later begins another look-up.
const SAME_LOOK_UP_NS: u64 = 15_000_000_000;
/// A client waits this long for a server that does not answer (the default of resolv.conf).
const TIMEOUT_NS: u64 = 5_000_000_000;
/// A question that was asked within so short a time before the end of the capture may still be answered.
const LATE_NS: u64 = 1_000_000_000;
/// The longest name and its type and class, in bytes.
const LONGEST: usize = 255 + 4;

/// The look-ups that are going on.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// By client and question.
    open: HashMap<(IpAddr, Box<[u8]>), LookUp>,
    /// Look-ups that no server answered.
    pub(super) unanswered: u64,
}

#[derive(Debug, Clone, Copy)]
struct LookUp {
    first_ns: u64,
    last_ns: u64,
}

impl Questions {
    /// Takes a packet. Returns how long a client has waited that waits no longer.
    pub(super) fn take(&mut self, time_ns: u64, payload: &Payload<'_>, filter: &Filter) -> Option<u64> {
        if payload.protocol != Protocol(17) || !filter.admits(&payload.src, &payload.dst, payload.protocol) {
            return None;
        }
        let is_answer = payload.bytes.get(2)? & 0x80 != 0;
        let (client, server) = if is_answer { (payload.dst, payload.src) } else { (payload.src, payload.dst) };
        if server.port != DOMAIN {
            return None;
        }
        let key = (client.address, question(payload.bytes)?);
        if is_answer {
            return self.open.remove(&key).map(|asked| time_ns.saturating_sub(asked.first_ns));
        }
        if let Some(asked) =
            self.open.get_mut(&key).filter(|asked| time_ns.saturating_sub(asked.last_ns) <= SAME_LOOK_UP_NS)
        {
            asked.last_ns = asked.last_ns.max(time_ns);
            return None;
        }
        let mut given_up = self.open.remove(&key);
        if self.open.len() >= MAX_OPEN {
            given_up = self.oldest().and_then(|oldest| self.open.remove(&oldest));
        }
        self.open.insert(key, LookUp { first_ns: time_ns, last_ns: time_ns });
        given_up.map(|asked| self.give_up(asked, time_ns))
    }

    /// Returns the waits of those that were never answered, at the end of the capture.
    pub(super) fn finish(&mut self, end_ns: u64) -> Vec<u64> {
        let open: Vec<_> = std::mem::take(&mut self.open).into_values().collect();
        let is_over = |asked: &LookUp| end_ns.saturating_sub(asked.last_ns) >= LATE_NS;
        open.into_iter().filter(is_over).map(|asked| self.give_up(asked, end_ns)).collect()
    }

    fn give_up(&mut self, asked: LookUp, now_ns: u64) -> u64 {
        self.unanswered += 1;
        (asked.last_ns.saturating_sub(asked.first_ns)) + now_ns.saturating_sub(asked.last_ns).min(TIMEOUT_NS)
    }

    fn oldest(&self) -> Option<(IpAddr, Box<[u8]>)> {
        self.open.iter().min_by_key(|(_, asked)| asked.last_ns).map(|(key, _)| key.clone())
    }
}

/// Returns the only question of a message, in lower case: its name, type and class.
fn question(message: &[u8]) -> Option<Box<[u8]>> {
    /// An ordinary query with one question (RFC 1035, section 4.1.1).
    const OPERATION: u8 = 0x78;
    if message.get(2)? & OPERATION != 0 || message.get(4..6)? != [0, 1] {
        return None;
    }
    let after = message.get(12..)?;
    let mut end = 0;
    loop {
        match usize::from(*after.get(end)?) {
            0 => break,
            length if length < 64 => end += 1 + length,
            _ => return None,
        }
    }
    let question = after.get(..end + 5).filter(|question| question.len() <= LONGEST)?;
    Some(question.to_ascii_lowercase().into())
}
