//! etcd as the store, through the JSON gateway that each of its servers has: gRPC's messages as JSON over HTTP.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use dwell_metrics::tls::{self, NoAuthorities};
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::{
    Agent,
    http::header::{AUTHORIZATION, CONTENT_TYPE},
    tls::{Certificate, ClientCert, PrivateKey},
};

use super::store::{Entry, Expected, Lease, Operation, Outcome, Store, StoreError, Transaction};
use crate::config::{Secret, SharedSettings, StoreUrl};

/// Limit on a request to one server. A server that has no majority does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Limit on connecting to it.
const CONNECT: Duration = Duration::from_millis(500);
/// Limit on an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 32 << 20;
/// Characters of an error that are shown.
const SHOWN: usize = 300;

/// Codes of gRPC.
const NOT_FOUND: i64 = 5;
const UNAVAILABLE: i64 = 14;
const UNAUTHENTICATED: i64 = 16;

/// A store on servers of etcd.
#[derive(Debug)]
pub struct Etcd {
    agent: Agent,
    endpoints: Vec<StoreUrl>,
    /// The server that answered last.
    at: usize,
    login: Option<(String, Secret<String>)>,
    token: Option<String>,
}

impl Etcd {
    /// Prepares the connections.
    ///
    /// # Errors
    ///
    /// If this host has no authorities to check certificates by, and the configuration names none.
    pub fn new(settings: &SharedSettings) -> Result<Etcd, NoAuthorities> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(PATIENCE));
        if settings.endpoints.iter().any(StoreUrl::is_tls) {
            let own = settings.identity.as_ref().and_then(|identity| {
                let chain = identity.certificates.iter().map(|der| Certificate::from_der(der).to_owned());
                let key = PrivateKey::from_pem(identity.key.0.as_bytes()).ok()?;
                Some(ClientCert::new_with_certs(&chain.collect::<Vec<_>>(), key))
            });
            config = config.tls_config(match &settings.authorities {
                Some(authorities) => tls::of_authorities(authorities.iter().map(Vec::as_slice), own),
                None => tls::of_the_host_with(own)?,
            });
        }
        Ok(Etcd {
            agent: config.build().new_agent(),
            endpoints: settings.endpoints.clone(),
            at: 0,
            login: settings.login.clone(),
            token: None,
        })
    }

    /// Sends a request, to the server that answered last or the next one that does.
    fn ask(&mut self, path: &str, body: &Value) -> Result<Value, StoreError> {
        let mut last = StoreError::Away("there is no server".into());
        for _ in 0..self.endpoints.len() {
            match self.ask_as_user(path, body) {
                Err(error @ StoreError::Away(_)) => last = error,
                answer => return answer,
            }
            self.at = (self.at + 1) % self.endpoints.len();
        }
        Err(last)
    }

    fn ask_as_user(&mut self, path: &str, body: &Value) -> Result<Value, StoreError> {
        let Some((user, password)) = self.login.clone() else {
            return self.ask_once(path, body).map_err(StoreError::from);
        };
        for _ in 0..2 {
            if self.token.is_none() {
                let answer = self.ask_once("auth/authenticate", &json!({"name": user, "password": password.0}))?;
                self.token = answer["token"].as_str().map(str::to_owned);
            }
            match self.ask_once(path, body) {
                // A server forgets logins after a while.
                Err(Failure::Refused { code: UNAUTHENTICATED, .. }) => self.token = None,
                answer => return answer.map_err(StoreError::from),
            }
        }
        Err(StoreError::Refused("the store does not accept its own login".into()))
    }

    fn ask_once(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let endpoint = &self.endpoints[self.at];
        let away = |error: ureq::Error| Failure::Away(format!("{endpoint}: {error}"));
        let mut request = self.agent.post(format!("{endpoint}/v3/{path}")).header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token.as_ref().filter(|_| !path.starts_with("auth/")) {
            request = request.header(AUTHORIZATION, token);
        }
        let mut response = request.send(body.to_string()).map_err(away)?;
        let bytes = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().map_err(away)?;
        let answer = serde_json::from_slice::<Value>(&bytes);
        let failure = |answer: &Value| match (answer["code"].as_i64(), answer["message"].as_str()) {
            (Some(UNAVAILABLE), Some(said)) => Failure::Away(format!("{endpoint}: {}", shown(said))),
            (Some(code), Some(said)) => Failure::Refused { code, said: format!("{endpoint}: {}", shown(said)) },
            _ => Failure::Away(format!("{endpoint} answers with status {}: is it etcd?", response.status())),
        };
        match answer {
            Ok(answer) if response.status().is_success() && answer.is_object() => Ok(answer),
            Ok(answer) => Err(failure(&answer)),
            Err(_) => Err(failure(&Value::Null)),
        }
    }
}

/// Why one server did not do what was asked.
enum Failure {
    Away(String),
    Refused { code: i64, said: String },
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        match failure {
            Failure::Away(why) => StoreError::Away(why),
            Failure::Refused { code: NOT_FOUND, said } if said.contains("lease") => StoreError::LeaseGone,
            Failure::Refused { said, .. } => StoreError::Refused(said),
        }
    }
}

