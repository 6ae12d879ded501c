//! The duration of an interval of the balancer's control loop with 1,000 VIPs and 10,000 backends.
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{dwell, figures::median, goals, stop::Stop};
use crate::goal::Goal;
use anyhow::{Context, Result, ensure};
use dwell_engine::steer::maglev::{self, Member};
use dwell_probes::balancer::{Plane, PlaneOptions};
use dwell_testbed::Namespace;

const VIPS: u32 = 1_000;
const BACKENDS: u32 = 10;
/// How many times all tables are changed.
const CHANGES: usize = 5;
/// How long to wait for the balancer to start.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(stop: &Stop) -> Result<Vec<Goal>> {
    println!(
        "\
The control loop of the balancer with {VIPS} VIPs of {BACKENDS} backends each, tables of {} entries; medians.
An interval: the duration of its work as `dwell lb status` reports it, when no table changes.
Tables: all of them, rebuilt from other weights and written to the kernel.\n",
        maglev::DEFAULT_SIZE
    );
    let (built, written) = tables(stop)?;
    println!("{VIPS} tables are built  {:>6} ms", built.as_millis());
    println!("and written          {:>6} ms", written.as_millis());
    let quiet = interval(stop)?;
    println!("an interval          {:>6} ms", quiet.as_millis());
    let all = quiet + built + written;
    println!("the sum of these     {:>6} ms", all.as_millis());
    Ok(vec![goals::control(all)])
}

/// Returns the duration of the work of an interval in which nothing changes.
fn interval(stop: &Stop) -> Result<Duration> {
    let dwell = dwell()?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let namespace = Namespace::create("bench-control")?;
    wire(&namespace)?;
    let _pinned = Pinned(pin(folder.path()));
    let config = folder.path().join("lb.toml");
    let socket = folder.path().join("lb.sock");
    fs::write(&config, configuration(folder.path()))?;
    let lb = |verb: &[&str]| -> Result<String> {
        let mut command = namespace.command(&dwell);
        let output = command.arg("lb").args(verb).arg(&socket).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dwell lb {}: {said}", verb[0]);
        Ok(String::from_utf8(output.stdout)?)
    };
    let begun = Instant::now();
    let log = fs::File::create(folder.path().join("log"))?;
    let mut balancer = namespace.spawn(&dwell, |command| {
        command.args(["lb", "run"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    })?;
    let work = || -> Result<Option<f64>> {
        let status: serde_json::Value = serde_json::from_str(&lb(&["status", "--format", "jsonl", "--socket"])?)?;
        Ok(status["interval_work_ns"].as_f64().map(|ns| ns / 1e9))
    };
    while !matches!(work(), Ok(Some(_))) {
        stop.sleep(Duration::from_millis(200))?;
        let said = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        ensure!(balancer.try_wait()?.is_none(), "dwell lb run ended: {}", said());
        ensure!(begun.elapsed() < PATIENCE, "dwell lb run does not start: {}", said());
    }
    let mut quiet = Vec::new();
    for _ in 0..5 {
        stop.sleep(Duration::from_secs(1))?;
        quiet.extend(work()?);
    }
    let quiet = Duration::from_secs_f64(median(&quiet));
    drop(balancer);
    Ok(quiet)
}

/// Returns the time to build all tables with other weights, and the time to write them to the kernel.
fn tables(stop: &Stop) -> Result<(Duration, Duration)> {
    let mut plane = Plane::load(&PlaneOptions {
        max_connections: 1_000,
        max_vips: VIPS,
        max_reals: VIPS * BACKENDS,
        ..PlaneOptions::default()
    })?;
    let (mut built, mut written) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        stop.check()?;
        let begun = Instant::now();
        let made = (0..VIPS).map(|vip| (vip + 1, maglev::table(maglev::DEFAULT_SIZE, &members(vip, change))));
        let made: Vec<(u32, Vec<u32>)> = made.collect();
        built.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let tables: Vec<(u32, &[u32])> = made.iter().map(|(vip, table)| (*vip, table.as_slice())).collect();
        plane.set_tables(&tables)?;
        written.push(begun.elapsed().as_secs_f64());
    }
    let of = |times: &[f64]| Duration::from_secs_f64(median(times));
    Ok((of(&built), of(&written)))
}

fn members(vip: u32, change: usize) -> Vec<Member> {
    let member = |backend: u32| {
        let number = vip * BACKENDS + backend;
        Member {
            id: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            weight: weight(number, change),
            real: number + 1,
        }
    };
    (0..BACKENDS).map(member).collect()
}

/// Returns a backend's weight, which differs from change to change.
fn weight(number: u32, change: usize) -> f64 {
    1.0 + (number as usize * 7 + change * 13) as f64 % 10.0 / 10.0
}

/// The maps that the balancer leaves pinned in the kernel. They are removed when this is dropped.
struct Pinned(String);

impl Drop for Pinned {
    fn drop(&mut self) {
        // If there is nothing to remove, that is fine.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder of the maps. BPF file systems do not allow dots in names.
fn pin(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("/sys/fs/bpf/dwell/bench{}", name.replace('.', "-"))
}

/// Makes the balancer's interface. The backends are behind a router that does not exist, so nothing is sent to them.
fn wire(namespace: &Namespace) -> Result<()> {
    let commands = "\
        link add front0 type veth peer name back0\n\
        link set front0 up\n\
        link set back0 up\n\
        address add 10.79.2.1/24 dev front0\n\
        neighbour add 10.79.2.2 lladdr 02:00:00:00:00:02 dev front0 nud permanent\n\
        route add 10.128.0.0/16 via 10.79.2.2\n";
    for line in commands.lines() {
        let output = Command::new("ip")
            .args(["-n", namespace.name()])
            .args(line.split_whitespace())
            .output()
            .context("run ip")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip {line}: {}", said.trim());
    }
    Ok(())
}

fn configuration(folder: &Path) -> String {
    let mut text = format!(
        "interface = \"front0\"\npin = \"{}\"\n[limits]\nconnections = 1000\nvips = {}\nreals = {}\n\
         [api]\nsocket = \"{}\"\n",
        pin(folder),
        VIPS,
        2 * VIPS * BACKENDS,
        folder.join("lb.sock").display(),
    );
    for vip in 0..VIPS {
        let _ = write!(
            text,
            "[[vip]]\nname = \"vip{vip}\"\naddress = \"10.80.{}.{}\"\nprotocol = \"tcp\"\nport = 80\n\
             policy = \"maglev\"\nforward = \"ipip\"\n",
            vip / 250,
            vip % 250 + 1
        );
        for backend in 0..BACKENDS {
            let number = vip * BACKENDS + backend;
            let weight = weight(number, 0);
            let _ = write!(
                text,
                "[[vip.backend]]\naddress = \"10.128.{}.{}\"\nweight = {weight}\n",
                number / 250,
                number % 250 + 1
            );
        }
    }
    text
}
