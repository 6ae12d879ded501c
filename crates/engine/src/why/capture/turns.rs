//! How long requests waited for the service: what their answer took beyond the way from the place of the capture to the server
//! and back, whichever end's data was under way meanwhile.

use super::{
    super::{Part, Times, figures::Silences},
    sender::Sender,
};

/// The parts of a message under way, and those of a longer one.
const UNDER_WAY: [Part; 2] = [Part::Distance, Part::Answer];
const IN_TRANSFER: [Part; 2] = [Part::Transfer, Part::RemoteQueue];

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Turns {
    request: Option<Request>,
    waits: Silences,
    /// The part of the silences before answers in which packets travelled.
    way_ns: u64,
    /// Of the waits, what counts as data of each end that was under way.
    under_way: [Times; 2],
    /// Of a client whose requests are seen where the server has them, what counts as the transfer of one while it waited.
    transferred: Times,
    /// The times when the server sent data last, if the client has not asked since.
    answered: Option<[Times; 2]>,
    /// By how much more of each end's data under way is the distance than what it was under way for.
    distance_ns: [f64; 2],
    /// The part of the silences before requests in which the answer travelled.
    back_ns: u64,
    /// Requests that had all that was sent before, and whose answer began no sooner than it can.
    whole: u64,
    /// Of transfers, what passed when the client had the answer.
    late_transfer_ns: f64,
}

/// A request whose answer has not begun.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// When the answer of a service that takes no time can pass.
    due_ns: u64,
    is_whole: bool,
    asked: [Times; 2],
    /// The silence by then, and the times of data under way.
    by_then: Option<(u64, [Times; 2])>,
}

impl Turns {
    /// Takes data of the client, which may be the end of a request, given the ways from the place of the capture to the client
    /// and to the server, and back. It `is_whole` if it acknowledges all that was sent before.
    pub(super) fn ask(
        &mut self,
        now_ns: u64,
        silence_ns: u64,
        ways_ns: (u64, u64),
        is_whole: bool,
        senders: &[Sender; 2],
    ) {
        let spent = under_way(senders);
        let mut left_ns = if self.answered.is_some() { ways_ns.0 as f64 } else { 0.0 };
        for (side, before) in self.answered.take().into_iter().flatten().enumerate() {
            let [distance_ns, late_ns] = UNDER_WAY.map(|part| spent[side].get(part) - before.get(part));
            // An answer of many segments is a transfer, which goes the same way.
            let transfer_ns = spent[side].total() - before.total() - distance_ns - late_ns;
            self.late_transfer_ns += (transfer_ns - left_ns).max(0.0);
            left_ns = (left_ns - transfer_ns).max(0.0);
            let way_ns = (distance_ns + late_ns).clamp(0.0, left_ns);
            self.distance_ns[side] += way_ns - distance_ns;
            left_ns -= way_ns;
        }
        self.back_ns += silence_ns.min(left_ns as u64);
        self.request =
            Some(Request { due_ns: now_ns.saturating_add(ways_ns.1), is_whole, asked: spent, by_then: None });
    }

    /// Takes the request once more, as its sender took it for lost: it comes to the server after the way there. Returns whether
    /// its answer has not begun.
    pub(super) fn ask_again(&mut self, now_ns: u64, way_ns: u64, senders: &[Sender; 2]) -> bool {
        let Some(request) = &mut self.request else {
            return false;
        };
        let due_ns = now_ns.saturating_add(way_ns);
        *request = Request { due_ns, asked: under_way(senders), by_then: None, ..*request };
        true
    }

    /// Returns when the wait for the service begins, if that is still to come.
    pub(super) fn due(&self) -> Option<u64> {
        self.request.filter(|request| request.by_then.is_none()).map(|request| request.due_ns)
    }

