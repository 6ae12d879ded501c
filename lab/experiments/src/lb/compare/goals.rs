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

/// The most by which steering may change the median while all servers are alike, in either direction.
const MAX_P50_CHANGE: f64 = 0.15;
/// The processor time of clients, servers and `dwell lb` per connection, as a ratio to that with a proxy.
const MAX_CPU_TO_PROXY: f64 = 1.0;
/// The requests per second of busy connections through `dwell lb`, as a ratio to those through a proxy.
const MIN_RATE_TO_PROXY: f64 = 1.2;

/// Selections that do not know how fast servers are.
const BLIND: [Contender; 4] =
    [Contender::Maglev, Contender::HaproxyTurns, Contender::NginxTurns, Contender::IpvsMaglev];

/// Compares `dwell lb` with the balancers that ran.
pub(super) fn judge(figures: &BTreeMap<Contender, Figures>) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(steered) = figures.get(&Contender::Latency) {
        for blind in BLIND {
            goals.extend(figures.get(&blind).map(|other| cut(blind, steered, other)));
        }
        goals.extend(figures.get(&Contender::Maglev).map(|plain| change(steered, plain)));
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

fn change(steered: &Figures, plain: &Figures) -> Goal {
    let change = steered.p50.zip(plain.p50).map(|(own, plain)| own / plain - 1.0);
    Goal {
        holds: change.map(|change| change.abs() <= MAX_P50_CHANGE),
        what: format!(
            "{}: p50 changes by {} % compared with {} while servers are alike, wanted: at most {} %",
            Contender::Latency.name(),
            percent_to(0, change),
            Contender::Maglev.name(),
            percent_to(0, Some(MAX_P50_CHANGE))
        ),
    }
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
    fn steering_has_to_cut_the_tail_and_may_change_the_median_neither_way() {
        let steered = Figures { slow_p99: Some(1_000.0), ..PLAIN };
        let plain = (Contender::Maglev, PLAIN);
        assert_eq!(missed(&[plain, (Contender::Latency, steered)]), [""; 0]);
        assert!(missed(&[plain, (Contender::Latency, PLAIN)])[0].contains("cut by 0 %"));
        for p50 in [5.0, 7.0] {
            let changed = Figures { p50: Some(p50), ..steered };
            assert!(missed(&[plain, (Contender::Latency, changed)])[0].contains("p50 changes by"), "{p50}");
        }
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
