//! A thread that pushes metrics at an interval.

use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use dwell_engine::{labels::excerpt, units::nanos};
use dwell_socket::privilege;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use ureq::{
    Agent, Body,
    http::{Response, header::CONTENT_TYPE},
};

use super::{Endpoint, Headers, message::Messages};
use crate::{
    Family, Numbers, Registry, Shared,
    tls::{self, NoAuthorities},
};

/// Limit on a push, from the receiver's name to its answer. OTLP's own default.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit on finding the receiver's address and connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Limit on the last push and one that is on its way before it: so much longer may a run take to end.
const LAST: Duration = Duration::from_secs(5);
/// Limit on an answer, in bytes: more than any says.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// Characters of a receiver's error that are shown.
const SHOWN: usize = 300;
const PROTOBUF: &str = "application/x-protobuf";

const PUSHES: Family =
    Family::counter("dwell_otlp_pushes_total", &["outcome"], "Pushes of all metrics by OTLP, by outcome.");

/// Where metrics are pushed to, how often, and as whose.
#[derive(Debug)]
pub struct Target {
    /// The receiver.
    pub endpoint: Endpoint,
    /// What each request has besides.
    pub headers: Headers,
    /// The time from one push to the next.
    pub interval: Duration,
    /// Attributes that identify the process among others, by OpenTelemetry's names. Those of the service's name and version
    /// are added.
    pub resource: Vec<(&'static str, String)>,
}

/// Why metrics cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// No certificate of an authority was found.
    #[error("cannot push metrics to {endpoint}: {source}")]
    Authorities {
        /// The receiver.
        endpoint: Endpoint,
        /// What the system said.
        source: NoAuthorities,
    },
    /// No thread could be started.
    #[error("cannot push metrics: starting a thread: {0}")]
    Thread(io::Error),
}

/// What a user should know of pushing. Each is told once per outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A push failed. Those that follow are tried all the same.
    Failed {
        /// The receiver.
        endpoint: String,
        /// What failed, and what to look at.
        why: String,
    },
    /// A push succeeded after one that failed.
    Resumed {
        /// The receiver.
        endpoint: String,
    },
    /// The last push was given up, so that the run could end.
    Unfinished {
        /// The receiver.
        endpoint: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Failed { endpoint, why } => {
                write!(f, "metrics do not reach {endpoint}: {why}; the next push has them all")
            }
            Event::Resumed { endpoint } => write!(f, "metrics reach {endpoint} again"),
            Event::Unfinished { endpoint } => {
                write!(f, "the last metrics did not reach {endpoint} within {} s, and are given up", LAST.as_secs())
            }
        }
    }
}

/// Pushes metrics until it is dropped, which pushes them a last time.
pub struct Pusher {
    endpoint: String,
    stop: Sender<()>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
    notify: Arc<dyn Fn(Event) + Send + Sync>,
}

impl Pusher {
    /// Pushes all metrics of a registry now and then at each interval, from a thread of its own without privileges. What
    /// cannot be pushed is not kept: counters and histograms are totals, which the next push has too.
    ///
    /// # Errors
    ///
    /// If the receiver's certificate could not be checked, or no thread can be started.
    pub fn start(
        target: Target,
        registry: Arc<Registry>,
        notify: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Pusher, PushError> {
        let agent = agent(&target.endpoint)?;
        let endpoint = target.endpoint.to_string();
        let notify: Arc<dyn Fn(Event) + Send + Sync> = Arc::new(notify);
        let (stop, stopped) = mpsc::channel();
        let (ending, ended) = mpsc::channel::<()>();
        let attributes = [("service.name", "dwell".into()), ("service.version", registry.version.clone())];
        let resource = attributes.into_iter().chain(target.resource).collect();
        let mut thread = Thread {
            agent,
            endpoint: target.endpoint,
            headers: target.headers,
            messages: Messages::new(&registry.version, resource, unix_ns()),
            pushes: registry.register(Numbers::default()),
            registry,
            outcomes: [0; 2],
            is_down: false,
            notify: Arc::clone(&notify),
        };
        thread.count();
        thread::Builder::new()
            .name("otlp".into())
            .spawn(move || {
                // It speaks to the network.
                let _ = privilege::keep(&[]);
                thread.run(&stopped, target.interval);
                drop(ending);
            })
            .map_err(PushError::Thread)?;
        Ok(Pusher { endpoint, stop, ended, notify })
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        // A thread that waits for an unresponsive receiver ends with the process.
        if self.ended.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            (self.notify)(Event::Unfinished { endpoint: self.endpoint.clone() });
        }
    }
}

