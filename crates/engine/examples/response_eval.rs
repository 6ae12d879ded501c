//! Estimates response latency from captures of the client's packets and, where
//! there is a truth beside a capture (`NAME.truth.jsonl`), prints the errors in
//! percent, one value a connection and epoch.
//!
//! `response_eval [OPTION...] FILE...`: `--raw` all means that a record holds,
//! `--epochs` each epoch, `--encrypted` as if headers were hidden, `--server
//! ADDRESS` packets to it only, `--epoch NS`, `--run-gap NS`, `--pirate` the
//! paper's modes with the default knobs, `--paper` with an absolute epsilon of
//! 100 us and no floor.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    env, fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use dwell_capture::Reader;
use dwell_engine::{
    abi,
    response::{Config, Epoch, Epsilon, Estimator, Flow, estimate},
};

type Key = (SocketAddr, SocketAddr);

/// The latencies that the client saw end in an epoch: all, and causal ones.
#[derive(Default)]
struct Truth {
    all: Vec<f64>,
    causal: Vec<f64>,
}

#[derive(Default)]
struct Options {
    raw: bool,
    epochs: bool,
    encrypted: bool,
    server: Option<IpAddr>,
    config: Config,
}

/// Values by the name of what gave them.
type Readings = Vec<(String, Option<f64>)>;

fn main() {
    let (options, files) = arguments();
    for file in files {
        evaluate(&options, Path::new(&file));
    }
}

fn arguments() -> (Options, Vec<String>) {
    let mut options = Options::default();
    let mut files = Vec::new();
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().and_then(|text| text.parse().ok());
            value.expect("a number of nanoseconds follows")
        };
        match arg.as_str() {
            "--raw" => options.raw = true,
            "--epochs" => options.epochs = true,
            "--encrypted" => options.encrypted = true,
            "--pirate" => options.config.estimator = Estimator::Pirate,
            "--paper" => {
                options.config.estimator = Estimator::Pirate;
                options.config.epsilon = Epsilon::Absolute(100_000);
                options.config.floor = 0.0;
            }
            "--run-gap" => options.config.run_gap_ns = number(),
            "--epoch" => options.config.epoch_ns = number(),
            "--server" => options.server = args.next().and_then(|text| text.parse().ok()),
            _ => files.push(arg),
        }
    }
    (options, files)
}

fn evaluate(options: &Options, path: &Path) {
    let epochs = epochs_of(options, path);
    let truth = truth_of(path, options.config.epoch_ns);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut errors: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    let (mut valid, mut total) = (0, 0);
    for (key, epoch) in &epochs {
        let slot = truth.get(&(*key, epoch.start_ns / epoch.epoch_ns));
        let readings = readings(options, epoch);
        if options.epochs {
            println!("{} -> {} at {}: {readings:.0?}", key.0, key.1, epoch.start_ns);
            println!("  {epoch:?}");
        }
        let Some(slot) = slot else { continue };
        total += 1;
        valid += u32::from(estimate(&options.config, epoch).is_valid());
        for (reading, ns) in readings {
            for (which, values) in [("all", &slot.all), ("causal", &slot.causal)] {
                if let (Some(ns), false) = (ns, values.is_empty()) {
                    let error = 100.0 * (ns / mean(values) - 1.0);
                    errors.entry((reading.clone(), which)).or_default().push(error);
                }
            }
        }
    }
    println!("{name}: {total} epochs with a truth, {valid} of them valid");
    for ((reading, which), mut values) in errors {
        report(&reading, which, &mut values);
    }
}

