//! `dwell agent` and `dwell collect`: real connections between network namespaces, each with an
//! agent, and a collector that joins what they tell.

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

pub use dwell_testbed::harness::patiently;
use dwell_testbed::{Lab, Namespace, Role};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::records::objects;
use crate::stack::{PORT, SERVER};
use crate::support::{CLIENT_RTT, DWELL, FullPipe, Pair, Process, Run, SERVER_RTT, dwell, line, links, skipped, spawn};

const COLLECTOR: u16 = 4790;

/// What a collector keeps: its key and its store.
pub struct Office {
    folder: TempDir,
    address: IpAddr,
}

impl Office {
    pub fn new(address: IpAddr) -> Office {
        let office = Office { folder: tempfile::tempdir().unwrap(), address };
        office.new_key("key");
        office
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn new_key(&self, name: &str) {
        let run = dwell(&["collect", "--new-key", self.path(name).to_str().unwrap()]);
        assert_eq!(run.status, Some(0), "{run}");
    }

    pub fn at(&self) -> String {
        SocketAddr::from((self.address, COLLECTOR)).to_string()
    }

    /// Starts the collector; agents may come before it listens.
    pub fn collect(&self, namespace: &Namespace, more: &[&str]) -> Process {
        let store = self.path("store");
        let more = [&["--store", store.to_str().unwrap()], more].concat();
        self.collect_into(namespace, &[], &more)
    }

    /// The same with variables of its environment; the store is to be named.
    pub fn collect_into(&self, namespace: &Namespace, variables: &[&str], more: &[&str]) -> Process {
        let (key, at) = (self.path("key"), self.at());
        let always = [DWELL, "collect", "--listen", &at, "--key-file", key.to_str().unwrap()];
        let mut process = spawn(namespace, "env", &[variables, &always, more].concat());
        patiently("there is a store", || process.has_ended() || self.number("SELECT count(*) + 1 FROM run").is_some());
        if process.has_ended() {
            panic!("the collector has ended:\n{}", process.end());
        }
        process
    }

    /// Starts an agent of this collector, if `more` names no others, and waits until it stamps.
    pub fn agent(&self, namespace: &Namespace, name: &str, more: &[&str]) -> Process {
        self.agent_of(namespace, name, &[&["--port", &PORT.to_string()], more].concat())
    }

    /// The same, of other connections than those of the tests' port.
    pub fn agent_of(&self, namespace: &Namespace, name: &str, more: &[&str]) -> Process {
        self.agent_by(name, more, |arguments| spawn(namespace, DWELL, arguments))
    }

    /// The same, started by a function that gets its arguments.
    fn agent_by(&self, name: &str, more: &[&str], start: impl Fn(&[&str]) -> Process) -> Process {
        let (key, at, buffer) = (self.path("key"), self.at(), self.path("buffer"));
        let always = [
            "agent",
            "--buffer-dir",
            buffer.to_str().unwrap(),
            "--key-file",
            key.to_str().unwrap(),
            "--name",
            name,
            "--sample-bytes",
            "64",
        ];
        let collector: &[&str] = if more.contains(&"--collector") { &[] } else { &["--collector", &at] };
        let mut process = start(&[&always, collector, more].concat());
        patiently("it stamps", || process.has_ended() || links(process.id()) >= 10);
        if process.has_ended() {
            panic!("it does not stamp:\n{}", process.end());
        }
        process
    }

    /// What a query gives; none where there is nothing yet.
    pub fn number(&self, sql: &str) -> Option<i64> {
        let store = Connection::open(self.path("store")).ok()?;
        store.busy_timeout(Duration::from_secs(10)).unwrap();
        let number = store.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        number.ok().flatten()
    }

    pub fn execute(&self, sql: &str) {
        let store = Connection::open(self.path("store")).unwrap();
        store.execute_batch(sql).unwrap();
    }

    pub fn waits_for_agents(&self, count: i64) {
        patiently("the agents have told something", || {
            self.number("SELECT count(DISTINCT host_id) FROM interval") == Some(count)
        });
    }

    /// Returns the rows of bytes that both hosts reported, for all flows together.
    fn figure_of(&self, segment: &str, direction: &str, figure: &str) -> Option<i64> {
        self.number(&format!(
            "SELECT {figure} FROM paths WHERE src IS NULL AND segment = '{segment}'
                AND ifnull(direction, '') = '{direction}' AND tx_host = 'a' AND rx_host = 'b'"
        ))
    }

    pub fn matched(&self) -> i64 {
        self.figure_of("end-to-end", "", "sum(count)").unwrap_or(0)
    }
}

/// Messages of 640 bytes, each read before the next is sent: 10 bytes each are stamped.
pub struct Chat {
    client: TcpStream,
    server: TcpStream,
}

impl Chat {
    pub fn open(client: &Namespace, server: &Namespace, address: Ipv4Addr) -> Chat {
        let listener = server.enter(|| TcpListener::bind((address, PORT)).unwrap()).unwrap();
        let connect = || TcpStream::connect((address, PORT)).unwrap();
        let client = client.enter(connect).unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        Chat { client, server }
    }

