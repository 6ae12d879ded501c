//! The HTTP side of a ClickHouse server, on a real socket: it keeps rows in memory, and can be away or refuse rows.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use dwell_store::Address;

/// What the server says to an insert: nothing, or its exception.
type Refuse = Box<dyn Fn(&str, &[&str]) -> Option<String> + Send>;

#[derive(Clone)]
pub struct ClickHouse(Arc<Shared>);

struct Shared {
    port: u16,
    state: Mutex<State>,
    inserts: AtomicUsize,
}

struct State {
    is_away: bool,
    is_late: bool,
    refuse: Refuse,
    rows: BTreeMap<String, Vec<String>>,
    /// Settings that the server has.
    settings: Vec<&'static str>,
    /// Settings of each insert.
    insert_settings: Vec<Vec<String>>,
}

impl ClickHouse {
    pub fn start() -> ClickHouse {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State {
            is_away: false,
            is_late: false,
            refuse: Box::new(|_, _| None),
            rows: BTreeMap::new(),
            settings: vec!["async_insert", "insert_distributed_sync"],
            insert_settings: Vec::new(),
        };
        let port = listener.local_addr().unwrap().port();
        let server = ClickHouse(Arc::new(Shared { port, state: Mutex::new(state), inserts: AtomicUsize::new(0) }));
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = accepting.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    pub fn address(&self) -> Address {
        format!("clickhouse://127.0.0.1:{}/dwell", self.0.port).parse().unwrap()
    }

    /// From now on connections are closed without an answer, or are not any more.
    pub fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// From now on exceptions come in answers that have begun well.
    pub fn set_late(&self) {
        self.state().is_late = true;
    }

    pub fn refuse(&self, refuse: impl Fn(&str, &[&str]) -> Option<String> + Send + 'static) {
        self.state().refuse = Box::new(refuse);
    }

    /// The server becomes one of another version, with these settings.
    pub fn set_settings(&self, settings: &[&'static str]) {
        self.state().settings = settings.into();
    }

    /// The settings that came with each insert.
    pub fn insert_settings(&self) -> Vec<Vec<String>> {
        self.state().insert_settings.clone()
    }

    /// The lines of a table.
    pub fn rows(&self, table: &str) -> Vec<String> {
        self.state().rows.get(table).cloned().unwrap_or_default()
    }

    /// Inserts that were attempted.
    pub fn inserts(&self) -> usize {
        self.0.inserts.load(Ordering::SeqCst)
    }

    fn has_setting(&self, name: &str) -> bool {
        self.state().settings.contains(&name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        if self.state().is_away {
            return None;
        }
        let Request { query, settings, body } = read_request(&stream)?;
        let answer = self.answer(&query, settings, &body);
        let (status, text) = match &answer {
            Ok(text) => ("200 OK", text),
            Err(text) if self.state().is_late => ("200 OK", text),
            Err(text) => ("500 Internal Server Error", text),
        };
        // The server went away while it worked.
        if self.state().is_away {
            return None;
        }
        let length = text.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}").ok()
    }

    fn answer(&self, query: &str, settings: Vec<String>, body: &str) -> Result<String, String> {
        let words: Vec<&str> = query.split_whitespace().collect();
        let is_known = |setting: &String| setting.split('=').next().is_some_and(|name| self.has_setting(name));
        if let Some(unknown) = settings.iter().find(|setting| !is_known(setting)) {
            return Err(format!("Code: 115. DB::Exception: Unknown setting {unknown}"));
        }
        match words[..] {
            ["SELECT", "name" | "row", .., last] if last != "TabSeparated" => Ok("{\"data\": []}\n".into()),
            ["SELECT", "name", "FROM", "system.settings", ..] => {
                let asked =
                    self.state().settings.clone().into_iter().filter(|name| query.contains(&format!("'{name}'")));
                Ok(asked.map(|name| format!("{name}\n")).collect())
            }
            ["INSERT", "INTO", table, ..] => {
                self.0.inserts.fetch_add(1, Ordering::SeqCst);
                let lines: Vec<&str> = body.lines().collect();
                let mut state = self.state();
                state.insert_settings.push(settings);
                if let Some(exception) = (state.refuse)(table, &lines) {
                    return Err(exception);
                }
                let rows = state.rows.entry(table.to_owned()).or_default();
                rows.extend(lines.iter().map(|line| (*line).to_owned()));
                Ok(String::new())
            }
            ["SELECT", "row", "FROM", table, ..] => {
                let rows = self.rows(table).into_iter();
                Ok(rows.map(|line| format!("{}\n", line.rsplit('\t').next().unwrap())).collect())
            }
            _ => Ok(String::new()),
        }
    }
}

struct Request {
    query: String,
    /// NAME=VALUE.
    settings: Vec<String>,
    body: String,
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let parameters = line.split(' ').nth(1)?.split_once('?')?.1.split('&');
    let query = decoded(parameters.clone().find_map(|part| part.strip_prefix("query="))?);
    let others = parameters.filter(|part| !["query", "database"].contains(&part.split('=').next().unwrap_or_default()));
    let settings = others.map(decoded).collect();
    let mut length = 0;
    loop {
        line.clear();
        from.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(Request { query, settings, body: String::from_utf8_lossy(&body).into_owned() })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
