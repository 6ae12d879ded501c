//! What is done, fault by fault, while agents report.

use std::{io, sync::Arc, time::Duration};

use dwell_testbed::Result;

use super::{
    clock::WrongClock,
    disk::Disk,
    figures::Figures,
    peers::{self, Act, Peer, Peers},
    scene::{MEMBERS, PEERS, Scene, Setup},
    twisted::Twisted,
};
use crate::fleet::{agents::ADDRESSES, clickhouse::ClickHouse, strangers::Strangers};

/// How often something is killed.
const KILLS: u64 = 12;
/// The size of a disk that can be full.
const DISK_BYTES: u64 = 48 << 20;
/// What an agent keeps whose collector is away for longer than its buffer lasts: some intervals.
const SMALL_BUFFER: usize = 12_000;
/// How long certificates last that expire under load.
const CERTIFICATES_LAST: Duration = Duration::from_secs(20);
/// How far a clock is off.
const HOUR_S: i64 = 3_600;
/// Connections that never say anything.
const SILENT: usize = 1_000;
/// Peers that send frames which are as long as can be; each has as many bytes on the way.
const LONG: usize = 6;

/// The part of the time in which something is away.
const AWAY: (f64, f64) = (1.0 / 3.0, 2.0 / 3.0);

fn timed<'a>() -> Setup<'a> {
    Setup { is_timed: true, ..Setup::default() }
}

pub(super) fn collector_killed(scene: &Scene<'_>) -> Result<Figures> {
    let mut running = scene.start(&timed())?;
    let times = running
        .report(|collector, course| course.at_random(KILLS, |_| collector.kill(Duration::ZERO, scene.signals)))?;
    running.count(times, Vec::new(), Vec::new())
}

pub(super) fn agents_killed(scene: &Scene<'_>) -> Result<Figures> {
    let mut running = scene.start(&timed())?;
    let start = |number| scene.member(number, Vec::new(), scene.folder.join(format!("buffer-{number}")));
    let mut members = (0..MEMBERS).map(start).collect::<Result<Vec<_>>>()?;
    let times =
        running.report(|_, course| course.at_random(KILLS, |number| members[number as usize % MEMBERS].kill()))?;
    running.count(times, members, Vec::new())
}

pub(super) fn server_killed(scene: &Scene<'_>) -> Result<Figures> {
    let server = Arc::new(ClickHouse::start(scene.namespace, scene.folder)?);
    let mut running = scene.start(&Setup { server: Some(Arc::clone(&server)), ..Setup::default() })?;
    let times = running.report(|_, course| {
        course.at_random(KILLS, |_| {
            server.kill();
            server.run()
        })
    })?;
    running.count(times, Vec::new(), Vec::new())
}

/// While the collector is away, so that agents need their disks.
pub(super) fn agent_disk_full(scene: &Scene<'_>) -> Result<Figures> {
    let disk = Disk::create(scene.namespace, scene.folder, DISK_BYTES)?;
    let mut running = scene.start(&Setup::default())?;
    let start = |number| scene.member(number, disk.within(), disk.path(&format!("buffer-{number}")));
    let members = (0..MEMBERS).map(start).collect::<Result<Vec<_>>>()?;
    let times = running.report(|collector, course| {
        course.wait_until(AWAY.0)?;
        collector.take_away();
        disk.fill()?;
        course.wait_until(AWAY.1)?;
        collector.tend();
        disk.free()?;
        Ok(1)
    })?;
    running.count(times, members, Vec::new())
}

pub(super) fn store_disk_full(scene: &Scene<'_>) -> Result<Figures> {
    collector_disk_full(scene, None)
}

pub(super) fn spool_disk_full(scene: &Scene<'_>) -> Result<Figures> {
    collector_disk_full(scene, Some(&Arc::new(ClickHouse::start(scene.namespace, scene.folder)?)))
}

/// The collector ends then, and is started again as by its unit. The server is away meanwhile: otherwise the spool needs no more room
/// than it has.
fn collector_disk_full(scene: &Scene<'_>, server: Option<&Arc<ClickHouse>>) -> Result<Figures> {
    let disk = Disk::create(scene.namespace, scene.folder, DISK_BYTES)?;
    let mut running = scene.start(&Setup { disk: Some(&disk), server: server.cloned(), ..Setup::default() })?;
    let times = running.report(|collector, course| {
        course.wait_until(AWAY.0)?;
        server.iter().for_each(|server| server.kill());
        disk.fill()?;
        let times = course.tend_until(AWAY.1, collector)?;
        disk.free()?;
        server.iter().try_for_each(|server| server.run())?;
        course.tend_until(1.0, collector)?;
        Ok(times)
    })?;
    running.count(times, Vec::new(), Vec::new())
}

pub(super) fn network_cut(scene: &Scene<'_>) -> Result<Figures> {
    cut(scene, &Setup::default())
}

