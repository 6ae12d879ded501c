//! The loop that runs a balancer: an interval at a time, it reads what the kernel has seen, lets each
//! VIP's policy set weights, and gives the kernel other tables where these have changed. In between it
//! hears health checks, neighbours and requests.

mod apply;
mod event;
mod heavy;
mod interval;
mod neighbours;
mod request;
mod saved;
mod tell;
mod vip;
mod zero_rtt;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use dwell_engine::response;
use dwell_metrics::Metrics;
use dwell_probes::{
    Interface,
    balancer::{Counters, Load, NextHop, Plane, PlaneOptions, Taken},
};
use nix::time::{ClockId, clock_gettime};

use self::{
    neighbours::Neighbours,
    vip::{Earlier, VipRun},
};
use crate::{
    api::Asked,
    config::{Config, ConfigError, Vip, VipKey},
    health::{Health, Told},
    plan::{Plan, PlanError, State, plan},
};

pub use self::event::Event;

/// Between two looks at the ring buffer, which nothing wakes us for.
const POLL: Duration = Duration::from_millis(20);
/// How long the beginning waits for neighbours to answer.
const FIRST_NEIGHBOURS: Duration = Duration::from_secs(2);

/// Why a balancer does not run.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The kernel's side failed.
    #[error(transparent)]
    Plane(#[from] dwell_probes::Error),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What is wanted does not follow what runs.
    #[error("{}: {error}", .path.display())]
    Plan {
        /// The file of the configuration.
        path: PathBuf,
        /// Why.
        error: PlanError,
    },
    /// Its certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::health::TlsError),
    /// A constant of the policy is out of its range.
    #[error("VIP '{vip}': latency.{error}")]
    Policy {
        /// Which VIP.
        vip: String,
        /// Which constant.
        error: dwell_engine::steer::OutOfRange,
    },
    /// Another one runs there.
    #[error(
        "another `dwell lb run` has '{}': one balancer an interface; end it, or write another \
         interface and pin (in another network namespace, another pin)",
        .0.display()
    )]
    Locked(PathBuf),
    /// There can be no thread.
    #[error("cannot start a thread: {0}; is there a limit on this service's tasks?")]
    Thread(io::Error),
    /// The interface went away.
    #[error("the interface '{0}' is gone: nothing comes in any more; start again once it is back")]
    Vanished(String),
}

