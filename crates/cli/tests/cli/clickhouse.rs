//! `dwell collect --store clickhouse://…`: a real server, which is killed and comes back.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use dwell_engine::histogram::Histogram;
use dwell_testbed::Namespace;
use nix::sys::signal::Signal;
use rusqlite::Connection;

use crate::{
    fleet::{Chat, Office, ended, pair, patiently},
    otlp::certificate,
    records::objects,
    support::{DWELL, Process, dwell, skipped, spawn},
};

const STORE: &str = "clickhouse://127.0.0.1:8123/dwell";
const PASSWORD: &str = "CLICKHOUSE_PASSWORD=secret";

/// A server in a namespace.
struct ClickHouse<'a> {
    namespace: &'a Namespace,
    office: &'a Office,
    /// The name of its folder, and variables of its environment.
    name: &'a str,
    variables: &'a [&'a str],
    process: Option<Process>,
}

impl<'a> ClickHouse<'a> {
    /// Starts one on the loopback of the namespace, with an empty database.
    fn start(namespace: &'a Namespace, office: &'a Office) -> ClickHouse<'a> {
        let mut server = ClickHouse::prepare(namespace, office, "server", &[]);
        server.start_again();
        server.ask("CREATE DATABASE dwell", "default");
        server
    }

    /// Writes what one needs, which is not started.
    fn prepare(
        namespace: &'a Namespace,
        office: &'a Office,
        name: &'a str,
        variables: &'a [&'a str],
    ) -> ClickHouse<'a> {
        let folder = office.path(name);
        fs::create_dir(&folder).unwrap();
        let [certificate, key] = certificate(&folder);
        let folder = folder.to_str().unwrap();
        let config = format!(
            "<yandex><logger><level>warning</level><console>1</console></logger>
            <http_port>8123</http_port><https_port>8443</https_port><tcp_port>9000</tcp_port>
            <listen_host>127.0.0.1</listen_host>
            <openSSL><server><certificateFile>{certificate}</certificateFile><privateKeyFile>{key}</privateKeyFile>
            <verificationMode>none</verificationMode></server></openSSL>
            <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path>
            <mark_cache_size>67108864</mark_cache_size>
            <users_config>{folder}/users.xml</users_config>
            <default_profile>default</default_profile>
            <default_database>default</default_database></yandex>"
        );
        let users = "<yandex><profiles><default/></profiles><users><default>
            <password>secret</password><networks><ip>::/0</ip></networks>
            <profile>default</profile><quota>default</quota>
            </default></users><quotas><default/></quotas></yandex>";
        fs::write(format!("{folder}/config.xml"), config).unwrap();
        fs::write(format!("{folder}/users.xml"), users).unwrap();
        ClickHouse { namespace, office, name, variables, process: None }
    }

    fn start_again(&mut self) {
        // It also writes next to its own file.
        let script = "cd \"$1\" && exec clickhouse-server --config-file=\"$1/config.xml\"";
        let folder = self.office.path(self.name);
        let arguments = ["sh", "-c", script, "sh", folder.to_str().unwrap()];
        let mut process = spawn(self.namespace, "env", &[self.variables, &arguments].concat());
        patiently("the server listens", || {
            if process.has_ended() {
                return true;
            }
            self.namespace.enter(|| TcpStream::connect("127.0.0.1:8123").is_ok()).unwrap()
        });
        if process.has_ended() {
            panic!("no server:\n{}", process.end());
        }
        self.process = Some(process);
    }

    /// Runs a file of statements.
    fn run(&self, ddl: &str, database: &str) {
        let ddl: String = ddl.lines().filter(|line| !line.starts_with("--")).map(|line| format!("{line}\n")).collect();
        ddl.split(';').filter(|step| !step.trim().is_empty()).for_each(|step| _ = self.ask(step, database));
    }

    fn stop(&mut self, signal: Signal) {
        let process = self.process.take().unwrap();
        process.signal(signal);
        process.end();
    }

    fn ask(&self, query: &str, database: &str) -> String {
        let connect = || TcpStream::connect("127.0.0.1:8123").unwrap();
        let mut stream = self.namespace.enter(connect).unwrap();
        write!(
            stream,
            "POST /?database={database} HTTP/1.0\r\nX-ClickHouse-User: default\r\n\
             X-ClickHouse-Key: secret\r\nContent-Length: {}\r\n\r\n{query}",
            query.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{query}: {text}");
        body.trim_end().to_owned()
    }

    fn number(&self, query: &str) -> i64 {
        let said = self.ask(query, "dwell");
        said.parse().unwrap_or_else(|_| panic!("{query}: {said}"))
    }

    /// Bytes that one side has reported, or both.
    fn count(&self, table: &str, wanted: &str) -> i64 {
        self.number(&format!("SELECT sum(count) FROM {table} WHERE src IS NULL AND {wanted}"))
    }

    fn matched(&self) -> i64 {
        self.count("paths", "segment = 'end-to-end'")
    }
}

