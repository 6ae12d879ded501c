//! The gray failures of a fleet.

use serde::Serialize;

use super::Choice;
use crate::{Reader, Span, StoreError, read_gray::GrayRead};

/// Gray failures that are shown at most.
const MOST: usize = 200;

/// A gray failure as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct PageGray {
    from_ms: f64,
    /// Null if it is not known to have ended.
    to_ms: Option<f64>,
    /// Why it has ended.
    reason: Option<String>,
    pub(super) subject: String,
    component: String,
    /// Its own figure, its past, what was expected, and its peers', in nanoseconds or as shares.
    ns: Option<[u64; 4]>,
    shares: Option<[f64; 4]>,
    peers: u64,
    paths: Option<[u64; 2]>,
    per_week: f64,
}

/// Returns the gray failures of chosen hosts, the latest first, and how many there are in all.
pub(super) fn gray(store: &Reader, span: Span, choice: &Choice) -> Result<(Vec<PageGray>, u64), StoreError> {
    let (failures, known) = store.gray(span, &choice.hosts, MOST)?;
    Ok((failures.into_iter().map(PageGray::from).collect(), known))
}

impl From<GrayRead> for PageGray {
    fn from(failure: GrayRead) -> PageGray {
        let ms = |time_ns: i64| time_ns as f64 / 1e6;
        let [host, tx_host, rx_host] = failure.hosts.map(Option::unwrap_or_default);
        let subject = match failure.subject.as_str() {
            "host" => format!("host {host}"),
            "path" => format!("{tx_host} → {rx_host}"),
            _ => format!("port {}", failure.port.unwrap_or_default()),
        };
        let component = [failure.direction, Some(failure.component), failure.figure];
        PageGray {
            from_ms: ms(failure.since_ns),
            to_ms: failure.end.as_ref().map(|(ended_ns, _)| ms(*ended_ns)),
            reason: failure.end.map(|(_, reason)| reason),
            subject,
            component: component.into_iter().flatten().collect::<Vec<_>>().join(" "),
            ns: failure.times[0].map(|_| failure.times.map(Option::unwrap_or_default)),
            shares: failure.shares[0].map(|_| failure.shares.map(Option::unwrap_or_default)),
            peers: failure.peers,
            paths: failure.paths,
            per_week: failure.per_week,
        }
    }
}
