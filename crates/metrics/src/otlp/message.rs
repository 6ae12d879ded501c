//! The message of OTLP that says what a snapshot says.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
        ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};

use crate::{
    Family, Kind, Number, Snapshot, seconds,
    snapshot::{Distribution, Series, Value},
};

/// Makes one message per push.
#[derive(Debug)]
pub struct Messages {
    version: String,
    resource: Vec<(&'static str, String)>,
    /// When counting began, in nanoseconds of Unix time.
    began_ns: u64,
    /// The time of the last message.
    last_ns: Option<u64>,
    starts: BTreeMap<(&'static str, Vec<String>), Start>,
}

/// From when on a counter or histogram counts.
#[derive(Debug, Clone, Copy)]
struct Start {
    ns: u64,
    /// What it had counted at the last message.
    count: f64,
}

impl Messages {
    /// Describes who counts, and since when.
    pub fn new(version: &str, resource: Vec<(&'static str, String)>, began_ns: u64) -> Messages {
        Messages { version: version.to_owned(), resource, began_ns, last_ns: None, starts: BTreeMap::new() }
    }

    /// Returns a message with each series of a snapshot, taken at this Unix time.
    pub fn message(&mut self, snapshot: Snapshot, now_ns: u64) -> ExportMetricsServiceRequest {
        let mut starts = BTreeMap::new();
        let families = snapshot.families.into_iter().filter(|(_, series)| !series.is_empty());
        let metrics = families.map(|(family, series)| self.metric(&family, series, now_ns, &mut starts)).collect();
        self.starts = starts;
        self.last_ns = Some(now_ns);
        let scope = InstrumentationScope { name: "dwell".into(), version: self.version.clone(), ..Default::default() };
        let attributes = self.resource.iter().map(|(key, value)| attribute(key, value.clone())).collect();
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource { attributes, ..Default::default() }),
                scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }],
                ..Default::default()
            }],
        }
    }

    fn metric(
        &self,
        family: &Family,
        series: Vec<Series>,
        now_ns: u64,
        starts: &mut BTreeMap<(&'static str, Vec<String>), Start>,
    ) -> Metric {
        let mut start_ns = |labels: &[String], count: f64| {
            let key = (family.name, labels.to_vec());
            let ns = self.start_ns(&key, count);
            starts.insert(key, Start { ns, count });
            ns
        };
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let data = match family.kind {
            Kind::Gauge => Data::Gauge(Gauge { data_points: numbers(family, series, |_, _| 0, now_ns) }),
            Kind::Counter => Data::Sum(Sum {
                data_points: numbers(family, series, start_ns, now_ns),
                aggregation_temporality,
                is_monotonic: true,
            }),
            Kind::Histogram(bounds_ns) => {
                let bounds: Vec<_> = bounds_ns.iter().map(|ns| seconds((*ns).into())).collect();
                let points = series.into_iter().filter_map(|Series { labels, value }| {
                    let Value::Distribution(distribution) = value else { return None };
                    let start_time_unix_nano = start_ns(&labels, distribution.count as f64);
                    let explicit_bounds = bounds.clone();
                    let attributes = attributes(family, labels);
                    let time_unix_nano = now_ns;
                    Some(HistogramDataPoint {
                        attributes,
                        start_time_unix_nano,
                        time_unix_nano,
                        count: distribution.count,
                        sum: Some(distribution.sum_seconds),
                        bucket_counts: buckets(&distribution),
                        explicit_bounds,
                        ..Default::default()
                    })
                });
                Data::Histogram(Histogram { data_points: points.collect(), aggregation_temporality })
            }
        };
        let (name, description, unit) = (family.name.into(), family.help.into(), family.unit().into());
        Metric { name, description, unit, data: Some(data), ..Default::default() }
    }

    /// Returns since when a series counts. One that is new since the last message, or counts less than then, began after
    /// it: groups that are freed end, and may come again.
    fn start_ns(&self, key: &(&'static str, Vec<String>), count: f64) -> u64 {
        match (self.starts.get(key), self.last_ns) {
            (Some(start), _) if start.count <= count => start.ns,
            (_, Some(last_ns)) => last_ns,
            (_, None) => self.began_ns,
        }
    }
}

fn numbers(
    family: &Family,
    series: Vec<Series>,
    mut start_ns: impl FnMut(&[String], f64) -> u64,
    now_ns: u64,
) -> Vec<NumberDataPoint> {
    let points = series.into_iter().filter_map(|Series { labels, value }| {
        let Value::Number(number) = value else { return None };
        let (value, count) = match number {
            // OTLP's integers have a sign.
            Number::Count(count) => {
                (number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)), count as f64)
            }
            Number::Real(real) => (number_data_point::Value::AsDouble(real), real),
        };
        Some(NumberDataPoint {
            start_time_unix_nano: start_ns(&labels, count),
            attributes: attributes(family, labels),
            time_unix_nano: now_ns,
            value: Some(value),
            ..Default::default()
        })
    });
    points.collect()
}

/// Returns the values in each bucket, the last of which has no upper bound.
fn buckets(Distribution { up_to, count, .. }: &Distribution) -> Vec<u64> {
    let mut below = 0;
    let ends = up_to.iter().chain([count]);
    ends.map(|end| end.saturating_sub(std::mem::replace(&mut below, *end))).collect()
}

fn attributes(family: &Family, labels: Vec<String>) -> Vec<KeyValue> {
    family.labels.iter().zip(labels).map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.into(), value, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collect, Numbers};

    const OPEN: Family = Family::counter("dwell_test_opened_total", &["port"], "Connections opened.");

    /// The start of each series of the message for these counts.
    fn starts(messages: &mut Messages, now_ns: u64, counts: &[(&str, f64)]) -> Vec<(String, u64)> {
        let (mut numbers, mut snapshot) = (Numbers::default(), Snapshot::default());
        counts.iter().for_each(|(port, count)| numbers.add(OPEN, &[port], *count));
        numbers.collect(&mut snapshot);
        let message = messages.message(snapshot, now_ns);
        let metric = &message.resource_metrics[0].scope_metrics[0].metrics[0];
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        let start = |point: &NumberDataPoint| {
            assert_eq!(point.time_unix_nano, now_ns);
            let Some(any_value::Value::StringValue(port)) = point.attributes[0].value.clone().unwrap().value else {
                panic!("{point:?}")
            };
            (port, point.start_time_unix_nano)
        };
        sum.data_points.iter().map(start).collect()
    }

    #[test]
    fn a_series_that_comes_anew_or_counts_less_began_after_the_last_message() {
        let mut messages = Messages::new("0.1.0", Vec::new(), 5);
        let owned =
            |starts: &[(&str, u64)]| starts.iter().map(|(port, ns)| (port.to_string(), *ns)).collect::<Vec<_>>();
        assert_eq!(starts(&mut messages, 10, &[("80", 1.0)]), owned(&[("80", 5)]));
        assert_eq!(starts(&mut messages, 20, &[("80", 1.0), ("81", 4.0)]), owned(&[("80", 5), ("81", 10)]));
        assert_eq!(starts(&mut messages, 30, &[("81", 3.0)]), owned(&[("81", 20)]));
        assert_eq!(starts(&mut messages, 40, &[("80", 9.0), ("81", 5.0)]), owned(&[("80", 30), ("81", 20)]));
    }
}
