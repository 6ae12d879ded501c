//! Which collector of several gets what.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use dwell_engine::{
    clock::{Key, native::siphash},
    layers::{Ends, Isns},
    measure::Endpoint,
};

/// Time without a collector's welcome after which others get its share, and time with one after which it gets its share back.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// All agents have to agree on it, of all releases.
const KEY: Key = Key([0; 16]);

/// Returns the collector with the greatest score for a subject (rendezvous hashing): without one of them, the subjects of the
/// others stay where they are. `None` if there is none.
pub(super) fn winner<'a>(collectors: impl Iterator<Item = (usize, &'a str)>, subject: &[u8]) -> Option<usize> {
    let score = |address: &str| siphash(&KEY, &[address.as_bytes(), &[0], subject].concat());
    // Equal scores are as good as impossible; then the address decides, as on all hosts.
    collectors.max_by_key(|(_, address)| (score(address), *address)).map(|(number, _)| number)
}

/// Returns what stands for a flow: the same for both of its directions, and on both of its hosts.
pub(super) fn flow(ends: &Ends) -> Vec<u8> {
    let mut both = [ends.src, ends.dst].map(end);
    both.sort_unstable();
    both.concat()
}

/// Low bits of initial sequence numbers that are left out: the kernel of a connection that a socket without a backlog has accepted
/// (listen(2) with 0) is wrong by one about its own.
const UNSURE_BITS: u32 = 8;

/// Returns what stands for a connection: the same for both of its directions and on both of its hosts, whatever addresses they see.
pub(super) fn connection(Isns { src, dst }: Isns) -> Vec<u8> {
    let mut both = [src, dst].map(|isn| (isn >> UNSURE_BITS).to_be_bytes());
    both.sort_unstable();
    both.concat()
}

fn end(Endpoint { address, port }: Endpoint) -> [u8; 18] {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&Ipv6Addr::octets(&address));
    bytes[16..].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// Whether a collector gets its share. One that is busy does.
#[derive(Debug)]
pub(super) struct Health {
    is_down: bool,
    /// Since when it has welcomed the agent, or has not.
    since: Instant,
    is_welcome: bool,
}

impl Health {
    /// Starts with a collector that has not answered yet, which is not down.
    pub(super) fn new(now: Instant) -> Health {
        Health { is_down: false, since: now, is_welcome: false }
    }

    /// Notes that the collector has welcomed the agent, or that the connection was lost or refused.
    pub(super) fn note(&mut self, is_welcome: bool, now: Instant) {
        if self.is_welcome != is_welcome {
            (self.is_welcome, self.since) = (is_welcome, now);
        }
    }

    /// Returns whether the collector is down now.
    pub(super) fn is_down(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= PATIENCE {
            self.is_down = !self.is_welcome;
        }
        self.is_down
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn ends(number: u16) -> Ends {
        let end = |last, port| Endpoint { address: [192, 0, 2, last].into(), port };
        Ends { src: end(1, number), dst: end(2, 443) }
    }

    const COLLECTORS: [&str; 3] = ["a.example:4790", "b.example:4790", "c.example:4790"];

    fn winners(collectors: &[&str]) -> Vec<String> {
        let of = |number| {
            let winner = winner(collectors.iter().copied().enumerate(), &flow(&ends(number)));
            collectors[winner.unwrap()].to_owned()
        };
        (0..3_000).map(of).collect()
    }

    #[test]
    fn each_collector_has_its_share_and_without_one_only_its_flows_move() {
        let all = winners(&COLLECTORS);
        let mut shares: HashMap<&str, usize> = HashMap::new();
        all.iter().for_each(|winner| *shares.entry(winner).or_default() += 1);
        assert!(shares.values().all(|share| (900..1_100).contains(share)), "{shares:?}");
        let (reversed, fewer) = (["c.example:4790", "b.example:4790", "a.example:4790"], &COLLECTORS[..2]);
        assert_eq!(winners(&reversed), all, "the order of the list is nothing");
        for (before, after) in all.iter().zip(winners(fewer)) {
            assert!(before == COLLECTORS[2] || *before == after);
        }
        assert_eq!(winner([].into_iter(), b""), None);
    }

    /// Agents of different releases have to agree. The expected collectors were computed by an independent implementation of
    /// SipHash-2-4.
    #[test]
    fn both_ends_of_a_flow_and_both_directions_have_one_collector_which_no_release_changes() {
        for number in 0..100 {
            let Ends { src, dst } = ends(number);
            assert_eq!(flow(&ends(number)), flow(&Ends { src: dst, dst: src }));
        }
        let mapped = |end: Endpoint| Endpoint { address: "::ffff:192.0.2.1".parse().unwrap(), ..end };
        let Ends { src, dst } = ends(7);
        assert_eq!(flow(&Ends { src: mapped(src), dst }), flow(&ends(7)));
        let first: String = winners(&COLLECTORS)[..GOLDEN.len()].iter().map(|winner| &winner[..1]).collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: &str = "cbccbabccabbcabbaabaabcacccbaaac";

    /// As the test above; the numbers of connections are those of a congruential generator.
    #[test]
    fn both_directions_of_a_connection_have_one_collector_whatever_its_addresses_are() {
        let of = |number: u32| {
            let isns =
                Isns { src: number.wrapping_mul(2_654_435_761), dst: number.wrapping_mul(40_503).wrapping_add(77) };
            assert_eq!(connection(isns), connection(Isns { src: isns.dst, dst: isns.src }));
            let winner = winner(COLLECTORS.into_iter().enumerate(), &connection(isns));
            COLLECTORS[winner.unwrap()]
        };
        let first: String = (1..=32).map(|number| &of(number)[..1]).collect();
        assert_eq!(first, GOLDEN_CONNECTIONS);
        let shares = COLLECTORS.map(|collector| (0..3_000).filter(|number| of(*number) == collector).count());
        assert!(shares.iter().all(|share| (900..1_100).contains(share)), "{shares:?}");
    }

    const GOLDEN_CONNECTIONS: &str = "babacbaaaccabbabbacacacabcbbacba";

    #[test]
    fn a_collector_is_down_after_a_while_without_welcome_and_up_after_a_while_with_it() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut health = Health::new(begun);
        assert!(!health.is_down(at(9)) && health.is_down(at(10)));
        health.note(true, at(11));
        assert!(health.is_down(at(20)) && !health.is_down(at(21)));
        // A short interruption is none.
        health.note(false, at(30));
        assert!(!health.is_down(at(39)));
        health.note(true, at(39));
        assert!(!health.is_down(at(60)));
        health.note(false, at(60));
        health.note(false, at(65));
        assert!(health.is_down(at(70)));
    }
}
