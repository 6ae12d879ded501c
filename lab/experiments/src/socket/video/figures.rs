//! The figures of libdwell for a policy.

use std::time::Duration;

use dwell_socket::Info;

use super::policy::Figures;

/// The delay in the send buffer is that of the bytes that left last or, if it is longer, the age of the oldest byte in
/// it.
pub(in crate::socket) fn figures(info: &Info) -> Figures {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let nothing_waits = (info.notsent_bytes == Some(0)).then_some(Duration::ZERO);
    Figures {
        sender_delay_ns: info.sender_waiting.max(info.sender_delay).or(nothing_waits).map(ns),
        throughput_bps: info.throughput_bps,
        rtt_ns: info.rtt.map(ns),
        min_rtt_ns: info.min_rtt.map(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_counts_before_what_waited() {
        let ms = Duration::from_millis;
        let info = Info {
            sender_delay: Some(ms(5)),
            sender_waiting: Some(ms(9)),
            notsent_bytes: Some(100),
            rtt: Some(ms(60)),
            ..Info::default()
        };
        assert_eq!(figures(&info).sender_delay_ns, Some(9_000_000));
        assert_eq!(figures(&info).rtt_ns, Some(60_000_000));
        let idle = Info { notsent_bytes: Some(0), ..Info::default() };
        assert_eq!(figures(&idle).sender_delay_ns, Some(0));
        assert_eq!(figures(&Info::default()), Figures::default());
    }
}
