use std::{collections::BTreeMap, ops::DerefMut};

use proptest::prelude::*;

use super::*;

const RTT: Family =
    Family::histogram("dwell_rtt_seconds", &["interface", "method", "prefix"], LATENCY_BOUNDS_NS, "Round trips.");

fn registered(max_series: usize) -> (Registry, Shared<Histograms>) {
    let registry = Registry::new("0.1.0");
    let shared = registry.register(Histograms::new(RTT, max_series));
    (registry, shared)
}

fn record(mut histograms: impl DerefMut<Target = Histograms>, [interface, method, prefix]: [&str; 3], rtt_ns: u64) {
    let histogram = histograms.get([interface, method, prefix], [OTHER, method, OTHER]);
    histogram.record(rtt_ns);
}

/// Name, labels and value of each line that is not a comment.
fn parse(text: &str) -> Vec<(String, String, f64)> {
    assert!(text.ends_with('\n'));
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (series, ""),
            };
            (name.into(), labels.into(), value.parse().unwrap())
        })
        .collect()
}

/// Checks each histogram and returns its count and sum by its labels.
fn histograms(text: &str) -> BTreeMap<String, (f64, f64)> {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let (mut counts, mut sums) = (BTreeMap::new(), BTreeMap::new());
    for (name, labels, value) in parse(text) {
        match name.as_str() {
            "dwell_rtt_seconds_bucket" => {
                let (labels, le) = labels.rsplit_once(",le=").unwrap();
                let le = le.trim_matches('"').parse().unwrap();
                buckets.entry(labels.into()).or_default().push((le, value));
            }
            "dwell_rtt_seconds_count" => drop(counts.insert(labels, value)),
            "dwell_rtt_seconds_sum" => drop(sums.insert(labels, value)),
            _ => {}
        }
    }
    assert_eq!(buckets.len(), counts.len());
    for (labels, buckets) in &buckets {
        assert_eq!(buckets.len(), LATENCY_BOUNDS_NS.len() + 1);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, counts[labels])));
    }
    counts.into_iter().map(|(labels, count)| (labels.clone(), (count, sums[&labels]))).collect()
}

#[test]
fn bounds_are_round_and_rise_evenly() {
    assert_eq!((LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[40]), (10_000, 60_000_000_000));
    for pair in LATENCY_BOUNDS_NS.windows(2) {
        let ratio = pair[1] as f64 / pair[0] as f64;
        assert!((1.3..=2.0).contains(&ratio), "{pair:?}");
    }
}

#[test]
fn histograms_add_up() {
    let (registry, rtt) = registered(100);
    for rtt_ns in [0, 789, 10_000, 456_000, 1_234_567, 2_000_000_000] {
        record(rtt.lock(), ["eth0", "tcp-timestamp", "192.0.2.0/24"], rtt_ns);
    }
    for rtt_ns in [61_000_000_000, 90_000_000_000] {
        record(rtt.lock(), ["eth0", "icmpv6", "2001:db8::/48"], rtt_ns);
        record(rtt.lock(), [OTHER, OTHER, OTHER], rtt_ns);
    }
    let text = registry.render();
    let histograms = histograms(&text);
    assert_eq!(histograms.len(), 3);
    let tcp = r#"interface="eth0",method="tcp-timestamp",prefix="192.0.2.0/24""#;
    let (count, sum) = histograms[tcp];
    assert_eq!(count, 6.0);
    assert!((sum - 2.001_701_356).abs() < 1e-12);
    // 10 µs itself shares a bucket of the engine with what is longer.
    let first = format!("dwell_rtt_seconds_bucket{{{tcp},le=\"0.00001\"}} 2\n");
    assert!(text.contains(&first));
    let other = r#"interface="other",method="other",prefix="other""#;
    assert_eq!(histograms[other], (2.0, 151.0));
    // Both are longer than the last bound.
    assert!(text.contains(&format!("dwell_rtt_seconds_bucket{{{other},le=\"60\"}} 0\n")));
}

