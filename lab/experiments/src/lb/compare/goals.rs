//! Goals of the comparison of balancers.

use std::collections::BTreeMap;

use super::{
    super::goals::MIN_P99_CUT,
    Contender,
    verb::{Family, Figures},
};
use crate::{
    goal::Goal,
    print::{percent_to, ratio},
};

/// The most by which the median may be above that of a selection that counts connections, while all servers are alike.
const MAX_P50_ABOVE: f64 = 0.15;
/// The most by which p99 with a slow server may be above that of a selection that counts connections.
const MAX_P99_ABOVE: f64 = 0.05;
/// The processor time of clients, servers and `dwell lb` per connection, as a ratio to that with a proxy.
const MAX_CPU_TO_PROXY: f64 = 1.0;
/// The requests per second of busy connections through `dwell lb`, as a ratio to those through a proxy.
const MIN_RATE_TO_PROXY: f64 = 1.2;

/// Selections that do not know how fast servers are.
const BLIND: [Contender; 4] =
    [Contender::Maglev, Contender::HaproxyTurns, Contender::NginxTurns, Contender::IpvsMaglev];

/// Selections of the server with the fewest connections.
const COUNTING: [Contender; 3] = [Contender::HaproxyLeast, Contender::NginxLeast, Contender::IpvsLeast];

/// Compares `dwell lb` with the balancers that ran.
pub(super) fn judge(figures: &BTreeMap<Contender, Figures>) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(steered) = figures.get(&Contender::Latency) {
        for blind in BLIND {
            goals.extend(figures.get(&blind).map(|other| cut(blind, steered, other)));
        }
        for counting in COUNTING {
            goals.extend(figures.get(&counting).into_iter().flat_map(|other| above(counting, steered, other)));
        }
    }
    for (own, found) in figures.iter().filter(|(contender, _)| contender.policy().is_some()) {
        let broken = found.broken;
        let what = format!("{}: {broken} connections broke, wanted: none", own.name());
        goals.push(Goal::decided(broken == 0.0, what));
        let is_proxy = |contender: &Contender| matches!(Family::of(*contender), Family::Haproxy | Family::Nginx);
        for (proxy, other) in figures.iter().filter(|(contender, _)| is_proxy(contender)) {
            goals.extend(costs(*own, found, *proxy, other));
        }
    }
    goals
}

fn cut(blind: Contender, steered: &Figures, other: &Figures) -> Goal {
    let cut = steered.slow_p99.zip(other.slow_p99).map(|(own, other)| 1.0 - own / other);
    Goal {
        holds: cut.map(|cut| cut >= MIN_P99_CUT),
        what: format!(
            "{}: p99 with a slow server is cut by {} % compared with {}, wanted: at least {} %",
            Contender::Latency.name(),
            percent_to(0, cut),
            blind.name(),
            percent_to(0, Some(MIN_P99_CUT))
        ),
    }
}

fn above(counting: Contender, steered: &Figures, other: &Figures) -> [Goal; 2] {
    let goal = |what: &str, own: Option<f64>, other: Option<f64>, most: f64| {
        let above = own.zip(other).map(|(own, other)| own / other - 1.0);
        Goal {
            holds: above.map(|above| above <= most),
            what: format!(
                "{}: {what} is {} % above that of {}, wanted: at most {} %",
                Contender::Latency.name(),
                percent_to(0, above),
                counting.name(),
                percent_to(0, Some(most))
            ),
        }
    };
    [
        goal("p50 while servers are alike", steered.p50, other.p50, MAX_P50_ABOVE),
        goal("p99 with a slow server", steered.slow_p99, other.slow_p99, MAX_P99_ABOVE),
    ]
}

fn costs(own: Contender, found: &Figures, proxy: Contender, other: &Figures) -> [Goal; 2] {
    let between = |own: Option<f64>, other: Option<f64>| own.zip(other).map(|(own, other)| own / other);
    let (cpu, rate) = (between(found.all_us, other.all_us), between(found.busy_rate, other.busy_rate));
    let (own, proxy) = (own.name(), proxy.name());
    [
        Goal {
            holds: cpu.map(|cpu| cpu <= MAX_CPU_TO_PROXY),
            what: format!(
                "{own}: all processor time per connection is {} of that with {proxy}, wanted: at most {MAX_CPU_TO_PROXY}",
                ratio(cpu)
            ),
        },
        Goal {
            holds: rate.map(|rate| rate >= MIN_RATE_TO_PROXY),
            what: format!(
                "{own}: {} times as many requests per second as {proxy}, wanted: at least {MIN_RATE_TO_PROXY}",
                ratio(rate)
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Figures = Figures {
        broken: 0.0,
        p50: Some(6.0),
        p99: Some(40.0),
        slow_p50: Some(7.0),
        slow_p99: Some(4_000.0),
        after_p99: Some(1_000.0),
        balancer_us: Some(100.0),
        all_us: Some(1_000.0),
        busy_rate: Some(90_000.0),
    };

    fn missed(all: &[(Contender, Figures)]) -> Vec<String> {
        let goals = judge(&all.iter().copied().collect());
        goals.into_iter().filter(|goal| goal.holds == Some(false)).map(|goal| goal.what).collect()
    }

    #[test]
    fn steering_has_to_cut_the_tail_and_be_as_good_as_counting() {
        let steered = Figures { slow_p99: Some(1_000.0), ..PLAIN };
        let plain = (Contender::Maglev, PLAIN);
        assert_eq!(missed(&[plain, (Contender::Latency, steered)]), [""; 0]);
        assert!(missed(&[plain, (Contender::Latency, PLAIN)])[0].contains("cut by 0 %"));
        let counting =
            (Contender::NginxLeast, Figures { p50: Some(5.0), all_us: Some(2_000.0), busy_rate: Some(1.0), ..steered });
        let worse = Figures { p50: Some(5.8), slow_p99: Some(1_060.0), ..steered };
        let found = missed(&[counting, (Contender::Latency, worse)]);
        assert!(found[0].contains("p50") && found[1].contains("p99 with a slow server is 6 % above"), "{found:?}");
        let good = Figures { p50: Some(5.7), slow_p99: Some(1_040.0), ..steered };
        assert_eq!(missed(&[counting, (Contender::Latency, good)]), [""; 0]);
    }

    #[test]
    fn a_proxy_has_to_cost_more_and_is_not_judged_itself() {
        let cheap = Figures { all_us: Some(900.0), busy_rate: Some(80_000.0), broken: 3.0, ..PLAIN };
        let found = missed(&[(Contender::Maglev, PLAIN), (Contender::NginxLeast, cheap)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("1.11 of that with nginx") && found[1].contains("1.12 times"), "{found:?}");
        assert_eq!(missed(&[(Contender::Maglev, Figures { broken: 1.0, ..PLAIN })]).len(), 1);
    }
}
