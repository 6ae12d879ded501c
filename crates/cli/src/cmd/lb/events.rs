//! Writing the events of a balancer as JSON, one object per line. The balancer never waits for a slow reader.

use std::io::{self, Write};

use dwell_balancer::control::Event;
use dwell_records::{Source, Status, Verb};
use dwell_socket::clock::realtime_ns;

use super::object;
use crate::{
    queue::{self, Drain},
    source::{cost, host_name},
    statuses,
};

/// The number of events that wait for a slow reader. Further ones are lost.
const MAX_EVENTS: usize = 1024;

/// Starts to write to `out`. Returns a function that queues an event, and what waits for those that are not written. How many
/// were lost is in a status before the next event, and in another one at the end.
///
/// # Errors
///
/// If no thread can be started.
pub(super) fn start(
    out: impl Write + Send + 'static,
    report: impl FnMut(&io::Error) + Send + 'static,
) -> io::Result<(impl FnMut(&Event) + 'static, Drain)> {
    let (lines, drain) = queue::start(out, MAX_EVENTS, report, |lost, is_last| Some(status(lost, is_last)))?;
    let emit = move |event: &Event| lines.put(object(Some(&dwell_records::now()), event).into_bytes());
    Ok((emit, drain))
}

fn status(lost: u64, last: bool) -> Vec<u8> {
    let (verb, time_ns, counters) = (Verb::Lb, Some(realtime_ns()), Vec::new());
    let source = Source { host: Some(host_name()), ..Source::default() };
    statuses::line(&Status { verb, time_ns, last, lost, cost: cost(&[]), counters, verdict: None }, &source)
}
