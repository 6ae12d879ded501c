//! Causal pairs: a request, and the one that its answer made the client send.

use std::collections::HashMap;

use super::log::{Log, Request};

/// A request whose answer made the client send another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) sent_ns: u64,
    pub(super) done_ns: u64,
    /// When the request that it triggered was sent.
    pub(super) triggered_ns: u64,
    /// Another answer that came meanwhile triggered requests too.
    pub(super) staggered: bool,
}

impl Pair {
    pub(super) fn request_to_response_ns(&self) -> f64 {
        self.done_ns.saturating_sub(self.sent_ns) as f64
    }

    pub(super) fn request_to_request_ns(&self) -> f64 {
        self.triggered_ns.saturating_sub(self.sent_ns) as f64
    }
}

/// What a connection did, as its requests tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    /// In the order of answers.
    pairs: Vec<Pair>,
    /// When requests were sent, ascending; those of one write have one time.
    sent_ns: Vec<u64>,
}

impl Pairs {
    pub(super) fn of_each(log: &Log) -> HashMap<u16, Self> {
        let connections = log.requests.iter();
        connections.map(|(&connection, requests)| (connection, Self::new(requests))).collect()
    }

    fn new(requests: &[Request]) -> Self {
        let by_id: HashMap<u64, u64> = requests.iter().map(|request| (request.id, request.sent_ns)).collect();
        let mut pairs: Vec<Pair> = requests
            .iter()
            .filter_map(|request| {
                let &triggered_ns = by_id.get(&request.triggers?)?;
                Some(Pair { sent_ns: request.sent_ns, done_ns: request.done_ns, triggered_ns, staggered: false })
            })
            .collect();
        pairs.sort_by_key(|pair| pair.done_ns);
        let done_ns: Vec<u64> = pairs.iter().map(|pair| pair.done_ns).collect();
        for pair in &mut pairs {
            let first = done_ns.partition_point(|&done_ns| done_ns <= pair.sent_ns);
            pair.staggered = done_ns[first] < pair.done_ns;
        }
        let mut sent_ns: Vec<u64> = requests.iter().map(|request| request.sent_ns).collect();
        sent_ns.sort_unstable();
        Self { pairs, sent_ns }
    }

    /// Those whose answer came in that time.
    pub(super) fn answered(&self, (start_ns, end_ns): (u64, u64)) -> &[Pair] {
        let at = |ns| self.pairs.partition_point(|pair| pair.done_ns < ns);
        &self.pairs[at(start_ns)..at(end_ns)]
    }

    /// The share of requests sent in that time that went in one write with others.
    pub(super) fn share_in_company(&self, span: (u64, u64)) -> f64 {
        let sent_ns = self.sent(span);
        let alone = sent_ns.chunk_by(|one, other| one == other);
        let alone = alone.filter(|write| write.len() == 1).count();
        match sent_ns.len() {
            0 => 0.0,
            count => 1.0 - alone as f64 / count as f64,
        }
    }

    /// From start to start of batches, where a longer gap parts two of them, of batches that start in that time.
    pub(super) fn batches_ns(&self, span: (u64, u64), threshold_ns: f64) -> Vec<f64> {
        let first = self.sent_ns.partition_point(|&sent_ns| sent_ns < span.0);
        let starts_batch = |n: &usize| *n > 0 && (self.sent_ns[*n] - self.sent_ns[n - 1]) as f64 > threshold_ns;
        // The batch under way when the epoch began started at its last start before, or with the connection.
        let mut start = (0..first).rev().find(starts_batch).unwrap_or(0);
        let mut found = Vec::new();
        for n in (first..first + self.sent(span).len()).filter(starts_batch) {
            found.push((self.sent_ns[n] - self.sent_ns[start]) as f64);
            start = n;
        }
        found
    }

    fn sent(&self, (start_ns, end_ns): (u64, u64)) -> &[u64] {
        let at = |ns| self.sent_ns.partition_point(|&sent_ns| sent_ns < ns);
        &self.sent_ns[at(start_ns)..at(end_ns)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(requests: &[(u64, u64, u64, Option<u64>)]) -> Pairs {
        let requests: Vec<Request> = requests
            .iter()
            .map(|&(id, sent_ns, done_ns, triggers)| Request { id, sent_ns, done_ns, triggers })
            .collect();
        Pairs::new(&requests)
    }

    #[test]
    fn a_pair_spans_from_a_request_to_the_one_that_its_answer_triggered() {
        let pairs = pairs(&[(0, 100, 200, Some(1)), (1, 205, 300, None), (2, 205, 340, Some(3)), (3, 350, 400, None)]);
        let found: Vec<(f64, f64, bool)> = pairs
            .answered((0, 1000))
            .iter()
            .map(|pair| {
                let (response, request) = (pair.request_to_response_ns(), pair.request_to_request_ns());
                (response, request, pair.staggered)
            })
            .collect();
        assert_eq!(found, [(100.0, 105.0, false), (135.0, 145.0, false)]);
        assert_eq!(pairs.answered((200, 340)).len(), 1);
        // two of the four went together
        assert_eq!(pairs.share_in_company((0, 1000)), 0.5);
        assert_eq!(pairs.share_in_company((300, 1000)), 0.0);
        assert_eq!(pairs.share_in_company((900, 1000)), 0.0);
    }

    #[test]
    fn answers_that_trigger_requests_while_others_are_waited_for_are_staggered() {
        // a window of two: each answer triggers a request, and comes while another is outstanding
        let pairs = pairs(&[
            (0, 0, 100, Some(2)),
            (1, 0, 200, Some(3)),
            (2, 101, 300, Some(4)),
            (3, 201, 400, None),
            (4, 301, 500, None),
        ]);
        let staggered: Vec<bool> = pairs.answered((0, 1000)).iter().map(|pair| pair.staggered).collect();
        assert_eq!(staggered, [false, true, true]);
    }

    #[test]
    fn a_threshold_parts_batches() {
        let sent = [0, 10, 20, 500, 510, 900, 910, 2000];
        let pairs = pairs(&sent.map(|sent_ns| (sent_ns, sent_ns, sent_ns + 1, None)));
        assert_eq!(pairs.batches_ns((0, 3000), 300.0), [500.0, 400.0, 1100.0]);
        // the second batch began before
        assert_eq!(pairs.batches_ns((505, 1000), 300.0), [400.0]);
        assert_eq!(pairs.batches_ns((0, 3000), 450.0), [500.0, 1500.0]);
        assert_eq!(pairs.batches_ns((0, 500), 300.0), [0.0; 0]);
    }
}
