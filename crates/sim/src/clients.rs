//! What clients remember: tickets, with which they may send 0-RTT data.

use std::collections::VecDeque;

/// A client keeps so many, the newest of them: as rustls does.
const KEPT: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Ticket {
    server: u16,
    /// When the client has it.
    since_ns: u64,
}

/// All clients, by number.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    tickets: Vec<VecDeque<Ticket>>,
    /// When each would have had its first ticket if nobody had waited; 0: never connected.
    first_ns: Vec<u64>,
}

impl Clients {
    fn reach(&mut self, client: u32) -> usize {
        let at = client as usize;
        if at >= self.tickets.len() {
            self.tickets.resize_with(at + 1, VecDeque::new);
            self.first_ns.resize(at + 1, 0);
        }
        at
    }

    /// True if this connection could have 0-RTT, whatever the policy: the client has had a ticket by
    /// then. `ticket_ns` is when this connection gives one.
    pub(crate) fn could(&mut self, client: u32, start_ns: u64, ticket_ns: u64) -> bool {
        let at = self.reach(client);
        match self.first_ns[at] {
            0 => {
                self.first_ns[at] = ticket_ns.max(1);
                false
            }
            first_ns => first_ns <= start_ns,
        }
    }

    /// The newest ticket, which is used up by that: who gave it.
    pub(crate) fn take(&mut self, client: u32, now_ns: u64) -> Option<u16> {
        let at = self.reach(client);
        let tickets = &mut self.tickets[at];
        let newest = tickets.iter().rposition(|ticket| ticket.since_ns <= now_ns)?;
        tickets.remove(newest).map(|ticket| ticket.server)
    }

    /// A server gives so many.
    pub(crate) fn give(&mut self, client: u32, server: u16, since_ns: u64, count: u32) {
        let at = self.reach(client);
        let tickets = &mut self.tickets[at];
        for _ in 0..count {
            if tickets.len() == KEPT {
                tickets.pop_front();
            }
            tickets.push_back(Ticket { server, since_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_the_newest_goes_first() {
        let mut clients = Clients::default();
        assert_eq!(clients.take(3, 100), None);
        clients.give(3, 7, 50, 2);
        clients.give(3, 9, 60, 1);
        assert_eq!(clients.take(3, 49), None);
        assert_eq!(clients.take(3, 55), Some(7));
        assert_eq!(clients.take(3, 70), Some(9));
        assert_eq!(clients.take(3, 70), Some(7));
        assert_eq!(clients.take(3, 70), None);
        clients.give(3, 1, 80, 20);
        assert_eq!((0..30).filter_map(|_| clients.take(3, 90)).count(), KEPT);
    }

    #[test]
    fn who_had_a_ticket_could_have_0_rtt() {
        let mut clients = Clients::default();
        assert!(!clients.could(0, 0, 40));
        assert!(!clients.could(0, 39, 79));
        assert!(clients.could(0, 40, 80));
        assert!(!clients.could(1, 1000, 1040));
    }
}
