//! The view of a balancer's backends: asked of the balancer of this host once per interval.

mod page;

use std::{
    collections::{HashMap, VecDeque},
    mem,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use dwell_balancer::api::{BackendStatus, Client, ClientError, Request, Status};
use dwell_engine::top::PAST;

pub use self::page::{Backends, print, title};

/// How long the balancer may take to answer before the screen goes on without it.
const PATIENCE: Duration = Duration::from_secs(1);
/// A balancer that does not answer within that is not asked again for so long: whoever looks at flows does not wait for it.
const LEFT_ALONE_NS: u64 = 30_000_000_000;

/// What backends are ranked by, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    Response,
    Pending,
    Active,
    Connections,
    Packets,
    Share,
}

impl By {
    pub const ALL: [By; 6] = [By::Response, By::Pending, By::Active, By::Connections, By::Packets, By::Share];

    fn heading(self) -> &'static str {
        match self {
            By::Response => "RESP",
            By::Pending => "PEND",
            By::Active => "ACTIVE",
            By::Connections => "CONN/S",
            By::Packets => "PKT/S",
            By::Share => "SHARE",
        }
    }
}

/// A backend of a VIP in an interval.
#[derive(Debug, Clone)]
pub struct Row {
    /// The VIP's name; `None` for a backend that no VIP has any more.
    pub vip: Option<String>,
    pub status: BackendStatus,
    /// New connections and packets per second; `None` in the first interval.
    rates: Option<[f64; 2]>,
}

impl Row {
    /// Returns what the row is ranked by; `None` if it is not known.
    fn value(&self, by: By) -> Option<f64> {
        match by {
            By::Response => self.status.latency.as_ref()?.mean_ns.map(|ns| ns as f64),
            By::Pending => Some(self.status.pending.requests as f64),
            By::Active => Some(self.status.active as f64),
            By::Connections => self.rates.map(|[connections, _]| connections),
            By::Packets => self.rates.map(|[_, packets]| packets),
            By::Share => Some(self.status.share),
        }
    }

    /// The name by which `dwell lb` takes it.
    fn name(&self) -> String {
        match &self.vip {
            Some(vip) => format!("{vip}/{}", self.status.name),
            None => self.status.name.clone(),
        }
    }
}

/// Which backend of which VIP; the kernel's number of a backend is not used twice while it lives.
type Key = (Option<String>, u32);

/// A backend in earlier intervals.
#[derive(Debug, Default)]
struct Past {
    /// What each [`By`] ranked it by, the latest last; NaN where that was not known.
    values: VecDeque<[f32; By::ALL.len()]>,
    /// Its connections and packets at the end of the last interval.
    totals: Option<[u64; 2]>,
}

/// The balancer of this host, if one runs.
#[derive(Debug)]
pub struct Balancer {
    socket: PathBuf,
    client: Option<Client>,
    /// The last answer, and the monotonic time when it was asked for.
    last: Option<(Status, u64)>,
    /// Why there was no answer.
    error: Option<ClientError>,
    /// The monotonic time before which it is not asked.
    ask_from_ns: u64,
    rows: Vec<Row>,
    past: HashMap<Key, Past>,
}

impl Balancer {
    /// The balancer whose API is at `socket`; nothing is asked yet.
    pub fn at(socket: PathBuf) -> Balancer {
        Balancer {
            socket,
            client: None,
            last: None,
            error: None,
            ask_from_ns: 0,
            rows: Vec::new(),
            past: HashMap::new(),
        }
    }

    /// Asks for its status, which is of an interval that ends now.
    pub fn end_interval(&mut self, now_ns: u64) {
        if now_ns < self.ask_from_ns {
            return;
        }
        let begun = Instant::now();
        match self.ask() {
            Ok(status) => self.take(status, now_ns),
            Err(error) => {
                if begun.elapsed() >= PATIENCE {
                    self.ask_from_ns = now_ns.saturating_add(LEFT_ALONE_NS);
                }
                (self.client, self.last, self.error) = (None, None, Some(error));
                self.rows.clear();
                self.past.clear();
            }
        }
    }

    fn ask(&mut self) -> Result<Status, ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&self.socket)?.with_timeout(PATIENCE)?),
        };
        client.request(&Request::Status {})
    }

    /// Takes an answer.
    pub fn take(&mut self, status: Status, now_ns: u64) {
        let since_ns = self.last.as_ref().map_or(0, |(_, then_ns)| now_ns.saturating_sub(*then_ns));
        let seconds = since_ns.max(1_000_000) as f64 / 1e9;
        let mut before = mem::take(&mut self.past);
        self.rows.clear();
        for (vip, status) in status.backends() {
            let key = (vip.map(str::to_owned), status.real);
            let mut past = before.remove(&key).unwrap_or_default();
            let totals = [status.connections, status.packets];
            let per_second = |was: [u64; 2]| [0, 1].map(|at| totals[at].saturating_sub(was[at]) as f64 / seconds);
            let rates = past.totals.replace(totals).map(per_second);
            let row = Row { vip: key.0.clone(), status: status.clone(), rates };
            if past.values.len() == PAST {
                past.values.pop_front();
            }
            past.values.push_back(By::ALL.map(|by| row.value(by).map_or(f32::NAN, |value| value as f32)));
            self.past.insert(key, past);
            self.rows.push(row);
        }
        (self.last, self.error) = (Some((status, now_ns)), None);
    }

    /// Whether it answers.
    pub fn is_there(&self) -> bool {
        self.last.is_some()
    }

    /// Why it does not answer.
    pub fn error(&self) -> Option<&ClientError> {
        self.error.as_ref()
    }

    /// Returns it if it answers, and else why it does not.
    pub fn answering(mut self) -> Result<Balancer, ClientError> {
        self.error.take().map_or(Ok(self), Err)
    }

    /// Its status as it was told.
    pub fn status(&self) -> Option<&Status> {
        self.last.as_ref().map(|(status, _)| status)
    }

    /// The backends, those with the most first, and those of which it is not known last.
    pub fn rows(&self, by: By) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let value = |row: &Row| row.value(by).unwrap_or(f64::NEG_INFINITY);
        rows.sort_by(|one, other| value(other).total_cmp(&value(one)));
        rows
    }

    /// What a backend was ranked by in the last intervals, the latest last.
    fn trend(&self, row: &Row, by: By) -> impl Iterator<Item = Option<f64>> {
        let past = self.past.get(&(row.vip.clone(), row.status.real));
        let value =
            move |values: &[f32; By::ALL.len()]| Some(f64::from(values[by as usize])).filter(|value| !value.is_nan());
        past.into_iter().flat_map(|past| &past.values).map(value)
    }
}
