//! Goals of the comparison of `dwell run` with iperf3 and ss.

use dwell_testbed::Nanos;

use super::figures::Figures;
use crate::{
    goal::Goal,
    print::{ms, percent},
};

/// The most by which means of round trips may differ, as a share: the programs read them at different times.
const MAX_RTT_DIFFERENCE: f64 = 0.05;
/// The most by which the least round trip may differ from that of ss, which reads it from the same socket.
const MAX_MIN_RTT_DIFFERENCE: Nanos = Nanos::from_micros(100);
/// The most by which the bytes may differ from those that iperf3's server received, as a share.
const MAX_BYTES_DIFFERENCE: f64 = 0.01;

/// Compares what `dwell run` reports with what the others do; `least` is the configured round trip.
pub(super) fn judge(dwell: &Figures, iperf3: &Figures, ss: &Figures, least: Nanos) -> Vec<Goal> {
    let mut goals: Vec<Goal> = [("ss", ss), ("iperf3", iperf3)]
        .into_iter()
        .map(|(name, other)| {
            let difference = share(dwell.rtt, other.rtt);
            within(&format!("mean round trip, compared with {name}"), difference, MAX_RTT_DIFFERENCE)
        })
        .collect();
    let difference = dwell.min_rtt.zip(ss.min_rtt).map(|(own, other)| own.0.abs_diff(other.0));
    goals.push(Goal {
        holds: difference.map(|ns| ns <= MAX_MIN_RTT_DIFFERENCE.0),
        what: format!(
            "least round trip differs by {} ms from that of ss, wanted: at most {}",
            ms(difference.map(Nanos)),
            ms(Some(MAX_MIN_RTT_DIFFERENCE))
        ),
    });
    goals.push(Goal {
        holds: dwell.min_rtt.map(|rtt| rtt >= least),
        what: format!(
            "least round trip of {} ms, wanted: no less than the path's {}",
            ms(dwell.min_rtt),
            ms(Some(least))
        ),
    });
    let bytes = share(dwell.bytes.map(Nanos), iperf3.bytes.map(Nanos));
    goals.push(within("bytes, compared with what iperf3's server received", bytes, MAX_BYTES_DIFFERENCE));
    let both = dwell.retransmissions.zip(iperf3.retransmissions);
    goals.push(Goal {
        holds: both.map(|(own, other)| own == other),
        what: format!(
            "{} retransmissions, wanted: the {} that iperf3 reports",
            count(dwell.retransmissions),
            count(iperf3.retransmissions)
        ),
    });
    goals
}

fn share(own: Option<Nanos>, other: Option<Nanos>) -> Option<f64> {
    let (own, other) = own.zip(other.filter(|other| other.0 > 0))?;
    Some(own.0 as f64 / other.0 as f64 - 1.0)
}

fn within(what: &str, difference: Option<f64>, most: f64) -> Goal {
    Goal {
        holds: difference.map(|difference| difference.abs() <= most),
        what: format!("{what}: {} %, wanted: within {} %", percent(difference), percent(Some(most))),
    }
}

fn count(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures {
        rtt: Some(Nanos::from_millis(380)),
        min_rtt: Some(Nanos::from_millis(51)),
        bytes: Some(1_000_000),
        retransmissions: Some(4),
        send_buffer: None,
    };

    fn missed(dwell: Figures) -> usize {
        let goals = judge(&dwell, &FIGURES, &FIGURES, Nanos::from_millis(50));
        goals.iter().filter(|goal| goal.holds == Some(false)).count()
    }

    #[test]
    fn figures_may_differ_in_neither_direction() {
        assert_eq!(missed(FIGURES), 0);
        assert_eq!(missed(Figures { rtt: Some(Nanos::from_millis(350)), ..FIGURES }), 2);
        assert_eq!(missed(Figures { rtt: Some(Nanos::from_millis(410)), ..FIGURES }), 2);
        assert_eq!(missed(Figures { min_rtt: Some(Nanos::from_millis(49)), ..FIGURES }), 2);
        assert_eq!(missed(Figures { bytes: Some(980_000), retransmissions: Some(3), ..FIGURES }), 2);
    }

    #[test]
    fn a_figure_that_is_unknown_leaves_its_goals_undecided() {
        let goals = judge(&Figures::default(), &FIGURES, &FIGURES, Nanos::from_millis(50));
        assert!(goals.iter().all(|goal| goal.holds.is_none()), "{goals:?}");
    }
}