    pub fn say(&mut self, messages: usize) {
        for _ in 0..messages {
            self.client.write_all(&[1; 640]).unwrap();
            self.server.read_exact(&mut [0; 640]).unwrap();
        }
    }
}

pub fn ended(process: Process, status: i32) -> Run {
    let run = process.interrupt();
    assert_eq!(run.status, Some(status), "{run}");
    run
}

pub fn get(namespace: &Namespace, address: &str) -> String {
    let connect = || TcpStream::connect(address).unwrap();
    let mut stream = namespace.enter(connect).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Of a run of the agents and the collector: each in its namespace, the collector on the left.
pub fn pair(name: &str) -> (Pair, Office) {
    let pair = Pair::start(name);
    (pair, Office::new(IpAddr::from([10, 78, 0, 1])))
}

#[test]
fn root_segments_of_bytes_seen_by_two_hosts_add_up_to_the_path_from_socket_to_socket() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-sum");
    let (metrics, of_a) = ("10.78.0.1:9469", "10.78.0.1:9470");
    let printing = ["--format", "jsonl", "--flows", "--metrics", metrics];
    let collector = office.collect(&pair.left, &printing);
    let a = office.agent(&pair.left, "a", &["--metrics", of_a]);
    let mut unread = FullPipe::new(office.folder.path());
    let port = PORT.to_string();
    let printing = ["--port", &port, "--format", "jsonl", "--interval", "50ms"];
    let b = office.agent_by("b", &printing, |arguments| unread.spawn(&pair.right, arguments));
    let mut chat = Chat::open(&pair.left, &pair.right, SERVER);
    chat.say(100);
    patiently("all is matched", || office.matched() >= 900);
    chat.say(1);
    let (metrics, of_a) = (get(&pair.left, metrics), get(&pair.left, of_a));
    for (text, line) in [
        (&metrics, "dwell_path_seconds_count{tx_host=\"a\",rx_host=\"b\",direction=\"\",segment=\"network\"} "),
        (&metrics, "dwell_collect_agents 2\n"),
        (&metrics, "dwell_collect_bytes_total{outcome=\"matched\"} "),
        (&of_a, "dwell_stack_segment_seconds_count{direction=\"tx\",segment=\"total\"} "),
        (&of_a, "dwell_agent_dropped_batches_total 0\n"),
        (&of_a, "dwell_agent_collectors 1\n"),
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
        assert!(!text.contains("10.78."), "no flow is in a metric:\n{text}");
    }
    ended(a, 0);
    // More intervals than statuses wait for a reader.
    let intervals = "SELECT count(DISTINCT time_ns) FROM intervals WHERE host = 'b'";
    patiently("it measures while nobody reads", || office.number(intervals) >= Some(40));
    let mut read = String::new();
    patiently("statuses are written once somebody reads", || {
        read += &unread.read();
        read.contains('}')
    });
    let b = ended(b, 0);
    assert!(b.stderr.contains("lines of output could not be written in time"), "{b}");
    read += &unread.read();
    let statuses = objects(read.trim_start());
    assert!(statuses.len() > 1 && statuses.iter().all(|status| status["type"] == "agent.status"), "{statuses:?}");
    let last = statuses.last().unwrap();
    assert_eq!(
        (&last["last"], &last["lost"], &last["counters"]["batches_waiting"]),
        (&true.into(), &0.into(), &0.into())
    );
    assert!(last["counters"]["statuses_lost"].as_u64() > Some(0), "{last}");
    let run = ended(collector, 0);

    let count = office.matched();
    assert!((900..=1010).contains(&count), "{count}: a kernel may miss some");
    let estimated = "SELECT count(*) FROM path WHERE method = 'estimated'";
    assert_eq!(office.number(estimated), Some(0), "both ends tell of it");
    let sums = |wanted: &str| {
        let sql = format!("SELECT sum(sum_ns) FROM paths WHERE src IS NULL AND part_of IS NULL AND {wanted}");
        office.number(&sql).unwrap()
    };
    let whole = sums("segment = 'end-to-end'");
    let segments = sums("segment NOT IN ('end-to-end', 'total')");
    assert_eq!(segments, whole, "of the same bytes, to the nanosecond");
    assert!(whole / count > 1_000, "more than a microsecond: {whole} of {count}");
    // The same bytes as each host's agent counted them by itself.
    for (host, direction) in [("a", "tx"), ("b", "rx")] {
        let told = |what: &str| {
            let sql = format!(
                "SELECT {what} FROM intervals WHERE host = '{host}' AND src IS NULL
                    AND direction = '{direction}' AND segment = 'total' AND NOT retransmitted"
            );
            office.number(&sql).unwrap()
        };
        assert!(told("sum(count)") >= count, "{host}");
        let of_flow = office.number(&format!(
            "SELECT sum(count) FROM intervals WHERE host = '{host}' AND dport = {PORT}
                AND direction = '{direction}' AND segment = 'total'"
        ));
        assert!(of_flow.unwrap() > 900, "{of_flow:?}");
        let matched = office.figure_of("total", direction, "sum(sum_ns) / sum(count)").unwrap();
        let mean = told("sum(sum_ns) / sum(count)");
        assert!((matched as f64 / mean as f64 - 1.0).abs() < 0.1, "{matched} and {mean} ns");
    }
    // All are on one machine, and so of one clock.
    let wrong = "SELECT count(*) FROM clock WHERE abs(offset_ns) > bound_ns";
    assert_eq!(office.number(wrong), Some(0));
    let known = "SELECT count(DISTINCT host_id) FROM clock WHERE bound_ns < 1000000
        AND (bound_ns = 0) = (method = 'same')";
    assert_eq!(office.number(known), Some(2));
    // On standard output the same, and of the flow.
    let mut objects = objects(&run.stdout);
    let status = objects.pop().unwrap();
    assert_eq!((&status["type"], &status["last"]), (&"collect.status".into(), &true.into()));
    let printed = |has_flow: bool| -> i64 {
        let objects =
            objects.iter().filter(|object| object["segment"] == "end-to-end" && object["flow"].is_object() == has_flow);
        objects.map(|object| object["latency"]["count"].as_i64().unwrap()).sum()
    };
    assert_eq!((printed(false), printed(true)), (count, count));
    let (events, segments): (Vec<_>, Vec<_>) = objects.iter().partition(|object| object["type"] == "collect.agent");
    assert!(segments.iter().all(|object| object["type"] == "collect.segment"));
    for agent in ["a", "b"] {
        let events: Vec<_> = events.iter().filter(|event| event["agent"] == agent).collect();
        let [joined, left] = events[..] else { panic!("{events:?}") };
        assert_eq!((&joined["event"], &joined["past"]), (&"join".into(), &false.into()), "{joined}");
        assert!(joined["reason"].is_null() && joined["address"].as_str().unwrap().starts_with("10.78.0."), "{joined}");
        assert_eq!((&left["event"], &left["reason"]), (&"leave".into(), &"it left".into()), "{left}");
    }
    for line in ["a connected, from 10.78.0.1", "b connected, from 10.78.0.2", "a disconnected: it left"] {
        assert!(run.stderr.contains(line), "{line}: {run}");
    }
}

#[test]
fn root_the_network_takes_what_the_link_emulator_makes_it_take() {
    if skipped() {
        return;
    }
    let lab = line("fleet-t4");
    let office = Office::new(Lab::address_v4(Role::Vantage).into());
    let (file, moved) = (office.path("paths.jsonl"), office.path("paths.jsonl.1"));
    let collector = office.collect(lab.vantage(), &["-w", file.to_str().unwrap()]);
    let a = office.agent(lab.client(), "a", &[]);
    let b = office.agent(lab.server(), "b", &[]);
    let mut chat = Chat::open(lab.client(), lab.server(), Lab::address_v4(Role::Server));
    office.waits_for_agents(2);
    fs::rename(&file, &moved).unwrap();
    collector.signal(Signal::SIGHUP);
    chat.say(100);
    ended(a, 0);
    ended(b, 0);
    let run = ended(collector, 0);
    // Without --format, the file has JSON Lines, and is opened anew when others have moved it.
    assert_eq!(run.stdout, "", "{run}");
    let written = objects(&fs::read_to_string(&file).unwrap());
    assert!(written.iter().any(|object| object["segment"] == "network"), "{written:?}");
    assert_eq!(written.last().unwrap()["type"], "collect.status");
    let one_way = (CLIENT_RTT.0 + SERVER_RTT.0) as i64 / 2;
    let figure = |figure| office.figure_of("network", "", figure).unwrap();
    let (least, mean, p50) = (figure("min(min_ns)"), figure("sum(sum_ns) / sum(count)"), figure("min(p50_ns)"));
    eprintln!("one way {one_way} ns; network: least {least}, mean {mean}, median {p50} ns");
    assert!(office.matched() > 500);
    // Nothing is faster than the link, and the clocks are nearer than the bound says.
    assert!(least > one_way * 9 / 10, "{least}");
    let bound = figure("max(bound_ns)");
    assert!((one_way..one_way * 2).contains(&bound), "half of both round trips: {bound}");
    assert_eq!(figure("sum(doubtful)"), office.matched(), "more than 100 µs");
    // A busy machine emulates a slower one.
    assert!(p50 < one_way * 3 / 2, "{p50}");
    // Where there is a queue in the network, it is in the network.
    let sent = office.figure_of("total", "tx", "sum(sum_ns) / sum(count)").unwrap();
    assert!(sent < one_way / 2, "{sent}");
}

#[test]
fn root_where_one_end_has_no_agent_the_network_is_estimated_from_round_trips() {
    if skipped() {
        return;
    }
    let lab = line("fleet-one");
    let office = Office::new(Lab::address_v4(Role::Vantage).into());
    let collector = office.collect(lab.vantage(), &[]);
    let a = office.agent(lab.client(), "a", &[]);
    let mut chat = Chat::open(lab.client(), lab.server(), Lab::address_v4(Role::Server));
    office.waits_for_agents(1);
    chat.say(20);
    // Both directions: the first is sent here, the second read.
    for _ in 0..5 {
        chat.server.write_all(&[1; 640]).unwrap();
        chat.client.read_exact(&mut [0; 640]).unwrap();
    }
    ended(a, 0);
    ended(collector, 0);
    let one_way = (CLIENT_RTT.0 + SERVER_RTT.0) as i64 / 2;
    for wanted in [
        format!("tx_host = 'a' AND rx_host IS NULL AND dport = {PORT}"),
        format!("rx_host = 'a' AND tx_host IS NULL AND sport = {PORT}"),
    ] {
        let sql = format!(
            "SELECT max(mean_ns) FROM paths WHERE {wanted} AND segment = 'network'
                AND method = 'estimated' AND bound_ns IS NULL"
        );
        let estimated = office.number(&sql).unwrap_or_else(|| panic!("{wanted}"));
        eprintln!("one way {one_way} ns, estimated {estimated} ns");
        // A busy machine emulates a slower link.
        assert!((one_way..one_way * 3 / 2).contains(&estimated), "{estimated}");
    }
    let others = "SELECT count(*) FROM path WHERE method = 'matched' OR segment <> 'network'";
    assert_eq!(office.number(others), Some(0));
}

#[test]
fn root_strangers_garbage_and_another_of_the_same_name_are_refused_and_counted() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-who");
    let collector = office.collect(&pair.left, &[]);
    let a = office.agent(&pair.left, "a", &[]);
    office.new_key("other");
    let other = office.path("other");
    let stranger = office.agent(&pair.right, "b", &[]);
    office.waits_for_agents(2);
    ended(stranger, 0);
    let port = PORT.to_string();
    let at = office.at();
    let agent = |key: &Path, name: &str| {
        let arguments = [
            "agent",
            "--buffer-dir",
            "none",
            "--collector",
            &at,
            "--key-file",
            key.to_str().unwrap(),
            "--name",
            name,
            "--port",
            &port,
            "--interval",
            "100ms",
            "--duration",
            "2s",
        ];
        spawn(&pair.right, DWELL, &arguments).end()
    };
    let stranger = agent(&other, "c");
    assert_eq!(stranger.status, Some(4), "{stranger}");
    assert!(stranger.stderr.contains("the collector's key does not match ours"), "{stranger}");
    assert!(stranger.stderr.contains("has not stored") && !stranger.stderr.contains("dropped"), "{stranger}");
    let twin = agent(&office.path("key"), "a");
    assert_eq!(twin.status, Some(4), "{twin}");
    assert!(twin.stderr.contains("an agent named 'a' is already connected, from 10.78.0.1"), "{twin}");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 70_000], &[0xff; 9]] {
        let connect = || TcpStream::connect(&at).unwrap();
        let mut stream = pair.right.enter(connect).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    ended(a, 0);
    ended(collector, 0);
    let refused = |reason: &str| {
        office.number(&format!("SELECT max(value) FROM counter WHERE host_id IS NULL AND name = 'refused {reason}'"))
    };
    assert!(refused("stranger") >= Some(1), "{:?}", refused("stranger"));
    assert!(refused("name") >= Some(1), "{:?}", refused("name"));
    assert_eq!(refused("garbage"), Some(3));
    assert_eq!(office.number("SELECT count(*) FROM host"), Some(2), "a, b");
}

