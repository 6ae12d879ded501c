//! Prometheus' protobuf format, for scrapers that ask for it: each histogram has native buckets in it, beside the classic
//! ones (prometheus.io/docs/specs/native_histograms).

use std::iter;

use prost::Message;

use crate::{
    Family, Kind, Number, Snapshot, seconds,
    snapshot::{Distribution, NATIVE_SCHEMA, Series, Value},
};

/// The type that a scraper has to accept, and the parameters that it must give.
pub const MEDIA_TYPE: &str = "application/vnd.google.protobuf";
pub const PARAMETERS: [(&str, &str); 2] = [("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")];

/// A value of at most so many seconds, 2^-128, counts as zero. It is what Prometheus' own clients take.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Encodes all families of a snapshot that have series, each behind its length.
pub fn protobuf(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (family, series) in snapshot.families.iter().filter(|(_, series)| !series.is_empty()) {
        let message = MetricFamily::new(family, series);
        message.encode_length_delimited(&mut bytes).expect("a Vec grows as needed");
    }
    bytes
}

// What dwell uses of io/prometheus/client/metrics.proto.

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    pub kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<Metric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Plain>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Plain>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Plain {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    pub positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Adjacent buckets. The offset is from the end of the span before, and of the first one from bucket 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}

impl MetricFamily {
    fn new(family: &Family, series: &[Series]) -> MetricFamily {
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram(_) => MetricType::Histogram,
        };
        MetricFamily {
            name: Some(family.name.into()),
            help: Some(family.help.into()),
            kind: Some(kind.into()),
            metric: series.iter().map(|series| Metric::new(family, series)).collect(),
        }
    }
}

impl Metric {
    fn new(family: &Family, series: &Series) -> Metric {
        let label = family.labels.iter().zip(&series.labels);
        let label = label.map(|(name, value)| Label { name: Some((*name).into()), value: Some(value.clone()) });
        let mut metric = Metric { label: label.collect(), ..Metric::default() };
        match (&series.value, family.kind) {
            (Value::Number(number), Kind::Counter) => metric.counter = Some(Plain::new(*number)),
            (Value::Number(number), _) => metric.gauge = Some(Plain::new(*number)),
            (Value::Distribution(distribution), Kind::Histogram(bounds_ns)) => {
                metric.histogram = Some(Histogram::new(distribution, bounds_ns));
            }
            (Value::Distribution(_), _) => {}
        }
        metric
    }
}

impl Plain {
    fn new(number: Number) -> Plain {
        let value = match number {
            Number::Count(count) => count as f64,
            Number::Real(real) => real,
        };
        Plain { value: Some(value) }
    }
}

impl Histogram {
    fn new(distribution: &Distribution, bounds_ns: &[u64]) -> Histogram {
        let Distribution { up_to, zeros, native, sum_seconds, .. } = distribution;
        let (positive_span, positive_delta) = spans(native.iter().map(|(index, count)| (*index, *count)));
        // Prometheus refuses another count than that of the buckets, which differs while the kernel updates them.
        let count = zeros + native.values().sum::<u64>();
        let bounds = bounds_ns.iter().map(|bound_ns| seconds((*bound_ns).into())).chain(iter::once(f64::INFINITY));
        let bucket = bounds.zip(up_to.iter().copied().chain(iter::once(count)));
        Histogram {
            sample_count: Some(count),
            sample_sum: Some(*sum_seconds),
            bucket: bucket
                .map(|(bound, below)| Bucket { cumulative_count: Some(below), upper_bound: Some(bound) })
                .collect(),
            schema: Some(NATIVE_SCHEMA),
            zero_threshold: Some(ZERO_THRESHOLD),
            zero_count: Some(*zeros),
            positive_span,
            positive_delta,
        }
    }
}

