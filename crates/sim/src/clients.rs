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
    /// Whether each client has connected.
    has_connected: Vec<bool>,
}

impl Clients {
    /// Returns the index of a client, and makes room for it.
    fn index(&mut self, client: u32) -> usize {
        let index = client as usize;
        if index >= self.tickets.len() {
            self.tickets.resize_with(index + 1, VecDeque::new);
            self.has_connected.resize(index + 1, false);
        }
        index
    }

    /// Records a connection of a client. Returns whether the client had connected before.
    pub(crate) fn connect(&mut self, client: u32) -> bool {
        let index = self.index(client);
        std::mem::replace(&mut self.has_connected[index], true)
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
    fn only_the_first_connection_of_a_client_is_its_first() {
        let mut clients = Clients::default();
        assert_eq!([3, 3, 1, 3, 1].map(|client| clients.connect(client)), [false, true, false, true, true]);
    }
}
