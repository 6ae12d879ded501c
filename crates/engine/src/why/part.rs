//! The parts into which the time of connections is divided.

/// On whom or what a connection waited for a part of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// On the local application, which paused between two writes of one transfer.
    Application,
    /// On the local application, which had read a request and not written the answer.
    Service,
    /// On the local application, which had not read bytes that it could read.
    Reader,
    /// On the send buffer, which was too small for the window.
    SendBuffer,
    /// On the limit of its rate that was set for the socket, although the windows have room.
    Pacing,
    /// On TCP, which could not send as fast as the application wrote: known of stamped bytes alone.
    Backlog,
    /// On the peer's receive window.
    ReceiverWindow,
    /// On queues of this host, below TCP.
    LocalQueue,
    /// On queues of the path: what round trips took longer than the shortest.
    RemoteQueue,
    /// On the repair of losses.
    Loss,
    /// On a timeout, after which TCP sent a lost message again.
    Timeout,
    /// On the acknowledgement of the segment before, for which TCP held a small one back (Nagle).
    Held,
    /// On a congestion window that TCP made small after idleness.
    SlowStart,
    /// On the opening of connections: handshakes of TCP and TLS.
    SetUp,
    /// On name servers.
    Names,
    /// On the distance: shortest round trips of one or two segments, after each of which somebody acts.
    Distance,
    /// On the transfer of several segments at once, as fast as the path and TCP allow it.
    Transfer,
    /// On the peer's application and the way of its answer.
    Answer,
    /// On the peer, which paused between two parts of one transfer.
    PeerPause,
    /// On what the polls cannot tell.
    Unexplained,
}

impl Part {
    /// All parts, in the order in which they are shown: this host, the path, the peer.
    pub const ALL: [Part; 20] = [
        Part::Names,
        Part::SetUp,
        Part::Application,
        Part::Service,
        Part::Reader,
        Part::SendBuffer,
        Part::Pacing,
        Part::Backlog,
        Part::Held,
        Part::LocalQueue,
        Part::Distance,
        Part::SlowStart,
        Part::Transfer,
        Part::RemoteQueue,
        Part::Loss,
        Part::Timeout,
        Part::ReceiverWindow,
        Part::Answer,
        Part::PeerPause,
        Part::Unexplained,
    ];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Part::Application => "application",
            Part::Service => "service",
            Part::Reader => "reader",
            Part::SendBuffer => "send-buffer",
            Part::Pacing => "pacing",
            Part::Backlog => "send-backlog",
            Part::ReceiverWindow => "receive-window",
            Part::LocalQueue => "local-queue",
            Part::RemoteQueue => "path-queue",
            Part::Loss => "loss",
            Part::Timeout => "timeout",
            Part::Held => "held-back",
            Part::SlowStart => "slow-start",
            Part::SetUp => "set-up",
            Part::Names => "names",
            Part::Distance => "distance",
            Part::Transfer => "transfer",
            Part::Answer => "answer",
            Part::PeerPause => "peer-pause",
            Part::Unexplained => "unexplained",
        }
    }
}

/// Nanoseconds of each part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times([f64; Part::ALL.len()]);

impl Times {
    /// Returns the time of a part.
    pub fn get(&self, part: Part) -> f64 {
        self.0[part as usize]
    }

    /// Adds time to a part.
    pub fn add(&mut self, part: Part, ns: f64) {
        self.0[part as usize] += ns.max(0.0);
    }

    /// Moves up to `ns` from one part to another.
    pub fn shift(&mut self, from: Part, to: Part, ns: f64) {
        let moved = ns.clamp(0.0, self.get(from));
        self.0[from as usize] -= moved;
        self.0[to as usize] += moved;
    }

    /// Moves up to `ns` from parts, one after the other, to another. Returns what they lacked.
    pub(super) fn shift_from(&mut self, parts: &[Part], to: Part, ns: f64) -> f64 {
        parts.iter().fold(ns, |left, part| {
            let moved = self.get(*part).min(left);
            self.shift(*part, to, moved);
            left - moved
        })
    }

    /// Takes time from a part, down to none.
    pub fn take(&mut self, part: Part, ns: f64) {
        self.0[part as usize] = (self.get(part) - ns).max(0.0);
    }

    /// Takes all time from a part.
    pub fn remove(&mut self, part: Part) {
        self.0[part as usize] = 0.0;
    }

    /// Returns the time of several parts.
    pub fn sum(&self, parts: &[Part]) -> f64 {
        parts.iter().map(|part| self.get(*part)).sum()
    }

    /// Adds the times of all parts.
    pub fn plus(&mut self, other: &Times) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }

    /// Returns these times, each multiplied.
    pub fn scaled(&self, by: f64) -> Times {
        Times(self.0.map(|ns| ns * by))
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns a part's share of the sum, from 0 to 1; 0 if there is no time at all.
    pub fn share(&self, part: Part) -> f64 {
        self.share_of(&[part])
    }

    /// Returns the share of several parts in the sum of all, from 0 to 1; 0 if there is no time at all.
    pub fn share_of(&self, parts: &[Part]) -> f64 {
        let total = self.total();
        if total > 0.0 { self.sum(parts) / total } else { 0.0 }
    }
}
