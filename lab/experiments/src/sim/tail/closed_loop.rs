//! Latency steering with servers whose latency depends on their load: service takes 2 ms on average, intervals are half
//! a second.

use super::{
    cluster::{Cluster, Outcome},
    placement::{Choices, Weighted},
};

const SERVERS: usize = 4;

/// Four servers, whose speed is looked at every half a second.
fn usual() -> Cluster {
    Cluster { interval: 0.5, ..Cluster::default() }
}
const SEEDS: std::ops::Range<u64> = 1..5;

/// Runs with latency steering.
fn steered(cluster: &Cluster) -> Outcome {
    cluster.run(&mut Weighted::by_latency(SERVERS, Choices::Of(1), cluster.interval))
}

/// Runs with equal weights.
fn plain(cluster: &Cluster) -> Outcome {
    cluster.run(&mut Weighted::equal(SERVERS, Choices::Of(1)))
}

/// Runs with latency steering and without.
fn both(cluster: &Cluster) -> (Outcome, Outcome) {
    (steered(cluster), plain(cluster))
}

/// Returns the least and the greatest weight of a server from an interval on.
fn range(outcome: &Outcome, server: usize, from: usize) -> (f64, f64) {
    let weights = outcome.weights[from..].iter().map(|weights| weights[server]);
    let least = weights.clone().fold(f64::INFINITY, f64::min);
    (least, weights.fold(0.0, f64::max))
}

/// A cluster whose first server takes four times as long as the others.
fn with_a_slow_server(seed: u64) -> Cluster {
    Cluster { load: 0.5, slowness: |server, _| if server == 0 { 4.0 } else { 1.0 }, seed, ..usual() }
}

#[test]
fn a_slow_server_is_left_with_little_and_the_tail_is_cut() {
    for seed in SEEDS {
        let (steered, plain) = both(&with_a_slow_server(seed));
        // A quarter of 0.5 · 4 is half of what the others can do. Without steering the server has twice the work that
        // it can do; with steering it has at most a tenth of the mean in steady state, plus what regression tries from
        // time to time.
        let mean: f64 = steered.weights[40..].iter().map(|w| w[0]).sum::<f64>() / 80.0;
        assert!(mean < 0.35, "{mean}");
        let tail = |outcome: &Outcome| outcome.quantile(0.99, 20.0, 60.0);
        let (with, without) = (tail(&steered), tail(&plain));
        assert!(with < 0.05 * without, "{with} and {without}");
    }
}

#[test]
fn the_weights_of_a_slow_server_do_not_swing() {
    for seed in SEEDS {
        let (steered, _) = both(&with_a_slow_server(seed));
        // Each has a weight of 1.
        for server in 0..SERVERS {
            let (least, most) = range(&steered, server, 40);
            assert!(most - least < 0.75, "{server}: {least} to {most}");
        }
    }
}

/// As in `dwell lab lb tail`: service takes 5 ms on average, intervals are 0.2 s.
#[test]
fn a_different_slow_server_every_quarter_of_a_minute() {
    let loads = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7];
    let cuts = loads.map(|load| {
        let tails = SEEDS.map(|seed| {
            let (steered, plain) = both(&Cluster {
                // The slow server does half of what the others do.
                load: load * 3.5 / 4.0,
                service: 0.005,
                slowness: |server, time| match [1, 3, 0, 2][(time / 15.0) as usize % 4] == server {
                    true => 2.0,
                    false => 1.0,
                },
                interval: 0.2,
                seed,
                ..usual()
            });
            let of = |outcome: &Outcome| outcome.quantile(0.99, 0.0, 60.0);
            (of(&steered), of(&plain))
        });
        let (with, without) = tails.fold((0.0, 0.0), |sum, tail| (sum.0 + tail.0, sum.1 + tail.1));
        with / without
    });
    let mean = cuts.iter().sum::<f64>() / cuts.len() as f64;
    assert!(mean < 0.63, "{cuts:?}");
    assert!(cuts.iter().all(|cut| *cut < 1.05), "{cuts:?}");
}

/// Returns p99 with steering by one of so many connections, compared with p99 without steering.
fn tails_left<const N: usize>(cluster: &Cluster, measured_of: [u32; N]) -> [f64; N] {
    let tail = |outcome: &Outcome| outcome.quantile(0.99, 0.0, 60.0);
    let of_seeds =
        |of: &dyn Fn(Cluster) -> f64| -> f64 { SEEDS.map(|seed| of(Cluster { seed, ..cluster.clone() })).sum() };
    let plain = of_seeds(&|cluster| tail(&plain(&cluster)));
    measured_of.map(|measured_of| of_seeds(&|cluster| tail(&steered(&Cluster { measured_of, ..cluster }))) / plain)
}

/// Each server gets 60 connections per second, of which one in eight is measured: in an interval fewer than a latency needs.
#[test]
fn a_sample_of_few_connections_still_cuts_the_tail() {
    let [all, sample] = tails_left(&with_a_slow_server(1), [1, 8]);
    assert!(all < 0.01 && sample < 0.05, "{all} {sample}");
    let changing = Cluster {
        load: 0.4,
        slowness: |server, time| if [1, 3, 0, 2][(time / 15.0) as usize % 4] == server { 2.0 } else { 1.0 },
        interval: 0.2,
        ..usual()
    };
    let [all, sample] = tails_left(&changing, [1, 8]);
    assert!(all < 0.6 && sample < 0.85, "{all} {sample}");
}

