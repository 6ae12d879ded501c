//! Where a behaviour takes place: a client and a server in namespaces of their own, and a capture at the client.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_testbed::{
    Emulation, Error, Lab, LabOptions, Result, Role, Topology,
    program::{PATIENCE, RunningProgram},
    signals::Signals,
    workload::is_bound,
};

use super::{
    behaviour::{self, Behaviour},
    programs::{Lack, ZooPrograms},
    truth::{self, Answer, Flows},
};
use crate::loads::{capture::Capture, truth::realtime_minus_monotonic_ns};

/// The server's port.
const PORT: u16 = 8080;
/// The client's and the server's only interface.
const DEVICE: &str = "vantage0";

/// What all behaviours of a run share.
pub(super) struct Zoo<'a> {
    pub(super) programs: ZooPrograms,
    /// This executable, which emulates links.
    pub(super) lab: &'a Path,
    pub(super) signals: &'a Signals,
    /// The server's certificate and its key, in PEM.
    pub(super) identity: [PathBuf; 2],
    pub(super) duration: Duration,
    pub(super) seed: u64,
}

/// What came of a behaviour.
pub(super) struct Recorded {
    /// What the client sent.
    pub(super) half: PathBuf,
    pub(super) answers: Vec<Answer>,
}

impl Recorded {
    /// What an earlier run kept in a folder.
    pub(super) fn kept(behaviour: &Behaviour, folder: &Path) -> std::result::Result<Self, Lack> {
        let [half, truth] = kept_files(behaviour, folder);
        if !half.is_file() {
            return Err(Lack::Skipped(format!("there is no file {}", half.display())));
        }
        Ok(Self { answers: truth::read(&truth)?, half })
    }

    /// Copies it into a folder.
    pub(super) fn keep(&self, behaviour: &Behaviour, folder: &Path) -> Result<()> {
        let [half, truth] = kept_files(behaviour, folder);
        fs::copy(&self.half, &half).map_err(Error::file("write", &half))?;
        truth::write(&self.answers, &truth)
    }
}

/// The capture and the truth of a behaviour in the folder of a run's results.
fn kept_files(behaviour: &Behaviour, folder: &Path) -> [PathBuf; 2] {
    let stem = behaviour.file_stem();
    ["pcap", "truth.jsonl"].map(|suffix| folder.join(format!("{stem}.{suffix}")))
}

impl Zoo<'_> {
    /// Runs a behaviour; its files go into `folder`.
    pub(super) fn record(&self, behaviour: &Behaviour, folder: &Path) -> std::result::Result<Recorded, Lack> {
        let habits = &behaviour.habits;
        let [server, client] = [&habits.server, &habits.client].map(|words| self.command(words));
        let (server, client) = (server?, client?);
        let lab = self.start_lab(behaviour)?;
        let capture_file = folder.join("both.pcap");
        let _server = self.start_server(&lab, &server, habits.tls, folder)?;
        let capture = Capture::of_device(lab.client(), DEVICE, &capture_file)?;
        let offset_ns = realtime_minus_monotonic_ns();
        let log = self.run_clients(&lab, &client, behaviour, folder)?;
        let missed = capture.finish(self.signals)?;
        if missed > 0 {
            return Err(Error::invalid("capture", format!("{missed} packets are missing")).into());
        }
        let half = folder.join("client.pcap");
        let flows = Flows::split(&capture_file, Lab::address_v4(Role::Client), &half)?;
        let answers = match habits.truth {
            behaviour::Truth::Log => flows.answers_of_log(&log, offset_ns, !habits.tls)?,
            behaviour::Truth::Turns => flows.answers_of_turns(),
        };
        Ok(Recorded { half, answers })
    }

    /// The command line of a program and its options.
    fn command(&self, words: &str) -> std::result::Result<Vec<OsString>, Lack> {
        let mut words = words.split(' ');
        let program = self.programs.command(words.next().unwrap_or_default())?;
        Ok(program.into_iter().map(OsString::from).chain(words.map(OsString::from)).collect())
    }

    fn start_lab(&self, behaviour: &Behaviour) -> Result<Lab> {
        let emulation = match behaviour.path {
            behaviour::Path::Near => Emulation::None,
            _ => Emulation::Process(self.lab.to_owned()),
        };
        let topology = Topology::line(behaviour.path.rtt(), dwell_testbed::Nanos::ZERO);
        let lab = Lab::start(&LabOptions { name: "zoo".to_owned(), topology, emulation })?;
        if !behaviour.habits.timestamps {
            lab.server().set(&[("ipv4/tcp_timestamps", "0")])?;
        }
        if !behaviour.habits.offloads {
            lab.server().ip(&format!("link set {DEVICE} gso_max_segs 1\n"))?;
        }
        Ok(lab)
    }

    fn start_server(
        &self,
        lab: &Lab,
        command: &[OsString],
        is_encrypted: bool,
        folder: &Path,
    ) -> std::result::Result<RunningProgram, Lack> {
        // What a server writes goes with the folder of its behaviour.
        let mut temporary = OsString::from("TMPDIR=");
        temporary.push(folder);
        let mut arguments = vec![temporary];
        arguments.extend_from_slice(command);
        arguments.push(PORT.to_string().into());
        if is_encrypted {
            arguments.extend(self.identity.iter().map(OsString::from));
        }
        let mut server = RunningProgram::start("server", lab.server(), Path::new("env"), folder, &arguments)?;
        let started = Instant::now();
        while !lab.server().enter(|| is_bound("tcp", PORT))? {
            if server.has_ended()? {
                return Err(Error::invalid("server", "it ended before it listened").into());
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Timeout("the start of the server".to_owned()).into());
            }
            self.signals.pause(Duration::from_millis(20))?;
        }
        Ok(server)
    }

    /// Runs the clients to their end, and gives their logs.
    fn run_clients(
        &self,
        lab: &Lab,
        command: &[OsString],
        behaviour: &Behaviour,
        folder: &Path,
    ) -> std::result::Result<String, Lack> {
        let scheme = if behaviour.habits.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}:{PORT}", Lab::address_v4(Role::Server));
        let mut clients = Vec::new();
        for number in 0..behaviour.habits.clients {
            let plan = folder.join(format!("plan-{number}"));
            fs::write(&plan, behaviour.plan(self.seed, number)).map_err(Error::file("write", &plan))?;
            let mut arguments = command[1..].to_vec();
            let seconds = self.duration.as_secs_f64().to_string();
            arguments.extend([url.clone().into(), plan.into(), seconds.into()]);
            let name = format!("client-{number}");
            clients.push(RunningProgram::start(name, lab.client(), Path::new(&command[0]), folder, &arguments)?);
        }
        let started = Instant::now();
        let mut log = String::new();
        for mut client in clients {
            while !client.has_ended()? {
                if started.elapsed() > self.duration + PATIENCE {
                    return Err(Error::Timeout("the end of a client".to_owned()).into());
                }
                self.signals.pause(Duration::from_millis(20))?;
            }
            let file = client.stdout_file();
            log += &fs::read_to_string(file).map_err(Error::file("read", file))?;
        }
        Ok(log)
    }
}
