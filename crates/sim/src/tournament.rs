//! A tournament tree that finds the server with the least work left.

/// Servers ordered by when they will be free. An update takes logarithmic time. Among idle servers, the one that has been
/// idle for longest wins.
pub(crate) struct Tournament {
    leaves: usize,
    /// A binary tree with its root at 1; the winners at 2n and 2n + 1 play for n.
    winners: Vec<u32>,
    free_at_ns: Vec<u64>,
}

impl Tournament {
    pub(crate) fn new(servers: usize) -> Tournament {
        let leaves = servers.next_power_of_two();
        let mut free_at_ns = vec![0; leaves];
        free_at_ns[servers..].fill(u64::MAX);
        let mut tournament = Tournament { leaves, winners: vec![0; 2 * leaves], free_at_ns };
        for server in 0..leaves {
            tournament.winners[leaves + server] = server as u32;
        }
        for node in (1..leaves).rev() {
            tournament.play(node);
        }
        tournament
    }

    fn play(&mut self, node: usize) {
        let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
        let free_at = |server: u32| self.free_at_ns[server as usize];
        self.winners[node] = if free_at(b) < free_at(a) { b } else { a };
    }

    /// Sets when a server will be free.
    pub(crate) fn set(&mut self, server: usize, free_at_ns: u64) {
        self.free_at_ns[server] = free_at_ns;
        let mut node = (self.leaves + server) / 2;
        while node > 0 {
            self.play(node);
            node /= 2;
        }
    }

    fn least(&self) -> usize {
        self.winners[1] as usize
    }

    /// Returns the server that is free first, and counts it as busy from now on: its work is about to follow.
    pub(crate) fn take(&mut self, now_ns: u64) -> usize {
        let least = self.least();
        self.set(least, self.free_at_ns[least].max(now_ns));
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_server_that_is_free_first_wins() {
        for servers in [1, 2, 3, 24, 64, 100] {
            let mut tournament = Tournament::new(servers);
            let mut random = Random::new(servers as u64);
            let mut free_at = vec![0; servers];
            for _ in 0..2000 {
                let (server, time) = (random.below(servers), random.next() >> 40);
                free_at[server] = time;
                tournament.set(server, time);
                assert_eq!(free_at[tournament.least()], *free_at.iter().min().unwrap());
            }
        }
    }
}