/// Errors in percent.
fn report(method: &str, which: &str, values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
    let quantile = |sorted: &[f64], q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    let mut sizes: Vec<f64> = values.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let within = |limit: f64| {
        let inside = sizes.iter().filter(|size| **size <= limit).count();
        100.0 * inside as f64 / sizes.len() as f64
    };
    println!(
        "  {method:28} {which:6} n {:5}  median |e| {:7.2}  p5 {:7.2}  p50 {:7.2}  p95 {:7.2}  within 5/10/15: {:3.0} {:3.0} {:3.0}",
        values.len(),
        quantile(&sizes, 0.5),
        quantile(values, 0.05),
        quantile(values, 0.5),
        quantile(values, 0.95),
        within(5.0),
        within(10.0),
        within(15.0),
    );
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What is given out, or with `--raw` all that a record holds.
fn readings(options: &Options, epoch: &Epoch) -> Readings {
    let mean = |sum: u64, count: u32| (count > 0).then(|| sum as f64 / f64::from(count));
    if options.raw {
        let seen_ns = epoch.all_ns.saturating_sub(epoch.hidden_ns);
        return vec![
            ("run".into(), mean(epoch.all_ns, epoch.all)),
            ("run seen".into(), mean(seen_ns, epoch.all.saturating_sub(epoch.hidden))),
            ("lag".into(), mean(epoch.lag_ns, epoch.lags)),
        ];
    }
    let made = estimate(&options.config, epoch);
    let value = |ns: Option<u64>| ns.map(|ns| ns as f64);
    match made.reason {
        Some(reason) => vec![(format!("not valid: {}", reason.name()), value(made.response_ns))],
        None => vec![
            ("valid".into(), value(made.response_ns)),
            (format!("  by {}", made.method), value(made.response_ns)),
            (format!("  sure {:.1}", made.confidence), value(made.response_ns)),
        ],
    }
}

fn epochs_of(options: &Options, path: &Path) -> Vec<(Key, Epoch)> {
    let mut reader = Reader::open(path).expect("a capture");
    let mut flows: BTreeMap<Key, Flow> = BTreeMap::new();
    let mut epochs = Vec::new();
    while let Ok(Some(packet)) = reader.next_packet() {
        let Some((key, mut arrival)) = parse(packet.data) else {
            continue;
        };
        if options.server.is_some_and(|server| key.1.ip() != server) {
            continue;
        }
        arrival.time_ns = packet.time_ns;
        if options.encrypted {
            arrival.visible = abi::DWELL_VISIBLE_NONE as u8;
        }
        let flow = flows.entry(key).or_insert_with(|| Flow::new(&options.config));
        epochs.extend(flow.step(&arrival).map(|epoch| (key, epoch)));
    }
    for (key, flow) in &mut flows {
        epochs.extend(flow.end(u64::MAX).map(|epoch| (*key, epoch)));
    }
    epochs
}

/// Ethernet, IPv4 or IPv6, TCP or UDP; no extension headers.
fn parse(data: &[u8]) -> Option<(Key, abi::dwell_arrival)> {
    let word = |at: usize| Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let (src, dst, proto, at, bytes): (IpAddr, IpAddr, u8, usize, u32) = match word(12)? {
        0x0800 => {
            let header = usize::from(data.get(14)? & 15) * 4;
            let src: [u8; 4] = data.get(26..30)?.try_into().ok()?;
            let dst: [u8; 4] = data.get(30..34)?.try_into().ok()?;
            (src.into(), dst.into(), *data.get(23)?, 14 + header, word(16)?.into())
        }
        0x86dd => {
            let src: [u8; 16] = data.get(22..38)?.try_into().ok()?;
            let dst: [u8; 16] = data.get(38..54)?.try_into().ok()?;
            (src.into(), dst.into(), *data.get(20)?, 54, u32::from(word(18)?) + 40)
        }
        _ => return None,
    };
    let key = (SocketAddr::new(src, word(at)?), SocketAddr::new(dst, word(at + 2)?));
    let mut arrival = abi::dwell_arrival { bytes, segments: 1, ..Default::default() };
    let headers = match proto {
        6 => {
            arrival.visible = abi::DWELL_VISIBLE_TCP as u8;
            arrival.seq = long(at + 4)?;
            arrival.ack = long(at + 8)?;
            arrival.tcp_flags = *data.get(at + 13)?;
            at - 14 + usize::from(data.get(at + 12)? >> 4) * 4
        }
        17 => {
            arrival.visible = abi::DWELL_VISIBLE_UDP as u8;
            at - 14 + 8
        }
        _ => return None,
    };
    arrival.payload_bytes = bytes.saturating_sub(headers as u32);
    Some((key, arrival))
}

fn truth_of(path: &Path, epoch_ns: u64) -> BTreeMap<(Key, u64), Truth> {
    let mut truth: BTreeMap<(Key, u64), Truth> = BTreeMap::new();
    let mut offset = 0i64;
    let text = fs::read_to_string(path.with_extension("truth.jsonl")).unwrap_or_default();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON Lines");
        if line["type"] == "clock" {
            offset = line["realtime_minus_monotonic_ns"].as_i64().expect("an offset");
            continue;
        }
        let end = |ip: &str, port: &str| {
            let ip = line[ip].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
            SocketAddr::new(ip, line[port].as_u64().expect("a port") as u16)
        };
        let (Some(sent), Some(done)) = (line["sent_ns"].as_i64(), line["done_ns"].as_i64()) else {
            continue;
        };
        let epoch = (done + offset) as u64 / epoch_ns;
        let key = (end("src", "sport"), end("dst", "dport"));
        let slot = truth.entry((key, epoch)).or_default();
        slot.all.push((done - sent) as f64);
        if !line["triggers"].is_null() && line["triggers"] != false {
            slot.causal.push((done - sent) as f64);
        }
    }
    truth
}
