//! `dwell-lab quic handshakes`: full and resumed handshakes and 0-RTT with one server.

use std::{path::PathBuf, time::Duration};

use dwell_app::{Exit, args::duration, log::log};
use dwell_testbed::Emulation;
use serde::Serialize;

use super::{SCHEMA, ms, nanos};
use crate::{
    Programs,
    failure::Failure,
    print::{Columns, Format, folders, ratio},
    quic::{self, Certificate, HandshakeOptions, HandshakeResult, Mode},
    star::save,
};

/// Time to the first byte and server CPU time of full handshakes, resumed ones and 0-RTT
///
/// There is one client host, one server and no balancer. Each connection requests ten bytes once; a client
/// has one connection at a time. The modes alternate. CPU time is the server thread's, including the
/// kernel's work for it.
#[derive(Debug, clap::Args)]
pub struct Handshakes {
    /// Key types of the server's certificate
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',', default_values_t = Certificate::ALL)]
    certificates: Vec<Certificate>,
    /// Round trips between client and server
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_values = ["0ms", "20ms"], value_parser = duration)]
    rtts: Vec<Duration>,
    /// Clients at the same time; several numbers are run one after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 10, 50, 100, 200], value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: Vec<u16>,
    /// Connections of each mode at each number of clients
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Rounds, in each of which every mode runs once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Folder to keep pictures in
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    /// Output format: text, or jsonl with one object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Serialize)]
struct HandshakeRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    certificate: &'static str,
    rtt_ns: u64,
    clients: usize,
    mode: &'static str,
    connections: usize,
    resumed: u64,
    early: usize,
    first_byte_mean_ns: Option<u64>,
    first_byte_p50_ns: Option<u64>,
    first_byte_p99_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
}

impl Handshakes {
    pub fn run(&self) -> Result<Exit, Failure> {
        // Only the folder for pictures is needed.
        let _folder = folders("dwell-quic-", self.keep_in.as_deref())?;
        let lab = Programs::find()?.lab;
        let mut pictures = Vec::new();
        for certificate in self.certificates.iter().copied() {
            for rtt in &self.rtts {
                let options = HandshakeOptions {
                    certificate,
                    rtt: *rtt,
                    simultaneous: self.clients.iter().map(|clients| usize::from(*clients)).collect(),
                    connections: self.connections as usize,
                    rounds: self.rounds as usize,
                };
                let title = format!("{}, round trip {rtt:?}", certificate.name());
                log(&title);
                self.format.say(&COLUMNS.heading())?;
                let runs = quic::handshakes(&options, Emulation::Process(lab.clone()))?;
                for clients in &options.simultaneous {
                    self.print_runs(&options, *clients, &runs)?;
                }
                pictures.push((title, runs));
            }
        }
        let pictures: Vec<_> = pictures.iter().map(|(title, runs)| (title.clone(), runs.as_slice())).collect();
        let picture = quic::by_clients("Full handshakes, resumed handshakes and 0-RTT", &pictures);
        save(self.keep_in.as_deref(), "handshakes.svg", &picture)?;
        Ok(Exit::Done)
    }

    /// Prints all modes for one number of clients, with the ratio of the full handshake to each.
    fn print_runs(&self, options: &HandshakeOptions, clients: usize, runs: &[HandshakeResult]) -> Result<(), Failure> {
        let of = |mode| runs.iter().find(|run| run.mode == mode && run.simultaneous == clients);
        let Some(full) = of(Mode::Full) else {
            return Ok(());
        };
        for run in Mode::ALL.into_iter().filter_map(of) {
            let record = HandshakeRecord {
                kind: "lab.quic-handshakes",
                schema: SCHEMA,
                certificate: options.certificate.name(),
                rtt_ns: dwell_engine::units::nanos(options.rtt),
                clients,
                mode: run.mode.name(),
                connections: run.first_byte.len(),
                resumed: run.resumed,
                early: run.early,
                first_byte_mean_ns: nanos(run.mean()),
                first_byte_p50_ns: nanos(run.quantile(0.5)),
                first_byte_p99_ns: nanos(run.quantile(0.99)),
                server_cpu_ns: nanos(run.cpu_each()),
            };
            self.format.print(&record, || line(run, full))?;
        }
        Ok(())
    }
}

const COLUMNS: Columns<11> = Columns([
    ("clients", 7),
    (" mode", -14),
    ("conns", 7),
    ("resumed", 8),
    ("0-RTT", 7),
    ("mean ms", 10),
    ("p50 ms", 10),
    ("p99 ms", 10),
    ("x", 7),
    ("cpu ms", 10),
    ("x", 7),
]);

fn line(run: &HandshakeResult, full: &HandshakeResult) -> String {
    let speedup = |of: fn(&HandshakeResult) -> Option<Duration>| Some(of(full)?.div_duration_f64(of(run)?));
    COLUMNS.row([
        &run.simultaneous,
        &format!(" {}", run.mode.name()),
        &run.first_byte.len(),
        &run.resumed,
        &run.early,
        &ms(run.mean()),
        &ms(run.quantile(0.5)),
        &ms(run.quantile(0.99)),
        &ratio(speedup(HandshakeResult::mean)),
        &ms(run.cpu_each()),
        &ratio(speedup(HandshakeResult::cpu_each)),
    ])
}
