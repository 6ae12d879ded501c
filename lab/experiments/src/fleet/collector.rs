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
    folder: &'a Path,
    store: PathBuf,
    /// The program and its arguments, after those of `env`.
    command: Vec<String>,
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
        let store = folder.join(format!("fleet-{number}.db"));
        let (dwell, listen, key, list) =
            (text(dwell), format!("{address}:{PORT}"), text(&agents::key(folder)), text(&agents::list(folder)));
        let always = [&dwell, "collect", "--listen", &listen, "--key-file", &key, "--agents", &list];
        let command = always.map(str::to_owned).into_iter().chain(store_arguments(&store, load.has_server));
        Collector::start_as(namespace, folder, &store, command.collect())
    }

    /// Starts it by a command, as `env` takes it.
    pub(super) fn start_as<'a>(
        namespace: &'a Namespace,
        folder: &'a Path,
        store: &Path,
        command: Vec<String>,
    ) -> Result<Collector<'a>> {
        let mut collector = Collector {
            namespace,
            folder,
            store: store.to_owned(),
            command,
            program: None,
            used: Duration::ZERO,
            most_bytes: 0,
            down: Vec::new(),
        };
        collector.run()?;
        Ok(collector)
    }

    fn run(&mut self) -> Result<()> {
        let mut program =
            RunningProgram::start("collector", self.namespace, Path::new("env"), self.folder, &self.command)?;
        program.wait_for("listening for agents", 1, PATIENCE)?;
        self.program = Some(program);
        Ok(())
    }

    /// Starts it again if it has ended by itself, as its unit does. Returns whether it had ended. One that cannot start is tried
    /// again with the next call.
    pub(super) fn tend(&mut self) -> bool {
        let has_ended = |program: &mut RunningProgram| !matches!(program.has_ended(), Ok(false));
        if let Some(program) = &mut self.program {
            self.most_bytes = self.most_bytes.max(Usage::of(program.id()).memory_bytes.unwrap_or_default());
            if !has_ended(program) {
                return false;
            }
            self.program = None;
        }
        let _ = self.run();
        true
    }

    /// Sends SIGKILL, and leaves it so until [`Collector::tend`].
    pub(super) fn take_away(&mut self) {
        (self.used, self.most_bytes) = (self.cpu(), self.most_bytes());
        self.program = None;
    }

    /// Sends SIGKILL, and starts another one with the same store after a time.
    pub(super) fn kill(&mut self, away: Duration, signals: &Signals) -> Result<()> {
        let killed = Instant::now();
        self.take_away();
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

/// Where the collector keeps rows: in a file, or on a server with the file as its spool.
pub(super) fn store_arguments(store: &Path, has_server: bool) -> Vec<String> {
    let arguments = match has_server {
        true => vec!["--store", clickhouse::STORE, "--spool"],
        false => vec!["--store"],
    };
    arguments.into_iter().map(str::to_owned).chain([text(store)]).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