    /// Notes what was attributed until the wait for the service begins, once it does.
    pub(super) fn reach(&mut self, now_ns: u64, silence_ns: u64, senders: &[Sender; 2]) {
        let is_due = |request: &&mut Request| request.by_then.is_none() && request.due_ns <= now_ns;
        if let Some(request) = self.request.as_mut().filter(is_due) {
            let spent = under_way(senders);
            for ((distance_ns, now), before) in self.distance_ns.iter_mut().zip(spent).zip(request.asked) {
                *distance_ns += (now.get(Part::Answer) - before.get(Part::Answer)).max(0.0);
            }
            request.by_then = Some((silence_ns, spent));
        }
    }

    /// Takes data of the server, which begins the answer if a request waits. The end of this number is a client whose requests the
    /// server has when they pass.
    pub(super) fn answer(&mut self, now_ns: u64, silence_ns: u64, at_server_of: Option<usize>, senders: &[Sender; 2]) {
        let spent = under_way(senders);
        self.answered = Some(spent);
        let Some(request) = self.request.take() else { return };
        let Some((silence_before_ns, before)) = request.by_then else {
            self.way_ns += silence_ns;
            return;
        };
        self.whole += u64::from(request.is_whole);
        let way_ns = silence_before_ns.min(silence_ns);
        self.way_ns += way_ns;
        let mut wait_ns = silence_ns - way_ns;
        for ((sum, now), before) in self.under_way.iter_mut().zip(spent).zip(before) {
            for part in UNDER_WAY {
                let ns = (now.get(part) - before.get(part)).max(0.0);
                sum.add(part, ns);
                wait_ns += ns as u64;
            }
        }
        if let Some(client) = at_server_of {
            for part in IN_TRANSFER {
                let ns = (spent[client].get(part) - before[client].get(part)).max(0.0);
                self.transferred.add(part, ns);
                wait_ns += ns as u64;
            }
        }
        // A repair or a full window is no wait for the service.
        if wait_ns >= now_ns.saturating_sub(request.due_ns) / 2 {
            self.waits.add(wait_ns);
        }
    }

    /// Names what an end's data was under way: what passed while the service had the request is its time, and what passed while a
    /// request was on its way is the distance, however late the acknowledgement. Between an answer and the next request that is the
    /// way to the client and back at most: what passed beyond it was late.
    pub(super) fn name(&self, times: &mut Times, side: usize) {
        UNDER_WAY.iter().for_each(|part| times.shift(*part, Part::Service, self.under_way[side].get(*part)));
        times.shift(Part::Answer, Part::Distance, self.distance_ns[side]);
        times.shift(Part::Distance, Part::Answer, -self.distance_ns[side]);
    }

    /// Names what the data of a client was under way whose requests the server has when they pass: what passed until the answer is
    /// that, and what passed until the next request, up to the way to the client and back, is the distance.
    pub(super) fn name_at_server(&self, times: &mut Times, client: usize) {
        times.shift(Part::Answer, Part::Distance, self.distance_ns[client]);
        times.shift(Part::Distance, Part::Answer, self.under_way[client].get(Part::Distance));
        IN_TRANSFER.iter().for_each(|part| times.shift(*part, Part::Answer, self.transferred.get(*part)));
    }

    /// Returns how much of the silences before requests the answer was on its way to the client.
    pub(super) fn back_ns(&self) -> f64 {
        self.back_ns as f64
    }

    /// Returns the number of requests that followed one another, and of transfers what passed when the client had the answer.
    pub(super) fn whole(&self) -> (u64, f64) {
        (self.whole, self.late_transfer_ns)
    }

    /// Returns how long the service took, given the silences before its answers; and how much of these silences.
    pub(super) fn served(&self, silences: Silences) -> (Silences, u64) {
        let silent_ns = silences.sum_ns.saturating_sub(self.way_ns);
        let under_way_ns = self.under_way.iter().map(|times| times.sum(&UNDER_WAY)).sum::<f64>() as u64;
        let served = Silences {
            count: self.waits.count.max(silences.count),
            sum_ns: silent_ns + under_way_ns,
            longest_ns: self.waits.longest_ns,
        };
        (served, silent_ns)
    }
}

fn under_way(senders: &[Sender; 2]) -> [Times; 2] {
    senders.each_ref().map(Sender::spent)
}