#[test]
fn root_a_collector_whose_disk_is_full_says_so_and_agents_keep_what_it_has_not() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-full");
    let script = "mount -t tmpfs -o size=256k dwell-test \"$1\" && exec \"$2\" collect --listen \
        \"$3\" --key-file \"$4\" --store \"$1/store\"";
    let (folder, key, at) = (office.path("disk"), office.path("key"), office.at());
    fs::create_dir(&folder).unwrap();
    let arguments = ["--mount", "sh", "-c", script, "sh", folder.to_str().unwrap(), DWELL, &at, key.to_str().unwrap()];
    let collector = spawn(&pair.left, "unshare", &arguments);
    let agent = office.agent(&pair.left, "a", &["--interval", "20ms"]);
    let run = collector.end();
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("cannot write the store"), "{run}");
    assert!(run.stderr.contains("what was stored before is kept"), "{run}");
    let agent = agent.interrupt();
    assert_eq!(agent.status, Some(4), "{agent}");
    assert!(agent.stderr.contains("measurements wait"), "{agent}");
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let office = Office::new(IpAddr::from([127, 0, 0, 1]));
    let (key, store) = (office.path("key"), office.path("store"));
    let (key, store) = (key.to_str().unwrap(), store.to_str().unwrap());
    let open = office.path("open");
    fs::copy(key, &open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let short = office.path("short");
    fs::write(&short, "secret").unwrap();
    fs::set_permissions(&short, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let text = office.path("text");
    fs::write(&text, "x".repeat(200)).unwrap();
    let (open, short, text) = (open.to_str().unwrap(), short.to_str().unwrap(), text.to_str().unwrap());
    let collect = |store, key| vec!["collect", "--listen", "127.0.0.1:0", "--store", store, "--key-file", key];
    let agent = |collector, key| vec!["agent", "--collector", collector, "--key-file", key];
    // One rule is needed to leave out the agent's own connection.
    let rules: Vec<&str> = ["--filter", "10.0.0.0/8"].into_iter().cycle().take(2 * 16).collect();
    for (arguments, says) in [
        (vec!["collect", "--listen", "127.0.0.1:0", "--store", store], "--key-file"),
        (vec!["collect", "--key-file", key], "--listen"),
        (vec!["collect", "--new-key", key], "exists, and is not overwritten: move it away"),
        (vec!["collect", "--new-agent", "web", "--key-file", key], "--agents"),
        (vec!["collect", "--new-token", "web", "--key-file", key], "--agents"),
        (vec!["agent", "--collector", "127.0.0.1:1", "--token-file", key], "--key-file"),
        ([agent("127.0.0.1:1", "/no/such/key"), vec!["--token-file", key]].concat(), "the token is not valid"),
        ([agent("127.0.0.1:1", "/no/such/key"), vec!["--token-file", open]].concat(), "chmod 600"),
        (vec!["collect", "--new-agent", "a b", "--key-file", key, "--agents", store], "is not a valid agent name"),
        (
            vec!["collect", "--listen", "127.0.0.1:0", "--store", store, "--key-file", key, "--agents", "/none"],
            "cannot read /none",
        ),
        (collect(store, open), "chmod 600"),
        (collect(store, short), "43 are needed"),
        (collect(store, "/no/such/key"), "/no/such/key"),
        (collect(text, key), "is not a store of dwell"),
        ([collect(store, key), vec!["--retain", "forever"]].concat(), "30d, 30G or 12h,500M"),
        ([collect(store, key), vec!["--flows"]].concat(), "--flows is for what --format prints or --write keeps"),
        (
            [collect("clickhouse://127.0.0.1:1/x", key), vec!["--spool", store, "--retain", "1d"]].concat(),
            "drop old partitions on the server",
        ),
        (collect("/no/such/folder/store", key), "cannot open the store"),
        (
            vec!["collect", "--listen", "192.0.2.1:1", "--store", store, "--key-file", key],
            "cannot listen on 192.0.2.1:1: Cannot assign requested address (os error 99): no interface has this address",
        ),
        (vec!["agent", "--key-file", key], "--collector"),
        (vec!["agent", "--collector", "127.0.0.1:1"], "--key-file"),
        (vec!["agent", "--collector", "127.0.0.1:1", "--cert", key], "--key"),
        ([agent("127.0.0.1:1", key), vec!["--name", "a b"]].concat(), "is not a valid agent name"),
        ([agent("127.0.0.1:1", key), vec!["--sample-bytes", "1000"]].concat(), "power of two"),
        (agent("nowhere", key), "HOST:PORT"),
        ([agent("127.0.0.1:1", key), vec!["--duration", "1s"], rules].concat(), "at most 15 terms"),
    ] {
        let run = dwell(&arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run}");
    }
    assert_eq!(fs::read_to_string(text).unwrap(), "x".repeat(200));
}
