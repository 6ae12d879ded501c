//! `dwell lb run`.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

use dwell_balancer::{
    api::Listener,
    config::{Config, MetricsSettings, default_pin},
    control::Balancer,
};
use dwell_store::StoreError;
use signal_hook::{consts::SIGHUP, flag};

use super::{events, stored::Backends, warn};
use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    log::log,
    served::MetricsArgs,
    stop::Stop,
    stored::{self, StoreArgs},
    written::WriteArgs,
};

/// Run a balancer
///
/// Loads the data plane, or takes over the one that runs on the interface, and follows the configuration. Events are
/// written as jsonl, one object per line. SIGHUP reloads the configuration. When the process ends or dies, packets are
/// still forwarded as before: `dwell lb detach` removes the data plane.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb run examples/lb.toml
  dwell lb run lb.toml | jq -r 'select(.type == \"lb.health\")'
  dwell lb run lb.toml --store /var/lib/dwell-lb/lb.db")]
pub struct Args {
    /// A TOML file, as in examples/lb.toml
    config: PathBuf,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let config = Config::read(&args.config)?;
    let mut warned = config.warnings.clone();
    warn(&warned);
    // The socket must be created before other threads start.
    let listener = Listener::bind(&config.socket)?;
    let out: Box<dyn Write + Send> = match args.write.lasting_file()? {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout()),
    };
    let mut stored = open_store(&args.store, config.interval)?;
    let reload = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, Arc::clone(&reload)).map_err(|error| Failure::new(Exit::Host, error))?;
    let stop = Stop::listen_but_for_hangup(args.duration)?;
    let pinned = match config.pin == default_pin(&config.interface) {
        true => config.interface.clone(),
        false => format!("--pin {}", config.pin.display()),
    };
    let MetricsSettings { listen, otlp, otlp_headers } = config.metrics.clone();
    let served = MetricsArgs { metrics: listen, otlp, otlp_headers }.start("lb")?;
    let (sender, requests) = channel();
    let path = args.write.write.clone();
    let report = move |error: &io::Error| {
        // A reader of standard output may end whenever it likes.
        if let Some(path) = &path {
            let path = path.display();
            log(format_args!(
                "cannot write to {path}: {error}; events are lost until that works, and packets are forwarded"
            ));
        }
    };
    // Dropped after the balancer, whose events it writes.
    let (emit, _drain) = events::start(out, report).map_err(|error| Failure::new(Exit::Host, error))?;
    let mut balancer = Balancer::start(config, served.as_ref().map(|served| &*served.registry), emit)?;
    listener.serve(sender).map_err(|error| Failure::new(Exit::Host, error))?;
    let is_reload_requested = || reload.swap(false, Ordering::SeqCst);
    let on_interval = |balancer: &Balancer| {
        // After a reload.
        if balancer.config_warnings() != warned {
            warned = balancer.config_warnings().to_vec();
            warn(&warned);
        }
        if let Some(stored) = &mut stored {
            stored.store(&balancer.status());
        }
    };
    let ended = balancer.run(&requests, is_reload_requested, || stop.is_asked(), on_interval);
    // Nobody answers requests while the store is waited for.
    drop((balancer, listener, requests));
    let exit = if args.store.is_given() && stored.is_none() { Exit::Incomplete } else { Exit::Done };
    let exit = stored::complete(stored.and_then(Backends::finish), exit);
    ended?;
    log(format_args!("packets are still forwarded as before: `dwell lb detach {pinned}` ends that"));
    Ok(exit)
}

/// The longest time that the end waits for the store: what restarts a balancer waits for it too, and nobody else steers.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Opens the store, if there is one. One that is locked, full or damaged does not keep the balancer from starting.
fn open_store(store: &StoreArgs, interval: Duration) -> Result<Option<Backends>, Failure> {
    let failure = match store.recorder(interval, false, LONGEST_END) {
        Ok(recorder) => return Ok(recorder.map(Backends::new)),
        Err(failure) => failure,
    };
    match failure.error.as_ref().and_then(|error| error.downcast_ref::<StoreError>()) {
        Some(error) if !error.is_usage() || matches!(error, StoreError::Taken { .. }) => {
            log(format_args!("{error}; packets are forwarded, and nothing is stored"));
            Ok(None)
        }
        _ => Err(failure),
    }
}