fn unavailable() -> bool {
    if skipped() {
        return true;
    }
    let is_there = Command::new("clickhouse-server").arg("--version").output();
    if is_there.is_err() {
        dwell_testbed::skip::skip("there is no clickhouse-server, which Debian's package of that name has");
    }
    is_there.is_err()
}

#[test]
fn root_a_server_that_is_away_for_a_while_has_all_rows_once() {
    if unavailable() {
        return;
    }
    let (pair, office) = pair("clickhouse");
    let mut server = ClickHouse::start(&pair.left, &office);
    let spool = office.path("store");
    let collect = || {
        let into = ["--store", STORE, "--spool", spool.to_str().unwrap()];
        office.collect_into(&pair.left, &[PASSWORD], &into)
    };
    let mut collector = collect();
    let a = office.agent(&pair.left, "a", &["--interval", "200ms"]);
    let b = office.agent(&pair.right, "b", &["--interval", "200ms"]);
    patiently("the agents have told something", || server.number("SELECT uniqExact(host) FROM intervals") == 2);
    let mut chat = Chat::open(&pair.left, &pair.right, "10.78.0.2".parse().unwrap());
    let mut messages = 0;
    let mut talk = |server: &ClickHouse, count| {
        let before = (server.process.is_some()).then(|| server.matched());
        for _ in 0..count / 5 {
            chat.say(5);
            messages += 5;
            thread::sleep(Duration::from_millis(20));
        }
        if let Some(before) = before {
            patiently("more is matched", || server.matched() > before);
        }
    };
    talk(&server, 100);
    // The server dies, and what comes waits.
    server.stop(Signal::SIGKILL);
    talk(&server, 100);
    let before = office.number(WAITING);
    patiently("more waits", || office.number(WAITING) > before);
    server.start_again();
    talk(&server, 100);
    // The collector dies, with what it had sent or not.
    collector.signal(Signal::SIGKILL);
    collector.end();
    collector = collect();
    talk(&server, 100);
    // Both end while there is no server, and report that.
    server.stop(Signal::SIGTERM);
    talk(&server, 100);
    ended(a, 0);
    ended(b, 0);
    let run = ended(collector, 4);
    for line in [
        "cannot reach clickhouse://127.0.0.1:8123/dwell: ",
        "what comes waits in the spool",
        "rows are not on clickhouse://127.0.0.1:8123/dwell yet",
    ] {
        assert!(run.stderr.contains(line), "{line}: {run}");
    }
    // As if it had been killed when all was sent and nothing of that noted.
    let unnoted = office.path("unnoted");
    office.execute(&format!("VACUUM INTO '{}'", unnoted.to_str().unwrap()));
    server.start_again();
    let collector = collect();
    patiently("none waits", || office.number(WAITING) == Some(0));
    ended(collector, 0);
    let given = office.number("SELECT seq FROM sqlite_sequence WHERE name = 'waiting'");
    let rows = || {
        ["intervals", "paths", "clock", "counter"].map(|table| server.number(&format!("SELECT count() FROM {table}")))
    };
    let sent = rows();
    assert!(sent.iter().all(|rows| *rows > 0), "{sent:?}");
    assert_eq!(given, Some(sent.iter().sum()), "{sent:?}");
    fs::rename(&unnoted, &spool).unwrap();
    assert!(office.number(WAITING) > Some(100));
    let collector = collect();
    patiently("none waits", || office.number(WAITING) == Some(0));
    ended(collector, 0);
    assert_eq!(rows()[..2], sent[..2], "none of these is written by an end");

    let bytes = messages * 10;
    let told = |host: &str, direction: &str| {
        server.count("intervals", &format!("segment = 'total' AND host = '{host}' AND direction = '{direction}'"))
    };
    let counts = (told("a", "tx"), told("b", "rx"), server.matched());
    eprintln!("of {bytes} bytes: sent, read, matched {counts:?}");
    let all = (bytes * 98 / 100)..=bytes;
    assert!(all.contains(&counts.0) && all.contains(&counts.1), "{counts:?} of {bytes}");
    assert!(((bytes * 96 / 100)..=bytes).contains(&counts.2), "{counts:?} of {bytes}");
    // The example of the documentation.
    let page = include_str!("../../../../docs/method/store.md");
    let example = page.rsplit("```sql").next().unwrap();
    let example = example.split("```").next().unwrap();
    // A busy machine takes longer.
    let told = server.ask(&example.replace("- 60)", "- 3600)"), "dwell");
    let network = format!("a\tb\tnetwork\t\\N\t{}\t", counts.2);
    assert!(told.contains(&network), "{network}:\n{told}");
    // The figures are where they belong, to the nanosecond and the last byte.
    let sum = |wanted: &str| {
        server.number(&format!("SELECT sum(sum_ns) FROM paths WHERE src IS NULL AND part_of IS NULL AND {wanted}"))
    };
    assert_eq!(sum("segment NOT IN ('end-to-end', 'total')"), sum("segment = 'end-to-end'"));
    let row = server.ask(
        "SELECT hex(histogram), count, sum_ns, max_ns FROM intervals WHERE count > 100
            AND src IS NULL ORDER BY count DESC LIMIT 1",
        "dwell",
    );
    let row: Vec<&str> = row.split('\t').collect();
    let hex = |at: usize| u8::from_str_radix(&row[0][at..at + 2], 16).unwrap();
    let histogram: Vec<u8> = (0..row[0].len()).step_by(2).map(hex).collect();
    let histogram = Histogram::from_bytes(&histogram).unwrap();
    let known = [histogram.count(), histogram.sum_ns() as u64];
    assert_eq!(row[1..3], known.map(|number| number.to_string()));
    // The page has the same figures.
    let page = spawn(&pair.left, "env", &[PASSWORD, DWELL, "report", "--read", STORE]).end();
    assert_eq!(page.status, Some(0), "{}", page.stderr);
    let (_, data) = page.stdout.split_once("id=\"data\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["hosts"], serde_json::json!(["a", "b"]));
    let segment = data["segments"].as_array().unwrap().iter().position(|segment| segment["name"] == "end-to-end");
    let rows = data["rows"].as_array().unwrap().iter();
    let of_all = rows.filter(|row| row["flow"].is_null() && row["segment"].as_u64().map(|at| at as usize) == segment);
    assert_eq!(of_all.filter_map(|row| row["count"].as_i64()).sum::<i64>(), counts.2);
    // And a verdict, of all flows and of this one.
    for target in [&[][..], &["10.78.0.2"]] {
        let why = [&[PASSWORD, DWELL, "why", "-r", STORE, "--format", "jsonl"], target].concat();
        let why = spawn(&pair.left, "env", &why).end();
        let verdict = objects(&why.stdout).pop().unwrap_or_else(|| panic!("{why}"));
        assert!(verdict["connections"].as_u64() > Some(0), "{verdict}");
        let bytes = verdict["facts"].as_array().unwrap().iter().find(|fact| fact["what"] == "stamped bytes");
        assert_eq!(bytes.unwrap()["count"].as_i64(), Some(counts.2), "{target:?}: {verdict}");
    }
}

#[test]
fn root_rows_go_over_tls_to_a_server_with_a_certificate_of_the_hosts_authorities() {
    if unavailable() {
        return;
    }
    let (pair, office) = pair("clickhouse-tls");
    let server = ClickHouse::start(&pair.left, &office);
    let spool = office.path("store");
    let into = ["--store", "clickhouses://127.0.0.1:8443/dwell", "--spool", spool.to_str().unwrap()];
    let authority = format!("SSL_CERT_FILE={}", office.path("server/certificate").display());
    let collector = office.collect_into(&pair.left, &[PASSWORD, &authority], &into);
    let agent = office.agent(&pair.right, "a", &["--interval", "200ms"]);
    patiently("the agent's rows have come", || server.number("SELECT count() FROM intervals") > 0);
    ended(agent, 0);
    ended(collector, 0);
    let collect = |variables: &[&str]| {
        let (key, always) = (office.path("key"), ["collect", "--listen", "127.0.0.1:0", "--key-file"]);
        let arguments = [variables, &[PASSWORD, DWELL], &always, &[key.to_str().unwrap()], &into].concat();
        spawn(&pair.left, "env", &arguments).end()
    };
    let stranger = collect(&[]);
    assert_eq!(stranger.status, Some(2), "{stranger}");
    assert!(stranger.stderr.contains("cannot reach clickhouses://127.0.0.1:8443/dwell: "), "{stranger}");
    assert!(stranger.stderr.contains("certificate"), "{stranger}");
    assert!(stranger.stderr.contains("has this https_port"), "{stranger}");
    let unknown = collect(&["SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/nonexistent"]);
    assert_eq!(unknown.status, Some(3), "{unknown}");
    assert!(
        unknown.stderr.contains("cannot check the certificate of clickhouses://127.0.0.1:8443/dwell: "),
        "{unknown}"
    );
}

/// The DDL that is installed for servers.
#[test]
fn root_rows_of_five_minutes_and_of_an_hour_have_the_histograms_of_their_rows_together() {
    if unavailable() {
        return;
    }
    let (pair, office) = pair("clickhouse-sums");
    let server = ClickHouse::start(&pair.left, &office);
    let spool = office.path("store");
    let collect = || {
        let into = ["--store", STORE, "--spool", spool.to_str().unwrap()];
        office.collect_into(&pair.left, &[PASSWORD], &into)
    };
    // The tables are there.
    ended(collect(), 0);
    for _ in ["once", "again"] {
        server.run(include_str!("../../../../dist/clickhouse/downsample.sql"), "dwell");
    }
    let collector = collect();
    let a = office.agent(&pair.left, "a", &["--interval", "200ms"]);
    let b = office.agent(&pair.right, "b", &["--interval", "200ms"]);
    let mut chat = Chat::open(&pair.left, &pair.right, "10.78.0.2".parse().unwrap());
    patiently("paths are there", || {
        chat.say(20);
        thread::sleep(Duration::from_millis(50));
        server.number("SELECT count() FROM paths WHERE count > 0 AND src IS NOT NULL") > 20
    });
    ended(a, 0);
    ended(b, 0);
    ended(collector, 0);
    patiently("none waits", || office.number(WAITING) == Some(0));
    for (table, of_rows) in [("intervals", "host = 'a' AND segment = 'total'"), ("paths", "segment = 'network'")] {
        // Of each flow, and of all together.
        for (rows, minutes) in [("src IS NOT NULL", "src != ''"), ("src IS NULL", "src = ''")] {
            let figures = |from: &str, wanted: &str| {
                let sums = "sum(count), sum(sum_ns), min(min_ns), max(max_ns)";
                server.ask(&format!("SELECT {sums} FROM {from} WHERE count > 0 AND {of_rows} AND {wanted}"), "dwell")
            };
            assert_eq!(figures(table, rows), figures(&format!("{table}_5"), minutes), "{table}");
        }
        let rows = format!("SELECT hex(histogram) FROM {table} WHERE src IS NULL AND retransmitted = 0 AND {of_rows}");
        let mut all = Histogram::default();
        for row in server.ask(&rows, "dwell").lines() {
            let hex = |at: usize| u8::from_str_radix(&row[at..at + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..row.len()).step_by(2).map(hex).collect();
            all.merge(&Histogram::from_bytes(&bytes).unwrap());
        }
        assert!(all.count() > 100, "{all:?}");
        // Both are the middle of a bucket, and a run may have crossed the hour.
        let quantiles = format!(
            "SELECT count, p50_ns, p99_ns, p99_9_ns FROM {table}_60
                WHERE {of_rows} AND retransmitted = 0 ORDER BY count DESC LIMIT 1"
        );
        let hour: Vec<u64> = server.ask(&quantiles, "dwell").split('\t').map(|value| value.parse().unwrap()).collect();
        let hours = server.number(&format!("SELECT sum(count) FROM {table}_60 WHERE {of_rows} AND retransmitted = 0"));
        assert_eq!(hours as u64, all.count(), "{table}");
        if hour[0] == all.count() {
            for (theirs, q) in hour[1..].iter().zip([0.5, 0.99, 0.999]) {
                let ours = all.quantile_ns(q).unwrap();
                assert!(ours.abs_diff(*theirs) <= 1 + ours / 64, "{table}: {ours} and {theirs}");
            }
        }
    }
}

/// The tables and the configuration that are installed for a cluster, on one that coordinates by ZooKeeper. Another pair of agents on
/// the same hosts, with a collector of its own, says what each row is to have.
#[test]
fn root_rows_of_three_collectors_on_two_shards_are_those_of_one_collector_though_one_of_each_is_killed() {
    if unavailable() {
        return;
    }
    if !Path::new("/usr/share/java/zookeeper.jar").exists() {
        return dwell_testbed::skip::skip("there is no ZooKeeper, which Debian's package zookeeper has");
    }
    let (pair, office) = pair("clickhouse-shards");
    let zookeeper = office.path("zoo.cfg");
    let folder = office.path("zookeeper");
    fs::create_dir(&folder).unwrap();
    let settings = format!("dataDir={}\nclientPort=9181\nadmin.enableServer=false\n", folder.display());
    fs::write(&zookeeper, settings).unwrap();
    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let arguments = ["-Xmx256m", "-cp", "/usr/share/java/*", main, zookeeper.to_str().unwrap()];
    let mut zookeeper = spawn(&pair.left, "java", &arguments);
    patiently("ZooKeeper listens", || {
        zookeeper.has_ended() || pair.left.enter(|| TcpStream::connect("127.0.0.1:9181").is_ok()).unwrap()
    });
    let config = include_str!("../../../../dist/compose/clickhouse.xml").replace("clickhouse>", "yandex>");
    let config = [("clickhouse-1", "10.78.0.1"), ("clickhouse-2", "10.78.0.2"), ("keeper</", "10.78.0.1</")]
        .iter()
        .fold(config, |config, (name, address)| config.replace(name, address));
    let login = ["CLICKHOUSE_USER=default", PASSWORD];
    let of_shards = [1, 2].map(|shard| [format!("SHARD={shard}"), format!("REPLICA=clickhouse-{shard}")]);
    let of_shards = of_shards.each_ref().map(|[shard, replica]| [login[0], login[1], shard, replica]);
    let shard = |namespace, name: &'static str| {
        let variables = &of_shards[usize::from(name == "2")];
        let mut server = ClickHouse::prepare(namespace, &office, name, variables);
        let more = office.path(name).join("config.d");
        fs::create_dir(&more).unwrap();
        fs::write(more.join("dwell.xml"), &config).unwrap();
        server.start_again();
        server
    };
    let (mut first, mut second) = (shard(&pair.left, "1"), shard(&pair.right, "2"));
    first.run(include_str!("../../../../dist/clickhouse/cluster.sql"), "default");
    first.run(include_str!("../../../../dist/clickhouse/cluster-downsample.sql"), "default");

    let key = office.path("key");
    let spools = [1, 2, 3].map(|number| office.path(&format!("spool-{number}")));
    let listening = [4791, 4792, 4793].map(|port| format!("10.78.0.1:{port}"));
    let collect = |number: usize| {
        let (listen, spool) = (&listening[number], spools[number].to_str().unwrap());
        let always = [PASSWORD, DWELL, "collect", "--listen", listen, "--key-file", key.to_str().unwrap()];
        spawn(&pair.left, "env", &[&always[..], &["--store", STORE, "--spool", spool]].concat())
    };
    let mut collectors = [0, 1, 2].map(collect);
    let one = office.collect(&pair.left, &[]);
    let several = listening.join(",");
    let agents = [(&pair.left, "c", "a"), (&pair.right, "d", "b")].map(|(namespace, of_several, of_one)| {
        let of_several = office.agent(namespace, of_several, &["--collector", &several]);
        [of_several, office.agent(namespace, of_one, &[])]
    });
    let mut chats: Vec<_> =
        (0..12).map(|_| Chat::open(&pair.left, &pair.right, "10.78.0.2".parse().unwrap())).collect();
    let mut talk = |seconds| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            chats.iter_mut().for_each(|chat| chat.say(1));
            thread::sleep(Duration::from_millis(50));
        }
    };
    talk(3);
    patiently("more is matched", || first.matched() > 0);
    let count = |table: &str| first.number(&format!("SELECT sum(count) FROM {table}"));
    patiently("all are in the sums", || {
        ["intervals", "paths"].iter().all(|table| count(&format!("{table}_5")) == count(table))
    });
    collectors[1].signal(Signal::SIGKILL);
    // Longer than agents wait before others get its share.
    talk(14);
    second.stop(Signal::SIGKILL);
    talk(3);
    patiently("more waits", || spools.iter().any(|spool| waiting(spool) > 0));
    let [left, killed, right] = collectors;
    killed.end();
    collectors = [left, collect(1), right];
    talk(2);
    second.start_again();
    talk(3);
    agents.into_iter().flatten().for_each(|agent| _ = ended(agent, 0));
    patiently("none waits", || spools.iter().all(|spool| waiting(spool) == 0));
    let runs = collectors.map(|collector| ended(collector, 0));
    assert!(runs.iter().any(|run| run.stderr.contains("takes rows again")), "{}", runs[0]);
    ended(one, 0);

    let given: i64 = spools.iter().map(|spool| figures(spool, "SELECT '', seq FROM sqlite_sequence")[0].1).sum();
    let rows = |table: &str| first.number(&format!("SELECT count() FROM {table}"));
    let all = ["intervals", "paths", "clock", "counter", "lost", "gray"].map(|table| {
        assert!(table == "lost" || table == "gray" || rows(&format!("{table}_local")) < rows(table), "{table}");
        assert_eq!(first.number(&format!("SELECT uniqExact(spool, row) FROM {table}")), rows(table), "{table}");
        rows(table)
    });
    assert_eq!(all.iter().sum::<i64>(), given, "{all:?}");
    assert_eq!(rows("lost"), 0);
    let by = "direction, segment, retransmitted, src, sport, dst, dport";
    let sql = format!("SELECT host, {by}, sum(count) FROM intervals WHERE count > 0 GROUP BY host, {by}");
    let told = first.ask(&sql, "dwell").replace("\\N", "");
    let mut told: Vec<_> = told.lines().collect();
    told.sort_unstable();
    let columns: Vec<_> = by.split(", ").map(|column| format!("ifnull({column}, '')")).collect();
    let line = format!("CASE host WHEN 'a' THEN 'c' ELSE 'd' END || char(9) || {}", columns.join(" || char(9) || "));
    let known = figures(
        &office.path("store"),
        &format!("SELECT {line}, sum(count) FROM intervals WHERE count > 0 GROUP BY host, {by}"),
    );
    let mut known: Vec<_> = known.into_iter().map(|(names, count)| format!("{names}\t{count}")).collect();
    known.sort_unstable();
    assert!(known.len() > 100, "{known:?}");
    assert_eq!(told, known);
    let (matched, of_one) = (first.matched(), office.matched());
    eprintln!("of {of_one} bytes that one collector matched, three have {matched}");
    assert!(matched > of_one / 2, "{matched} of {of_one}");
    first.stop(Signal::SIGTERM);
}

