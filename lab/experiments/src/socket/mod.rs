//! Experiments with `dwell run`: a sender, a bottleneck and a receiver. `dwell stack` measures the true delay of bytes in
//! the buffers of their sockets.

pub mod accuracy;
mod application;
mod goals;
mod net;
mod picture;
mod radio;
mod samples;
mod scenario;
pub mod tools;
mod truth;
pub(crate) mod verb;
pub mod video;

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::Programs;
use accuracy::{Accuracy, Series, Span};
use dwell_engine::stats::mean;
use dwell_testbed::{
    Error, Report, Result, Statistics,
    error::find_program,
    program::{PATIENCE, RunningProgram},
    signals::Signals,
};
use net::Net;

pub use application::{End, Reads, SocketOptions, Writes, run_end};
pub use net::Offload;
pub use picture::over_time;
pub use samples::SocketSample;
pub use scenario::{Application, Bottleneck, Other, Scenario};
pub use truth::{Flow, Read, Sent, Truth};

/// The port of the first flow; further flows have the next ports.
pub const PORT: u16 = 5401;
/// The start of a run, which all figures leave out: connections find their rate in it.
const SKIPPED: Duration = Duration::from_secs(2);
/// Time for the bytes in the sockets to be sent after the applications have stopped.
const DRAINED: Duration = Duration::from_secs(60);
const MS: u64 = 1_000_000;

/// How to run a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scenario.
    pub scenario: Scenario,
    /// The setting of its first flow.
    pub setting: Setting,
    /// How `dwell run` watches its first flow; `None` runs the programs without `dwell run`.
    pub watch: Option<Watch>,
    /// How long the applications send.
    pub time: Duration,
    /// Segmentation offload of the sender.
    pub offload: Offload,
    /// The executables to start.
    pub programs: Programs,
    /// The folder for the files of this run alone.
    pub folder: PathBuf,
}

/// A setting against delay in the send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The defaults.
    Plain,
    /// The application sets TCP_NOTSENT_LOWAT, in KiB.
    NotsentLowat(u32),
    /// The application sets SO_SNDBUF, in KiB.
    SendBuffer(u32),
    /// The application uses bbr.
    Bbr,
    /// `dwell run --minimize --set controller=element`.
    Element,
    /// `dwell run --minimize`.
    Lowat,
    /// `dwell run --minimize --congestion bbr`.
    LowatBbr,
}

impl Setting {
    /// The settings that are compared.
    pub const ALL: [Setting; 10] = [
        Setting::Plain,
        Setting::NotsentLowat(16),
        Setting::NotsentLowat(64),
        Setting::NotsentLowat(128),
        Setting::SendBuffer(64),
        Setting::SendBuffer(256),
        Setting::Bbr,
        Setting::Element,
        Setting::Lowat,
        Setting::LowatBbr,
    ];

    /// The name in tables.
    pub fn name(self) -> String {
        match self {
            Setting::Plain => "plain".to_owned(),
            Setting::NotsentLowat(kib) => format!("NOTSENT_LOWAT {kib} K"),
            Setting::SendBuffer(kib) => format!("SO_SNDBUF {kib} K"),
            Setting::Bbr => "bbr".to_owned(),
            Setting::Element => "element".to_owned(),
            Setting::Lowat => "lowat".to_owned(),
            Setting::LowatBbr => "lowat + bbr".to_owned(),
        }
    }

    /// Whether the application sets one number for all networks.
    pub fn is_fixed(self) -> bool {
        matches!(self, Setting::NotsentLowat(_) | Setting::SendBuffer(_))
    }

    /// Whether `dwell run` applies it.
    pub fn is_dwells(self) -> bool {
        !self.arguments().is_empty()
    }