#[test]
fn what_is_not_known_is_absent() {
    let (registry, _rtt) = registered(100);
    registry.register(Numbers::default());
    let text = registry.render();
    let own: String = text.lines().filter(|line| !line.contains("process_")).map(|line| format!("{line}\n")).collect();
    assert_eq!(
        own,
        "# HELP dwell_build_info The version of dwell.\n\
         # TYPE dwell_build_info gauge\n\
         dwell_build_info{version=\"0.1.0\"} 1\n"
    );
}

#[test]
fn every_process_tells_its_own_cost() {
    let figure = |name: &str| {
        let mut figures = parse(&Registry::new("0.1.0").render()).into_iter();
        figures.find(|(found, _, _)| found == name).map(|(_, _, value)| value).unwrap()
    };
    let cpu = "process_cpu_seconds_total";
    let before = figure(cpu);
    while figure(cpu) <= before {}
    let held = vec![1_u8; 64 << 20];
    let held_bytes = held.iter().map(|byte| usize::from(*byte)).sum::<usize>();
    assert!(figure("process_resident_memory_bytes") >= held_bytes as f64);
}

#[test]
fn groups_beyond_the_limit_share_series() {
    let (registry, rtt) = registered(2);
    for third in 0..100 {
        let prefix = format!("192.0.{third}.0/24");
        record(rtt.lock(), ["eth0", "dns", &prefix], 1_000_000);
    }
    let histograms = histograms(&registry.render());
    assert_eq!(histograms.len(), 3);
    let other = r#"interface="other",method="dns",prefix="other""#;
    assert_eq!(histograms[other].0, 98.0);
}

#[test]
fn label_values_are_escaped() {
    let (registry, rtt) = registered(2);
    record(rtt.lock(), ["a\"b\\c\nd", "dns", ""], 1);
    let text = registry.render();
    assert!(text.contains(r#"{interface="a\"b\\c\nd",method="dns",prefix="",le="#));
}

proptest! {
    /// A value may show in the bucket above its own if it is within one of
    /// the engine's buckets (1.6 %) of the bound, and never in one below.
    #[test]
    fn buckets_hold_what_was_observed(values in prop::collection::vec(0u64..70_000_000_000, 0..200)) {
        let (registry, rtt) = registered(1);
        values.iter().for_each(|ns| record(rtt.lock(), ["i", "dns", "p"], *ns));
        let text = registry.render();
        let by_label = histograms(&text);
        prop_assert_eq!(by_label.len(), usize::from(!values.is_empty()));
        let shown: Vec<f64> = parse(&text)
            .into_iter()
            .filter(|(name, _, _)| name.ends_with("_bucket"))
            .map(|(_, _, value)| value)
            .collect();
        for (bound, shown) in LATENCY_BOUNDS_NS.iter().zip(&shown) {
            let at_most = |ns: f64| values.iter().filter(|v| **v as f64 <= ns).count() as f64;
            let bound = *bound as f64;
            prop_assert!(*shown <= at_most(bound));
            prop_assert!(*shown >= at_most(bound * (1.0 - 1.0 / 64.0)));
        }
    }
}

#[test]
fn samples_of_a_family_stand_together_and_an_update_replaces_them() {
    const UP: Family = Family::gauge("dwell_lb_backend_up", &["vip", "backend"], "1 if it passes its checks.");
    const LEAVING: Family = Family::gauge("dwell_lb_leaving_backends", &[], "Backends that wait for their last.");
    let registry = Registry::new("0.1.0");
    let shared = registry.register(Numbers::default());
    let mut numbers = Numbers::default();
    numbers.add(UP, &["web", "a"], 1.0);
    numbers.add(LEAVING, &[], 2.0);
    numbers.add(UP, &["web", "b"], 0.0);
    *shared.lock() = numbers;
    let text = registry.render();
    let wanted = "# TYPE dwell_lb_backend_up gauge\n\
                  dwell_lb_backend_up{vip=\"web\",backend=\"a\"} 1\n\
                  dwell_lb_backend_up{vip=\"web\",backend=\"b\"} 0\n";
    assert!(text.contains(wanted), "{text}");
    assert!(text.contains("\ndwell_lb_leaving_backends 2\n"), "{text}");
    *shared.lock() = Numbers::default();
    assert!(!registry.render().contains("dwell_lb_"));
}
