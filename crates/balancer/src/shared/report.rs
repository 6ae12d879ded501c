//! What a balancer tells the others at the end of each interval, and what the leading one makes of it.

use std::{collections::BTreeMap, net::IpAddr};

use dwell_engine::steer::{BackendStats, IntervalsConfig, Measured};
use serde::{Deserialize, Serialize};

use super::{
    exchange::Shareable,
    set::{FORMAT, are_few},
};

/// What a balancer has seen in its last interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The format of the report.
    pub format: u32,
    /// Whether the balancer holds its weights, as its connection table has no room for all connections.
    #[serde(default)]
    pub is_held: bool,
    /// What it has seen by address, port and protocol of the VIP.
    pub vips: BTreeMap<String, VipReport>,
}

/// What a balancer has seen of a VIP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VipReport {
    /// What [`super::set::digest`] makes of its configuration.
    #[serde(rename = "for")]
    pub digest: String,
    /// What it has seen by address of the backend.
    pub of: BTreeMap<IpAddr, BackendReport>,
}

/// What a balancer has seen of a backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// What it can send there, and what it wants to.
    #[serde(flatten)]
    pub view: View,
    /// The number of requests in the interval.
    #[serde(rename = "r", default)]
    pub requests: u64,
    /// The number of active connections at its end.
    #[serde(rename = "a", default)]
    pub active: u64,
    /// The response latency.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// Whether a balancer can send connections to a backend, and wants to; or what most balancers say of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Whether it passes its health checks; `None` before the first result, or without checks.
    #[serde(rename = "up", default, skip_serializing_if = "Option::is_none")]
    pub is_up: Option<bool>,
    /// Whether it cannot be reached.
    #[serde(rename = "off", default)]
    pub is_unreachable: bool,
    /// Whether an operator drains it.
    #[serde(rename = "drain", default)]
    pub is_draining: bool,
}

impl View {
    /// Whether the backend may get new connections.
    pub fn is_usable(&self) -> bool {
        self.is_up != Some(false) && !self.is_unreachable && !self.is_draining
    }
}

impl Shareable for Report {
    fn parse(bytes: &[u8]) -> Option<Report> {
        let report: Report = serde_json::from_slice(bytes).ok()?;
        let measured = report.vips.values().flat_map(|vip| vip.of.values()).filter_map(|of| of.measured.as_ref());
        let is_plausible = measured.into_iter().all(Measured::is_plausible);
        let is_good = report.format == FORMAT && is_plausible;
        (is_good && are_few(report.vips.values().map(|vip| vip.of.len()))).then_some(report)
    }

    /// Returns the report without what quantiles are made of, so that the mean has to do.
    fn shorter(&self) -> Report {
        let mut report = self.clone();
        let measured =
            report.vips.values_mut().flat_map(|vip| vip.of.values_mut()).filter_map(|of| of.measured.as_mut());
        measured.for_each(|measured| measured.histogram.clear());
        report
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Merges what balancers have seen of a backend: the view of most, and the statistics that one would have if it had all
/// their connections. `own` is of the leading balancer, whose configuration counts.
pub fn merge(config: &IntervalsConfig, own: &BackendStats, reports: &[&BackendReport]) -> (View, BackendStats) {
    let view = vote(reports.iter().map(|report| report.view));
    let sum = |of: fn(&BackendReport) -> u64| reports.iter().fold(0u64, |sum, report| sum.saturating_add(of(report)));
    let stats = BackendStats {
        latency: config.merged(reports.iter().filter_map(|report| report.measured.as_ref())),
        requests: sum(|report| report.requests),
        active: sum(|report| report.active),
        is_usable: view.is_usable(),
        ..*own
    };
    (view, stats)
}

/// Returns the view of most balancers. If as many say that a backend fails as that it does not, it counts as failing: what
/// those send there who see it fail would be lost. One operator's drain is enough.
fn vote(views: impl Iterator<Item = View>) -> View {
    let (mut up, mut down, mut reached, mut unreachable) = (0, 0, 0, 0);
    let mut is_draining = false;
    for view in views {
        up += usize::from(view.is_up == Some(true));
        down += usize::from(view.is_up == Some(false));
        *if view.is_unreachable { &mut unreachable } else { &mut reached } += 1;
        is_draining |= view.is_draining;
    }
    View {
        is_up: (up + down > 0).then_some(up > down),
        is_unreachable: unreachable > 0 && unreachable >= reached,
        is_draining,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(is_up: Option<bool>) -> View {
        View { is_up, ..View::default() }
    }

    #[test]
    fn the_view_of_most_counts_a_tie_is_a_failure_and_one_drain_is_enough() {
        let health = |views: &[Option<bool>]| vote(views.iter().map(|is_up| up(*is_up))).is_up;
        assert_eq!(health(&[]), None);
        assert_eq!(health(&[None, None]), None);
        assert_eq!(health(&[None, Some(true)]), Some(true));
        assert_eq!(health(&[Some(false), Some(true), Some(true)]), Some(true));
        assert_eq!(health(&[Some(false), Some(true), None]), Some(false));
        let off = View { is_unreachable: true, ..View::default() };
        let drained = View { is_draining: true, ..View::default() };
        assert!(vote([off, View::default()].into_iter()).is_unreachable);
        assert!(!vote([off, View::default(), View::default()].into_iter()).is_unreachable);
        assert!(vote([drained, View::default(), View::default()].into_iter()).is_draining);
        assert!(!vote([drained, View::default()].into_iter()).is_usable());
    }

    #[test]
    fn sums_are_of_all_and_the_latency_of_all_connections() {
        let config = IntervalsConfig::default();
        let measured = |connections: u32, ns: f64| {
            let weight = f64::from(connections);
            Measured {
                connections,
                weight,
                weighted_ns: weight * ns,
                squares: [weight, weight * ns, weight * ns * ns],
                ..Measured::default()
            }
        };
        let report = |connections: u32, ns: f64| BackendReport {
            requests: u64::from(connections) * 10,
            active: connections.into(),
            measured: Some(measured(connections, ns)),
            ..BackendReport::default()
        };
        let own = BackendStats {
            real: 3,
            configured: 2.0,
            latency: None,
            requests: 0,
            active: 0,
            strays: 0,
            is_usable: false,
        };
        let (view, stats) = merge(&config, &own, &[&report(3, 1e6), &report(9, 5e6)]);
        assert_eq!(view, View::default());
        assert_eq!((stats.real, stats.configured, stats.requests, stats.active), (3, 2.0, 120, 12));
        assert!(stats.is_usable);
        assert_eq!(stats.latency.map(|latency| latency.mean_ns), Some(4_000_000), "weighted by connections");
        assert_eq!(merge(&config, &own, &[&report(3, 1e6)]).1.latency, None);
    }

    #[test]
    fn what_is_not_a_report_is_refused() {
        let mut report = Report { format: FORMAT, ..Report::default() };
        let mut vip = VipReport::default();
        vip.of
            .insert([10, 0, 0, 1].into(), BackendReport { measured: Some(Measured::default()), ..Default::default() });
        report.vips.insert("web".into(), vip);
        let bytes = report.to_bytes();
        assert_eq!(Report::parse(&bytes), Some(report));
        let text = String::from_utf8(bytes).expect("it is JSON");
        let bad = text.replace("\"w\":0.0", "\"w\":-3.0");
        assert_ne!(bad, text);
        for bad in [&bad, "", "{}", "[1]", &text.replace("\"format\":1", "\"format\":9")] {
            assert_eq!(Report::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
