//! A ClickHouse server for one run.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Namespace, Result, program::RunningProgram, workload::require};

/// Where it listens for HTTP.
const ADDRESS: &str = "127.0.0.1:8123";
/// The store of a collector that uses it.
pub(super) const STORE: &str = "clickhouse://127.0.0.1:8123/dwell";
/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the server is told to keep for longer than rows.
const DOWNSAMPLE: &str = include_str!("../../../../dist/clickhouse/downsample.sql");

/// A table of the server.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Size {
    pub(super) table: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// A server with its files in a folder, which is killed with this.
pub(super) struct ClickHouse {
    namespace: Arc<Namespace>,
    folder: PathBuf,
    server: Mutex<Option<RunningProgram>>,
}

impl ClickHouse {
    /// Starts a server, and makes an empty database.
    pub(super) fn start(namespace: &Arc<Namespace>, folder: &Path) -> Result<ClickHouse> {
        require("clickhouse-server")?;
        let folder = folder.join("clickhouse");
        fs::create_dir(&folder).map_err(Error::file("make", &folder))?;
        let at = folder.display();
        let config = format!(
            "<yandex><logger><level>warning</level><console>1</console></logger><http_port>8123</http_port>
            <listen_host>127.0.0.1</listen_host><path>{at}/data/</path><tmp_path>{at}/tmp/</tmp_path>
            <mark_cache_size>67108864</mark_cache_size><users_config>{at}/users.xml</users_config>
            <default_profile>default</default_profile><default_database>default</default_database></yandex>"
        );
        let users = "<yandex><profiles><default/></profiles><users><default><password></password>
            <networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
            </default></users><quotas><default/></quotas></yandex>";
        for (name, text) in [("config.xml", config.as_str()), ("users.xml", users)] {
            let file = folder.join(name);
            fs::write(&file, text).map_err(Error::file("write", &file))?;
        }
        let server = ClickHouse { namespace: Arc::clone(namespace), folder, server: Mutex::default() };
        server.run()?;
        server.ask("default", "CREATE DATABASE dwell")?;
        Ok(server)
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&self) {
        *self.lock() = None;
    }

    /// Starts it, again with the same files.
    pub(super) fn run(&self) -> Result<()> {
        // It also writes next to its own file.
        let script = "cd \"$1\" && exec clickhouse-server --config-file=\"$1/config.xml\"";
        let arguments = ["-c", script, "sh", &self.folder.display().to_string()];
        let mut server =
            RunningProgram::start("clickhouse", &self.namespace, Path::new("sh"), &self.folder, &arguments)?;
        let begun = Instant::now();
        while !self.namespace.enter(|| TcpStream::connect(ADDRESS).is_ok())? {
            if server.has_ended()? || begun.elapsed() > PATIENCE {
                return Err(Error::Timeout(format!(
                    "the start of the ClickHouse server, which printed {}",
                    server.stderr()?
                )));
            }
            thread::sleep(Duration::from_millis(100));
        }
        *self.lock() = Some(server);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningProgram>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server keep 5 minutes and hours too, as `dist/clickhouse` has it.
    pub(super) fn downsample(&self) -> Result<()> {
        let lines = DOWNSAMPLE.lines().filter(|line| !line.starts_with("--"));
        let all = lines.fold(String::new(), |all, line| all + line + "\n");
        let mut steps = all.split(';').filter(|step| !step.trim().is_empty());
        steps.try_for_each(|step| self.ask("dwell", step).map(drop))
    }

    /// Returns the tables with their rows and bytes on disk.
    pub(super) fn sizes(&self) -> Result<Vec<Size>> {
        let sql = "SELECT table, sum(rows), sum(bytes_on_disk) FROM system.parts
            WHERE active AND database = 'dwell' GROUP BY table HAVING sum(rows) > 0 ORDER BY table";
        // As they are after a while.
        for table in
            self.rows("SELECT name FROM system.tables WHERE database = 'dwell' AND engine LIKE '%MergeTree'")?
        {
            self.ask("dwell", &format!("OPTIMIZE TABLE `{}` FINAL", table[0]))?;
        }
        let size = |row: Vec<String>| {
            let number = |at: usize| row.get(at).and_then(|value: &String| value.parse().ok());
            let size = number(1).zip(number(2)).map(|(rows, bytes)| Size { table: row[0].clone(), rows, bytes });
            size.ok_or_else(|| Error::invalid("answer of ClickHouse", row.join(" ")))
        };
        self.rows(sql)?.into_iter().map(size).collect()
    }

    /// Runs a query on the store's database. Returns the lines of the answer, each with its values.
    pub(super) fn rows(&self, query: &str) -> Result<Vec<Vec<String>>> {
        let answer = self.ask("dwell", query)?;
        Ok(answer.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// Runs a query whose answer is a number.
    pub(super) fn number(&self, query: &str) -> Result<u64> {
        let answer = self.ask("dwell", query)?;
        answer.trim().parse().map_err(|_| Error::invalid("answer of ClickHouse", answer))
    }

    fn ask(&self, database: &str, query: &str) -> Result<String> {
        let talk = || {
            let mut stream = TcpStream::connect(ADDRESS)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let length = query.len();
            write!(stream, "POST /?database={database} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{query}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.namespace.enter(talk)?.map_err(Error::io("ask ClickHouse"))?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => Err(Error::invalid("ClickHouse", answer)),
        }
    }
}
