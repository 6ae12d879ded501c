//! What limited a sender, once all of its packets have passed.

use super::{
    super::{
        super::{Part, Times, figures::Silences},
        flights::{Known, Limit},
    },
    Path, Sender,
};

/// Where the window of the peer is the limit for this share of the time of transfers, it may be a limit at other times too.
const OF_WINDOW: f64 = 0.25;
/// From this share of the time of transfers on, data waited in a queue on its way to the place of the capture.
const QUEUED: f64 = 0.3;
/// Reordering counts as such from more than one overtaken segment in this many.
const OVERTAKEN: u64 = 200;
/// Anything shorter does not count as a queue.
const QUEUE_NS: f64 = 10e6;

impl Sender {
    /// Ends the observation; `is_here` says that the capture was taken at its host. Returns the times in which it was busy.
    pub(in crate::why::capture) fn finish(&mut self, now_ns: u64, path: Path, knows: Known, is_here: bool) -> Times {
        self.settle_stall(now_ns);
        let spent = std::mem::take(&mut self.since_progress);
        self.times.plus(&spent);
        self.settle_burst(now_ns, path);
        let mss = self.mss();
        let is_flat = is_here && self.figures.again == 0 && self.flights.is_flat(mss);
        if let Some(limited_ns) = self.scales.limited_ns(mss, is_flat) {
            let parts = [Part::Transfer, Part::RemoteQueue, Part::Distance, Part::Answer];
            self.times.shift_from(&parts, Part::ReceiverWindow, limited_ns);
        }
        let transfer = self.times.get(Part::Transfer);
        let is_of_window = self.times.get(Part::ReceiverWindow) >= transfer;
        let is_queued = self.queued_ns as f64 >= QUEUED * (transfer + self.times.get(Part::RemoteQueue));
        let limit = match knows {
            // Packets that overtake each other are acknowledged in bursts, which look like pauses.
            _ if is_of_window || self.figures.overtaken * OVERTAKEN > self.figures.segments => Limit::Congestion,
            _ if is_queued => Limit::Queue,
            Known::Whole => self.flights.limit(true),
            // Bursts may be of a queue.
            Known::Path if self.queued_ns > 0 && self.flights.limit(true) == Limit::Application => Limit::Unknown,
            Known::Path => self.flights.limit(self.rested > 0),
            // An application that pauses loses nothing.
            Known::Nothing if self.figures.again > 0 => Limit::Congestion,
            Known::Nothing => Limit::Unknown,
        };
        let limit = match limit {
            Limit::Application | Limit::SendBuffer if self.is_paced() => Limit::Unknown,
            // Acknowledgements that make room in the window of the peer are followed as closely.
            Limit::SendBuffer if self.times.get(Part::ReceiverWindow) > OF_WINDOW * transfer => Limit::Unknown,
            limit => limit,
        };
        if limit == Limit::Queue
            && knows != Known::Whole
            && is_queued
            && self.in_queue < QUEUE_NS * self.queued_ns as f64
        {
            // It is longer by what the shortest way had of it.
            let queue = self.times.get(Part::RemoteQueue);
            self.times.shift(Part::RemoteQueue, Part::Unexplained, queue);
        }
        match limit {
            Limit::Congestion => {}
            Limit::SendBuffer => self.times.shift(Part::Transfer, Part::SendBuffer, transfer),
            Limit::Application => {
                self.times.shift(Part::Transfer, Part::Application, transfer);
                let (count, sum_ns) = self.flights.pauses();
                self.figures.pauses = Silences { count, sum_ns, longest_ns: 0 };
            }
            Limit::Queue if self.times.get(Part::LocalQueue) > self.times.get(Part::RemoteQueue) => {
                self.times.shift(Part::Transfer, Part::LocalQueue, transfer);
            }
            Limit::Queue => self.times.shift(Part::Transfer, Part::RemoteQueue, transfer),
            Limit::Unknown => self.times.shift(Part::Transfer, Part::Unexplained, transfer),
        }
        self.times
    }
}