    /// The options of `dwell run`.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Setting::Element => &["--minimize", "--set", "controller=element"],
            Setting::Lowat => &["--minimize"],
            Setting::LowatBbr => &["--minimize", "--congestion", "bbr"],
            _ => &[],
        }
    }

    fn options(self, congestion: &str) -> SocketOptions {
        let mut options = SocketOptions { congestion: Some(congestion.to_owned()), ..SocketOptions::default() };
        match self {
            Setting::NotsentLowat(kib) => options.notsent_lowat = Some(kib << 10),
            Setting::SendBuffer(kib) => options.send_buffer = Some(kib << 10),
            Setting::Bbr => options.congestion = Some("bbr".to_owned()),
            // `dwell run` sets it.
            Setting::LowatBbr => options.congestion = None,
            Setting::Plain | Setting::Element | Setting::Lowat => {}
        }
        options
    }
}

/// How `dwell run` watches a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// The estimator.
    pub estimator: &'static str,
    /// Whether to watch from outside the process only.
    pub outside: bool,
    /// Least time between two lines.
    pub interval_ms: u64,
}

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The true delays of bytes.
    pub truth: Truth,
    /// The span of time that figures cover.
    pub span: Span,
    /// The samples of `dwell run` for the first flow at its sender.
    pub sender: Vec<SocketSample>,
    /// The samples of `dwell run` for the first flow at its receiver.
    pub receiver: Vec<SocketSample>,
    /// The link emulator's report.
    pub emulator: Option<Report>,
    /// The statistics of a link box.
    pub queues: Option<Statistics>,
    /// Standard error of the programs.
    pub messages: Vec<String>,
}

impl Outcome {
    /// The flow with this number.
    pub fn flow(&self, number: usize) -> Option<&Flow> {
        Some(self.truth.to_port(net::port(number))?.1)
    }

    /// The accuracy of the estimated delays in the send buffer. `None` if there are none.
    pub fn sender_accuracy(&self) -> Option<Accuracy> {
        let estimates = samples::sender(&self.sender);
        Accuracy::of(&self.flow(0)?.sending(), &estimates, self.span)
    }

    /// The accuracy of the estimated delays in the receive buffer. `None` if there are none.
    pub fn receiver_accuracy(&self) -> Option<Accuracy> {
        let estimates = samples::receiver(&self.receiver);
        Accuracy::of(&self.flow(0)?.reading(), &estimates, self.span)
    }

    /// The mean of the smoothed round trips at the sender. `None` if there are none.
    pub fn rtt_ns(&self) -> Option<f64> {
        let (from, to) = self.span;
        let within = self.sender.iter().filter(|sample| (from..=to).contains(&sample.at_ns));
        mean(within.filter_map(|sample| Some(sample.rtt_ns? as f64)))
    }

    /// The start of the first flow, and the delays of its bytes in the send buffer.
    pub fn sending(&self) -> (u64, Series) {
        let flow = self.flow(0);
        let start = flow.and_then(Flow::start_ns).unwrap_or(0);
        (start, flow.map(Flow::sending).unwrap_or_default())
    }
}

/// Whether an application supports a setting.
pub fn supports(application: Application, setting: Setting) -> bool {
    application != Application::Iperf3 || !setting.is_fixed()
}

