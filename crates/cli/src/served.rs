//! `--metrics` and `--otlp`: what the verbs that export metrics have in common.

use std::{env, net::SocketAddr, path::PathBuf, process, sync::Arc, time::Duration};

use anyhow::anyhow;
use dwell_metrics::{
    Registry, Server,
    otlp::{Endpoint, Headers, Pusher, Target},
    serve,
};

use crate::{args::served_at, exit::Failure, log::log, secret, source::host_name};

/// The time from one push to the next, unless the environment has another.
const PUSH_INTERVAL: Duration = Duration::from_secs(10);
/// OpenTelemetry's variable for this time, in milliseconds.
const PUSH_INTERVAL_VARIABLE: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Limit on the file of headers.
const MAX_HEADERS_BYTES: u64 = 64 << 10;

/// How metrics leave the process.
#[derive(Debug, Default, clap::Args)]
pub struct MetricsArgs {
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics, as in 127.0.0.1:9469; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDR:PORT", value_parser = served_at)]
    pub metrics: Option<SocketAddr>,

    /// Push the same metrics by OTLP over HTTP to this URL, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    pub otlp: Option<Endpoint>,

    /// File of headers that --otlp sends, such as a token: one line NAME: VALUE per header
    #[arg(long, value_name = "FILE", requires = "otlp")]
    pub otlp_headers: Option<PathBuf>,
}

/// Exports metrics while it lives; dropped, it pushes them a last time.
pub struct MetricsOutputs {
    /// What is exported.
    pub registry: Arc<Registry>,
    _server: Option<Server>,
    _pusher: Option<Pusher>,
}

impl MetricsArgs {
    /// Whether metrics are exported at all.
    pub fn is_given(&self) -> bool {
        self.metrics.is_some() || self.otlp.is_some()
    }

    /// The files that [`start`](Self::start) reads.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.otlp_headers.iter().cloned()
    }

    /// Starts what is asked for of a verb, if anything is: at once, so that a wrong address is known before anything is
    /// attached.
    pub fn start(&self, verb: &str) -> Result<Option<MetricsOutputs>, Failure> {
        if !self.is_given() {
            return Ok(None);
        }
        let registry = Arc::new(Registry::new(env!("CARGO_PKG_VERSION")));
        let target = self.otlp.as_ref().map(|endpoint| self.target(endpoint, verb)).transpose()?;
        let server = self.metrics.map(|address| serve(address, Arc::clone(&registry)));
        let server = server.transpose().map_err(Failure::usage)?;
        if let Some(server) = &server {
            log(format_args!("metrics at http://{}/metrics", server.address()));
        }
        let pusher = target.map(|target| {
            log(format_args!("metrics to {} every {:?}", target.endpoint, target.interval));
            Pusher::start(target, Arc::clone(&registry), log).map_err(Failure::usage)
        });
        Ok(Some(MetricsOutputs { registry, _server: server, _pusher: pusher.transpose()? }))
    }

    fn target(&self, endpoint: &Endpoint, verb: &str) -> Result<Target, Failure> {
        let host = host_name();
        // Two of one verb may run on a host.
        let instance = format!("{host}/{verb}/{}", process::id());
        Ok(Target {
            endpoint: endpoint.clone(),
            headers: self.headers()?,
            interval: push_interval()?,
            resource: vec![("host.name", host), ("service.instance.id", instance)],
        })
    }

    fn headers(&self) -> Result<Headers, Failure> {
        let Some(path) = &self.otlp_headers else {
            return Ok(Headers::default());
        };
        let text = secret::read(path, "the headers", MAX_HEADERS_BYTES)?;
        text.parse().map_err(|error: String| Failure::usage(anyhow!("cannot use {}: {error}", path.display())))
    }
}

fn push_interval() -> Result<Duration, Failure> {
    let Some(value) = env::var_os(PUSH_INTERVAL_VARIABLE) else {
        return Ok(PUSH_INTERVAL);
    };
    let text = value.to_string_lossy();
    match text.parse() {
        Ok(milliseconds @ 1..) => Ok(Duration::from_millis(milliseconds)),
        _ => Err(Failure::usage(anyhow!(
            "{PUSH_INTERVAL_VARIABLE} is '{text}' in the environment: write milliseconds, as in 10000, or unset it"
        ))),
    }
}
