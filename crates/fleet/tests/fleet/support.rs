//! A collector that remembers what it is told, and agents for it.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use dwell_fleet::{
    Agent, Desk, Event, Identity, Key, Server, Uplink,
    wire::{Batch, Content, Hello, Run},
};

pub const MB: usize = 1_000_000;

/// As a key file would give it.
pub fn identity(text: &str) -> Identity {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    fs::write(&path, text.repeat(50)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Identity::of_key(&Key::read(&path).unwrap())
}

/// Its store outlasts the collector, as a file does.
#[derive(Default)]
pub struct Memory {
    /// Run and number of each batch that was stored, in that order.
    pub batches: Mutex<Vec<(Run, u64)>>,
    pub gone: Mutex<Vec<String>>,
    /// Store nothing, and say so.
    pub is_full: Mutex<bool>,
    /// How long it takes to answer a hello.
    pub hello_takes: Mutex<Duration>,
    /// Held as long as it does not go on after a welcome.
    pub after_welcome: Mutex<()>,
}

impl Memory {
    pub fn numbers(&self, run: Run) -> Vec<u64> {
        let batches = self.batches.lock().unwrap();
        let of_run = batches.iter().filter(|(it, _)| *it == run);
        of_run.map(|(_, number)| *number).collect()
    }
}

impl Desk for Memory {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        thread::sleep(*self.hello_takes.lock().unwrap());
        Ok(self.numbers(agent.run).last().copied().unwrap_or(0))
    }

    fn welcomed(&self, _: &Agent) {
        drop(self.after_welcome.lock().unwrap());
    }

    fn store(&self, agent: &Agent, batch: Batch) -> Result<(), String> {
        if *self.is_full.lock().unwrap() {
            return Err("no room".into());
        }
        if self.numbers(agent.run).last() < Some(&batch.number) {
            let mut batches = self.batches.lock().unwrap();
            batches.push((agent.run, batch.number));
        }
        Ok(())
    }

    fn gone(&self, agent: &Agent, why: &str) {
        let mut gone = self.gone.lock().unwrap();
        gone.push(format!("{}: {why}", agent.name));
    }
}

pub fn collector(identity: &Identity, memory: &Arc<Memory>) -> Server {
    collector_at("127.0.0.1:0".parse().unwrap(), identity, memory)
}

pub fn collector_at(address: SocketAddr, identity: &Identity, memory: &Arc<Memory>) -> Server {
    // The former one may be on its way out still.
    let begun = Instant::now();
    loop {
        match Server::start(address, identity.clone(), Arc::clone(memory)) {
            Ok(server) => return server,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub struct TestAgent {
    pub uplink: Uplink,
    pub events: mpsc::Receiver<Event>,
    pub run: Run,
}

pub fn agent(name: &str, run: u8, collector: &str, identity: &Identity) -> TestAgent {
    let (told, events) = mpsc::channel();
    let run = [run; 16];
    let hello = Hello { name: name.to_owned().try_into().unwrap(), run, boot: "boot".into(), sync_port: None };
    let tell = move |event| {
        let _ = told.send(event);
    };
    let uplink = Uplink::start(collector.parse().unwrap(), identity.clone(), hello, MB, tell).unwrap();
    TestAgent { uplink, events, run }
}

impl TestAgent {
    pub fn push(&self, count: u64) {
        self.uplink.push(Content { counters: vec![("count".into(), count)], ..Content::default() });
    }

    /// The next event, which comes in a time in which a busy machine can do it.
    pub fn event(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Waits until it is.
    pub fn is_connected(&self) {
        while !matches!(self.event(), Event::Connected { .. }) {}
    }

    /// Waits for a loss for this reason.
    pub fn is_lost_as(&self, reason: &str) {
        loop {
            if let Event::Lost { why, .. } = self.event()
                && why.contains(reason)
            {
                return;
            }
        }
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}