/// Makes the network, runs the flows through it, and removes it; also on SIGINT and SIGTERM.
///
/// # Errors
///
/// If the network cannot be made, a program cannot be run or fails, or no byte was stamped.
pub fn run(options: &Options) -> Result<Outcome> {
    let signals = Signals::watch()?;
    let scenario = &options.scenario;
    let net = Net::start(&scenario.bottleneck, scenario.back_ns, options.offload, &options.programs.lab)?;
    if scenario.reads.are_at_once() {
        net.widen_window()?;
    }
    let stamps = [stamp("stack-sender", &net, options)?, stamp("stack-receiver", &net, options)?];
    let [sender_stamps, receiver_stamps] = stamps.each_ref().map(|program| program.stdout_file().to_owned());
    let files = Files::of(&options.folder);
    let mut messages = exchange(&net, options, &files, &signals)?;
    for program in stamps {
        messages.extend(program.interrupt_incomplete()?);
    }
    let queues = net.statistics()?;
    let emulator = net.stop()?;
    let truth = Truth::read(&sender_stamps, &receiver_stamps)?;
    let Some((&(from, to), flow)) = truth.to_port(PORT) else {
        return Err(Error::Timeout("a stamped byte of the first flow".to_owned()));
    };
    let start = flow.start_ns().unwrap_or(0);
    let time = options.time.as_nanos() as u64;
    let skipped = (SKIPPED.as_nanos() as u64).min(time / 2);
    let of = |file: &Path, ends: (SocketAddr, SocketAddr)| -> Result<Vec<SocketSample>> {
        if options.watch.is_none() {
            return Ok(Vec::new());
        }
        let mut samples = samples::read(file)?;
        samples.retain(|sample| sample.ends == ends);
        Ok(samples)
    };
    Ok(Outcome {
        span: (start + skipped, start + time),
        sender: of(&files.sender, (from, to))?,
        receiver: of(&files.receiver, (to, from))?,
        emulator,
        queues,
        messages,
        truth,
    })
}

/// The output files of `dwell run`.
struct Files {
    sender: PathBuf,
    receiver: PathBuf,
}

impl Files {
    fn of(folder: &Path) -> Files {
        Files { sender: folder.join("sender.jsonl"), receiver: folder.join("receiver.jsonl") }
    }
}

/// Starts `dwell stack` in a namespace. It stamps bytes when this returns.
fn stamp(name: &str, net: &Net, options: &Options) -> Result<RunningProgram> {
    let namespace = match name {
        "stack-sender" => net.sender(),
        _ => net.receiver(),
    };
    let ports = format!(":{PORT}-{}", net::port(options.scenario.others.len()));
    let sample_bytes = options.scenario.sample_bytes().to_string();
    let arguments = [
        "stack",
        "--raw",
        "--format",
        "jsonl",
        "--interval",
        "200ms",
        "--filter",
        &ports,
        "--sample-bytes",
        &sample_bytes,
    ];
    let mut program = RunningProgram::start(name, namespace, &options.programs.dwell, &options.folder, &arguments)?;
    program.wait_for_output(PATIENCE)?;
    Ok(program)
}

/// Runs all flows to their end. Returns the messages of their programs.
fn exchange(net: &Net, options: &Options, files: &Files, signals: &Signals) -> Result<Vec<String>> {
    let folder = options.folder.as_path();
    let flows = 0..=options.scenario.others.len();
    let mut running = Vec::new();
    for flow in flows.clone() {
        let command = receiver(net, options, files, flow)?;
        let name = format!("receiver-{flow}");
        running.push(command.start(name, net.receiver(), folder)?);
    }
    for flow in flows.clone() {
        let port = net::port(flow);
        let deadline = Instant::now() + PATIENCE;
        while !net.receiver().enter(|| dwell_testbed::workload::is_bound("tcp", port))? {
            let ended = running[flow].has_ended()?;
            if ended || Instant::now() > deadline {
                return Err(Error::Timeout(format!("the start of receiver-{flow}")));
            }
            signals.pause(Duration::from_millis(5))?;
        }
    }
    for flow in flows {
        let command = sender(net, options, files, flow)?;
        let name = format!("sender-{flow}");
        running.push(command.start(name, net.sender(), folder)?);
    }
    let deadline = Instant::now() + options.time + DRAINED;
    let mut messages = Vec::new();
    while let Some(program) = running.last_mut() {
        if program.has_ended()? {
            messages.extend(program.stderr_lines()?);
            running.pop();
        } else if Instant::now() > deadline {
            let stderr = program.stderr()?;
            return Err(Error::Timeout(format!("the end of a flow, which printed: {}", stderr.trim())));
        } else {
            signals.pause(Duration::from_millis(20))?;
        }
    }
    Ok(messages)
}

