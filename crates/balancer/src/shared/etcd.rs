//! etcd as the store, through the JSON gateway that each of its servers has: gRPC's messages as JSON over HTTP.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use dwell_engine::labels::excerpt;
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
const INVALID_ARGUMENT: i64 = 3;
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
    token: Option<Secret<String>>,
}

impl Etcd {
    /// Prepares the connections.
    ///
    /// # Errors
    ///
    /// If this host has no authorities to check certificates by, and the configuration names none.
    pub fn new(settings: &SharedSettings) -> Result<Etcd, NoAuthorities> {
        Etcd::with_patience(settings, PATIENCE)
    }

    fn with_patience(settings: &SharedSettings, patience: Duration) -> Result<Etcd, NoAuthorities> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(patience));
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
        loop {
            let is_new = self.token.is_none();
            if is_new {
                let answer = self.ask_once("auth/authenticate", &json!({"name": user, "password": password.0}))?;
                let token = answer["token"].as_str().ok_or_else(unreadable)?;
                self.token = Some(Secret(token.to_owned()));
            }
            match self.ask_once(path, body) {
                // A server forgets logins after a while, and those of before a change of its users are invalid.
                Err(Failure::Refused { code: UNAUTHENTICATED | INVALID_ARGUMENT, .. }) if !is_new => self.token = None,
                answer => return answer.map_err(StoreError::from),
            }
        }
    }

    fn ask_once(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let endpoint = &self.endpoints[self.at];
        let away = |error: ureq::Error| Failure::Away(format!("{endpoint}: {error}"));
        let mut request = self.agent.post(format!("{endpoint}/v3/{path}")).header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token.as_ref().filter(|_| !path.starts_with("auth/")) {
            request = request.header(AUTHORIZATION, &token.0);
        }
        let mut response = request.send(body.to_string()).map_err(away)?;
        let bytes = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().map_err(away)?;
        let answer = serde_json::from_slice::<Value>(&bytes);
        let failure =
            |told: &Value| match (told["code"].as_i64().or(told["grpc_code"].as_i64()), told["message"].as_str()) {
                (Some(UNAVAILABLE), Some(said)) => Failure::Away(format!("{endpoint}: {}", excerpt(said, SHOWN))),
                (Some(code), Some(said)) => {
                    Failure::Refused { code, said: format!("{endpoint}: {}", excerpt(said, SHOWN)) }
                }
                _ => Failure::Away(format!("{endpoint} answers with status {}: is it etcd?", response.status())),
            };
        match answer {
            // A stream has its error inside; elsewhere there is a text of this name beside the message.
            Ok(answer) if answer["error"].is_object() => Err(failure(&answer["error"])),
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
                "sort_target": "MOD",
            }})
        }
        Operation::Delete { from, until } => {
            json!({"request_delete_range": {"key": STANDARD.encode(from), "range_end": STANDARD.encode(until)}})
        }
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

