//! The collector, which may be killed and started again.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_testbed::{
    Namespace, Result,
    program::{PATIENCE, RunningProgram},
    signals::Signals,
};

use super::{Load, PORT, agents, clickhouse};
use crate::usage::{Usage, process_cpu_time, resident_memory};

/// `dwell collect`, and what its processes have used.
pub(super) struct Collector<'a> {
    namespace: &'a Namespace,
    dwell: &'a Path,
    folder: &'a Path,
    store: PathBuf,
    /// The address that it listens on.
    listen: String,
    /// Whether the store is a ClickHouse server, and the file a spool.
    has_server: bool,
    /// `None` only while it is down.
    program: Option<RunningProgram>,
    /// What killed processes have used.
    used: Duration,
    most_bytes: u64,
    /// How long it was down after each kill.
    down: Vec<Duration>,
}

impl Collector<'_> {
    /// Starts a collector with its files in a folder, and waits until it listens: the one with this number of several.
    pub(super) fn start<'a>(
        namespace: &'a Namespace,
        dwell: &'a Path,
        folder: &'a Path,
        load: &Load,
        number: usize,
    ) -> Result<Collector<'a>> {
        let address = match load.collectors {
            1 => Ipv4Addr::UNSPECIFIED,
            _ => agents::collector_address(number),
        };
        let mut collector = Collector {
            namespace,
            dwell,
            folder,
            store: folder.join(format!("fleet-{number}.db")),
            listen: format!("{address}:{PORT}"),
            has_server: load.has_server,
            program: None,
            used: Duration::ZERO,
            most_bytes: 0,
            down: Vec::new(),
        };
        collector.run()?;
        Ok(collector)
    }

    fn run(&mut self) -> Result<()> {
        let (key, list) = (agents::key(self.folder), agents::list(self.folder));
        let [store, key, list] = [&self.store, &key, &list].map(|path| path.to_string_lossy());
        let always = ["collect", "--listen", &self.listen, "--key-file", &key, "--agents", &list];
        let own = match self.has_server {
            true => vec!["--store", clickhouse::STORE, "--spool", &store],
            false => vec!["--store", &store],
        };
        let collect = [&always[..], &own].concat();
        let mut program = RunningProgram::start("collector", self.namespace, self.dwell, self.folder, &collect)?;
        program.wait_for("agents are awaited", 1, PATIENCE)?;
        self.program = Some(program);
        Ok(())
    }

    /// Sends SIGKILL, and starts another one with the same store after a time.
    pub(super) fn kill(&mut self, away: Duration, signals: &Signals) -> Result<()> {
        (self.used, self.most_bytes) = (self.cpu(), self.most_bytes());
        let killed = Instant::now();
        self.program = None;
        signals.pause(away)?;
        self.run()?;
        self.down.push(killed.elapsed());
        Ok(())
    }

    /// Ends it in order.
    pub(super) fn end(self) -> Result<Vec<Duration>> {
        if let Some(program) = self.program {
            program.interrupt()?;
        }
        Ok(self.down)
    }

    /// The file of the store, or of the spool.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// The processor time so far.
    pub(super) fn cpu(&self) -> Duration {
        self.used + process_cpu_time(self.process())
    }

    /// The greatest resident memory of a process so far.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes.max(Usage::of(self.process()).memory_bytes.unwrap_or_default())
    }

    /// The resident memory now.
    pub(super) fn bytes(&self) -> u64 {
        resident_memory(self.process()).unwrap_or_default()
    }

    /// The number of threads now.
    pub(super) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.process())).map_or(0, Iterator::count)
    }

    fn process(&self) -> u32 {
        self.program.as_ref().map_or(0, RunningProgram::id)
    }
}
