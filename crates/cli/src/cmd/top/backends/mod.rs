//! The view of a balancer's backends: asked of the balancer of this host once per interval, or read from a store.

mod page;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    mem,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use dwell_balancer::api::{BackendStatus, Client, ClientError, Request, Status};
use dwell_engine::top::PAST;
use dwell_store::LastBackend;

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
    key: Key,
    name: String,
    state: Cow<'static, str>,
    /// Why it is in this state, or has its weight.
    why: String,
    mean_ns: Option<u64>,
    /// Requests that wait, and how long the oldest has waited at least.
    pending: (u64, Option<u64>),
    active: u64,
    share: f64,
    /// New connections and packets per second; `None` in the first interval.
    rates: Option<[f64; 2]>,
}

impl Row {
    /// Returns what the row is ranked by; `None` if it is not known.
    fn value(&self, by: By) -> Option<f64> {
        match by {
            By::Response => self.mean_ns.map(|ns| ns as f64),
            By::Pending => Some(self.pending.0 as f64),
            By::Active => Some(self.active as f64),
            By::Connections => self.rates.map(|[connections, _]| connections),
            By::Packets => self.rates.map(|[_, packets]| packets),
            By::Share => Some(self.share),
        }
    }

    /// The name by which `dwell lb` takes it.
    fn name(&self) -> String {
        match &self.key.0 {
            Some(vip) => format!("{vip}/{}", self.name),
            None => self.name.clone(),
        }
    }

    fn new(key: Key, status: &BackendStatus, rates: Option<[f64; 2]>) -> Row {
        Row {
            key,
            name: status.name.clone(),
            state: status.state().into(),
            why: status.why().to_owned(),
            mean_ns: status.latency.as_ref().and_then(|latency| latency.mean_ns),
            pending: (status.pending.requests, status.pending.oldest_ns),
            active: status.active,
            share: status.share,
            rates,
        }
    }
}

impl From<LastBackend> for Row {
    fn from(last: LastBackend) -> Row {
        let name = printable(&last.name);
        Row {
            key: (last.vip.as_deref().map(printable), Id::Names(last.host, name.clone())),
            name,
            state: printable(&last.state).into(),
            why: printable(&last.why),
            mean_ns: last.mean_ns,
            pending: last.pending,
            active: last.active,
            share: last.share,
            rates: last.rates,
        }
    }
}

/// Replaces control characters: a store may be anyone's.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Which backend of which VIP; `None` for one that no VIP has any more.
type Key = (Option<String>, Id);

/// The identity of a backend, the same in all intervals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    /// The kernel's number, which is not used twice while it lives.
    Number(u32),
    /// In a store, the name of the balancer's host, and its own.
    Names(String, String),
}

/// A backend in earlier intervals.
#[derive(Debug, Default)]
struct Past {
    /// What each [`By`] ranked it by, the latest last; NaN where that was not known.
    values: VecDeque<[f32; By::ALL.len()]>,
    /// Its connections and packets at the end of the last interval.
    totals: Option<[u64; 2]>,
}

/// The balancer of this host, if one runs; or what a store has of balancers.
#[derive(Debug)]
pub struct Balancer {
    /// Where it answers; `None` for a store.
    socket: Option<PathBuf>,
    client: Option<Client>,
    /// The last answer, and the monotonic time when it was asked for.
    last: Option<(Status, u64)>,
    /// Why there was no answer.
    error: Option<ClientError>,
    /// The monotonic time before which it is not asked.
    ask_from_ns: u64,
    /// The end of the last interval of a store, in Unix time.
    stored_ns: Option<u64>,
    rows: Vec<Row>,
    past: HashMap<Key, Past>,
}

impl Balancer {
    /// The balancer whose API is at `socket`; nothing is asked yet.
    pub fn at(socket: PathBuf) -> Balancer {
        Balancer { socket: Some(socket), ..Balancer::stored() }
    }

    /// No balancer is asked: backends of a store come by [`Balancer::take_stored`].
    pub fn stored() -> Balancer {
        Balancer {
            socket: None,
            client: None,
            last: None,
            error: None,
            ask_from_ns: 0,
            stored_ns: None,
            rows: Vec::new(),
            past: HashMap::new(),
        }
    }

    /// Asks for its status, which is of an interval that ends now.
    pub fn end_interval(&mut self, now_ns: u64) {
        let Some(socket) = self.socket.clone().filter(|_| now_ns >= self.ask_from_ns) else {
            return;
        };
        let begun = Instant::now();
        match self.ask(&socket) {
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

    fn ask(&mut self, socket: &Path) -> Result<Status, ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(socket)?.with_timeout(PATIENCE)?),
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
            let key = (vip.map(str::to_owned), Id::Number(status.real));
            let mut past = before.remove(&key).unwrap_or_default();
            let totals = [status.connections, status.packets];
            let per_second = |was: [u64; 2]| [0, 1].map(|at| totals[at].saturating_sub(was[at]) as f64 / seconds);
            let rates = past.totals.replace(totals).map(per_second);
            self.push(Row::new(key, status, rates), past);
        }
        (self.last, self.error) = (Some((status, now_ns)), None);
    }

    /// Takes what a store has of the last interval, which ended at this Unix time.
    pub fn take_stored(&mut self, backends: Vec<LastBackend>, end_ns: u64) {
        self.stored_ns = Some(end_ns);
        let mut before = mem::take(&mut self.past);
        self.rows.clear();
        let is_of_one = backends.windows(2).all(|pair| pair[0].host == pair[1].host);
        for last in backends {
            let host = printable(&last.host);
            let mut row = Row::from(last);
            if !is_of_one {
                row.name = format!("{} on {host}", row.name);
            }
            let past = before.remove(&row.key).unwrap_or_default();
            self.push(row, past);
        }
    }

    fn push(&mut self, row: Row, mut past: Past) {
        if past.values.len() == PAST {
            past.values.pop_front();
        }
        past.values.push_back(By::ALL.map(|by| row.value(by).map_or(f32::NAN, |value| value as f32)));
        self.past.insert(row.key.clone(), past);
        self.rows.push(row);
    }

    /// Whether it answers, or the store has backends.
    pub fn is_there(&self) -> bool {
        self.last.is_some() || !self.rows.is_empty()
    }

    /// The end of the last interval of a store, in Unix time, and how many backends it has.
    pub fn stored_interval(&self) -> Option<(u64, usize)> {
        self.stored_ns.map(|end_ns| (end_ns, self.rows.len()))
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
        let past = self.past.get(&row.key);
        let value =
            move |values: &[f32; By::ALL.len()]| Some(f64::from(values[by as usize])).filter(|value| !value.is_nan());
        past.into_iter().flat_map(|past| &past.values).map(value)
    }
}
