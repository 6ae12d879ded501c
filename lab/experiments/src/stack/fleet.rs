use std::{fs, path::Path, thread, time::Duration};

use dwell_testbed::{
    Error, Namespace, Result,
    error::run,
    part::{PATIENCE, Part},
};

use super::{
    Net, Options, PORT, Scenario,
    machine::{self, Machine},
};

/// Ports of agents and collector.
const COLLECTOR_PORT: u16 = 4790;
/// The first comparisons of the clocks follow each other in seconds.
const SETTLE: Duration = Duration::from_millis(3500);

/// An agent on the sender, one on the receiver, and their collector.
pub struct Fleet {
    parts: Vec<Part>,
    /// In a container.
    devices: Option<Part>,
    /// Which the sender's agent is in.
    machine: Option<Machine>,
}

impl Fleet {
    /// Starts all, and waits until they measure and the clocks are known.
    pub(super) fn start(net: &Net, options: &Options) -> Result<Fleet> {
        let (exe, folder) = (options.programs.dwell.as_path(), options.folder.as_path());
        let key = folder.join("key");
        if !key.exists() {
            let mut make = std::process::Command::new(exe);
            run(make.args(["collect", "--new-key"]).arg(&key), "")?;
        }
        let start =
            |name, namespace: &Namespace, arguments: &[&str]| Part::start(name, namespace, exe, folder, arguments);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (key, store) = (text(&key), text(&options.store));
        let listen = format!("0.0.0.0:{COLLECTOR_PORT}");
        let collect = ["collect", "--listen", &listen, "--store", &store, "--key-file", &key];
        let mut parts = vec![start("collector", net.collector(), &collect)?];
        parts[0].wait_for("agents are awaited", 1, PATIENCE)?;
        let sample_bytes = options.sample_bytes.to_string();
        let ports = options.scenario.flows().len() as u16;
        let filter = format!(":{PORT}-{}", PORT + ports - 1);
        let sender = options.scenario.sender();
        let hosts = [(sender, net.sender()), ("receiver", net.receiver())];
        let mut machine = None;
        for ((name, namespace), address) in hosts.into_iter().zip(Net::collector_addresses()) {
            let collector = format!("{address}:{COLLECTOR_PORT}");
            let agent = ["agent", "--collector", &collector, "--name", name];
            let stack = ["--sample-bytes", &sample_bytes, "--filter", &filter];
            let agent = [&agent[..], &stack].concat();
            if options.scenario.is_emulated() && name == sender {
                machine = Some(Machine::start(net, options, key.as_ref(), &agent)?);
            } else {
                let keyed = [&agent[..], &["--key-file", &key]].concat();
                parts.push(start(name, namespace, &keyed)?);
            }
        }
        let patience = machine.as_ref().map_or(PATIENCE, |_| machine::PATIENCE);
        parts[0].wait_for(" is here", 2, patience)?;
        let devices = match options.scenario {
            Scenario::Container => {
                let stack = ["stack", "--devices", "--interval", "1h", "--filter", &filter];
                let more = ["--sample-bytes", &sample_bytes];
                Some(start("devices", net.sender(), &[&stack[..], &more].concat())?)
            }
            _ => None,
        };
        thread::sleep(SETTLE);
        Ok(Fleet { parts, devices, machine })
    }

    /// The virtual machine that the sender is in.
    pub(super) fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// Ends the agents, then the collector: what was measured is stored. Returns what they said on standard error, and
    /// what is to be said of devices.
    pub(super) fn end(self) -> Result<(Vec<String>, Option<String>)> {
        let mut said = Vec::new();
        let devices = self
            .devices
            .map(|part| {
                let out = part.out().to_owned();
                part.end()?;
                fs::read_to_string(&out).map_err(Error::file("read", &out))
            })
            .transpose()?;
        if let Some(machine) = self.machine {
            said.extend(machine.end()?);
        }
        let mut parts = self.parts;
        let collector = parts.remove(0);
        for part in parts {
            said.extend(part.end()?);
        }
        said.extend(collector.end()?);
        Ok((said, devices))
    }
}
