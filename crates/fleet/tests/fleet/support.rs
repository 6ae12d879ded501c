//! A collector that keeps what it receives in memory, and agents for it.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use dwell_fleet::{
    Agent, Batcher, Busy, Error, Event, Handler, Identity, Key, Lane, Lanes, Limits, Outbox, Server, Uplink,
    wire::{AgentName, Batch, Content, Hello, RunId},
};
use dwell_testbed::harness::eventually;

pub const MB: usize = 1_000_000;

/// The identity of a key file that repeats `text`.
pub fn identity(text: &str) -> Identity {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    fs::write(&path, text.repeat(50)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Identity::from_key(&Key::read(&path).unwrap())
}

/// A store that outlives its collector, as a file does.
#[derive(Default)]
pub struct Memory {
    /// The run and number of each stored batch, in the order of storage.
    pub batches: Mutex<Vec<(RunId, u64)>>,
    /// The content of each stored batch.
    pub contents: Mutex<Vec<Content>>,
    /// Name of each agent that disconnected, and the reason.
    pub disconnected: Mutex<Vec<String>>,
    /// Agents that were sent a key for a token, and why others were not.
    pub enrolled: Mutex<Vec<Result<AgentName, String>>>,
    /// What was said of those who speak no version of the protocol.
    pub incompatible: Mutex<Vec<String>>,
    /// What was said of the collector's own credentials.
    pub unusable: Mutex<Vec<String>>,
    /// The size of the largest batch.
    pub largest: AtomicUsize,
    /// Makes each attempt to store a batch fail.
    pub is_full: Mutex<bool>,
    /// Time until a hello is answered.
    pub hello_delay: Mutex<Duration>,
    /// While a test holds this lock, the collector does not proceed after a welcome.
    pub after_welcome: Mutex<()>,
}

impl Memory {
    pub fn numbers(&self, run: RunId) -> Vec<u64> {
        let batches = self.batches.lock().unwrap();
        let of_run = batches.iter().filter(|(it, _)| *it == run);
        of_run.map(|(_, number)| *number).collect()
    }
}

impl Handler for Memory {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        thread::sleep(*self.hello_delay.lock().unwrap());
        Ok(self.numbers(agent.run).last().copied().unwrap_or(0))
    }

    fn welcomed(&self, _: &Agent) {
        drop(self.after_welcome.lock().unwrap());
    }

    fn ready(&self, _: &Agent) -> Result<(), Busy> {
        match *self.is_full.lock().unwrap() {
            true => Err(Busy { reason: "no room".into(), retry: Duration::from_millis(200) }),
            false => Ok(()),
        }
    }

    fn store(&self, agent: &Agent, batch: Batch, bytes: usize) -> Result<(), Busy> {
        self.ready(agent)?;
        self.largest.fetch_max(bytes, Ordering::SeqCst);
        if self.numbers(agent.run).last() < Some(&batch.number) {
            let mut batches = self.batches.lock().unwrap();
            batches.push((agent.run, batch.number));
            self.contents.lock().unwrap().push(batch.content);
        }
        Ok(())
    }

    fn incompatible(&self, _: SocketAddr, reason: &str) {
        self.incompatible.lock().unwrap().push(reason.into());
    }

    fn unusable(&self, error: &Error) {
        self.unusable.lock().unwrap().push(error.to_string());
    }

    fn enrolled(&self, _: SocketAddr, outcome: Result<AgentName, String>) {
        self.enrolled.lock().unwrap().push(outcome);
    }

    fn disconnected(&self, agent: &Agent, reason: Option<&str>) {
        let mut disconnected = self.disconnected.lock().unwrap();
        disconnected.push(format!("{}: {}", agent.name, reason.unwrap_or("it is here again")));
    }
}

pub fn collector(identity: &Identity, memory: &Arc<Memory>) -> Server {
    collector_at("127.0.0.1:0".parse().unwrap(), identity, memory)
}

pub fn collector_at(address: SocketAddr, identity: &Identity, memory: &Arc<Memory>) -> Server {
    limited_collector(address, Limits::default(), identity, memory)
}

pub fn limited_collector(address: SocketAddr, limits: Limits, identity: &Identity, memory: &Arc<Memory>) -> Server {
    // The former collector may not have released the port yet.
    let start = Instant::now();
    loop {
        match Server::start(address, identity.clone(), limits, Arc::clone(memory), &[]) {
            Ok(server) => return server,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub struct TestAgent {
    pub uplink: Uplink,
    pub events: mpsc::Receiver<Event>,
    pub run: RunId,
}

pub fn agent(name: &str, run: u8, collector: &str, identity: &Identity) -> TestAgent {
    start_agent(name, run, collector, identity, None)
}

/// An agent that keeps its batches in a folder.
pub fn kept_agent(name: &str, run: u8, collector: &str, identity: &Identity, folder: &Path) -> TestAgent {
    start_agent(name, run, collector, identity, Some(folder))
}

fn start_agent(name: &str, run: u8, collector: &str, identity: &Identity, folder: Option<&Path>) -> TestAgent {
    let (sender, events) = mpsc::channel();
    let run = [run; 16];
    let name = name.to_owned().try_into().unwrap();
    let hello = Hello { name, run, boot: "boot".into(), sync_port: None, is_past: false, confirmed: 0 };
    let on_event = move |event| {
        let _ = sender.send(event);
    };
    let outbox = Outbox::new(MB, &hello);
    // That of an agent before may be about to end.
    eventually("the folder is free", || folder.is_none_or(|folder| outbox.keep_in(folder).is_ok()));
    let uplink = Uplink::start(collector.parse().unwrap(), identity.clone(), hello, outbox, on_event).unwrap();
    TestAgent { uplink, events, run }
}

impl TestAgent {
    pub fn push(&self, count: u64) {
        self.uplink.push(Content { counters: vec![("count".into(), count)], ..Content::default() });
    }

    /// Waits for the next event, with a timeout that a busy machine keeps.
    pub fn event(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    pub fn wait_until_connected(&self) {
        while !matches!(self.event(), Event::Connected { .. }) {}
    }

    /// Waits for a failure whose reason contains `text`.
    pub fn wait_for_failure(&self, text: &str) {
        loop {
            if let Event::Disconnected { reason, .. } = self.event()
                && reason.contains(text)
            {
                return;
            }
        }
    }
}

/// What an agent named `web` reports by to these collectors, each with a run of its own, from this one on.
pub fn batcher(collectors: &[String], identity: &Identity, run: u8) -> Batcher {
    let lanes = collectors.iter().zip(run..).map(|(collector, run)| {
        let hello = Hello {
            name: "web".to_owned().try_into().unwrap(),
            run: [run; 16],
            boot: "boot".into(),
            sync_port: None,
            is_past: false,
            confirmed: 0,
        };
        Lane { collector: collector.parse().unwrap(), outbox: Outbox::new(MB, &hello), hello }
    });
    Batcher::new(Lanes::start(lanes.collect(), identity, |_, _| {}).unwrap())
}
