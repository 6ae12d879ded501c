//! The server: work on requests, the window, what is sent again, and the path to the client.

use rand::RngExt;

use super::{Draw, Event, LEAST_ACK_NS, LEAST_RETRANSMISSION_NS, Packet, Run, Segment, pop_while};
use crate::support::{MS, SECOND, US};

impl Run<'_> {
    /// Handles a packet that came to the server.
    pub(super) fn serve(&mut self, packet: Packet) {
        self.confirmed(packet);
        let before = self.server.received.next;
        self.server.received.take(packet.seq, packet.bytes);
        let next = self.server.received.next;
        if packet.bytes > 0 || packet.seq < next {
            let is_soon = next == before || next - self.server.confirmed > self.mss();
            self.at(self.now_ns + if is_soon { 10 * US } else { LEAST_ACK_NS }, Event::Confirm);
        }
        if next == before && packet.seq < next {
            self.server.confirmed = self.server.confirmed.min(next - 1); // known already: confirmed again
        }
        let asked: Vec<(u32, u32)> = pop_while(&mut self.server.requests, |(end, _)| end <= next).collect();
        for (_, answer) in asked {
            self.work(answer);
        }
    }

    /// Works on a request after those before it, and writes the answer in pieces.
    fn work(&mut self, answer: u32) {
        let service_ns = self.draw(self.setting.service_ns);
        self.server.busy_ns = self.server.busy_ns.max(self.now_ns) + service_ns;
        let pieces = self.setting.pieces.clamp(1, answer);
        for piece in 0..pieces {
            if piece > 0 {
                self.server.busy_ns += self.draw(self.setting.between_ns);
            }
            let bytes = answer / pieces + if piece == 0 { answer % pieces } else { 0 };
            self.at(self.server.busy_ns, Event::Write(bytes));
        }
    }

    pub(super) fn write(&mut self, bytes: u32) {
        let mut rest = bytes;
        while rest > 0 {
            let size = rest.min(self.mss());
            rest -= size;
            self.server.segments.push_back((self.server.written, size));
            self.server.written += size;
        }
        self.pump();
    }

    /// Sends what the window allows.
    fn pump(&mut self) {
        let was_flying = self.server.flying;
        while self.server.flying < self.server.window.min(self.server.segments.len()) {
            let (seq, bytes) = self.server.segments[self.server.flying];
            self.server.flying += 1;
            self.carry(seq, bytes);
        }
        if was_flying == 0 && self.server.flying > 0 {
            self.arm_server();
        }
    }

    fn arm_server(&mut self) {
        self.server.timer += 1;
        let rtt_ns = self.setting.rtt_ns;
        let wait_ns = match self.server.backoff {
            0 if self.is_probe() => 2 * rtt_ns + 5 * MS,
            backoff => (LEAST_RETRANSMISSION_NS + 2 * rtt_ns) << backoff.min(5),
        };
        self.at(self.now_ns + wait_ns, Event::ServerTimer(self.server.timer));
    }

    /// Returns whether the last segment is sent again before the timer, because an ACK of several is missing (RFC 8985).
    fn is_probe(&self) -> bool {
        self.setting.is_probing && self.server.flying > 1 && self.server.backoff == 0
    }

    pub(super) fn server_timer(&mut self) {
        let (seq, bytes) = self.server.segments[self.server.flying - 1];
        if self.is_probe() {
            self.carry(seq, bytes);
        } else {
            self.send_again();
            self.server.recovers = Some(seq);
        }
        self.server.backoff += 1;
        self.arm_server();
    }

    fn send_again(&mut self) {
        if let Some(&(seq, bytes)) = self.server.segments.front() {
            self.carry(seq, bytes);
        }
    }

    /// Handles the acknowledgement of a packet: new ones open the window, three repeated ones show a loss.
    fn confirmed(&mut self, packet: Packet) {
        let server = &mut self.server;
        if packet.ack <= server.unacked {
            server.repeats += u32::from(packet.ack == server.unacked && packet.bytes == 0 && server.flying > 0);
            if server.repeats == 3 && server.recovers.is_none() {
                server.recovers = server.segments.get(server.flying - 1).map(|(seq, _)| *seq);
                server.window = (server.window / 2).max(2);
                self.send_again();
            }
            return;
        }
        server.unacked = packet.ack;
        (server.repeats, server.backoff) = (0, 0);
        let gone = pop_while(&mut server.segments, |(seq, bytes)| seq + bytes <= packet.ack).count();
        server.flying -= gone;
        server.window = (server.window + gone).min(64);
        if server.recovers.is_some_and(|seq| packet.ack > seq) {
            server.recovers = None;
        }
        if server.recovers.is_some() && server.flying > 0 {
            self.send_again();
        }
        if self.server.flying > 0 {
            self.arm_server();
        }
        self.pump();
    }

    /// Sends a segment of the server over the path to the client.
    pub(super) fn carry(&mut self, seq: u32, bytes: u32) {
        let faults = self.setting.faults;
        self.server.confirmed = self.server.received.next;
        let segment = Segment { seq, bytes, stamp: self.stamp(self.now_ns), ack: self.server.confirmed };
        let takes_ns = u64::from(bytes + 66) * 8 * SECOND / self.setting.bits_per_second;
        self.line_ns = self.line_ns.max(self.now_ns) + takes_ns;
        let queue_ns = self.draw(Draw::Exponential(self.setting.jitter_ns));
        let mut arrives_ns = self.line_ns + self.one_way_ns() + queue_ns;
        if self.happens(faults.late_answers) {
            arrives_ns += self.random.random_range(200 * US..8 * MS);
        } else {
            arrives_ns = arrives_ns.max(self.newest_ns);
            self.newest_ns = arrives_ns;
        }
        if !self.happens(faults.lost_answers) {
            self.at(arrives_ns, Event::ToClient(segment));
        }
    }
}