fn agent(endpoint: &Endpoint) -> Result<Agent, PushError> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .https_only(endpoint.is_https())
        .user_agent("dwell")
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(PATIENCE));
    if endpoint.is_https() {
        let tls = tls::of_the_host();
        config =
            config.tls_config(tls.map_err(|source| PushError::Authorities { endpoint: endpoint.clone(), source })?);
    }
    Ok(config.build().new_agent())
}

struct Thread {
    agent: Agent,
    endpoint: Endpoint,
    headers: Headers,
    registry: Arc<Registry>,
    messages: Messages,
    pushes: Shared<Numbers>,
    /// Pushes that were taken, and those that failed.
    outcomes: [u64; 2],
    is_down: bool,
    notify: Arc<dyn Fn(Event) + Send + Sync>,
}

impl Thread {
    fn run(&mut self, stopped: &Receiver<()>, interval: Duration) {
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            self.push();
            if is_last {
                return;
            }
            // Pushes that a slow one has held up are left out.
            next = (next + interval).max(Instant::now());
        }
    }

    fn push(&mut self) {
        let message = self.messages.message(self.registry.snapshot(), unix_ns());
        let failed = self.send(message.encode_to_vec()).err();
        self.outcomes[usize::from(failed.is_some())] += 1;
        self.count();
        let endpoint = self.endpoint.to_string();
        match failed {
            Some(why) if !self.is_down => (self.notify)(Event::Failed { endpoint, why }),
            None if self.is_down => (self.notify)(Event::Resumed { endpoint }),
            _ => return,
        }
        self.is_down = !self.is_down;
    }

    fn send(&self, message: Vec<u8>) -> Result<(), String> {
        let mut request = self.agent.post(self.endpoint.to_string()).header(CONTENT_TYPE, PROTOBUF);
        for (name, value) in self.headers.iter() {
            request = request.header(name, value);
        }
        let answer = request.send(message).and_then(|mut response| {
            let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec()?;
            Ok((response, body))
        });
        let (response, body) = answer.map_err(|error| format!("{error}{}", self.endpoint.hint()))?;
        judge(&response, &body)
    }

    /// Exports what became of pushes.
    fn count(&self) {
        let mut numbers = Numbers::default();
        for (outcome, count) in ["taken", "failed"].iter().zip(self.outcomes) {
            numbers.add(PUSHES, &[outcome], count as f64);
        }
        *self.pushes.lock() = numbers;
    }
}

/// Why a receiver refuses a request: google.rpc.Status, of which its message is read.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

/// Returns whether a receiver took all that it was sent, by its answer.
fn judge(response: &Response<Body>, body: &[u8]) -> Result<(), String> {
    let status = response.status();
    let is_protobuf = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == PROTOBUF);
    if status.is_success() {
        let answer = if is_protobuf { ExportMetricsServiceResponse::decode(body).ok() } else { None };
        return match answer.and_then(|answer| answer.partial_success) {
            Some(partial) if partial.rejected_data_points > 0 => Err(format!(
                "the receiver refuses {} series: {}",
                partial.rejected_data_points,
                first_line(&partial.error_message)
            )),
            _ => Ok(()),
        };
    }
    let said = match Status::decode(body) {
        Ok(status) if is_protobuf => status.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let said = match first_line(&said) {
        line if line.is_empty() => String::new(),
        line => format!(": {line}"),
    };
    let hint = if status == 404 { "; look at the path of the URL" } else { "" };
    Err(format!("the receiver answers {status}{said}{hint}"))
}

fn first_line(text: &str) -> String {
    excerpt(text.lines().next().unwrap_or_default(), SHOWN)
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    nanos(since)
}
