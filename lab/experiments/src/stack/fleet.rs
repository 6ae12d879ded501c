use std::{fs, path::Path, thread, time::Duration};

use dwell_testbed::{
    Error, Namespace, Result,
    error::run,
    program::{PATIENCE, RunningProgram},
};

use super::{
    Net, Options, PORT, Scenario,
    machine::{self, Machine},
};

/// The port at which the collector listens for agents.
const COLLECTOR_PORT: u16 = 4790;
/// Time in which the agents' clocks are first compared, a few times within seconds.
const SETTLE: Duration = Duration::from_millis(3500);

/// An agent on the sender, an agent on the receiver, and their collector.
pub struct Fleet {
    programs: Vec<RunningProgram>,
    /// `dwell stack --devices` at a sender in a container.
    devices: Option<RunningProgram>,
    /// The virtual machine that runs the sender's agent.
    machine: Option<Machine>,
}

impl Fleet {
    /// Starts all programs, and waits until they measure and the clocks are known.
    pub(super) fn start(net: &Net, options: &Options) -> Result<Fleet> {
        let (exe, folder) = (options.programs.dwell.as_path(), options.folder.as_path());
        let key = folder.join("key");
        if !key.exists() {
            let mut make = std::process::Command::new(exe);
            run(make.args(["collect", "--new-key"]).arg(&key), "")?;
        }
        let start = |name, namespace: &Namespace, arguments: &[&str]| {
            RunningProgram::start(name, namespace, exe, folder, arguments)
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (key, store) = (text(&key), text(&options.store));
        let listen = format!("0.0.0.0:{COLLECTOR_PORT}");
        let collect = ["collect", "--listen", &listen, "--store", &store, "--key-file", &key];
        let mut programs = vec![start("collector", net.collector(), &collect)?];
        programs[0].wait_for("listening for agents", 1, PATIENCE)?;
        let sample_bytes = options.sample_bytes.to_string();
        let ports = options.scenario.flows().len() as u16;
        let filter = format!(":{PORT}-{}", PORT + ports - 1);
        let sender = options.scenario.sender();
        let hosts = [(sender, net.sender()), ("receiver", net.receiver())];
        let mut machine = None;
        for ((name, namespace), address) in hosts.into_iter().zip(Net::collector_addresses()) {
            let collector = format!("{address}:{COLLECTOR_PORT}");
            let agent = ["agent", "--collector", &collector, "--name", name, "--buffer-dir", "none"];
            let stack = ["--sample-bytes", &sample_bytes, "--filter", &filter];
            let agent = [&agent[..], &stack].concat();
            if options.scenario.is_emulated() && name == sender {
                machine = Some(Machine::start(net, options, key.as_ref(), &agent)?);
            } else {
                let keyed = [&agent[..], &["--key-file", &key]].concat();
                programs.push(start(name, namespace, &keyed)?);
            }
        }
        let patience = machine.as_ref().map_or(PATIENCE, |_| machine::PATIENCE);
        programs[0].wait_for(" connected", 2, patience)?;
        let devices = match options.scenario {
            Scenario::Container => {
                let stack = ["stack", "--devices", "--interval", "1h", "--filter", &filter];
                let more = ["--sample-bytes", &sample_bytes];
                Some(start("devices", net.sender(), &[&stack[..], &more].concat())?)
            }
            _ => None,
        };
        thread::sleep(SETTLE);
        Ok(Fleet { programs, devices, machine })
    }

    /// The sender's virtual machine, if the scenario has one.
    pub(super) fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// Stops the agents and then the collector, so that all measurements are stored. Returns their standard error, and
    /// the output of `dwell stack --devices`.
    pub(super) fn stop(self) -> Result<(Vec<String>, Option<String>)> {
        let mut messages = Vec::new();
        let devices = self
            .devices
            .map(|program| {
                let out = program.stdout_file().to_owned();
                program.interrupt_incomplete()?;
                fs::read_to_string(&out).map_err(Error::file("read", &out))
            })
            .transpose()?;
        if let Some(machine) = self.machine {
            messages.extend(machine.end()?);
        }
        let mut programs = self.programs;
        let collector = programs.remove(0);
        for program in programs {
            messages.extend(program.interrupt()?);
        }
        messages.extend(collector.interrupt()?);
        Ok((messages, devices))
    }
}
