//! The control loop of a balancer. At the end of each interval it reads what the kernel has measured, lets the policy
//! of each VIP set weights, and gives the kernel the tables that follow. In between it handles health checks, next hops
//! and requests.

mod apply;
mod backend;
mod devices;
mod event;
mod interval;
mod metrics;
mod pressure;
mod recent;
mod request;
mod saved_state;
mod sharing;
mod status;
mod table;
mod vip;
mod zero_rtt;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{balance::VipKey, response, units::nanos};
use dwell_metrics::{Numbers, Registry, Shared};
use dwell_probes::{
    Interface,
    balancer::{ActiveConnections, Counters, Load, NextHop, Plane, PlaneOptions, StartKind},
};
use nix::time::{ClockId, clock_gettime};

use self::{
    recent::Recent,
    saved_state::{SavedState, Unreadable},
    sharing::Sharing,
    vip::{PriorState, RunningVip},
};
use crate::{
    api::{HeartbeatStatus, PendingRequest, Requester},
    config::{Config, ConfigError, Vip},
    health::{CheckResult, Health},
    neighbours::{self, HopUpdate, Neighbours},
    plan::{Plan, PlanError, State, plan},
    shared::JoinError,
};

pub use self::{
    devices::Devices,
    event::Event,
    pressure::{Pressure, PressureKind},
};

/// The time between two polls of the ring buffer, which wakes nobody.
const POLL: Duration = Duration::from_millis(20);
/// The time that the start waits for next hops, in addition to the time of the lookups themselves.
const FIRST_NEIGHBOURS: Duration = Duration::from_secs(2);

/// Why a balancer cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The data plane failed.
    #[error(transparent)]
    Plane(#[from] dwell_probes::Error),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration cannot follow what runs.
    #[error("{}: {error}", .path.display())]
    Plan {
        /// The file of the configuration.
        path: PathBuf,
        /// The reason.
        error: PlanError,
    },
    /// The certificates of health checks cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::health::TlsError),
    /// Another process runs the same data plane.
    #[error(
        "another `dwell lb run` uses '{}': there can be one balancer per interface; stop it, or configure another \
         interface and pin (in another network namespace, another pin)",
        .0.display()
    )]
    Locked(PathBuf),
    /// The other balancers cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The store is away, and nothing here has the seed of the other balancers.
    #[error(
        "the store of [shared] cannot be reached, and only it has the seed of connection hashes, without which this balancer would \
         send connections elsewhere than the others do: {0}; start again once the store answers, or give all balancers the \
         same hash_seed too"
    )]
    NoSeed(String),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}; does this service have a limit on tasks?")]
    Thread(io::Error),
    /// The interface has disappeared.
    #[error("the interface '{0}' is gone, so no packets arrive: start again once it is back")]
    Vanished(String),
}

impl ControlError {
    /// True if the request is at fault, not the host.
    pub fn is_usage(&self) -> bool {
        match self {
            ControlError::Plane(error) => error.is_usage(),
            ControlError::Thread(_) | ControlError::Vanished(_) | ControlError::NoSeed(_) | ControlError::Join(_) => {
                false
            }
            _ => true,
        }
    }
}

/// A running balancer.
pub struct Balancer {
    config: Config,
    loaded: jiff::Timestamp,
    interface: Interface,
    plane: Plane,
    /// The seed of connection hashes, configured or drawn.
    hash_seed: u64,
    /// What is shared with other balancers; none if this one decides alone.
    sharing: Option<Sharing>,
    start: &'static str,
    state: State,
    /// The VIPs, in the order of the configuration.
    vips: Vec<RunningVip>,
    /// The position in `vips` of each backend, by its number: that of the VIP, and that among its backends.
    positions: BTreeMap<u32, (usize, usize)>,
    /// The time since which a leaving backend has had no connection.
    idle_since: BTreeMap<u32, Instant>,
    hops: BTreeMap<IpAddr, Result<NextHop, String>>,
    /// The last next hop that was found for each address. It remains while a lookup fails for the moment.
    known_hops: BTreeMap<IpAddr, NextHop>,
    neighbours: Neighbours,
    hop_updates: Receiver<HopUpdate>,
    devices: Devices,
    health: Health,
    check_results: Receiver<CheckResult>,
    /// Why no health check runs.
    unchecked: Option<String>,
    figures: IntervalFigures,
    /// The weights in the configuration file.
    file_weights: BTreeMap<(VipKey, IpAddr), f64>,
    /// The packets that the data plane had seen before this process loaded its program.
    packets_before: u64,
    /// The state of the VIPs that route by connection ID.
    zero: zero_rtt::ZeroRttState,
    /// Who has sent the request that is being answered; none outside of a request.
    requester: Option<Requester>,
    /// Why the state could not be saved, if the last attempt failed: the file and the cause.
    unsaved: Option<String>,
    metrics: Option<Shared<Numbers>>,
    on_event: Box<dyn FnMut(&Event)>,
}