impl ControlError {
    /// True if the request was wrong, and not the host unable.
    pub fn is_usage(&self) -> bool {
        match self {
            ControlError::Plane(error) => error.is_usage(),
            ControlError::Thread(_) | ControlError::Vanished(_) => false,
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
    taken: &'static str,
    state: State,
    /// In the order of the configuration.
    vips: Vec<VipRun>,
    /// Where among them the backend of a number is.
    places: BTreeMap<u32, (usize, usize)>,
    /// Since when backends that leave had no active connection.
    quiet: BTreeMap<u32, Instant>,
    hops: BTreeMap<IpAddr, Result<NextHop, String>>,
    /// The last way to each that was known: one that is being asked again is not gone.
    last_hops: BTreeMap<IpAddr, NextHop>,
    neighbours: Neighbours,
    found: Receiver<neighbours::Found>,
    health: Health,
    told: Receiver<Told>,
    figures: Figures,
    /// The weights that the file says.
    written: BTreeMap<(VipKey, IpAddr), f64>,
    /// VIPs that go by connection ID.
    zero: zero_rtt::ZeroRun,
    /// What was to be kept last was not.
    is_unsaved: bool,
    metrics: Option<Arc<Metrics>>,
    emit: Box<dyn FnMut(&Event)>,
}

/// What the last interval has counted.
#[derive(Default)]
struct Figures {
    vips: Vec<Load>,
    reals: Vec<Load>,
    actives: BTreeMap<u32, u64>,
    /// All that the kernel keeps, active or not.
    kept: BTreeMap<u32, u64>,
    counters: Option<Counters>,
    work: Option<Duration>,
    reloads: [u64; 2],
}

impl Balancer {
    /// Loads or takes over the kernel's side and gives it what the configuration wants. `emit` hears of
    /// what happens.
    ///
    /// # Errors
    ///
    /// If the host cannot do it, or another balancer runs there.
    pub fn start(
        config: Config,
        metrics: Option<Arc<Metrics>>,
        emit: impl FnMut(&Event) + 'static,
    ) -> Result<Balancer, ControlError> {
        let interface = Interface::find(&config.interface)?;
        let (plane, taken) = Plane::run_at(&options(&config), &interface, &config.pin).map_err(locked)?;
        let (sender, told) = channel();
        let health = Health::start(config.checking.threads, sender);
        let (sender, found) = channel();
        let neighbours = Neighbours::start(sender).map_err(ControlError::Thread)?;
        let mut balancer = Balancer {
            loaded: jiff::Timestamp::now(),
            interface,
            plane,
            taken: match &taken {
                Taken::New => "new",
                Taken::Over => "over",
                Taken::Anew { .. } => "anew",
            },
            state: State::default(),
            vips: Vec::new(),
            places: BTreeMap::new(),
            quiet: BTreeMap::new(),
            hops: BTreeMap::new(),
            last_hops: BTreeMap::new(),
            neighbours,
            found,
            health,
            told,
            figures: Figures::default(),
            written: BTreeMap::new(),
            zero: zero_rtt::ZeroRun::default(),
            is_unsaved: false,
            metrics,
            emit: Box::new(emit),
            config: Config { vips: Vec::new(), ..config.clone() },
        };
        balancer.begin(config, &taken)?;
        Ok(balancer)
    }

    fn begin(&mut self, mut config: Config, taken: &Taken) -> Result<(), ControlError> {
        let saved = match taken {
            Taken::Over | Taken::Anew { .. } => saved::read(&config.socket),
            Taken::New => saved::Saved::default(),
        };
        let saved = saved.matching(&mut self.plane, config.limits)?;
        self.state = saved.state.clone();
        let slots: Vec<u16> = self.plane.vips().filter_map(|(_, vip)| vip.zero_slot).collect();
        self.plane.remove_zero_but(&slots)?;
        for (_, real) in self.plane.reals() {
            if let Some(hop) = real.next_hop {
                self.last_hops.insert(real.address, hop);
            }
        }
        let backends = config.vips.iter().flat_map(|vip| &vip.backends);
        let addresses: BTreeSet<IpAddr> = backends.map(|backend| backend.address).collect();
        self.neighbours.set(addresses.iter().copied().collect());
        self.wait_for_neighbours(addresses.len());
        let planned = plan_for(&self.state, &config.vips, &config)?;
        self.say(&Event::Started {
            interface: config.interface.clone(),
            config: config.path.display().to_string(),
            taken: self.taken,
            why: match taken {
                Taken::Anew { why } => Some(why.to_string()),
                _ => None,
            },
            vips: config.vips.len(),
            backends: config.backends(),
        });
        self.written = written(&config.vips);
        let reals = self.plane.reals();
        let earlier = Earlier {
            weights: saved.carry(&mut config.vips, &planned),
            were_up: reals.map(|(number, real)| (number, !real.down)).collect(),
        };
        self.apply(config.vips.clone(), planned, &earlier)?;
        self.config = config;
        self.save();
        Ok(())
    }

    /// Until all have an answer, or some patience is over.
    fn wait_for_neighbours(&mut self, wanted: usize) {
        let patience = FIRST_NEIGHBOURS + wanted as u32 * neighbours::ONE;
        let deadline = Instant::now() + patience;
        while self.hops.len() < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.found.recv_timeout(left) {
                Ok(found) => self.note_hop(found),
                Err(_) => break,
            }
        }
    }

    /// Runs until `is_over`. With `is_reload_asked` it reads its configuration again.
    ///
    /// # Errors
    ///
    /// If the kernel's side fails, or the interface is gone.
    pub fn run(
        &mut self,
        requests: &Receiver<Asked>,
        is_reload_asked: impl Fn() -> bool,
        is_over: impl Fn() -> bool,
    ) -> Result<(), ControlError> {
        let interval = self.config.interval;
        let mut next = next_end(interval);
        while !is_over() {
            let wait = next.saturating_duration_since(Instant::now()).min(POLL);
            match requests.recv_timeout(wait) {
                Ok(asked) => {
                    let answer = self.answer(asked.request);
                    // Whoever asked may be gone.
                    let _ = asked.answer.send(answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
            }
            if is_reload_asked() {
                // It tells by itself.
                let _ = self.reload();
            }
            self.drain()?;
            self.hear()?;
            let now = Instant::now();
            if now >= next {
                self.end_interval()?;
                self.figures.work = Some(now.elapsed());
                self.export();
                next = next_end(interval);
            }
        }
        self.save();
        Ok(())
    }

    /// What checks and the kernel's neighbours have told since.
    fn hear(&mut self) -> Result<(), ControlError> {
        let mut touched = false;
        while let Ok(told) = self.told.try_recv() {
            touched |= self.note_health(&told)?;
        }
        let mut reached = BTreeSet::new();
        while let Ok(found) = self.found.try_recv() {
            reached.insert(found.address);
            self.note_hop(found);
        }
        if !reached.is_empty() {
            self.reach(&reached)?;
            touched = true;
        }
        if touched {
            self.tables()?;
        }
        Ok(())
    }

    fn say(&mut self, event: &Event) {
        (self.emit)(event);
    }
}

/// When the epochs end that are under way: they are aligned to the kernel's clock, so that intervals that are
/// too hear of each as soon as it is over. A little later, as CPUs may be in a packet just then.
fn next_end(interval: Duration) -> Instant {
    const LATER: Duration = Duration::from_millis(1);
    let into = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| Duration::from(now).as_nanos() % interval.as_nanos().max(1));
    Instant::now() + interval - Duration::from_nanos(into as u64) + LATER
}

fn plan_for(state: &State, wanted: &[Vip], config: &Config) -> Result<Plan, ControlError> {
    plan(state, wanted, config.limits).map_err(|error| ControlError::Plan { path: config.path.clone(), error })
}

/// The weights that a file says.
fn written(vips: &[Vip]) -> BTreeMap<(VipKey, IpAddr), f64> {
    let of = |vip: &Vip| {
        let key = vip.key;
        let weights = vip.backends.iter();
        let weights = weights.map(move |backend| ((key, backend.address), backend.weight));
        weights.collect::<Vec<_>>()
    };
    vips.iter().flat_map(of).collect()
}

/// How the kernel's side is loaded.
fn options(config: &Config) -> PlaneOptions {
    PlaneOptions {
        max_connections: config.limits.connections,
        max_vips: config.limits.vips,
        max_reals: config.limits.reals,
        max_zero_vips: config.limits.zero_rtt_vips,
        max_zero_servers: config.limits.zero_rtt_servers,
        idle_timeout: config.idle_timeout,
        active_timeout: config.active_timeout,
        response: estimator(config),
        hash_seed: config.hash_seed,
        table_seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
        outer_v4: config.tunnel.source4,
        outer_v6: config.tunnel.source6,
        chain: config.chain.as_ref().and_then(|chain| chain.parse().ok()),
    }
}

/// How response latency is estimated: an epoch is an interval.
fn estimator(config: &Config) -> response::Config {
    response::Config {
        epoch_ns: config.interval.as_nanos().try_into().unwrap_or(u64::MAX),
        ..response::Config::default()
    }
}

/// Whoever runs what is pinned keeps all others out.
fn locked(error: dwell_probes::Error) -> ControlError {
    match error {
        dwell_probes::Error::Pin { operation: "take over", path, .. } => ControlError::Locked(path),
        error => ControlError::Plane(error),
    }
}

/// Removes what is pinned in a folder, if no balancer runs there. False if there is nothing.
///
/// # Errors
///
/// If a balancer runs there, or the kernel refuses.
pub fn detach(folder: &Path) -> Result<bool, ControlError> {
    Plane::detach_at(folder).map_err(locked)
}
