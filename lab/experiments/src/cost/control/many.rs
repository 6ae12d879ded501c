//! A balancer with many VIPs: reloads that change everything, and intervals in which nothing changes.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use dwell_testbed::Guarded;

use super::Bench;

/// Reloads the configuration with other weights of all backends.
pub fn reload(bench: &Bench<'_>, backends: u32) -> Result<Vec<Duration>> {
    let _balancer = start(bench, backends)?;
    let reload = |change| {
        configure(bench, backends, change)?;
        pass_an_interval(bench)?;
        let begun = Instant::now();
        let output = Command::new(&bench.dwell).args(["lb", "reload", "--socket"]).arg(bench.socket()).output()?;
        let took = begun.elapsed();
        ensure!(output.status.success(), "dwell lb reload: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        ensure!(lines == (bench.vips * backends) as usize, "{lines} changes");
        Ok(took)
    };
    (1..=bench.rounds).map(reload).collect()
}

/// The duration of an interval's work.
pub fn interval(bench: &Bench<'_>, backends: u32) -> Result<Vec<Duration>> {
    let _balancer = start(bench, backends)?;
    pass_an_interval(bench)?;
    let work = |_| {
        pass_an_interval(bench)?;
        let work_ns = bench.status()?["interval_work_ns"].as_u64().context("no interval has ended")?;
        Ok(Duration::from_nanos(work_ns))
    };
    (0..bench.rounds).map(work).collect()
}

/// What the whole process uses while nothing changes.
pub fn cpu_per_second(bench: &Bench<'_>, backends: u32) -> Result<Vec<Duration>> {
    let balancer = start(bench, backends)?;
    pass_an_interval(bench)?;
    let used = |_| {
        let (begun, before) = (Instant::now(), cpu_time(balancer.id())?);
        bench.stop.sleep(2 * bench.interval)?;
        let used = cpu_time(balancer.id())?.saturating_sub(before);
        Ok(used.div_f64(begun.elapsed().as_secs_f64()))
    };
    (0..bench.rounds).map(used).collect()
}

fn start(bench: &Bench<'_>, backends: u32) -> Result<Guarded> {
    bench.pinned.remove();
    configure(bench, backends, 0)?;
    let log = bench.log()?;
    let mut balancer = bench.namespace.spawn(&bench.dwell, |command| {
        command.args(["lb", "run"]).arg(bench.config());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    })?;
    let status = bench.wait_for_status(|| Ok(balancer.try_wait()?.is_some()))?;
    ensure!(status["vips"][0]["table_hash"].is_string(), "the VIPs have no tables: {}", status["warnings"][0]);
    Ok(balancer)
}

/// Configures a balancer whose backends may all have a successor.
fn configure(bench: &Bench<'_>, backends: u32, change: u32) -> Result<()> {
    let (vips, reals) = (bench.vips, 2 * bench.vips * backends);
    let keys = format!("[limits]\nconnections = 1000\nvips = {vips}\nreals = {reals}\n");
    bench.configure(&keys, vips, backends, change)
}

fn pass_an_interval(bench: &Bench<'_>) -> Result<()> {
    bench.stop.sleep(bench.interval.mul_f64(1.3))
}

/// Returns the CPU time that a process has used.
fn cpu_time(process: u32) -> Result<Duration> {
    /// The unit in which Linux tells it.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before the bracket may have spaces.
    let fields = stat.rsplit_once(')').context("no name")?.1.split_whitespace();
    let ticks: Vec<u32> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum())
}
