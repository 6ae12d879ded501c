//! What a collector leaves out.

/// What agents sent and the collector did not take, or not as it was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// Values of counters beyond an agent's quota of names.
    pub(super) counters: u64,
    /// Names of hooks beyond an agent's quota; the intervals are stored without them.
    pub(super) hooks: u64,
    /// Byte traces with times that cannot be true.
    pub(super) misdated: u64,
    /// Intervals with times that cannot be true, which are stored with the nearest time that can.
    pub(super) times_clamped: u64,
    /// Clock samples for which there was no room in the spool.
    pub(super) clock_samples: u64,
    /// Matched flows that could not be remembered as such.
    pub(super) matched_flows: u64,
    /// Agents that were refused because the store has no room for another host.
    pub(super) hosts: u64,
}

impl LeftOut {
    pub(super) fn add(&mut self, other: LeftOut) {
        let LeftOut { counters, hooks, misdated, times_clamped, clock_samples, matched_flows, hosts } = other;
        self.counters += counters;
        self.hooks += hooks;
        self.misdated += misdated;
        self.times_clamped += times_clamped;
        self.clock_samples += clock_samples;
        self.matched_flows += matched_flows;
        self.hosts += hosts;
    }
}