/// Encodes buckets by their ascending indexes: which there are, and by how much each count differs from the one before.
fn spans(buckets: impl Iterator<Item = (i32, u64)>) -> (Vec<Span>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<Span>::new(), Vec::new());
    let (mut next, mut last) = (0, 0);
    for (index, count) in buckets {
        match spans.last_mut() {
            Some(Span { length: Some(length), .. }) if index == next => *length += 1,
            _ => spans.push(Span { offset: Some(index - next), length: Some(1) }),
        }
        let count = count.cast_signed();
        deltas.push(count - last);
        (next, last) = (index + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collect, Histograms, LATENCY_BOUNDS_NS, Numbers, Registry};

    const WAIT: Family = Family::histogram("dwell_test_seconds", &["place"], LATENCY_BOUNDS_NS, "Waits.");
    const SEEN: Family = Family::counter("dwell_test_packets_total", &["reason"], "Packets.");

    fn decode(mut bytes: &[u8]) -> Vec<MetricFamily> {
        iter::from_fn(|| (!bytes.is_empty()).then(|| MetricFamily::decode_length_delimited(&mut bytes).unwrap()))
            .collect()
    }

    /// The buckets of a histogram as Prometheus reads them: upper bounds and counts.
    fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
        let (mut index, mut count) = (0, 0);
        let mut deltas = histogram.positive_delta.iter();
        let mut buckets = Vec::new();
        for span in &histogram.positive_span {
            index += span.offset();
            for _ in 0..span.length() {
                count += deltas.next().unwrap();
                buckets.push(((f64::from(index) / f64::from(1 << histogram.schema())).exp2(), count.cast_unsigned()));
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        buckets
    }

    #[test]
    fn a_histogram_has_native_buckets_within_which_its_values_lie() {
        let values_ns = [0, 1, 789, 1_000, 1_001, 10_000, 1_048_576, 456_000_000, 456_000_000, 65_000_000_000];
        let mut histograms = Histograms::new(WAIT, 10);
        values_ns.iter().for_each(|ns| histograms.get(["socket"], ["other"]).record(*ns));
        let mut snapshot = Snapshot::default();
        histograms.collect(&mut snapshot);
        let families = decode(&protobuf(&snapshot));
        let [family] = &families[..] else { panic!("{families:?}") };
        assert_eq!((family.name(), family.help(), family.kind()), (WAIT.name, WAIT.help, MetricType::Histogram));
        let metric = &family.metric[0];
        assert_eq!(metric.label, [Label { name: Some("place".into()), value: Some("socket".into()) }]);
        let histogram = metric.histogram.as_ref().unwrap();
        assert_eq!((histogram.sample_count(), histogram.zero_count()), (10, 1));
        let width = (1.0 / 16_f64).exp2();
        let buckets = buckets(histogram);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 9);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0), "{buckets:?}");
        // A value may be in the next bucket if it is within half a bucket of the engine of the bound, 0.8 %.
        for seconds in values_ns[1..].iter().map(|ns| *ns as f64 / 1e9) {
            let is_in = |(bound, _): &&(f64, u64)| seconds <= bound * 1.008 && seconds > bound / width / 1.008;
            assert!(buckets.iter().find(is_in).is_some(), "{seconds} in {buckets:?}");
        }
        // The classic ones are those of the text.
        assert_eq!(histogram.bucket.len(), LATENCY_BOUNDS_NS.len() + 1);
        let last = histogram.bucket.last().unwrap();
        assert_eq!((last.upper_bound(), last.cumulative_count()), (f64::INFINITY, 10));
    }

    #[test]
    fn spans_are_of_adjacent_buckets_and_counts_are_differences() {
        let span = |offset, length| Span { offset: Some(offset), length: Some(length) };
        assert_eq!(spans([].into_iter()), (vec![], vec![]));
        assert_eq!(spans([(-3, 5), (-2, 2), (4, 7)].into_iter()), (vec![span(-3, 2), span(5, 1)], vec![5, -3, 5]),);
    }

    #[test]
    fn numbers_are_those_of_the_text_and_an_empty_family_is_left_out() {
        let registry = Registry::new("0.1.0");
        let mut numbers = Numbers::default();
        numbers.add(SEEN, &["malformed"], 7.0);
        registry.register(numbers);
        registry.register(Histograms::new(WAIT, 10));
        let families = decode(&protobuf(&registry.snapshot()));
        let of = |name: &str| families.iter().find(|family| family.name() == name);
        assert_eq!(of(SEEN.name).unwrap().metric[0].counter.unwrap().value(), 7.0);
        assert_eq!(of("dwell_build_info").unwrap().metric[0].gauge.unwrap().value(), 1.0);
        assert_eq!(of(WAIT.name), None);
    }
}
