//! What a service of a capture waits for at another one that it asks meanwhile: as a proxy does. A request waits there as long,
//! and that is counted once, where it was spent.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use crate::measure::Endpoint;

/// Waits that are remembered of a host that asks; older ones make room.
const MAX_WAITS: usize = 64;
/// Hosts that are remembered; of others nothing is passed on.
const MAX_HOSTS: usize = 4096;

/// A request and its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) client: IpAddr,
    pub(super) server: Endpoint,
    pub(super) asked_ns: u64,
    pub(super) answered_ns: u64,
}

/// The latest exchanges, by the host that asked, in the order of their answers.
#[derive(Debug, Default)]
pub(super) struct PassedOn(HashMap<IpAddr, VecDeque<Exchange>>);

impl PassedOn {
    /// Takes an exchange whose answer begins. Returns the part of it in which its server had asked others, one after the other, and
    /// waited for answers that came before its own. Each of these counts once: what is asked for several requests at the same time
    /// is not told apart, but its sum is right. On loopback all hosts have one address, but not one port.
    pub(super) fn take(&mut self, exchange: Exchange) -> u64 {
        let mut until_ns = exchange.answered_ns;
        let mut passed_on_ns = 0;
        if let Some(others) = self.0.get_mut(&exchange.server.address) {
            for at in (0..others.len()).rev() {
                let other = others[at];
                if other.answered_ns <= exchange.asked_ns {
                    break;
                }
                let is_before = other.asked_ns >= exchange.asked_ns && other.answered_ns <= until_ns;
                if is_before && other.server != exchange.server {
                    passed_on_ns += other.answered_ns.saturating_sub(other.asked_ns);
                    until_ns = other.asked_ns;
                    others.remove(at);
                }
            }
        }
        if self.0.len() < MAX_HOSTS || self.0.contains_key(&exchange.client) {
            let waits = self.0.entry(exchange.client).or_default();
            if waits.len() == MAX_WAITS {
                waits.pop_front();
            }
            waits.push_back(exchange);
        }
        passed_on_ns
    }
}
