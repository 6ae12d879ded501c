//! What balancers publish for each other of QUIC servers: the load that each server has reported last, and its heavy clients.

use std::{collections::BTreeMap, net::IpAddr};

use dwell_engine::{quic_lb::Stamp, steer::zero_rtt::MOST_HEAVY};
use serde::{Deserialize, Serialize};

use super::{
    exchange::Shareable,
    set::{FORMAT, are_few},
};

/// What a balancer knows of the servers of its VIPs with the policy `zero-rtt`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuicReport {
    /// The format of the report.
    pub format: u32,
    /// Servers by address, by address, port and protocol of the VIP.
    pub vips: BTreeMap<String, BTreeMap<IpAddr, ServerReport>>,
}

/// What a balancer knows of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// The load that it reported last, as the word of a [`Stamp`]; 0 if it has reported none.
    #[serde(rename = "l", default)]
    pub load: u64,
    /// Its heavy clients and the packets of each, at most [`MOST_HEAVY`], the heaviest first.
    #[serde(rename = "h", default, skip_serializing_if = "Vec::is_empty")]
    pub heavy: Vec<(IpAddr, u32)>,
}

impl ServerReport {
    /// Returns the load that it reported last.
    pub fn stamp(&self) -> Option<Stamp> {
        (self.load != 0).then(|| Stamp::from_word(self.load))
    }
}

impl Shareable for QuicReport {
    fn parse(bytes: &[u8]) -> Option<QuicReport> {
        let report: QuicReport = serde_json::from_slice(bytes).ok()?;
        let mut servers = report.vips.values().flat_map(BTreeMap::values);
        let is_bounded = servers.all(|server| server.heavy.len() <= MOST_HEAVY as usize);
        let is_good = report.format == FORMAT && is_bounded;
        (is_good && are_few(report.vips.values().map(BTreeMap::len))).then_some(report)
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn shorter(&self) -> QuicReport {
        let mut report = self.clone();
        report.vips.values_mut().flat_map(BTreeMap::values_mut).for_each(|server| server.heavy.clear());
        report
    }
}

/// Returns the clients that are heavy at some of several balancers, each with the packets of the one that has most, the heaviest
/// first.
pub fn heaviest(reports: &[&ServerReport]) -> Vec<(IpAddr, u32)> {
    let mut packets_of = BTreeMap::new();
    for (client, packets) in reports.iter().flat_map(|report| &report.heavy) {
        let most: &mut u32 = packets_of.entry(*client).or_default();
        *most = (*most).max(*packets);
    }
    let mut heavy: Vec<(IpAddr, u32)> = packets_of.into_iter().collect();
    heavy.sort_by_key(|(client, packets)| (std::cmp::Reverse(*packets), *client));
    heavy.truncate(MOST_HEAVY as usize);
    heavy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [198, 51, 100, number].into()
    }

    fn report(load: u64, heavy: Vec<(IpAddr, u32)>) -> QuicReport {
        let servers = BTreeMap::from([([10, 0, 0, 1].into(), ServerReport { load, heavy })]);
        QuicReport { format: FORMAT, vips: BTreeMap::from([("web".into(), servers)]) }
    }

    #[test]
    fn the_heaviest_clients_of_all_count() {
        let first = ServerReport { load: 7 << 16 | 900, heavy: vec![(client(1), 50), (client(2), 9)] };
        let heavy = (1..=40).rev().map(|number| (client(number), number.into())).collect();
        let all = heaviest(&[&first, &ServerReport { load: 0, heavy }]);
        assert_eq!(all.len(), MOST_HEAVY as usize);
        assert_eq!(all[..2], [(client(1), 50), (client(40), 40)]);
        assert_eq!(all.last(), Some(&(client(10), 10)));
        assert_eq!(first.stamp().map(Stamp::to_word), Some(7 << 16 | 900));
        assert_eq!((ServerReport::default().stamp(), heaviest(&[])), (None, Vec::new()));
    }

    #[test]
    fn what_is_not_a_report_or_has_too_many_clients_is_refused() {
        let good = report(5, vec![(client(1), 5)]);
        assert_eq!(QuicReport::parse(&good.to_bytes()), Some(good.clone()));
        let clients = (0..=MOST_HEAVY as u8).map(|number| (client(number), 1)).collect();
        let bad = QuicReport { format: 9, ..good.clone() };
        for bytes in [report(5, clients).to_bytes(), bad.to_bytes(), b"{}".to_vec(), b"[".to_vec()] {
            assert_eq!(QuicReport::parse(&bytes), None);
        }
        assert_eq!(good.shorter(), report(5, Vec::new()));
    }
}