/// What was counted up to the end of the last interval.
#[derive(Default)]
struct IntervalFigures {
    vips: Vec<Load>,
    reals: Vec<Load>,
    /// The connections and waiting requests of backends, if they were counted.
    connections: Option<ActiveConnections>,
    /// The backends whose connections those are, by number.
    counted: BTreeSet<u32>,
    counters: Option<Counters>,
    totals: Option<pressure::Totals>,
    /// The pressure on the connection table in the last interval.
    pressure: Option<Pressure>,
    /// SYNs with an unfinished checksum, and all new connections.
    unfinished: Option<(u64, u64)>,
    /// Whether most new connections of the last interval that had any began with such a checksum, which nothing finishes.
    has_unfinished: bool,
    work: Option<Duration>,
    reloads: [u64; 2],
}

impl Balancer {
    /// Loads or takes over the data plane, and applies the configuration. `on_event` is called for each event.
    ///
    /// # Errors
    ///
    /// If the host cannot run the data plane, or another balancer runs it.
    pub fn start(
        config: Config,
        metrics: Option<&Registry>,
        on_event: impl FnMut(&Event) + 'static,
    ) -> Result<Balancer, ControlError> {
        let interface = Interface::find(&config.interface)?;
        let saved = saved_state::read(&config.socket);
        let (sharing, hash_seed) = Sharing::join(&config, saved.as_ref().ok())?;
        let mut options = options(&config, hash_seed);
        devices::adapt(&mut options, &config, &interface);
        // The kernel verifies the programs of both at the same time.
        let (started, devices) = thread::scope(|scope| {
            let devices = || Devices::start("set xdp = \"generic\"");
            let apart = thread::Builder::new().spawn_scoped(scope, devices);
            let started = Plane::run_at(&options, &interface, &config.pin);
            (
                started,
                apart.map_or_else(|_| devices(), |apart| apart.join().unwrap_or_else(|panic| resume_unwind(panic))),
            )
        });
        let (plane, start) = started.map_err(locked)?;
        let (sender, check_results) = channel();
        let health = Health::start(config.health.threads, sender);
        let (sender, hop_updates) = channel();
        let neighbours = Neighbours::start(sender).map_err(ControlError::Thread)?;
        let mut balancer = Balancer {
            loaded: jiff::Timestamp::now(),
            interface,
            plane,
            hash_seed,
            sharing,
            start: match &start {
                StartKind::New => "new",
                StartKind::TakenOver => "taken-over",
                StartKind::Replaced { .. } => "replaced",
            },
            state: State::default(),
            vips: Vec::new(),
            positions: BTreeMap::new(),
            idle_since: BTreeMap::new(),
            hops: BTreeMap::new(),
            known_hops: BTreeMap::new(),
            neighbours,
            hop_updates,
            devices,
            health,
            check_results,
            unchecked: None,
            figures: IntervalFigures::default(),
            file_weights: BTreeMap::new(),
            packets_before: 0,
            zero: zero_rtt::ZeroRttState::default(),
            requester: None,
            unsaved: None,
            metrics: metrics.map(|registry| registry.register(Numbers::default())),
            on_event: Box::new(on_event),
            config: Config { vips: Vec::new(), ..config.clone() },
        };
        balancer.start_up(config, &start, saved)?;
        Ok(balancer)
    }

