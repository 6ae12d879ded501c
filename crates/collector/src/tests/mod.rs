//! A collector with agents and a ClickHouse server, all over real sockets.

mod clickhouse;
mod server;

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_app::stop::Stop;
use dwell_engine::layers::join::Config;
use dwell_fleet::{
    Event, Identity, Key, Outbox, Uplink,
    wire::{Content, Hello},
};
use dwell_metrics::Registry;
use dwell_probes::clock::ClockMode;
use dwell_store::Login;
use rusqlite::Connection;
use tempfile::TempDir;

use self::clickhouse::ClickHouse;
use crate::{Destination, Error, Options, Print, descriptors, run_within};

/// A collector that forwards to a server, from a spool in a folder of its own.
struct Running {
    folder: TempDir,
    identity: Identity,
    address: SocketAddr,
    registry: Arc<Registry>,
    stop: Stop,
    thread: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(server: &ClickHouse, spool_bytes: u64) -> Running {
        Running::start_in(tempfile::tempdir().unwrap(), server, spool_bytes)
    }

    fn start_in(folder: TempDir, server: &ClickHouse, spool_bytes: u64) -> Running {
        Running::start_printing(folder, server, spool_bytes, None)
    }

    fn start_printing(folder: TempDir, server: &ClickHouse, spool_bytes: u64, print: Option<Print>) -> Running {
        let key = folder.path().join("key");
        fs::write(&key, "k".repeat(50)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let identity = Identity::from_key(&Key::read(&key).unwrap());
        let registry = Arc::new(Registry::new("0.1.0"));
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            identity: identity.clone(),
            destination: Destination::Server {
                address: server.address(),
                login: Login { user: "default".into(), password: None },
                spool: folder.path().join("spool"),
                spool_bytes,
            },
            // No interval of paths ends while a test runs.
            join: Config { window_ns: 1 << 50, ..Config::default() },
            sync_interval: Duration::from_secs(64),
            clock_mode: ClockMode::Socket,
            agent_rate: 1 << 30,
            gray: None,
            print,
            judge: None,
            registry: Some(Arc::clone(&registry)),
            capabilities: &[],
        };
        let stop = Stop::listen(None).unwrap();
        let (listening, address) = mpsc::channel();
        let asked = stop.clone();
        let thread = thread::spawn(move || {
            run_within(options, descriptors::limits(), &asked, |address| {
                let _ = listening.send(address);
            })
        });
        let address = address.recv_timeout(PATIENCE).unwrap();
        Running { folder, identity, address, registry, stop, thread }
    }

    fn agent(&self, name: &str, run: u8) -> Agent {
        self.agent_with(name, run, 64_000_000, 0, |_| {})
    }

    /// An agent whose batches were confirmed through a number, and whose outbox is filled before it connects.
    fn agent_with(&self, name: &str, run: u8, bytes: usize, confirmed: u64, fill: impl FnOnce(&Outbox)) -> Agent {
        let (sender, events) = mpsc::channel();
        let hello = Hello {
            name: name.to_owned().try_into().unwrap(),
            run: [run; 16],
            boot: "boot".into(),
            sync_port: None,
            is_past: false,
            confirmed,
        };
        let on_event = move |event| {
            let _ = sender.send(event);
        };
        let collector = self.address.to_string().parse().unwrap();
        let outbox = Outbox::new(bytes, &hello);
        fill(&outbox);
        let uplink = Uplink::start(collector, self.identity.clone(), hello, outbox, on_event).unwrap();
        Agent { uplink, events }
    }

    fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    /// What a query on the spool gives.
    fn number(&self, sql: &str) -> i64 {
        let spool = Connection::open(self.spool()).unwrap();
        spool.busy_timeout(PATIENCE).unwrap();
        spool.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> Option<f64> {
        let text = self.registry.render();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    fn end(self) -> (TempDir, Result<(), Error>) {
        self.stop.flag().store(true, std::sync::atomic::Ordering::SeqCst);
        (self.folder, self.thread.join().unwrap())
    }
}

struct Agent {
    uplink: Uplink,
    events: mpsc::Receiver<Event>,
}

impl Agent {
    /// Sends a batch that becomes `rows` rows of the table counter.
    fn push(&self, rows: usize, value: u64) {
        self.uplink.push(counters(rows, value));
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    fn wait_until_connected(&self) {
        while !matches!(self.event(), Event::Connected { .. }) {}
    }
}

/// The content of a batch that becomes `rows` rows of the table counter.
fn counters(rows: usize, value: u64) -> Content {
    let counters = (0..rows).map(|number| (format!("counter_{number}"), value)).collect();
    Content { counters, ..Content::default() }
}

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
