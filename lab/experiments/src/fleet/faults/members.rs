//! Agents that are processes of their own, so that they can be killed, and that keep what they measure on disk.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_app::Exit;
use dwell_fleet::{
    Batcher, Lane, Lanes, Outbox,
    wire::{AgentName, Hello},
};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Namespace, Result, program::RunningProgram, signals::Signals};

use super::{
    super::{
        PORT,
        agents::{BUFFER, address, interval_report, name, unix_ns},
        traffic,
    },
    authority::Files,
    figures::{Interval, Truth},
};
use crate::{failure::Failure, values::positive};

/// How long an agent waits for its collector at its end.
const LAST_WAIT: Duration = Duration::from_secs(50);

/// An agent of `dwell-lab fleet faults`: real but for what it reports
#[derive(Debug, clap::Args)]
pub(in super::super) struct Member {
    /// Its number
    #[arg(long)]
    number: usize,
    /// Number of all agents
    #[arg(long, value_parser = positive)]
    agents: usize,
    /// Number of its flows
    #[arg(long, value_parser = positive)]
    flows: usize,
    /// Length of its intervals in milliseconds
    #[arg(long)]
    interval_ms: u64,
    /// The number of its first interval
    #[arg(long)]
    first: u64,
    /// The folder of its certificate
    #[arg(long)]
    credentials: PathBuf,
    /// The folder in which it keeps batches
    #[arg(long)]
    buffer: PathBuf,
    /// The file to which it adds a line before and after each interval
    #[arg(long)]
    log: PathBuf,
}

impl Member {
    /// Reports until it is interrupted, and then waits until all is stored.
    pub(in super::super) fn run(&self) -> std::result::Result<Exit, Failure> {
        let signals = Signals::watch()?;
        let mut log =
            File::options().append(true).create(true).open(&self.log).map_err(Error::file("write", &self.log))?;
        let mut note = |what: &str, number: u64| {
            let written = log.write_all(format!("{what} {number} {}\n", unix_ns()).as_bytes());
            written.map_err(Error::file("write", &self.log))
        };
        let batcher = self.connect()?;
        let flows = traffic::flows(self.number, self.agents, self.flows);
        let length = Duration::from_millis(self.interval_ms);
        let begun = Instant::now();
        for number in self.first.. {
            let due = length * (number - self.first + 1) as u32;
            match signals.pause(due.saturating_sub(begun.elapsed())) {
                Err(Error::Interrupted) => break,
                paused => paused?,
            }
            let report = interval_report(&flows, monotonic_ns(), length.as_nanos() as u64 + number);
            note("begun", number)?;
            batcher.push_interval(report, traffic::counters(number));
            note("done", number)?;
        }
        let left = batcher.finish(LAST_WAIT);
        Ok(if left.batches == 0 { Exit::Done } else { Exit::Incomplete })
    }

    fn connect(&self) -> Result<Batcher> {
        let failed = |error: dwell_fleet::Error| Error::invalid("agent", error);
        let own = name(self.number);
        let hello = Hello {
            boot: format!("boot-of-{own}"),
            name: AgentName::try_from(own.clone()).map_err(failed)?,
            run: rand::random(),
            sync_port: None,
            is_past: false,
            confirmed: 0,
        };
        let outbox = Outbox::new(BUFFER, &hello);
        outbox.keep_in(&self.buffer).map_err(|error| Error::invalid("buffer", error))?;
        let collector = format!("{}:{PORT}", address(self.number)).parse().map_err(failed)?;
        let identity = Files::of(&self.credentials, &own).identity()?;
        let lanes = Lanes::start(vec![Lane { collector, hello, outbox }], &identity, |_, _| {}).map_err(failed)?;
        Ok(Batcher::new(lanes))
    }
}

/// An agent's process, which may be killed and started again.
pub(super) struct Process<'a> {
    namespace: &'a Namespace,
    folder: &'a Path,
    /// Its number, that of all agents, and that of its flows.
    pub(super) of: (usize, usize, usize),
    interval: Duration,
    /// The beginning of its command, as `env` takes it, up to the program.
    command: Vec<String>,
    buffer: PathBuf,
    program: Option<RunningProgram>,
}

impl Process<'_> {
    /// Starts the agent with this number of so many with so many flows.
    pub(super) fn start<'a>(
        namespace: &'a Namespace,
        folder: &'a Path,
        of: (usize, usize, usize),
        interval: Duration,
        command: Vec<String>,
        buffer: PathBuf,
    ) -> Result<Process<'a>> {
        let mut process = Process { namespace, folder, of, interval, command, buffer, program: None };
        process.run()?;
        Ok(process)
    }

    fn run(&mut self) -> Result<()> {
        let first = self.truth(false)?.intervals.last_key_value().map_or(0, |(number, _)| number + 1);
        let text = |path: &Path| path.display().to_string();
        let (number, agents, flows) = self.of;
        let arguments = [
            ("--number", number.to_string()),
            ("--agents", agents.to_string()),
            ("--flows", flows.to_string()),
            ("--interval-ms", self.interval.as_millis().to_string()),
            ("--first", first.to_string()),
            ("--credentials", text(self.folder)),
            ("--buffer", text(&self.buffer)),
            ("--log", text(&self.log())),
        ];
        let arguments = arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
        let verb = ["fleet", "agent"].map(str::to_owned);
        let command: Vec<_> = self.command.iter().cloned().chain(verb).chain(arguments).collect();
        self.program =
            Some(RunningProgram::start(name(number), self.namespace, Path::new("env"), self.folder, &command)?);
        Ok(())
    }

    /// Sends SIGKILL, and starts another one with the same buffer.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.program = None;
        self.run()
    }

    /// Ends it in order, when all is stored. Fails if something is not.
    pub(super) fn end(mut self) -> Result<Truth> {
        self.program.take().map_or(Ok(Vec::new()), RunningProgram::interrupt)?;
        self.truth(true)
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", name(self.of.0)))
    }

    /// What it has reported. What it had written down survives it; of what it was about to report when it was killed nothing is
    /// promised.
    fn truth(&self, is_over: bool) -> Result<Truth> {
        let path = self.log();
        let text = match fs::read_to_string(&path) {
            Err(_) if !is_over => String::new(),
            text => text.map_err(Error::file("read", &path))?,
        };
        let mut intervals = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (what, mut numbers) = (words.next(), words.map_while(|word| word.parse::<i64>().ok()));
            if let (Some(what), Some(number), Some(at_unix_ns)) = (what, numbers.next(), numbers.next()) {
                let interval = Interval { at_unix_ns, is_promised: what == "done" };
                intervals.insert(number.cast_unsigned(), interval);
            }
        }
        let (number, agents, flows) = self.of;
        Ok(Truth { host: name(number), rows: traffic::rows(&traffic::flows(number, agents, flows)), intervals })
    }
}