    fn start_up(
        &mut self,
        mut config: Config,
        start: &StartKind,
        saved: Result<SavedState, Unreadable>,
    ) -> Result<(), ControlError> {
        let saved = saved.unwrap_or_else(|lost| {
            self.emit(&Event::StateLost { path: lost.path.display().to_string(), reason: lost.reason });
            SavedState::default()
        });
        let saved = match start {
            StartKind::TakenOver | StartKind::Replaced { .. } => saved,
            StartKind::New => SavedState::default(),
        };
        self.packets_before = self.plane.counters()?.packets();
        let saved = saved.reconcile(&mut self.plane, config.limits)?;
        self.state = saved.state.clone();
        let slots: Vec<u16> = self.plane.vips().filter_map(|(_, vip)| vip.zero_slot).collect();
        self.plane.remove_zero_except(&slots)?;
        for (_, real) in self.plane.reals() {
            if let Some(hop) = real.next_hop {
                self.known_hops.insert(real.address, hop);
            }
        }
        let backends = config.vips.iter().flat_map(|vip| &vip.backends);
        let addresses: BTreeSet<IpAddr> = backends.map(|backend| backend.address).collect();
        self.neighbours.set(&addresses);
        self.wait_for_neighbours(addresses.len());
        self.update_devices()?;
        let planned = plan_for(&self.state, &config.vips, &config)?;
        self.emit(&Event::Started {
            interface: config.interface.clone(),
            config: config.path.display().to_string(),
            start: self.start,
            reason: match start {
                StartKind::Replaced { why } => Some(why.to_string()),
                _ => None,
            },
            heartbeat_age_ns: self.plane.inherited_age().map(nanos),
            vips: config.vips.len(),
            backends: config.backends(),
        });
        self.file_weights = file_weights(&config.vips);
        let reals = self.plane.reals().filter(|(number, _)| !saved.pending.contains(number));
        let prior = PriorState {
            weights: saved.carry_weights(&mut config.vips, &planned),
            were_up: reals.map(|(number, real)| (number, !real.down)).collect(),
            recent: self.inherited_recent(&config.vips)?,
        };
        self.apply(config.vips.clone(), planned, &prior)?;
        self.sharing.iter_mut().for_each(Sharing::end_start);
        self.config = config;
        self.renew()?;
        self.save();
        self.plane.prepare_dry_run();
        Ok(())
    }

    /// Returns what the kernel has of the backends that entries of tables had recently.
    fn inherited_recent(&mut self, vips: &[Vip]) -> Result<BTreeMap<VipKey, Recent>, ControlError> {
        let numbers: BTreeMap<VipKey, u32> = self.plane.vips().map(|(key, vip)| (*key, vip.number)).collect();
        let mut recent = BTreeMap::new();
        for vip in vips.iter().filter(|vip| vip.second_chance) {
            if let Some(number) = numbers.get(&vip.key) {
                recent.insert(vip.key, Recent::inherit(self.plane.recent_table(*number)?, vip.table_size));
            }
        }
        Ok(recent)
    }

    /// Gives the data plane a sign of life.
    fn renew(&mut self) -> Result<(), ControlError> {
        let heartbeat = self.config.heartbeat;
        Ok(self.plane.renew(heartbeat.stale_after, heartbeat.when_stale)?)
    }

    /// Waits until each of the wanted addresses has a lookup result, or a timeout passes.
    fn wait_for_neighbours(&mut self, wanted: usize) {
        let timeout = FIRST_NEIGHBOURS + wanted as u32 * neighbours::PER_ADDRESS;
        let deadline = Instant::now() + timeout;
        while self.hops.len() < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.hop_updates.recv_timeout(left) {
                Ok(update) => self.apply_hop(update),
                Err(_) => break,
            }
        }
    }

    /// Runs until `is_over`. Whenever `is_reload_requested`, the configuration is reloaded; `on_interval` is called at the end of
    /// each interval.
    ///
    /// # Errors
    ///
    /// If the data plane fails, or the interface disappears.
    pub fn run(
        &mut self,
        requests: &Receiver<PendingRequest>,
        is_reload_requested: impl Fn() -> bool,
        is_over: impl Fn() -> bool,
        mut on_interval: impl FnMut(&Balancer),
    ) -> Result<(), ControlError> {
        let interval = self.config.interval;
        let mut next = next_end(interval);
        while !is_over() {
            let wait = next.saturating_duration_since(Instant::now()).min(POLL);
            match requests.recv_timeout(wait) {
                Ok(pending) => {
                    self.requester = pending.by;
                    let answer = self.answer(pending.request);
                    self.requester = None;
                    // The client may be gone.
                    let _ = pending.answer.send(answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(wait),
            }
            self.renew()?;
            if is_reload_requested() {
                // The outcome is reported as an event.
                let _ = self.reload();
            }
            self.drain_records()?;
            self.process_updates()?;
            let now = Instant::now();
            if now >= next {
                self.end_interval()?;
                self.figures.work = Some(now.elapsed());
                self.update_metrics();
                on_interval(self);
                next = next_end(interval);
            }
        }
        self.save();
        Ok(())
    }

    /// Applies the results of health checks and next-hop lookups that have arrived.
    fn process_updates(&mut self) -> Result<(), ControlError> {
        let mut is_changed = false;
        while let Ok(result) = self.check_results.try_recv() {
            is_changed |= self.apply_check(&result);
        }
        while let Ok(update) = self.hop_updates.try_recv() {
            self.apply_hop(update);
            is_changed = true;
        }
        is_changed |= self.take_news();
        if is_changed {
            self.sync(true)?;
        }
        Ok(())
    }

    fn emit(&mut self, event: &Event) {
        (self.on_event)(event);
    }
}

/// Returns the end of the current epochs. Intervals are aligned to the kernel's clock as epochs are, so that each epoch
/// is read as soon as it is over. A small delay lets CPUs finish the packets that they are processing.
fn next_end(interval: Duration) -> Instant {
    const LATER: Duration = Duration::from_millis(1);
    let into = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| Duration::from(now).as_nanos() % interval.as_nanos().max(1));
    Instant::now() + interval - Duration::from_nanos(into as u64) + LATER
}

