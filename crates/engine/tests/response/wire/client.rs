//! The client: requests, the rules by which it acknowledges, and its own timer.

use dwell_engine::abi;
use rand::RngExt;

use super::{
    Acks, Answer, Event, LEAST_ACK_NS, LEAST_RETRANSMISSION_NS, PUSH, Packet, QUICK, Run, Segment, Stamps, pop_while,
};
use crate::support::{MS, US, tcp};

impl Run<'_> {
    /// Sends a packet of the client, with data or without.
    pub(super) fn emit(&mut self, seq: u32, bytes: u32, is_end: bool) {
        let faults = self.setting.faults;
        let packet = Packet { seq, bytes, ack: self.client.received.next };
        self.client.acked = packet.ack;
        self.client.is_due = false;
        self.client.quick = self.client.quick.saturating_sub(1);
        let mut seen_ns = self.now_ns;
        if let Some(passed) = seen_ns.checked_div(self.setting.thin_ns) {
            seen_ns = (passed + 1) * self.setting.thin_ns;
            self.traffic.packets.pop_if(|last| last.time_ns == seen_ns && last.payload_bytes == 0);
        }
        if self.happens(faults.late_requests) {
            seen_ns += self.random.random_range(50 * US..3 * MS);
        }
        if bytes == 0 && self.happens(faults.unseen_acks) {
            return;
        }
        let mut seen = self.shape(tcp(seen_ns, seq, bytes, packet.ack));
        seen.tsecr = if self.setting.stamps == Stamps::None { 0 } else { self.client.stamp };
        seen.tcp_flags |= if is_end { PUSH } else { 0 };
        let is_head = self.setting.is_text && bytes > 0 && self.client.heads.contains(&seq);
        seen.content = if is_head { abi::DWELL_CONTENT_TEXT as u8 } else { 0 };
        self.traffic.packets.push(seen);
        if !self.happens(if bytes > 0 { faults.lost_requests } else { faults.lost_acks }) {
            self.at(seen_ns + self.one_way_ns(), Event::ToServer(packet));
        }
    }

    /// Sends requests, and waits for all of their answers.
    pub(super) fn ask(&mut self) {
        self.client.turns += 1;
        if self.now_ns - self.client.received_ns < self.client.patience_ns {
            self.client.is_interactive = true;
        }
        for _ in 0..self.setting.depth {
            let bytes = self.draw(self.setting.request_bytes).max(1) as u32;
            let answer = self.draw(self.setting.answer_bytes).max(1) as u32;
            let writes = self.setting.writes.min(bytes);
            self.client.answers_end += answer;
            self.client.waiting.push_back((self.now_ns, self.client.answers_end));
            let end = self.client.next + bytes;
            self.client.heads.insert(self.client.next);
            for write in 0..writes {
                let unsent = end - self.client.next;
                let mut rest = if write + 1 < writes { unsent.div_ceil(2) } else { unsent };
                while rest > 0 {
                    let size = rest.min(self.mss());
                    rest -= size;
                    self.client.unacked.push_back((self.client.next, size));
                    self.emit(self.client.next, size, rest == 0);
                    self.client.next += size;
                    self.now_ns += 6 * US;
                }
            }
            self.server.requests.push_back((end, answer));
        }
        self.arm_client();
    }

    fn arm_client(&mut self) {
        self.client.timer += 1;
        let wait_ns = (LEAST_RETRANSMISSION_NS + 2 * self.setting.rtt_ns) << self.client.backoff.min(5);
        self.at(self.now_ns + wait_ns, Event::ClientTimer(self.client.timer));
    }

    pub(super) fn client_timer(&mut self) {
        let Some(&(seq, bytes)) = self.client.unacked.front() else { return };
        self.emit(seq, bytes, true);
        self.client.backoff += 1;
        self.arm_client();
    }

    /// Looks at segments that came together.
    pub(super) fn take(&mut self, segments: &[Segment]) {
        let mut at_once = false;
        let before = self.client.received.next;
        for segment in segments {
            if segment.seq <= self.client.acked && self.setting.stamps != Stamps::Frozen {
                self.client.stamp = self.client.stamp.max(segment.stamp);
            }
            self.client.largest = self.client.largest.max(segment.bytes);
            at_once |= self.client.received.take(segment.seq, segment.bytes);
            if pop_while(&mut self.client.unacked, |(seq, bytes)| seq + bytes <= segment.ack).count() > 0 {
                self.client.backoff = 0;
            }
        }
        if self.client.unacked.is_empty() {
            self.client.timer += 1;
        }
        if self.client.received.next > before {
            self.follow(self.now_ns - self.client.received_ns);
            self.client.received_ns = self.now_ns;
        }
        self.acknowledge(at_once);
        self.finish();
    }

    /// Adapts Linux's patience to the time between segments, and enters a phase of quick ACKs after a pause.
    fn follow(&mut self, passed_ns: u64) {
        let client = &mut self.client;
        if passed_ns <= LEAST_ACK_NS / 2 {
            client.patience_ns = client.patience_ns / 2 + LEAST_ACK_NS / 2;
        } else if passed_ns < client.patience_ns {
            client.patience_ns = (client.patience_ns / 2 + passed_ns).min(LEAST_RETRANSMISSION_NS);
        } else if passed_ns > LEAST_RETRANSMISSION_NS + self.setting.rtt_ns {
            client.quick = client.quick.max(QUICK);
        }
    }

    fn acknowledge(&mut self, at_once: bool) {
        let pending = self.client.received.next - self.client.acked;
        if at_once {
            (self.client.quick, self.client.is_interactive, self.client.patience_ns) = (QUICK, false, LEAST_ACK_NS);
        }
        let (is_now, due_ns) = match self.setting.acks {
            Acks::AtOnce => (true, 0),
            Acks::Linux { jiffy_ns } => {
                let is_quick = self.client.quick > 0 && !self.client.is_interactive;
                let most_ns = LEAST_ACK_NS.max(self.setting.rtt_ns);
                let wait_ns = self.client.patience_ns.min(most_ns) + self.random.random_range(0..jiffy_ns);
                (pending > self.client.largest.max(536) || is_quick, self.now_ns + wait_ns)
            }
            Acks::Every { segments, timer_ns } => (pending >= segments * self.mss(), self.now_ns + timer_ns),
            Acks::Strikes { period_ns } => (pending >= 2 * self.mss(), (self.now_ns / period_ns + 1) * period_ns),
        };
        if at_once || (is_now && pending > 0) {
            self.now_ns += 15 * US;
            self.emit(self.client.next, 0, false);
        } else if pending > 0 && !self.client.is_due {
            self.client.is_due = true;
            self.client.ack_timer += 1;
            self.at(due_ns, Event::AckTimer(self.client.ack_timer));
        }
    }

    pub(super) fn ack_timer(&mut self) {
        if self.client.is_interactive {
            self.client.is_interactive = false;
            self.client.patience_ns = LEAST_ACK_NS;
        } else {
            self.client.patience_ns = (2 * self.client.patience_ns).min(LEAST_RETRANSMISSION_NS);
        }
        self.emit(self.client.next, 0, false);
    }

    /// Notes answers that are complete. When all are, the client thinks, and asks again.
    fn finish(&mut self) {
        let next = self.client.received.next;
        let done: Vec<(u64, u32)> = pop_while(&mut self.client.waiting, |(_, end)| end <= next).collect();
        let is_done = !done.is_empty() && self.client.waiting.is_empty();
        for (asked_ns, _) in done {
            self.traffic.answers.push(Answer { asked_ns, came_ns: self.now_ns });
            if self.happens(self.setting.window_updates) {
                let later_ns = self.random.random_range(0..30 * MS);
                self.at(self.now_ns + later_ns, Event::WindowUpdate);
            }
        }
        if !is_done {
            return;
        }
        let think_ns = self.draw(self.setting.think_ns);
        self.at(self.now_ns + 40 * US + think_ns, Event::Ask);
        if self.setting.keepalive_ns > 0 {
            self.at(self.now_ns + self.setting.keepalive_ns, Event::KeepAlive(self.client.turns));
        }
    }
}
