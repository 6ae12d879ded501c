//! The clients' memory of session tickets, which let them send 0-RTT data.

use std::collections::VecDeque;

/// Number of tickets that a client keeps, the newest ones, as rustls does.
const MAX_TICKETS: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Ticket {
    server: u16,
    /// When the client received it.
    received_ns: u64,
}

/// All clients, indexed by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    tickets: Vec<VecDeque<Ticket>>,
    /// When each client would have received its first ticket if no request had waited; 0 if it never connected.
    first_ticket_ns: Vec<u64>,
}

impl Clients {
    /// Returns the index of a client, and makes room for it.
    fn index(&mut self, client: u32) -> usize {
        let index = client as usize;
        if index >= self.tickets.len() {
            self.tickets.resize_with(index + 1, VecDeque::new);
            self.first_ticket_ns.resize(index + 1, 0);
        }
        index
    }

    /// Whether a connection that starts at `start_ns` could use 0-RTT under an ideal policy: the client would have
    /// received a ticket before. `ticket_ns` is when the client would receive a ticket from this connection.
    pub(crate) fn could_resume(&mut self, client: u32, start_ns: u64, ticket_ns: u64) -> bool {
        let index = self.index(client);
        match self.first_ticket_ns[index] {
            0 => {
                self.first_ticket_ns[index] = ticket_ns.max(1);
                false
            }
            first_ticket_ns => first_ticket_ns <= start_ns,
        }
    }

    /// Uses up the newest ticket. Returns the server that issued it.
    pub(crate) fn use_ticket(&mut self, client: u32, now_ns: u64) -> Option<u16> {
        let index = self.index(client);
        let tickets = &mut self.tickets[index];
        let newest = tickets.iter().rposition(|ticket| ticket.received_ns <= now_ns)?;
        tickets.remove(newest).map(|ticket| ticket.server)
    }

    /// Adds `count` tickets from a server, which arrive at `received_ns`.
    pub(crate) fn add_tickets(&mut self, client: u32, server: u16, received_ns: u64, count: u32) {
        let index = self.index(client);
        let tickets = &mut self.tickets[index];
        for _ in 0..count {
            if tickets.len() == MAX_TICKETS {
                tickets.pop_front();
            }
            tickets.push_back(Ticket { server, received_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_used_once_and_the_newest_first() {
        let mut clients = Clients::default();
        assert_eq!(clients.use_ticket(3, 100), None);
        clients.add_tickets(3, 7, 50, 2);
        clients.add_tickets(3, 9, 60, 1);
        assert_eq!(clients.use_ticket(3, 49), None);
        assert_eq!(clients.use_ticket(3, 55), Some(7));
        assert_eq!(clients.use_ticket(3, 70), Some(9));
        assert_eq!(clients.use_ticket(3, 70), Some(7));
        assert_eq!(clients.use_ticket(3, 70), None);
        clients.add_tickets(3, 1, 80, 20);
        assert_eq!((0..30).filter_map(|_| clients.use_ticket(3, 90)).count(), MAX_TICKETS);
    }

    #[test]
    fn a_client_that_had_a_ticket_could_use_0_rtt() {
        let mut clients = Clients::default();
        assert!(!clients.could_resume(0, 0, 40));
        assert!(!clients.could_resume(0, 39, 79));
        assert!(clients.could_resume(0, 40, 80));
        assert!(!clients.could_resume(1, 1000, 1040));
    }
}
