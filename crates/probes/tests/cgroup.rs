//! Send buffers of a cgroup's connections.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs, io,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use dwell_probes::cgroup::{Counts, Options, SendBufferLimiter};
use dwell_testbed::{
    Pair,
    skip::{lacks_root, skip},
};

#[test]
fn root_connections_of_a_cgroup_keep_their_send_buffers_short() {
    let Some(cgroup) = cgroup("dwell-test-lowat") else {
        return;
    };
    let pair = slow("cgroup-lowat");
    let plain = Bulk::start(&pair, &cgroup);
    eventually(|| (plain.value("notsent:")? > 200_000).then_some(()));
    drop(plain);

    let options = Options { cgroup: cgroup.0.clone(), target: Some(Duration::from_millis(25)), congestion: None };
    let mut limiter = SendBufferLimiter::attach(&options).unwrap();
    let kept = Bulk::start(&pair, &cgroup);
    // The shaper lets a burst pass first, as fast as the cable is.
    eventually(|| {
        let settled = kept.value("bytes_acked:")? > 1 << 20 && kept.value("notsent:")? < 100_000;
        settled.then_some(())
    });
    // Packets are split by the device, so that the socket makes pieces of 64 KB. A host that is busy for a moment lets packets
    // leave at once afterwards: the rate seems high, and the target is more bytes for a while. Without the limit they are more
    // all the time.
    let look = |_| {
        thread::sleep(Duration::from_millis(20));
        kept.value("notsent:")
    };
    eventually(|| {
        let mut unsent = (0..21).map(look).collect::<Option<Vec<_>>>()?;
        unsent.sort_unstable();
        (unsent[10] < 150_000).then_some(())
    });
    let counts = limiter.counts().unwrap();
    assert_eq!(counts.connections, 1, "the receiver is in no cgroup of ours");
    assert_eq!((counts.refused, counts.congestion_refused), (0, 0));
}

#[test]
fn root_a_cgroups_congestion_control_is_set_and_a_missing_one_is_counted() {
    let Some(cgroup) = cgroup("dwell-test-congestion") else {
        return;
    };
    let pair = slow("cgroup-congestion");
    for (name, is_there) in [("reno", true), ("dwellish", false)] {
        let options = Options { cgroup: cgroup.0.clone(), target: None, congestion: Some(name.into()) };
        let mut limiter = SendBufferLimiter::attach(&options).unwrap();
        let bulk = Bulk::start(&pair, &cgroup);
        let line = eventually(|| bulk.line());
        assert_eq!(line.contains(" reno "), is_there, "{line}");
        let expected = Counts { connections: 1, congestion_refused: (!is_there).into(), ..Counts::default() };
        assert_eq!(limiter.counts().unwrap(), expected);
    }
}

#[test]
fn root_what_is_no_cgroup_is_refused() {
    if lacks_root() {
        return;
    }
    let options = Options { cgroup: PathBuf::from("/proc"), target: None, congestion: None };
    let error = SendBufferLimiter::attach(&options).err().unwrap().to_string();
    assert!(error.contains("cannot use '/proc' as a cgroup"), "{error}");
}

/// A cgroup that is removed when dropped. Its processes must have ended before.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn cgroup(name: &str) -> Option<Cgroup> {
    if lacks_root() {
        return None;
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let Some(root) = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    }) else {
        skip("there is no cgroup v2 here");
        return None;
    };
    let path = root.join(format!("{name}-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    Some(Cgroup(path))
}

/// Two hosts; the left one's device sends 10 Mbit/s.
fn slow(name: &str) -> Pair {
    let pair = Pair::start(name).unwrap();
    let shape = "qdisc add dev left0 root tbf rate 10mbit burst 10k limit 200k";
    let shaped = pair.left.command("tc").args(shape.split(' ')).status();
    assert!(shaped.unwrap().success());
    pair
}

/// A process of the cgroup that sends as much as it can.
struct Bulk<'a> {
    pair: &'a Pair,
    process: Child,
    _receiver: TcpStream,
}

impl Bulk<'_> {
    fn start<'a>(pair: &'a Pair, cgroup: &Cgroup) -> Bulk<'a> {
        let listening = pair.right.enter(|| TcpListener::bind((Pair::RIGHT, 0)));
        let listener = listening.unwrap().unwrap();
        let send = format!(
            "echo $$ > '{}/cgroup.procs' && exec cat /dev/zero > /dev/tcp/{}/{}",
            cgroup.0.display(),
            Pair::RIGHT,
            listener.local_addr().unwrap().port(),
        );
        let process = pair.left.command("bash").args(["-c", &send]).spawn();
        let (mut receiver, _) = listener.accept().unwrap();
        let copy = receiver.try_clone().unwrap();
        thread::spawn(move || io::copy(&mut receiver, &mut io::sink()));
        Bulk { pair, process: process.unwrap(), _receiver: copy }
    }

    /// Returns the line of `ss` about its connection.
    fn line(&self) -> Option<String> {
        let output = self.pair.left.command("ss").args(["-tinHO"]).output();
        let lines = String::from_utf8(output.unwrap().stdout).unwrap();
        let line = lines.lines().find(|line| line.starts_with("ESTAB"));
        line.map(str::to_owned)
    }

    fn value(&self, key: &str) -> Option<u64> {
        let line = self.line()?;
        let (_, value) = line.split_once(key)?;
        value.split(' ').next()?.parse().ok()
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        eventually(|| self.line().is_none().then_some(()));
    }
}

fn eventually<T>(mut happens: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(it) = happens() {
            return it;
        }
        assert!(Instant::now() < deadline, "it has not happened for 30 s");
        thread::sleep(Duration::from_millis(50));
    }
}