#[test]
fn alike_servers_stay_alike() {
    for (load, swing, slower) in [(0.3, 0.3, 1.05), (0.5, 0.4, 1.05), (0.7, 0.7, 1.3)] {
        let mut sums = (0.0, 0.0);
        for seed in SEEDS {
            let (steered, plain) = both(&Cluster { load, seed, ..usual() });
            for server in 0..SERVERS {
                let (least, most) = range(&steered, server, 0);
                assert!(least > 1.0 - swing && most < 1.0 + swing, "{least} {most}");
            }
            sums.0 += steered.quantile(0.99, 0.0, 60.0);
            sums.1 += plain.quantile(0.99, 0.0, 60.0);
        }
        assert!(sums.0 < slower * sums.1, "{load}: {sums:?}");
    }
}

#[test]
fn a_server_that_was_slow_gets_its_share_back() {
    for seed in SEEDS {
        let cluster = Cluster {
            load: 0.4,
            slowness: |server, time| match time {
                10.0..20.0 if server == 0 => 10.0,
                _ => 1.0,
            },
            seed,
            ..usual()
        };
        let (steered, plain) = both(&cluster);
        let at = |seconds: usize| steered.weights[2 * seconds - 1][0];
        assert!(at(10) > 0.8 && at(20) < 0.2 && at(55) > 0.8);
        // The ten seconds and the queues that they leave behind.
        let tail = |outcome: &Outcome| outcome.quantile(0.99, 10.0, 30.0);
        assert!(tail(&steered) < 0.7 * tail(&plain));
    }
}

/// A third of the answers of one server seem 50 ms slower than they are: 15 ms on average, where 4 ms is true.
#[test]
fn lies_about_one_server_cost_no_more_than_running_without_it() {
    for (load, p99_times) in [(0.3, 1.4), (0.5, 1.7)] {
        let mut sums = (0.0, 0.0);
        for seed in SEEDS {
            let cluster = Cluster {
                load,
                lie: |server, random| match server {
                    0 if random < 0.3 => 0.05,
                    _ => 0.0,
                },
                seed,
                ..usual()
            };
            let (steered, plain) = both(&cluster);
            assert!(range(&steered, 0, 0).0 >= 0.0199);
            sums.0 += steered.quantile(0.99, 0.0, 60.0);
            sums.1 += plain.quantile(0.99, 0.0, 60.0);
        }
        assert!(sums.0 < p99_times * sums.1, "{load}: {sums:?}");
    }
}

/// All clients have a think time that is mistaken for latency of the servers, which are alike.
#[test]
fn think_time_that_all_clients_have_does_no_harm() {
    let mut sums = (0.0, 0.0);
    for seed in SEEDS {
        let cluster = Cluster { lie: |_, random| random * 0.05, load: 0.5, seed, ..usual() };
        let (steered, plain) = both(&cluster);
        sums.0 += steered.quantile(0.99, 0.0, 60.0);
        sums.1 += plain.quantile(0.99, 0.0, 60.0);
    }
    assert!(sums.0 < 1.05 * sums.1, "{sums:?}");
}

#[test]
fn the_interval_is_no_constant_of_the_policy() {
    let light = |interval: f64| {
        let part = SEEDS.map(|seed| {
            let steered = steered(&Cluster { interval, ..with_a_slow_server(seed) });
            steered.weights[(10.0 / interval) as usize - 1][0]
        });
        part.sum::<f64>() / SEEDS.count() as f64
    };
    let [short, usual, long] = [0.2, 0.5, 1.0].map(light);
    for other in [short, long] {
        assert!((other - usual).abs() < 0.15, "{short} {usual} {long}");
    }
}

/// Speeds and loads that no constant was chosen on: a server stands nearly still for a while, half are of an older
/// generation, another one is slow all the time, one gets slower and slower.
#[test]
fn choices_cut_the_tail_at_once_and_with_weights_further() {
    type Slowness = fn(usize, f64) -> f64;
    let settings: [(&str, f64, Slowness); 4] = [
        ("stalls", 0.5, |server, time| if server == 2 && (20.0..25.0).contains(&time) { 1_000.0 } else { 1.0 }),
        ("half are older", 0.45, |server, _| if server < 2 { 1.6 } else { 1.0 }),
        ("oscillates", 0.4, |server, time| if server == (time / 7.0) as usize % SERVERS { 3.0 } else { 1.0 }),
        ("ramps", 0.35, |server, time| if server == 1 { 1.0 + time / 20.0 } else { 1.0 }),
    ];
    for (name, load, slowness) in settings {
        let tail = |of: fn(Choices) -> Weighted, choices| {
            let of_seed = |seed| {
                let cluster = Cluster { load, slowness, seed, ..Cluster::default() };
                cluster.run(&mut of(choices)).quantile(0.99, 0.0, 60.0)
            };
            SEEDS.map(of_seed).sum::<f64>() / SEEDS.count() as f64
        };
        let equal = |choices| Weighted::equal(SERVERS, choices);
        let weighed = |choices| Weighted::by_latency(SERVERS, choices, 1.0);
        let plain = tail(equal, Choices::Of(1));
        for choices in [Choices::Of(2), Choices::All] {
            let [alone, both] = [tail(equal, choices), tail(weighed, choices)];
            assert!(alone < 0.6 * plain, "{name}: {alone} {plain}");
            assert!(both < 0.6 * plain && both < 1.1 * alone, "{name}: {both} {alone} {plain}");
        }
    }
}
