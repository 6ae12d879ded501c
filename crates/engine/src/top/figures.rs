//! The figures of a row in one interval.

use super::Metric;

/// The figures of a flow, or of several flows, in an interval. `None` is unknown, and not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// The round-trip time, of those that were measured in the interval; of several flows the mean.
    pub rtt_ns: Option<u64>,
    /// How long the server took to respond; of several flows the mean.
    pub response_ns: Option<u64>,
    /// How long the server took or has taken so far, where no mean is believed: an estimate that is not, the most that it can be, or at
    /// least how long the last request has waited; of several flows the mean.
    pub doubted_response_ns: Option<u64>,
    /// How long bytes waited in the send buffer before they were sent for the first time: the bytes that waited at the
    /// polls, divided by the rate at which bytes left (Little's law). Of several flows the mean.
    pub send_buffer_ns: Option<u64>,
    /// Segments with data that were sent, including those sent again.
    pub segments_sent: Option<u64>,
    /// Segments that were sent again.
    pub retransmissions: Option<u64>,
    /// Bits per second that the other end acknowledged.
    pub sent_bps: Option<u64>,
    /// Bits per second that arrived in order.
    pub received_bps: Option<u64>,
    /// Bits per second in both directions.
    pub rate_bps: Option<u64>,
}

impl Figures {
    /// Returns the value by which rows are ranked: also one that is in doubt, as nobody looks for a slow server below quick ones.
    pub fn rank(&self, metric: Metric) -> Option<u64> {
        let doubted = self.doubted_response_ns.filter(|_| metric == Metric::Response);
        self.value(metric).or(doubted)
    }

    /// Returns the value of a metric.
    pub fn value(&self, metric: Metric) -> Option<u64> {
        match metric {
            Metric::Rtt => self.rtt_ns,
            Metric::Response => self.response_ns,
            Metric::SendBuffer => self.send_buffer_ns,
            Metric::Retransmissions => self.retransmissions,
            Metric::Rate => self.rate_bps,
        }
    }
}

/// Adds up the figures of several flows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    rtt: Mean,
    response: Mean,
    doubted_response: Mean,
    send_buffer: Mean,
    totals: Figures,
}

/// A mean of nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    pub(super) fn add(&mut self, ns: u64) {
        self.sum = self.sum.saturating_add(ns);
        self.count += 1;
    }

    /// Adds as many as `count`, of which this is the mean.
    pub(super) fn add_many(&mut self, ns: u64, count: u64) {
        self.sum = self.sum.saturating_add(ns.saturating_mul(count));
        self.count = self.count.saturating_add(count);
    }

    pub(super) fn get(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}

impl Sums {
    pub(super) fn add(&mut self, figures: &Figures) {
        for (mean, value) in [
            (&mut self.rtt, figures.rtt_ns),
            (&mut self.response, figures.response_ns),
            (&mut self.doubted_response, figures.doubted_response_ns),
            (&mut self.send_buffer, figures.send_buffer_ns),
        ] {
            if let Some(ns) = value {
                mean.add(ns);
            }
        }
        let totals = &mut self.totals;
        for (total, value) in [
            (&mut totals.segments_sent, figures.segments_sent),
            (&mut totals.retransmissions, figures.retransmissions),
            (&mut totals.sent_bps, figures.sent_bps),
            (&mut totals.received_bps, figures.received_bps),
            (&mut totals.rate_bps, figures.rate_bps),
        ] {
            if let Some(value) = value {
                *total = Some(total.unwrap_or(0).saturating_add(value));
            }
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            rtt_ns: self.rtt.get(),
            response_ns: self.response.get(),
            doubted_response_ns: self.doubted_response.get().filter(|_| self.response.get().is_none()),
            send_buffer_ns: self.send_buffer.get(),
            ..self.totals
        }
    }
}