fn plan_for(state: &State, wanted: &[Vip], config: &Config) -> Result<Plan, ControlError> {
    plan(state, wanted, config.limits).map_err(|error| ControlError::Plan { path: config.path.clone(), error })
}

/// The weights of all backends in a configuration.
fn file_weights(vips: &[Vip]) -> BTreeMap<(VipKey, IpAddr), f64> {
    let of = |vip: &Vip| {
        let key = vip.key;
        let weights = vip.backends.iter();
        let weights = weights.map(move |backend| ((key, backend.address), backend.weight));
        weights.collect::<Vec<_>>()
    };
    vips.iter().flat_map(of).collect()
}

/// Draws a number that nobody can guess.
fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// The options of the data plane.
fn options(config: &Config, hash_seed: u64) -> PlaneOptions {
    PlaneOptions {
        max_connections: config.limits.connections,
        max_measured: config.limits.measured,
        max_vips: config.limits.vips,
        max_reals: config.limits.reals,
        max_zero_vips: config.limits.zero_rtt_vips,
        max_zero_servers: config.limits.zero_rtt_servers,
        idle_timeout: config.idle_timeout,
        active_timeout: config.active_timeout,
        response: estimator(config),
        hash_seed,
        table_seed: random(),
        outer_v4: config.tunnel.source4,
        outer_v6: config.tunnel.source6,
        chain: config.chain.as_ref().and_then(|chain| chain.parse().ok()),
        mode: config.xdp,
        redirects_back: false,
    }
}

/// The settings of the latency estimation: an epoch is an interval.
fn estimator(config: &Config) -> response::Config {
    response::Config {
        estimator: config.estimator,
        epoch_ns: config.interval.as_nanos().try_into().unwrap_or(u64::MAX),
        ..response::Config::default()
    }
}

/// Reports a lock on the pinned maps as [`ControlError::Locked`]: only one process may own them.
fn locked(error: dwell_probes::Error) -> ControlError {
    match error {
        dwell_probes::Error::Pin { operation: "take over", path, .. } => ControlError::Locked(path),
        error => ControlError::Plane(error),
    }
}

/// Removes the data plane that is pinned in a folder. False if there is none.
///
/// # Errors
///
/// If a balancer runs it, or the kernel refuses.
pub fn detach(folder: &Path) -> Result<bool, ControlError> {
    Plane::detach_at(folder).map_err(locked)
}

/// Returns the sign of life that the balancer at a socket has left in its data plane, whether it still runs or not;
/// `None` if it cannot be found.
pub fn last_heartbeat(socket: &Path) -> Option<HeartbeatStatus> {
    let pin = saved_state::pin(socket)?;
    let heartbeat = Plane::heartbeat_at(&pin).ok().flatten()?;
    let age = heartbeat.age(dwell_socket::clock::monotonic_ns());
    Some(HeartbeatStatus::new(age, heartbeat.stale_after, heartbeat.when_stale, Plane::is_attached_at(&pin)))
}