/// A program and its arguments.
struct Command {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Command {
    fn new(program: &Path, arguments: &[&str]) -> Command {
        Command { program: program.to_owned(), arguments: arguments.iter().map(OsString::from).collect() }
    }

    /// The command under `dwell run`, if `options` ask for it.
    fn watched(self, options: &Options, output: &Path, more: &[&str]) -> Command {
        let Some(watch) = options.watch else {
            return self;
        };
        let interval = format!("{}ms", watch.interval_ms);
        let mut run = Command::new(
            &options.programs.dwell,
            &["run", "--format", "jsonl", "--poll", "10ms", "--interval", &interval],
        );
        // The default is `exact`, but a setting may choose another.
        if watch.estimator != "exact" {
            run.arguments.extend(["--set".into(), format!("estimator={}", watch.estimator).into()]);
        }
        if watch.outside {
            run.arguments.push("--outside".into());
        }
        run.arguments.extend(more.iter().map(OsString::from));
        run.arguments.extend(["--write".into(), output.into()]);
        run.arguments.extend(["--".into(), self.program.into()]);
        run.arguments.extend(self.arguments);
        run
    }

    fn start(self, name: String, namespace: &dwell_testbed::Namespace, folder: &Path) -> Result<RunningProgram> {
        RunningProgram::start(name, namespace, &self.program, folder, &self.arguments)
    }
}

fn receiver(net: &Net, options: &Options, files: &Files, flow: usize) -> Result<Command> {
    let scenario = &options.scenario;
    let at = net.address(flow);
    let end = End::Receive { at, reads: scenario.reads };
    if flow > 0 {
        return own(&options.programs.lab, &end);
    }
    let command = match scenario.application {
        Application::Own(_) => own(&options.programs.lab, &end)?,
        Application::Iperf3 => {
            let (address, port) = (at.ip().to_string(), at.port().to_string());
            Command::new(&iperf3()?, &["-s", "-1", "-B", &address, "-p", &port])
        }
    };
    Ok(command.watched(options, &files.receiver, &[]))
}

fn sender(net: &Net, options: &Options, files: &Files, flow: usize) -> Result<Command> {
    let scenario = &options.scenario;
    let to = net.address(flow);
    let end = |after, time, writes, options| End::Send { to, after, time, writes, options };
    if let Some(other) = flow.checked_sub(1).map(|other| scenario.others[other]) {
        let writes = Writes::Waiting { bytes: 128 << 10 };
        return own(
            &options.programs.lab,
            &end(
                options.time.mul_f64(other.from),
                options.time.mul_f64(other.until - other.from),
                writes,
                Setting::Plain.options(scenario.congestion),
            ),
        );
    }
    let socket = options.setting.options(scenario.congestion);
    let command = match scenario.application {
        Application::Own(writes) => own(&options.programs.lab, &end(Duration::ZERO, options.time, writes, socket))?,
        Application::Iperf3 => {
            let (address, port) = (to.ip().to_string(), to.port().to_string());
            let seconds = options.time.as_secs_f64().ceil().to_string();
            let arguments = ["-c", &address, "-p", &port, "-t", &seconds, "-l", "128K"];
            let mut command = Command::new(&iperf3()?, &arguments);
            if let Some(congestion) = socket.congestion {
                command.arguments.extend(["-C".into(), congestion.into()]);
            }
            command
        }
    };
    Ok(command.watched(options, &files.sender, options.setting.arguments()))
}

fn own(lab: &Path, end: &End) -> Result<Command> {
    let json = serde_json::to_string(end).map_err(|why| Error::invalid("end of a flow", why))?;
    Ok(Command::new(lab, &["socket-end", "--config", &json]))
}

fn iperf3() -> Result<PathBuf> {
    find_program("iperf3").ok_or(Error::Host {
        wanted: "send data",
        fact: "there is no program iperf3".to_owned(),
        remedy: "Install the package iperf3.",
    })
}
