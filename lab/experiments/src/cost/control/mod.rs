//! How fast the control plane is: reloads and intervals of a balancer with many VIPs, and how soon verbs have something to say.

mod begin;
mod many;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use dwell_testbed::Namespace;
use serde_json::Value;

use super::{
    Options, dwell,
    figures::median,
    limits::{self, Finding, Limit},
    stop::Stop,
};

/// The most that something may take until it has begun.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(options: &Options, stop: &Stop) -> Result<Vec<Finding>> {
    let bench = Bench::new(options.quick, stop)?;
    let (vips, rounds) = (bench.vips, bench.rounds);
    println!(
        "\
The control plane; medians of {rounds}, as a user waits for it.
A reload changes the weights of all backends of {vips} VIPs, and thus all tables of 65,537 entries.
An interval: its work as `dwell lb status` reports it, when nothing changes.\n"
    );
    let mut findings = Vec::new();
    for row in ROWS {
        let what = row.what.replace("VIPS", &vips.to_string());
        if options.wants(&what) {
            let times: Vec<f64> = (row.measure)(&bench)?.iter().map(|time| time.as_secs_f64() * 1e3).collect();
            let ms = median(&times);
            println!("{what:<60} {ms:>9.1} ms");
            let found = if options.quick { Err("--quick has fewer VIPs and one round") } else { Ok(ms) };
            findings.extend(row.limit.map(|limit| limit.judge("", found)));
        }
    }
    Ok(findings)
}

/// What is measured, several times, and how long it may take.
struct Row {
    what: &'static str,
    measure: fn(&Bench<'_>) -> Result<Vec<Duration>>,
    limit: Option<&'static Limit>,
}

#[rustfmt::skip]
static ROWS: &[Row] = &[
    Row::new("dwell lb: a reload of VIPS VIPs with 10 backends", |it| many::reload(it, 10), Some(&limits::RELOAD[0])),
    Row::new("dwell lb: a reload of VIPS VIPs with 100 backends", |it| many::reload(it, 100), Some(&limits::RELOAD[1])),
    Row::new("dwell lb: an interval of VIPS VIPs with 10 backends", |it| many::interval(it, 10), Some(&limits::INTERVAL)),
    Row::new("dwell lb: an interval of VIPS VIPs with 100 backends", |it| many::interval(it, 100), None),
    Row::new("dwell lb: CPU time per second, VIPS VIPs with 100 backends", |it| many::cpu_per_second(it, 100), None),
    Row::new("dwell lb: until a new one answers", begin::new_balancer, Some(&limits::START)),
    Row::new("dwell lb: until the next process answers", begin::next_balancer, Some(&limits::TAKEOVER)),
    Row::new("dwell rtt -i: until the first sample", begin::sample, Some(&limits::FIRST_SAMPLE)),
    Row::new("dwell doctor: until its end", begin::doctor, Some(&limits::DOCTOR)),
];

impl Row {
    const fn new(
        what: &'static str,
        measure: fn(&Bench<'_>) -> Result<Vec<Duration>>,
        limit: Option<&'static Limit>,
    ) -> Row {
        Row { what, measure, limit }
    }
}

/// Where all of it takes place.
struct Bench<'a> {
    dwell: PathBuf,
    namespace: Namespace,
    folder: tempfile::TempDir,
    pinned: Pinned,
    vips: u32,
    /// How often each figure is measured.
    rounds: u32,
    /// The balancer's.
    interval: Duration,
    stop: &'a Stop,
}

impl Bench<'_> {
    /// Makes a namespace with the balancer's interface. The backends are behind a router that does not exist, so nothing is
    /// sent to them.
    fn new(is_quick: bool, stop: &Stop) -> Result<Bench<'_>> {
        let dwell = dwell()?;
        let namespace = Namespace::create("bench-control")?;
        namespace.ip("link add front0 type veth peer name back0\n\
             link set front0 up\n\
             link set back0 up\n\
             address add 10.79.2.1/24 dev front0\n\
             neighbour add 10.79.2.2 lladdr 02:00:00:00:00:02 dev front0 nud permanent\n\
             route add 10.128.0.0/9 via 10.79.2.2\n")?;
        let folder = tempfile::tempdir().context("make a folder")?;
        let (vips, rounds, interval_ms) = if is_quick { (30, 1, 100) } else { (1_000, 5, 1_000) };
        let interval = Duration::from_millis(interval_ms);
        Ok(Bench { dwell, namespace, pinned: Pinned(pin(folder.path())), folder, vips, rounds, interval, stop })
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("lb.toml")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("lb.sock")
    }

    /// Writes a configuration of the balancer: `keys` of its beginning, and VIPs with weights that differ from change to
    /// change.
    fn configure(&self, keys: &str, vips: u32, backends: u32, change: u32) -> Result<()> {
        let mut text = format!(
            "interface = \"front0\"\nxdp = \"generic\"\ninterval = \"{}ms\"\npin = \"{}\"\n{keys}[api]\nsocket = \"{}\"\n",
            self.interval.as_millis(),
            self.pinned.0,
            self.socket().display(),
        );
        for vip in 0..vips {
            text += &format!(
                "[[vip]]\nname = \"vip{vip}\"\naddress = \"10.80.{}.{}\"\nport = 80\nforward = \"ipip\"\n",
                vip / 250,
                vip % 250 + 1
            );
            for number in vip * backends..(vip + 1) * backends {
                let weight = 1.0 + f64::from((number * 7 + change * 13) % 10) / 10.0;
                text += &format!(
                    "[[vip.backend]]\naddress = \"10.{}.{}.{}\"\nweight = {weight}\n",
                    128 + number / 62_500,
                    number / 250 % 250,
                    number % 250 + 1
                );
            }
        }
        Ok(fs::write(self.config(), text)?)
    }

    /// Waits until the balancer answers, and returns its status.
    fn wait_for_status(&self, mut ended: impl FnMut() -> Result<bool>) -> Result<Value> {
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => break stream,
                Err(_) => self.stop.sleep(Duration::from_millis(1))?,
            }
            ensure!(!ended()? && begun.elapsed() < PATIENCE, "dwell lb run does not start: {}", self.said());
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        (&stream).write_all(b"{\"do\":\"status\"}\n")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        let mut answer: Value = serde_json::from_str(&answer).with_context(|| self.said())?;
        Ok(answer["ok"].take())
    }

    fn status(&self) -> Result<Value> {
        self.wait_for_status(|| Ok(false))
    }

    /// Where the balancer writes its messages.
    fn log(&self) -> Result<fs::File> {
        Ok(fs::File::create(self.folder.path().join("log"))?)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// The maps that the balancer leaves pinned in the kernel. They are removed when this is dropped.
struct Pinned(String);

impl Pinned {
    fn remove(&self) {
        // If there is nothing to remove, that is fine.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the folder of the maps. BPF file systems do not allow dots in names.
fn pin(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("/sys/fs/bpf/dwell/bench{}", name.replace('.', "-"))
}