fn shown(said: &str) -> String {
    said.chars().take(SHOWN).collect()
}

impl Store for Etcd {
    fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let expected: Vec<_> = transaction.expected.iter().map(expectation).collect();
        let operations = |all: &[Operation]| all.iter().map(operation).collect::<Vec<_>>();
        let body = json!({
            "compare": expected,
            "success": operations(&transaction.then),
            "failure": operations(&transaction.otherwise),
        });
        let answer = self.ask("kv/txn", &body)?;
        let parsed: TransactionAnswer = parsed(answer)?;
        let read: Option<Vec<_>> = parsed.responses.into_iter().map(ResponseAnswer::entries).collect();
        Ok(Outcome { holds: parsed.succeeded, revision: parsed.header.revision.0, read: read.ok_or_else(unreadable)? })
    }

    fn grant(&mut self, time: Duration) -> Result<Lease, StoreError> {
        let answer = self.ask("lease/grant", &json!({"TTL": time.as_secs().max(1)}))?;
        parsed(answer).map(|LeaseAnswer { id, .. }| Lease(id.0))
    }

    fn keep(&mut self, lease: Lease) -> Result<(), StoreError> {
        let answer = self.ask("lease/keepalive", &json!({"ID": lease.0.to_string()}))?;
        let LeaseAnswer { time, .. } = parsed(answer["result"].clone())?;
        if time.0 > 0 { Ok(()) } else { Err(StoreError::LeaseGone) }
    }

    fn revoke(&mut self, lease: Lease) -> Result<(), StoreError> {
        self.ask("lease/revoke", &json!({"ID": lease.0.to_string()})).map(drop)
    }
}

fn expectation(expected: &Expected) -> Value {
    json!({
        "key": STANDARD.encode(&expected.key),
        "target": "CREATE",
        "result": "EQUAL",
        "create_revision": expected.created.to_string(),
    })
}

fn operation(operation: &Operation) -> Value {
    match operation {
        Operation::Put { key, value, lease } => json!({"request_put": {
            "key": STANDARD.encode(key),
            "value": STANDARD.encode(value),
            "lease": lease.map_or(0, |lease| lease.0).to_string(),
        }}),
        Operation::Get { key } => json!({"request_range": {"key": STANDARD.encode(key)}}),
        Operation::List { prefix, after, most } => {
            let mut end = prefix.clone().into_bytes();
            // A prefix ends with a letter of ASCII, which has a successor.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            json!({"request_range": {
                "key": STANDARD.encode(prefix),
                "range_end": STANDARD.encode(end),
                "min_mod_revision": (after + 1).to_string(),
                "limit": most.to_string(),
                "sort_order": "DESCEND",
                "sort_target": "KEY",
            }})
        }
        Operation::Delete { key } => json!({"request_delete_range": {"key": STANDARD.encode(key)}}),
    }
}

fn parsed<T: for<'a> Deserialize<'a>>(answer: Value) -> Result<T, StoreError> {
    serde_json::from_value(answer).map_err(|_| unreadable())
}

fn unreadable() -> StoreError {
    StoreError::Away("the store's answer cannot be read: is it etcd 3.4 or newer?".into())
}

/// An integer of 64 bits, which is a string in JSON.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "String")]
struct Int64(i64);

impl TryFrom<String> for Int64 {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Int64, Self::Error> {
        text.parse().map(Int64)
    }
}

#[derive(Debug, Deserialize)]
struct Header {
    revision: Int64,
}

/// Values that are 0, false or empty are absent.
#[derive(Debug, Deserialize)]
struct TransactionAnswer {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<ResponseAnswer>,
}

#[derive(Debug, Deserialize)]
struct ResponseAnswer {
    #[serde(default)]
    response_range: Option<RangeAnswer>,
}

#[derive(Debug, Deserialize)]
struct RangeAnswer {
    #[serde(default)]
    kvs: Vec<EntryAnswer>,
}

#[derive(Debug, Deserialize)]
struct EntryAnswer {
    key: String,
    #[serde(default)]
    value: String,
    create_revision: Int64,
    mod_revision: Int64,
}

#[derive(Debug, Deserialize)]
struct LeaseAnswer {
    #[serde(rename = "ID")]
    id: Int64,
    #[serde(rename = "TTL", default)]
    time: Int64,
}

impl ResponseAnswer {
    /// Returns what was read; `None` if a key or value is not what etcd makes of them.
    fn entries(self) -> Option<Vec<Entry>> {
        let entries = self.response_range.map_or_else(Vec::new, |range| range.kvs).into_iter();
        let entry = |entry: EntryAnswer| {
            Some(Entry {
                key: String::from_utf8(STANDARD.decode(entry.key).ok()?).ok()?,
                value: STANDARD.decode(entry.value).ok()?,
                created: entry.create_revision.0,
                modified: entry.mod_revision.0,
            })
        };
        entries.map(entry).collect()
    }
}
