//! Captures from other sources, if they are present: a client whose responses trigger its requests, one that thinks,
//! and one that uploads.

use std::{collections::BTreeMap, path::Path};

use dwell_capture::Reader;
use dwell_engine::response::{Config, Estimate, Estimator, Flow, Reason, estimate};

use crate::{skip::skip, support::tcp};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");

const ESTIMATORS: [Estimator; 3] = [Estimator::Auto, Estimator::Pirate, Estimator::Gap(300_000)];

/// Returns estimates for the side of a TCP connection over Ethernet that sends to `port`.
fn estimates(file: &str, port: u16, estimator: Estimator) -> Option<Vec<Estimate>> {
    let path = Path::new(FOLDER).join(file);
    if !path.is_file() {
        skip(format_args!("there is no capture {file} of others"));
        return None;
    }
    let config = Config { estimator, ..Config::default() };
    let (mut flows, mut made) = (BTreeMap::new(), Vec::new());
    let mut reader = Reader::open(&path).unwrap();
    while let Ok(Some(packet)) = reader.next_packet() {
        let data = packet.data;
        let (at, end) = match data[12..14] {
            [8, 0] => (34, 14 + usize::from(u16::from_be_bytes([data[16], data[17]]))),
            [0x86, 0xdd] => (54, 54 + usize::from(u16::from_be_bytes([data[18], data[19]]))),
            _ => continue,
        };
        let short = |i: usize| u16::from_be_bytes(data[i..i + 2].try_into().unwrap());
        let long = |i: usize| u32::from_be_bytes(data[i..i + 4].try_into().unwrap());
        if short(at + 2) != port {
            continue;
        }
        let headers = at + usize::from(data[at + 12] >> 4) * 4;
        let payload = (end - headers) as u32;
        let mut arrival = tcp(packet.time_ns, long(at + 4), payload, long(at + 8));
        arrival.bytes = (end - 14) as u32;
        arrival.tcp_flags = data[at + 13];
        let flow = flows.entry(short(at)).or_insert_with(|| Flow::new(&config));
        made.extend(flow.step(&arrival).map(|epoch| estimate(&config, &epoch)));
    }
    made.extend(flows.values_mut().filter_map(|flow| flow.end(u64::MAX)).map(|epoch| estimate(&config, &epoch)));
    Some(made)
}

#[test]
fn redis_over_the_internet_is_near_its_loop() {
    let Some(made) = estimates("A10_django-cloud.pcapng", 10625, Estimator::Auto) else {
        return;
    };
    let valid: Vec<u64> = made.iter().filter(|made| made.is_valid()).filter_map(|made| made.response_ns).collect();
    assert!(valid.len() >= 4, "{made:?}");
    for ns in valid {
        let error = ns as f64 / 24.029e6 - 1.0;
        assert!(error.abs() < 0.05, "{ns}");
    }
}

#[test]
fn a_client_that_thinks_is_not_valid() {
    for estimator in ESTIMATORS {
        let file = "A09_1000-requests-one-dropped-response.pcap.gz";
        let Some(made) = estimates(file, 80, estimator) else {
            return;
        };
        // one answer of fourteen is acknowledged by the next request, and without timestamps nothing shows when it ended
        let reason = if estimator == Estimator::Auto { Reason::DelayedAck } else { Reason::ThinkTime };
        assert!(!made.is_empty() && made.iter().all(|made| made.reason == Some(reason)), "{made:?}");
    }
}

#[test]
fn an_upload_is_not_valid() {
    for estimator in ESTIMATORS {
        let Some(made) = estimates("A01_trace_0pc_100ms.dump", 5001, estimator) else {
            return;
        };
        let valid = made.iter().filter(|made| made.is_valid()).count();
        assert!(made.len() >= 9 && valid == 0, "{made:?}");
        let is_upload = |made: &&Estimate| made.reason == Some(Reason::BulkUpload);
        assert!(made.iter().filter(is_upload).count() >= 8, "{made:?}");
    }
}
