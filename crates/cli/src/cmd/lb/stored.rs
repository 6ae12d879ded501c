//! `dwell lb run --store`: what each backend does in each interval.

use std::{collections::HashMap, mem};

use dwell_balancer::api::{BackendStatus, Status};
use dwell_records::{Keep, Source};
use dwell_socket::clock::{monotonic_ns, realtime_ns};
use dwell_store::{BackendRow, Recorder};

use crate::source::host_name;

/// The store, and what each backend had been sent by the end of the last interval.
pub(super) struct Backends {
    recorder: Recorder,
    host: String,
    /// Connections, packets and bytes, by the number of the backend in the kernel.
    totals: HashMap<u32, [u64; 3]>,
    /// The monotonic time of that end.
    last_ns: Option<u64>,
}

impl Backends {
    pub(super) fn new(recorder: Recorder) -> Backends {
        Backends { recorder, host: host_name(), totals: HashMap::new(), last_ns: None }
    }

    /// Stores an interval that has just ended.
    pub(super) fn store(&mut self, status: &Status) {
        let time_ns = realtime_ns().cast_signed();
        let now_ns = monotonic_ns();
        let since_ns = self.last_ns.replace(now_ns).map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        let length_ns = whole(since_ns, status.interval_ns);
        let before = mem::take(&mut self.totals);
        // A backend that was not there before has been sent nothing; at the start it is not known what was sent before.
        let was = |real| if before.is_empty() { None } else { Some(before.get(real).copied().unwrap_or_default()) };
        let rows = status.backends().map(|(vip, backend)| {
            let totals = [backend.connections, backend.packets, backend.bytes];
            self.totals.insert(backend.real, totals);
            let since = |was: [u64; 3]| [0, 1, 2].map(|at| totals[at].saturating_sub(was[at]));
            row((time_ns, length_ns), &self.host, vip, backend, was(&backend.real).map(since))
        });
        self.recorder.backends(rows);
    }

    /// Waits until all is stored. Returns what is missing, if anything is.
    pub(super) fn finish(mut self) -> Option<String> {
        self.recorder.finish(&Source::default())
    }
}

/// Returns the length of the intervals that have passed, which is more than that of one after a delay.
fn whole(since_ns: u64, interval_ns: u64) -> u64 {
    let intervals = (since_ns + interval_ns / 2) / interval_ns.max(1);
    interval_ns * intervals.max(1)
}

fn row<'a>(
    (time_ns, length_ns): (i64, u64),
    host: &'a str,
    vip: Option<&'a str>,
    backend: &'a BackendStatus,
    traffic: Option<[u64; 3]>,
) -> BackendRow<'a> {
    BackendRow {
        time_ns,
        length_ns,
        host,
        vip,
        backend: &backend.name,
        address: backend.address,
        state: backend.state(),
        why: backend.why(),
        weight: backend.weight,
        share: backend.share,
        active: backend.active,
        tracked: backend.tracked,
        pending: backend.pending.requests,
        pending_oldest_ns: backend.pending.oldest_ns,
        traffic,
        latency: backend.latency.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn a_row_after_a_delay_is_of_all_intervals_since_the_last_one() {
        for (since_ns, length_ns) in [(0, 200), (190, 200), (203, 200), (399, 400), (1_010, 1_000)] {
            assert_eq!(whole(since_ns, 200), length_ns, "{since_ns}");
        }
    }
}
