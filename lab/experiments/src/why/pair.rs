//! Two faults at the same time: both are to be named.

use std::time::Duration;

use super::{
    fault::{Fault, Series},
    setting::{Pattern, Setting, path},
};

/// The pairs: of the client or server, of the path, and of both.
const PAIRS: [(Fault, Fault); 11] = [
    (Fault::Distance, Fault::SlowAnswer),
    (Fault::TailLoss, Fault::SlowAnswer),
    (Fault::TailLoss, Fault::Distance),
    (Fault::Nagle, Fault::Distance),
    (Fault::SlowService, Fault::SlowAnswer),
    (Fault::PathQueue, Fault::SlowApplication),
    (Fault::LocalQueue, Fault::SlowApplication),
    (Fault::ReceiverWindow, Fault::Loss),
    (Fault::SmallSendBuffer, Fault::Loss),
    (Fault::SlowSetUp, Fault::SlowAnswer),
    (Fault::SlowStart, Fault::SlowAnswer),
];

/// The settings of a series: of each pair one in which the first fault weighs more, and one in which the second does.
pub fn settings(series: Series) -> Vec<Setting> {
    PAIRS
        .into_iter()
        .flat_map(|(first, second)| [false, true].map(|is_second| setting(first, second, series, is_second)))
        .collect()
}

fn setting(first: Fault, second: Fault, series: Series, is_second: bool) -> Setting {
    // One figure per series and weight.
    let weight = usize::from(is_second);
    let pick = |tuning: [u64; 2], reported: [u64; 2]| series.pick(tuning[weight], reported[weight]);
    let base = |strength: String| Setting { also: Some(second), ..first.base(series, strength) };
    let ms = Duration::from_millis;
    let percent = |permille: u64| permille as f64 / 1e3;
    let ask = |work, pause| Pattern::Ask { work: ms(work), pause: ms(pause) };
    let far = series.pick(50, 60);
    match (first, second) {
        (Fault::Distance, Fault::SlowAnswer) => {
            let (rtt, work) = (pick([80, 40], [100, 60]), pick([50, 70], [70, 90]));
            Setting {
                topology: path(rtt, 100, 200, 0.0),
                pattern: ask(work, 5),
                ..base(format!("{rtt} ms, answers after {work} ms"))
            }
        }
        (Fault::TailLoss, Fault::SlowAnswer) => {
            let (lost, work) = (pick([250, 150], [300, 200]), pick([40, 50], [60, 70]));
            let strength = format!("{:.0} % of messages, answers after {work} ms", lost as f64 / 10.0);
            Setting {
                topology: path(6, 100, 200, percent(lost)),
                pattern: ask(work, 5),
                least_seconds: 6,
                ..base(strength)
            }
        }
        (Fault::TailLoss, Fault::Distance) => {
            let (lost, rtt) = (pick([250, 150], [200, 120]), pick([60, 80], [50, 70]));
            let strength = format!("{:.0} % of messages, {rtt} ms", lost as f64 / 10.0);
            Setting {
                topology: path(rtt, 100, 200, percent(lost)),
                pattern: ask(0, 5),
                least_seconds: 6,
                ..base(strength)
            }
        }
        (Fault::Nagle, Fault::Distance) => {
            let rtt = pick([30, 60], [40, 80]);
            let strength = format!("requests in two writes, {rtt} ms");
            Setting { topology: path(rtt, 100, 200, 0.0), pattern: Pattern::Pieces { pause: ms(5) }, ..base(strength) }
        }
        (Fault::SlowService, Fault::SlowAnswer) => {
            let (work, behind) = (pick([40, 30], [60, 40]), pick([30, 50], [40, 60]));
            Setting {
                topology: path(2, 1_000, 1_000, 0.0),
                pattern: Pattern::Proxy { work: ms(work), behind: ms(behind), pause: ms(10) },
                at_server: true,
                ..base(format!("{work} ms, and {behind} ms at the service behind"))
            }
        }
        (Fault::PathQueue, Fault::SlowApplication) => {
            let (kib, pause) = (pick([512, 256], [640, 320]), pick([720, 500], [900, 600]));
            Setting {
                topology: path(series.pick(10, 16), 10, 200, 0.0),
                pattern: Pattern::Send { bytes: kib as usize * 1024, pause: ms(pause) },
                least_seconds: 5,
                ..base(format!("{kib} KiB at 10 Mbit/s, pauses of {pause} ms"))
            }
        }
        (Fault::LocalQueue, Fault::SlowApplication) => {
            let (kib, pause) = (pick([512, 256], [640, 320]), pick([720, 500], [900, 600]));
            Setting {
                topology: path(series.pick(4, 8), 1_000, 1_000, 0.0),
                pattern: Pattern::Send { bytes: kib as usize * 1024, pause: ms(pause) },
                qdisc: Some("tbf rate 10mbit burst 20kb latency 300ms".to_owned()),
                least_seconds: 5,
                ..base(format!("{kib} KiB at 10 Mbit/s, pauses of {pause} ms"))
            }
        }
        (Fault::ReceiverWindow, Fault::Loss) => {
            let (kib, lost) = (pick([16, 24], [12, 20]), pick([15, 30], [12, 25]));
            Setting {
                topology: path(far, 100, 200, percent(lost)),
                receive_buffer: Some(kib as usize * 1024),
                least_seconds: 4,
                ..base(format!("{kib} KiB, {:.1} % lost", lost as f64 / 10.0))
            }
        }
        (Fault::SmallSendBuffer, Fault::Loss) => {
            let (kib, lost) = (pick([12, 20], [10, 16]), pick([15, 30], [12, 25]));
            Setting {
                topology: path(far, 100, 200, percent(lost)),
                send_buffer: Some(kib as usize * 1024),
                least_seconds: 4,
                ..base(format!("{kib} KiB, {:.1} % lost", lost as f64 / 10.0))
            }
        }
        (Fault::SlowSetUp, Fault::SlowAnswer) => {
            let (lost, work) = (pick([150, 100], [200, 120]), pick([120, 150], [160, 200]));
            let strength = format!("{:.0} % of packets lost, answers after {work} ms", lost as f64 / 10.0);
            let pattern = Pattern::Connect { work: ms(work), pause: ms(5) };
            Setting { topology: path(10, 100, 200, percent(lost)), pattern, least_seconds: 10, ..base(strength) }
        }
        (Fault::SlowStart, Fault::SlowAnswer) => {
            let (rtt, work) = (pick([80, 60], [100, 70]), pick([250, 300], [300, 350]));
            Setting {
                topology: path(rtt, 100, 1_000, 0.0),
                pattern: Pattern::Burst { bytes: 1 << 20, work: ms(work), pause: ms(1_500) },
                least_seconds: 10,
                ..base(format!("1 MiB after 1.5 s each, {rtt} ms, answers after {work} ms"))
            }
        }
        other => unreachable!("{other:?} is not a pair"),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_pair_has_two_settings_in_each_series_and_none_is_in_two() {
        let all: Vec<_> = Series::value_variants().iter().flat_map(|series| settings(*series)).collect();
        assert_eq!(all.len(), 3 * 2 * PAIRS.len());
        let all: Vec<_> = all.iter().map(|it| Setting { series: Series::Tuning, ..it.clone() }).collect();
        for (index, setting) in all.iter().enumerate() {
            assert!(setting.also.is_some() && !all[..index].contains(setting), "{setting:?}");
        }
    }
}