pub(super) fn network_cut_long(scene: &Scene<'_>) -> Result<Figures> {
    let figures = cut(scene, &Setup { buffer: Some(SMALL_BUFFER), ..Setup::default() })?;
    // Otherwise the buffers were large enough.
    Ok(Figures { times: u64::from(figures.told > 0), ..figures })
}

fn cut(scene: &Scene<'_>, setup: &Setup<'_>) -> Result<Figures> {
    let mut running = scene.start(setup)?;
    let times = running.report(|_, course| {
        course.wait_until(AWAY.0)?;
        scene.namespace.ip("link set lo down\n")?;
        course.wait_until(AWAY.1)?;
        scene.namespace.ip(&format!("link set lo up\nroute replace local {ADDRESSES} dev lo\n"))?;
        Ok(1)
    })?;
    running.count(times, Vec::new(), Vec::new())
}

/// One agent's clock goes an hour ahead and one an hour behind, and both back again.
pub(super) fn agent_clock(scene: &Scene<'_>) -> Result<Figures> {
    let clock = |number| WrongClock::create(scene.folder, &format!("clock-{number}"));
    let clocks = (0..MEMBERS).map(clock).collect::<Result<Vec<_>>>()?;
    let mut running = scene.start(&timed())?;
    let start = |(number, clock): (usize, &WrongClock)| {
        scene.member(number, clock.variables(), scene.folder.join(format!("buffer-{number}")))
    };
    let members = clocks.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    let times = running.report(|_, course| {
        for (part, off_s) in [(AWAY.0, HOUR_S), (AWAY.1, 0)] {
            course.wait_until(part)?;
            clocks.iter().zip([1, -1]).try_for_each(|(clock, direction)| clock.set(direction * off_s))?;
        }
        Ok(2)
    })?;
    running.count(times, members, Vec::new())
}

/// It goes an hour ahead, and then an hour behind.
pub(super) fn collector_clock(scene: &Scene<'_>) -> Result<Figures> {
    let clock = WrongClock::create(scene.folder, "clock")?;
    let mut running = scene.start(&Setup { variables: clock.variables(), ..timed() })?;
    let times = running.report(|_, course| {
        for (part, off_s) in [(0.25, HOUR_S), (0.5, -HOUR_S), (0.75, 0)] {
            course.wait_until(part)?;
            clock.set(off_s)?;
        }
        Ok(3)
    })?;
    running.count(times, Vec::new(), Vec::new())
}

/// Those of all sides at the same time; later they are renewed.
pub(super) fn certificates_expire(scene: &Scene<'_>) -> Result<Figures> {
    let mut running = scene.start(&Setup { lasts: Some(CERTIFICATES_LAST), ..Setup::default() })?;
    running.report(|_, course| {
        course.wait_until(AWAY.1)?;
        scene.sign(None)?;
        Ok(1)
    })?;
    let times = running.disconnected();
    running.count(times, Vec::new(), Vec::new())
}

pub(super) fn garbage(scene: &Scene<'_>) -> Result<Figures> {
    beside(scene, 12, peers::garbage)
}

pub(super) fn other_versions(scene: &Scene<'_>) -> Result<Figures> {
    beside(scene, 12, peers::other_versions)
}

pub(super) fn long_frames(scene: &Scene<'_>) -> Result<Figures> {
    beside(scene, LONG, peers::long_frames)
}

pub(super) fn one_byte_a_second(scene: &Scene<'_>) -> Result<Figures> {
    beside(scene, PEERS, peers::one_byte_a_second)
}

/// Peers do something beside the agents.
fn beside(scene: &Scene<'_>, number: usize, act: fn(&Peer) -> io::Result<()>) -> Result<Figures> {
    let configs = scene.peers(number)?;
    let mut running = scene.start(&timed())?;
    let peers = Peers::start(scene.namespace, configs, act as Act);
    running.report(|_, _| Ok(0))?;
    let times = peers.end()?;
    running.count(times, Vec::new(), Vec::new())
}

pub(super) fn batches_twisted(scene: &Scene<'_>) -> Result<Figures> {
    let [config, _] = scene.peers(1)?.remove(0);
    let mut running = scene.start(&timed())?;
    let (flows, interval_ns) = scene.another();
    let twisted = Twisted::start(scene.namespace, config, flows, interval_ns);
    running.report(|_, _| Ok(0))?;
    let (truth, times) = twisted.end()?;
    running.count(times, Vec::new(), vec![truth])
}

pub(super) fn silence(scene: &Scene<'_>) -> Result<Figures> {
    let mut running = scene.start(&timed())?;
    let strangers = Strangers::start(scene.namespace, SILENT);
    running.report(|_, _| Ok(0))?;
    let times = strangers.end()?;
    running.count(times, Vec::new(), Vec::new())
}