#[cfg(test)]
mod tests {
    use std::{
        io::{self, BufRead, BufReader, Read, Write},
        net::{Ipv4Addr, TcpListener},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;

    /// A store on a server that makes of each path and token a status and a body.
    fn store(answer: impl Fn(&str, &str) -> (u16, String) + Send + 'static) -> Etcd {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let (mut path, mut token, mut length) = (String::new(), String::new(), 0);
                for line in stream.by_ref().lines() {
                    let line = line.expect("a request");
                    if line.is_empty() {
                        break;
                    }
                    if let Some(rest) = line.strip_prefix("POST /v3/") {
                        path = rest.split(' ').next().unwrap_or_default().into();
                    }
                    match line.to_ascii_lowercase().split_once(": ") {
                        Some(("authorization", value)) => token = value.into(),
                        Some(("content-length", value)) => length = value.parse().expect("a number"),
                        _ => {}
                    }
                }
                io::copy(&mut stream.by_ref().take(length), &mut io::sink()).expect("a body");
                let (status, body) = answer(&path, &token);
                let head =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                stream.get_mut().write_all((head + &body).as_bytes()).expect("the answer is read");
            }
        });
        let settings = SharedSettings {
            endpoints: vec![url.parse().expect("it is an address")],
            authorities: None,
            identity: None,
            prefix: "/dwell/lb/".into(),
            name: "a".into(),
            login: Some(("lb".into(), Secret("open sesame".into()))),
        };
        Etcd::with_patience(&settings, Duration::from_secs(60)).expect("it needs no authorities")
    }

    /// A store that logs everybody in, and answers the rest so.
    fn store_that_says(status: u16, body: &'static str) -> Etcd {
        store(move |path, _| match path {
            "auth/authenticate" => (200, r#"{"token":"t"}"#.into()),
            _ => (status, body.into()),
        })
    }

    #[test]
    fn a_login_that_is_not_accepted_any_more_is_renewed_once() {
        let [logins, accepted] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for refusal in [
            r#"{"code":16,"message":"etcdserver: invalid auth token"}"#,
            r#"{"code":3,"message":"etcdserver: revision of auth store is old"}"#,
        ] {
            logins.store(0, Ordering::Relaxed);
            accepted.store(1, Ordering::Relaxed);
            let mut etcd = store({
                let (logins, accepted) = (Arc::clone(&logins), Arc::clone(&accepted));
                move |path, token| match path {
                    "auth/authenticate" => {
                        (200, format!(r#"{{"token":"t{}"}}"#, 1 + logins.fetch_add(1, Ordering::Relaxed)))
                    }
                    _ if token == format!("t{}", accepted.load(Ordering::Relaxed)) => {
                        (200, r#"{"ID":"7","TTL":"3"}"#.into())
                    }
                    _ => (400, refusal.into()),
                }
            });
            for expected in [1, 1, 2] {
                accepted.store(expected, Ordering::Relaxed);
                assert_eq!(etcd.grant(Duration::from_secs(3)), Ok(Lease(7)), "{refusal}");
                assert_eq!(logins.load(Ordering::Relaxed), expected, "{refusal}");
            }
            let shown = format!("{etcd:?}");
            assert!(!shown.contains("sesame") && !shown.contains("t2"), "{shown}");
            accepted.store(100, Ordering::Relaxed);
            let error = etcd.grant(Duration::from_secs(3)).expect_err("no login is accepted").to_string();
            assert!(error.contains("etcdserver: "), "{error}");
            assert_eq!(logins.load(Ordering::Relaxed), 3, "{refusal}");
        }
    }

    #[test]
    fn answers_to_a_lease_that_is_kept_come_as_a_stream_with_errors_of_its_own() {
        let keep = |body| store_that_says(200, body).keep(Lease(7));
        assert_eq!(keep(r#"{"result":{"ID":"7","TTL":"3"}}"#), Ok(()));
        assert_eq!(keep(r#"{"result":{"ID":"7"}}"#), Err(StoreError::LeaseGone));
        for code in ["grpc_code", "code"] {
            let body = format!(r#"{{"error":{{"{code}":5,"message":"etcdserver: requested lease not found"}}}}"#);
            assert_eq!(keep(body.leak()), Err(StoreError::LeaseGone));
            let body = format!(r#"{{"error":{{"{code}":7,"message":"etcdserver: permission denied"}}}}"#);
            let error = keep(body.leak()).expect_err("it is refused");
            assert!(matches!(&error, StoreError::Refused(said) if said.contains("permission denied")), "{error:?}");
        }
    }

    #[test]
    fn what_is_not_an_answer_of_etcd_is_told_as_such() {
        let kvs = |entry: &str| {
            format!(r#"{{"header":{{"revision":"1"}},"responses":[{{"response_range":{{"kvs":[{entry}]}}}}]}}"#).leak()
        };
        for body in [
            "",
            "[]",
            "{}",
            "nonsense",
            r#"{"header":{"revision":"x"}}"#,
            r#"{"header":{"revision":"1"},"responses":7}"#,
            kvs(r#"{"key":"!","create_revision":"1","mod_revision":"1"}"#),
            kvs(r#"{"key":"/w==","create_revision":"1","mod_revision":"1"}"#),
            kvs(r#"{"key":"YQ==","mod_revision":"1"}"#),
        ] {
            let outcome = store_that_says(200, body).transact(&Transaction::default());
            let error = outcome.expect_err("it cannot be read");
            assert!(matches!(&error, StoreError::Away(why) if why.contains("is it etcd")), "{body}: {error:?}");
        }
        let good = kvs(r#"{"key":"YQ==","create_revision":"1","mod_revision":"2"}"#);
        let entry = Entry { key: "a".into(), value: Vec::new(), created: 1, modified: 2 };
        let read = store_that_says(200, good).transact(&Transaction::default()).map(|outcome| outcome.read);
        assert_eq!(read, Ok(vec![vec![entry]]));
    }

    #[test]
    fn what_a_server_says_cannot_steer_a_terminal() {
        let mut etcd = store_that_says(400, r#"{"code":9,"message":"no\u001b[2J\nspace"}"#);
        let error = etcd.grant(Duration::from_secs(3)).expect_err("it is refused").to_string();
        assert!(error.contains("no") && error.contains("space") && !error.contains(char::is_control), "{error:?}");
    }
}