/// Rows that a spool has not sent.
fn waiting(spool: &Path) -> i64 {
    figures(spool, &WAITING.replace("count", "'', count"))[0].1
}

/// Names and numbers that a query of an SQLite file gives.
fn figures(file: &Path, sql: &str) -> Vec<(String, i64)> {
    let file = Connection::open(file).unwrap();
    file.busy_timeout(Duration::from_secs(10)).unwrap();
    let mut query = file.prepare(sql).unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

const WAITING: &str = "SELECT count(*) FROM waiting";

#[test]
fn a_server_that_cannot_be_used_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, spool) = (path("key"), path("spool"));
    assert_eq!(dwell(&["collect", "--new-key", &key]).status, Some(0));
    let nobody = "clickhouse://127.0.0.1:1/dwell";
    let at = "127.0.0.1:0";
    for (store, spool, says) in [
        (nobody, None, "name a file with --spool"),
        (spool.as_str(), Some(&spool), "--spool is for a store on a server"),
        (nobody, Some(&spool), "cannot reach clickhouse://127.0.0.1:1/dwell"),
        ("clickhouse://127.0.0.1/dwell", Some(&spool), "HOST:PORT/DATABASE"),
        ("clickhouse://127.0.0.1:1/", Some(&spool), "HOST:PORT/DATABASE"),
        ("clickhouse://127.0.0.1:1/a;b", Some(&spool), "HOST:PORT/DATABASE"),
        ("clickhouses://127.0.0.1/dwell", Some(&spool), "https_port"),
        ("clickhouse://me:pw@127.0.0.1:1/a", Some(&spool), "CLICKHOUSE_PASSWORD"),
    ] {
        let mut arguments = vec!["collect", "--listen", at, "--key-file", &key, "--store", store];
        if let Some(spool) = spool {
            arguments.extend(["--spool", spool]);
        }
        let run = dwell(&arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run}");
    }
    let run = dwell(&["report", "--read", nobody, "--output", &path("page")]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("cannot reach clickhouse://127.0.0.1:1/dwell"), "{run}");
    let run = dwell(&["report", "--read", "clickhouse://me:pw@127.0.0.1:1/a", "--output", &path("page")]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("CLICKHOUSE_PASSWORD"), "{run}");
}
