//! iperf3 under `dwell run`, with ss on the same connection: what each of the three reports of it.

mod figures;
mod goals;
pub(crate) mod verb;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use dwell_testbed::{
    BitsPerSecond, Emulation, Error, Lab, LabOptions, LinkPair, LinkSpec, Nanos, QueueLimit, Report, Result, Role,
    Topology,
    signals::Signals,
    workload::{collect, output, require, serve},
};
use figures::{Figures, of_dwell, of_iperf3, of_ss};

use crate::Programs;

/// The connection according to each program, and what the link did to it.
#[derive(Debug)]
struct Outcome {
    iperf3: Figures,
    ss: Figures,
    dwell: Figures,
    link: Report,
}

const RATE_BITS_PER_SECOND: u64 = 10_000_000;
const ONE_WAY: Nanos = Nanos::from_millis(25);
/// 400 ms at that rate.
const QUEUE_PACKETS: usize = 333;
const PORT: u16 = 5201;
/// The time between two readings of ss, and between two intervals of the others.
const EVERY: Duration = Duration::from_millis(250);

/// Runs iperf3 for a time over 10 Mbit/s, a round trip of 50 ms and a FIFO of 400 ms. SIGINT and SIGTERM end it early.
fn measure(seconds: u64, programs: &Programs, folder: &Path) -> Result<Outcome> {
    for program in ["iperf3", "ss"] {
        require(program)?;
    }
    let signals = Signals::watch()?;
    let to_server = LinkSpec {
        rate_bits_per_second: BitsPerSecond::new(RATE_BITS_PER_SECOND),
        queue: Some(QueueLimit::Packets(QUEUE_PACKETS)),
        ..LinkSpec::delay(ONE_WAY)
    };
    let lab = Lab::start(&LabOptions {
        name: "run".to_owned(),
        topology: Topology::Line {
            client: LinkPair { to_vantage: to_server, from_vantage: LinkSpec::delay(ONE_WAY) },
            server: LinkPair::default(),
        },
        emulation: Emulation::Process(programs.lab.clone()),
    })?;
    // The queue counts packets, so none may be longer than the link's: the kernel cuts them before it.
    lab.client().offload("vantage0", "tso", "off")?;
    let to = SocketAddr::from((Lab::address_v4(Role::Server), PORT));
    let records = folder.join("run.jsonl");
    let over = AtomicBool::new(false);
    let (report, sockets) = thread::scope(|scope| {
        let ss = scope.spawn(|| poll_ss(&lab, to, &over));
        let report = iperf3(&lab, to, seconds, programs, &records, &signals);
        over.store(true, Ordering::Relaxed);
        let sockets = ss.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Error>((report?, sockets?))
    })?;
    let text = fs::read_to_string(&records).map_err(Error::file("read", &records))?;
    let link = lab.stop()?.ok_or_else(|| Error::invalid("link emulator", "it did not run"))?;
    Ok(Outcome { iperf3: of_iperf3(&report)?, ss: of_ss(&sockets)?, dwell: of_dwell(&text)?, link })
}

/// Returns what iperf3 prints under `dwell run`, whose figures go to a file.
fn iperf3(
    lab: &Lab,
    to: SocketAddr,
    seconds: u64,
    programs: &Programs,
    records: &Path,
    signals: &Signals,
) -> Result<String> {
    let address = to.ip().to_string();
    let listen = |command: &mut std::process::Command| {
        command.args(["-s", "-1", "-B", &address]);
    };
    let _server = serve(lab.server(), "iperf3", listen, "tcp", PORT)?;
    let interval = EVERY.as_secs_f64();
    let words = format!(
        "run --format jsonl --interval {}ms -- iperf3 -J -i {interval} -c {address} -t {seconds} -C cubic",
        EVERY.as_millis(),
    );
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let output = ["--write".to_owned(), records.display().to_string()];
    words.splice(1..1, output);
    collect(lab.client(), programs.dwell.as_os_str(), &words, &signals.stop)
}

/// Reads the sockets that are connected to an address until `over` is set. Returns the text of each reading.
fn poll_ss(lab: &Lab, to: SocketAddr, over: &AtomicBool) -> Result<Vec<String>> {
    let filter = format!("-tinH state established dport = :{}", to.port());
    let words: Vec<String> = filter.split_whitespace().map(str::to_owned).collect();
    let mut readings = Vec::new();
    while !over.load(Ordering::Relaxed) {
        readings.push(output(lab.client(), "ss", &words, &AtomicBool::new(false))?);
        thread::sleep(EVERY);
    }
    Ok(readings)
}
