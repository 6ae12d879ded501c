//! Traffic over links of known delay, captured by tcpdump while `dwell rtt` watches the same interface.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

use dwell_testbed::{
    BitsPerSecond, Bytes, Emulation, Error, Lab, LabOptions, LinkPair, LinkSpec, Nanos, Probability, Report, Result,
    Topology,
    program::{PATIENCE, RunningProgram},
    signals::Signals,
    workload::{Bulk, Ends, PingPong},
};

use super::samples::{self, Sample};
use crate::{
    Programs,
    loads::capture::Capture,
    usage::{Usage, attaches},
};

/// The network and the traffic of a recording.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) client_rtt: Nanos,
    pub(super) server_rtt: Nanos,
    /// The share of packets that each direction of both links loses.
    pub(super) loss: Probability,
    /// The time for which connections send requests, and for which each bulk transfer lasts.
    pub(super) time: Duration,
    pub(super) seed: u64,
}

/// What was captured, and what was true.
pub(super) struct Recording {
    pub(super) capture: PathBuf,
    pub(super) capture_bytes: u64,
    pub(super) topology: Topology,
    pub(super) emulator: Report,
    /// The samples of `dwell rtt` on the interface.
    pub(super) live: Vec<Sample>,
    pub(super) dwell: Usage,
    pub(super) tcpdump: Usage,
}

/// The vantage point's interface that both watch.
const DEVICE: &str = "server0";
/// Connections of one or two requests, one after another.
const SHORT_CONNECTIONS: u64 = 20;
/// Connections with requests all the time.
const CONNECTIONS: u64 = 8;
/// The greatest length of a request, and of its response.
const LONGEST: Bytes = Bytes(1_000);
/// The rate of the bulk transfers.
const BULK_BITS_PER_SECOND: u64 = 20_000_000;

impl Stage {
    fn topology(&self) -> Topology {
        let pair = |rtt, seed| {
            let LinkPair { to_vantage, from_vantage } = LinkPair::with_rtt(rtt);
            let lossy = |link, add| LinkSpec { loss: self.loss, seed: self.seed.wrapping_mul(4) + seed + add, ..link };
            LinkPair { to_vantage: lossy(to_vantage, 0), from_vantage: lossy(from_vantage, 1) }
        };
        Topology::Line { client: pair(self.client_rtt, 0), server: pair(self.server_rtt, 2) }
    }

    /// Makes the network, sends the traffic and removes the network. Files go into `folder`.
    pub(super) fn record(&self, programs: &Programs, folder: &Path, signals: &Signals) -> Result<Recording> {
        let topology = self.topology();
        let emulation = Emulation::Process(programs.lab.clone());
        let lab = Lab::start(&LabOptions { name: "rtt".to_owned(), topology: topology.clone(), emulation })?;
        let capture_file = folder.join("vantage.pcap");
        let capture = Capture::of_device(lab.vantage(), DEVICE, &capture_file)?;
        let arguments = ["rtt", "-i", DEVICE, "--format", "jsonl"];
        let dwell = RunningProgram::start("dwell-rtt", lab.vantage(), &programs.dwell, folder, &arguments)?;
        if !attaches(dwell.id(), PATIENCE, signals, || Ok(()))? {
            let what = format!("dwell rtt to attach, which printed: {}", dwell.stderr()?.trim());
            return Err(Error::Timeout(what));
        }
        self.send(&lab, &signals.stop)?;
        let tcpdump = capture.usage();
        capture.finish(signals)?;
        let (usage, output) = (Usage::of(dwell.id()), dwell.stdout_file().to_owned());
        dwell.interrupt()?;
        let emulator = lab.stop()?.ok_or_else(|| Error::invalid("link emulator", "it did not run"))?;
        let text = fs::read_to_string(&output).map_err(Error::file("read", &output))?;
        let metadata = fs::metadata(&capture_file).map_err(Error::file("read", &capture_file))?;
        Ok(Recording {
            capture: capture_file,
            capture_bytes: metadata.len(),
            topology,
            emulator,
            live: samples::parse(&text)?,
            dwell: usage,
            tcpdump,
        })
    }

    /// Short connections, then connections with requests, then a bulk transfer in each direction.
    fn send(&self, lab: &Lab, stop: &AtomicBool) -> Result<()> {
        let ends = Ends::v4(lab);
        let requests = |duration, seed| PingPong { duration, longest: LONGEST, seed };
        for number in 0..SHORT_CONNECTIONS {
            requests(Duration::from_millis(1), number).run(ends, stop)?;
        }
        thread::scope(|scope| {
            let seeds = (1..=CONNECTIONS).map(|number| self.seed.wrapping_add(number));
            let all: Vec<_> =
                seeds.map(|seed| scope.spawn(move || requests(self.time, seed).run(ends, stop))).collect();
            all.into_iter()
                .try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop))
        })?;
        for download in [false, true] {
            let seconds = self.time.as_secs().max(1) as u32;
            let rate = BitsPerSecond::new(BULK_BITS_PER_SECOND);
            Bulk { seconds, rate, download, congestion: None }.run(ends, stop)?;
        }
        Ok(())
    }
}
