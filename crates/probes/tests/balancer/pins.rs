//! A data plane that keeps running without its process.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp};
use dwell_probes::{
    Chain, Error, Interface, XdpMode,
    balancer::{Forward, Plane, PlaneOptions, Protocol, Real, Reason, ServerId, StartKind, Vip, VipKey, ZeroVip},
};
use dwell_testbed::{harness::eventually, skip::skip};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use crate::{
    backend, options, packets,
    star::{self, PORT, Star, VIP, ask},
    tell,
};

/// A folder of bpffs that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Option<Folder> {
        let path = PathBuf::from(format!("/sys/fs/bpf/dwell-test-{name}-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Folder(path)),
            Err(why) => {
                skip(format_args!("there can be no folder {}: {why}", path.display()));
                None
            }
        }
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).map_or(true, |mut entries| entries.next().is_none())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = Plane::detach_at(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ends a sender, even if the test panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const DATAGRAMS: VipKey = VipKey { address: std::net::IpAddr::V4(VIP), protocol: Protocol::Udp, port: Some(PORT) };

#[test]
fn root_a_data_plane_goes_on_and_is_taken_over() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("over") else {
        return;
    };
    let mut star = Star::new(2);
    star.let_xdp_send();
    star.serve();
    star.serve_datagrams();
    let path = folder.0.join("plane");
    star.balancer.enter(|| goes_on(&star, &path)).unwrap();
    assert!(folder.is_empty());
}

type Contents = (Vec<(VipKey, Vip)>, Vec<(u32, Real)>);

/// Returns the VIPs and backends of a plane.
fn contents(plane: &Plane) -> Contents {
    let vips = plane.vips().map(|(key, vip)| (*key, *vip));
    let reals = plane.reals().map(|(number, real)| (number, *real));
    (vips.collect(), reals.collect())
}

fn create_options() -> libbpf_sys::bpf_map_create_opts {
    libbpf_sys::bpf_map_create_opts { sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64, ..Default::default() }
}

fn goes_on(star: &Star, path: &Path) {
    let interface = Interface::find("eth0").unwrap();
    let run = |options: &PlaneOptions| Plane::run_at(options, &interface, path).unwrap();

    let (mut plane, taken) = run(&options());
    assert_eq!(taken, StartKind::New);
    tell(&mut plane, star, Forward::L2);
    let vip = Vip { number: 2, ..Vip::default() };
    plane.set_vip(&DATAGRAMS, &vip).unwrap();
    plane.set_table(2, &[2; 3]).unwrap();
    plane.set_table(1, &[1; 251]).unwrap();
    let mut stream = star.connect().unwrap();
    assert_eq!(ask(&mut stream).unwrap(), 0);
    let before = contents(&plane);

    // A second process is refused, in this folder and in another one.
    let second = Plane::run_at(&options(), &interface, path).err();
    assert!(matches!(second, Some(Error::Pin { .. })), "{second:?}");
    let elsewhere = path.with_file_name("other");
    let second = Plane::run_at(&options(), &interface, &elsewhere).err();
    let Some(Error::Attach { remedy, .. }) = second else { panic!("{second:?}") };
    assert!(remedy.contains("another XDP program"), "{remedy}");
    assert!(!Plane::detach_at(&elsewhere).unwrap());
    let in_use = Plane::detach_at(path).err();
    assert!(matches!(in_use, Some(Error::Pin { .. })), "{in_use:?}");

    drop(plane);
    assert_eq!(ask(&mut stream).unwrap(), 0);
    let (plane, taken) = run(&options());
    assert_eq!(taken, StartKind::TakenOver);
    assert_eq!(contents(&plane), before);
    drop(plane);

    let larger = PlaneOptions { max_connections: 4096, ..options() };
    // Lost datagrams would not be sent again.
    let (rounds, done) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let socket = star.datagrams();
        let sender = scope.spawn(|| {
            let socket = socket;
            while !done.load(Ordering::Relaxed) {
                socket.send(&[7]).unwrap();
                let mut answer = [0];
                socket.recv(&mut answer).unwrap();
                assert_eq!(answer, [1]);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = End(&done);
        for _ in 0..5 {
            let (mut plane, taken) = run(&options());
            assert_eq!(taken, StartKind::TakenOver);
            // Established connections do not use the new table.
            plane.set_table(1, &[2; 251]).unwrap();
            assert_eq!(ask(&mut stream).unwrap(), 0);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 100 && !sender.is_finished() {
                thread::yield_now();
            }
            assert!(!sender.is_finished(), "a datagram was lost");
        }
        // With other sizes, connections go by the tables, and no packet is lost.
        let (mut plane, _) = run(&options());
        plane.set_table(1, &[1; 251]).unwrap();
        drop(plane);
        for (round, options) in (1..).zip([&larger, &options(), &larger]) {
            let (mut plane, taken) = run(options);
            let StartKind::Replaced { why } = taken else { panic!("{taken:?}") };
            assert!(why.contains("connections"), "{why}");
            assert_eq!(contents(&plane), before);
            assert_eq!(ask(&mut stream).unwrap(), 0);
            let counters = plane.counters().unwrap();
            assert_eq!(counters.get(Reason::Fallback), round);
            assert!(plane.vip_loads().unwrap()[1].opened > round);
            assert!(plane.real_loads().unwrap()[1].opened > round);
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 100 && !sender.is_finished() {
                thread::yield_now();
            }
            assert!(!sender.is_finished(), "a datagram was lost");
        }
        drop(end);
        sender.join().unwrap();
    });

    // A process was killed while it unpinned.
    fs::remove_file(path.join("vips")).unwrap();
    let (plane, taken) = run(&larger);
    assert!(matches!(&taken, StartKind::Replaced { why } if why.contains("incomplete")), "{taken:?}");
    drop(plane);
    // A map has another build's layout.
    fs::remove_file(path.join("reals")).unwrap();
    let sizes = create_options();
    let mut other = MapHandle::create(MapType::Array, Some("reals"), 4, 8, 17, &sizes).unwrap();
    other.pin(path.join("reals")).unwrap();
    let (plane, taken) = run(&larger);
    assert!(matches!(&taken, StartKind::Replaced { why } if why.contains("version")), "{taken:?}");
    assert_eq!(plane.vips().count(), 0);
    drop(plane);

    assert!(Plane::detach_at(path).unwrap());
    assert!(!Plane::detach_at(path).unwrap());
    let mut plane = Plane::load(&options()).unwrap();
    plane.attach(&interface).unwrap();
    assert_eq!(plane.vips().count(), 0);
}

const KEY: [u8; 16] = *b"the key of pins.";

/// Returns servers with these numbers, which are also their IDs, in dwell's layout and in another one.
fn by_id(servers: [u32; 3]) -> ZeroVip {
    let layouts = vec![Config::own(0, KEY).unwrap(), Config::new(1, 2, 4, None).unwrap()];
    ZeroVip::new(layouts, servers.map(|real| (real, ServerId(u128::from(real)))))
}

#[test]
fn root_connection_ids_lead_to_their_servers_with_other_sizes() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("ids") else {
        return;
    };
    let star = Star::new(1);
    let path = folder.0.join("plane");
    star.balancer.enter(|| ids_are_carried(&path)).unwrap();
}

fn ids_are_carried(path: &Path) {
    let interface = Interface::find("eth0").unwrap();
    let sized = |max_zero_vips, max_zero_servers| PlaneOptions { max_zero_vips, max_zero_servers, ..options() };
    let run = |options: &PlaneOptions| Plane::run_at(options, &interface, path).unwrap();
    let client = packets::v4();
    let key = |port| VipKey { address: client.dst, protocol: Protocol::Udp, port: Some(port) };
    let (mut plane, _) = run(&sized(2, 6));
    for number in 1..=6 {
        let to = packets::address(&format!("10.0.0.{number}"));
        plane.set_real(number, &packets::real(to, Forward::L2, 70)).unwrap();
    }
    // Tables of heavy hitters are assigned from the lowest number on.
    plane.set_zero(&key(444), 1, &by_id([1, 2, 3])).unwrap();
    plane.set_zero(&key(443), 2, &by_id([4, 5, 6])).unwrap();
    plane.remove_zero(1).unwrap();
    let vip = Vip { number: 1, zero_slot: Some(2), ..Vip::default() };
    plane.set_vip(&key(443), &vip).unwrap();
    plane.set_table(1, &[4; 31]).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let stamp = Stamp { freshness: now.as_secs() << 16, load: Load::from_wait(Duration::from_millis(25)) };
    let own = Config::own(0, KEY).unwrap().encode_stamped(5, stamp);
    let other = [&[1 << 5 | 6][..], &[0, 6], &[3; 4]].concat();
    let short = |cid: &[u8]| client.udp(&[&[0x41][..], cid, &[9; 30]].concat());
    let frames = [short(&own), short(&other)];
    let decisions = |plane: &mut Plane| {
        frames.each_ref().map(|frame| {
            let decision = plane.dry_run(frame).unwrap().decision;
            (decision.real, decision.reason)
        })
    };
    let expected = [(Some(5), Reason::Cid), (Some(6), Reason::Cid)];
    assert_eq!(decisions(&mut plane), expected);
    plane.replay_packet(&frames[0]).unwrap();
    let state = |plane: &mut Plane| {
        (plane.server_ids(2).unwrap(), plane.server_loads(2).unwrap(), plane.heavy_hitters(2, 5).unwrap())
    };
    let before = state(&mut plane);
    assert_eq!((before.0.len(), before.2.len()), (3, 1));
    assert_ne!(before.1[1].1.stamp, 0);
    drop(plane);
    // First larger, then with fewer servers, whose numbers are not below the new maximum.
    for sizes in [sized(8, 9), sized(2, 3)] {
        let (mut plane, taken) = run(&sizes);
        let StartKind::Replaced { why } = taken else { panic!("{taken:?}") };
        assert!(why.contains("zero-rtt"), "{why}");
        assert_eq!(decisions(&mut plane), expected);
        assert_eq!(state(&mut plane), before);
        let slots = plane.server_slots(2).unwrap().slots;
        assert_eq!(slots, [(4, 1), (5, 2), (6, 3)]);
        // A VIP that is set again continues from there.
        plane.set_zero(&key(443), 2, &by_id([4, 5, 6])).unwrap();
        assert_eq!(decisions(&mut plane), expected);
        assert_eq!(state(&mut plane), before);
    }
    // These do not fit: servers without heavy hitters, a backend, the VIP.
    let (mut plane, _) = run(&sized(2, 2));
    assert_eq!(decisions(&mut plane), expected);
    drop(plane);
    let (mut plane, _) = run(&PlaneOptions { max_reals: 5, ..sized(2, 2) });
    assert_eq!(decisions(&mut plane), [expected[0], (None, Reason::Unroutable)]);
    drop(plane);
    let (mut plane, _) = run(&sized(1, 2));
    assert_eq!(plane.server_ids(1).unwrap(), []);
    assert_eq!(decisions(&mut plane).map(|(real, _)| real), [Some(4); 2]);
}

#[test]
fn root_latencies_that_nobody_read_are_not_those_of_now() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("stale") else {
        return;
    };
    let mut star = Star::new(2);
    star.let_xdp_send();
    star.serve();
    let path = folder.0.join("plane");
    star.balancer.enter(|| stays_behind(&star, &path)).unwrap();
}

fn stays_behind(star: &Star, path: &Path) {
    let interface = Interface::find("eth0").unwrap();
    let (mut plane, _) = Plane::run_at(&options(), &interface, path).unwrap();
    tell(&mut plane, star, Forward::L2);
    // A move ends the epoch, and leaves its record in the ring buffer.
    let leave = |plane: &mut Plane, moved: u64| {
        plane.set_real(1, &backend(star, 0)).unwrap();
        plane.set_table(1, &[1; 251]).unwrap();
        let mut stream = star.connect().unwrap();
        for _ in 0..20 {
            assert_eq!(ask(&mut stream).unwrap(), 0);
        }
        plane.set_table(1, &[2; 251]).unwrap();
        plane.remove_reals(&[1]).unwrap();
        stream.write_all(&[7]).unwrap();
        eventually("it has moved", || plane.counters().unwrap().get(Reason::Moved) >= moved);
    };
    leave(&mut plane, 1);
    drop(plane);
    let (mut plane, taken) = Plane::run_at(&options(), &interface, path).unwrap();
    assert_eq!(taken, StartKind::TakenOver);
    let mut records = 0;
    plane.drain(|_| records += 1).unwrap();
    assert_eq!(records, 0);
    // Records from now on are delivered.
    leave(&mut plane, 2);
    plane.drain(|_| records += 1).unwrap();
    assert!(records > 0);
}

/// The driver of a veth runs no program as long as the MTU of its other end is this large.
const REFUSED_MTU: u32 = 9000;

#[test]
fn root_a_mode_that_the_driver_refuses_leaves_the_data_plane_running() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("mode") else {
        return;
    };
    let star = Star::new(2);
    star.set_mtu_at_the_switch(REFUSED_MTU);
    star.serve();
    let path = folder.0.join("plane");
    star.balancer.enter(|| keeps_its_mode(&star, &path)).unwrap();
}

fn keeps_its_mode(star: &Star, path: &Path) {
    let interface = Interface::find("eth0").unwrap();
    // The driver refuses it.
    let (mut plane, _) = Plane::run_at(&options(), &interface, path).unwrap();
    assert_eq!(Plane::mode_at(&interface), Some(XdpMode::Generic));
    tell(&mut plane, star, Forward::L2);
    plane.set_table(1, &[1; 251]).unwrap();
    let mut stream = star.connect().unwrap();
    assert_eq!(ask(&mut stream).unwrap(), 0);
    // From now on, only the connection table knows where it goes.
    plane.set_table(1, &[2; 251]).unwrap();
    let before = contents(&plane);
    drop(plane);
    let native = PlaneOptions { mode: XdpMode::Native, ..options() };
    for wanted in [PlaneOptions { max_connections: 4096, ..native.clone() }, native] {
        let refused = Plane::run_at(&wanted, &interface, path).err();
        assert!(matches!(refused, Some(Error::Attach { .. })), "{refused:?}");
        assert_eq!(Plane::mode_at(&interface), Some(XdpMode::Generic));
        assert_eq!(ask(&mut stream).unwrap(), 0);
    }
    let generic = PlaneOptions { mode: XdpMode::Generic, ..options() };
    drop(Plane::run_at(&options(), &interface, path).unwrap());
    let (plane, taken) = Plane::run_at(&generic, &interface, path).unwrap();
    assert_eq!((taken, Plane::mode_at(&interface)), (StartKind::TakenOver, Some(XdpMode::Generic)));
    assert_eq!(contents(&plane), before);
    assert_eq!(ask(&mut stream).unwrap(), 0);
}

#[test]
fn root_a_chained_data_plane_is_taken_over_in_its_slot() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("chained") else {
        return;
    };
    let array = folder.0.join("slots");
    let sizes = create_options();
    let mut slots = MapHandle::create(MapType::ProgArray, Some("slots"), 4, 4, 4, &sizes).unwrap();
    slots.pin(&array).unwrap();
    let in_slot = || slots.lookup(&1u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let chained = PlaneOptions { chain: Some(Chain { map: array.clone(), slot: 1, next: None }), ..options() };
    let path = folder.0.join("plane");
    let interface = Interface::find("lo").unwrap();
    let (plane, taken) = Plane::run_at(&chained, &interface, &path).unwrap();
    assert_eq!(taken, StartKind::New);
    let first = in_slot();
    assert!(first.is_some());
    drop(plane);
    assert_eq!(in_slot(), first);
    let (plane, taken) = Plane::run_at(&chained, &interface, &path).unwrap();
    assert_eq!(taken, StartKind::TakenOver);
    assert!(in_slot().is_some() && in_slot() != first);
    drop(plane);
    // The slot holds another program, which must not be replaced.
    let second = Plane::run_at(&chained, &interface, &folder.0.join("second")).err();
    assert!(matches!(second, Some(Error::Chain { .. })), "{second:?}");
    // A process was killed before everything was pinned.
    let unfinished = || fs::rename(path.join("program"), path.join("next-program")).unwrap();
    unfinished();
    let (plane, taken) = Plane::run_at(&chained, &interface, &path).unwrap();
    assert_eq!(taken, StartKind::TakenOver);
    drop(plane);
    unfinished();
    assert!(Plane::detach_at(&path).unwrap());
    assert_eq!(in_slot(), None);

    // An array with the same slots belongs to somebody else.
    let other = folder.0.join("other");
    let mut others = MapHandle::create(MapType::ProgArray, Some("slots"), 4, 4, 4, &sizes).unwrap();
    others.pin(&other).unwrap();
    let there = PlaneOptions { chain: Some(Chain { map: other.clone(), slot: 1, next: None }), ..options() };
    drop(Plane::run_at(&there, &interface, &folder.0.join("theirs")).unwrap());
    let theirs = || others.lookup(&1u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let before = theirs();
    drop(Plane::run_at(&chained, &interface, &path).unwrap());
    let taken = Plane::run_at(&there, &interface, &path).err();
    assert!(matches!(taken, Some(Error::Chain { .. })), "{taken:?}");
    assert_eq!(theirs(), before);
    assert!(Plane::detach_at(&folder.0.join("theirs")).unwrap());
    fs::remove_file(&other).unwrap();
    fs::remove_file(&array).unwrap();
}

#[test]
fn root_pins_are_in_bpffs_or_nowhere() {
    if !star::may_run() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("dwell-test-{}", std::process::id()));
    let interface = Interface::find("lo").unwrap();
    let failed = Plane::run_at(&options(), &interface, &folder).err();
    let _ = fs::remove_dir(&folder);
    let message = failed.unwrap().to_string();
    assert!(message.contains("not in a BPF file system"), "{message}");
}

/// Tries to lock a folder as a user without privileges. Returns whether that was possible.
fn stranger_locks(folder: &Path) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "-n"]).arg(folder).arg("true");
    command.output().unwrap().status.success()
}

#[test]
fn root_a_stranger_cannot_hold_the_lock() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("lock") else {
        return;
    };
    // A stranger must get as far as the folder itself: bpffs may be closed to all but root.
    let path = std::env::temp_dir().join(format!("dwell-lock-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    assert!(stranger_locks(&path), "the oracle works");
    fs::remove_dir(&path).unwrap();
    let interface = Interface::find("lo").unwrap();
    let plane = folder.0.join("plane");
    fs::create_dir(&plane).unwrap();
    drop(Plane::run_at(&options(), &interface, &plane).unwrap());
    assert!(!stranger_locks(&plane));
    assert!(Plane::detach_at(&plane).unwrap());
}

#[test]
fn root_pins_in_a_folder_of_others_are_not_taken_over() {
    if !star::may_run() {
        return;
    }
    let Some(folder) = Folder::new("others") else {
        return;
    };
    let interface = Interface::find("lo").unwrap();
    let path = folder.0.join("plane");
    let refusal = || Plane::run_at(&options(), &interface, &path).err().unwrap().to_string();
    fs::create_dir(&path).unwrap();
    chown(&path, Some(65534), None).unwrap();
    assert!(refusal().contains("belongs to the user 65534"), "{}", refusal());
    let detached = Plane::detach_at(&path).err().unwrap().to_string();
    assert!(detached.contains("belongs to the user 65534"), "{detached}");
    chown(&path, Some(0), None).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refusal().contains("its mode 0777 lets its group or others write to it"), "{}", refusal());
    fs::remove_dir(&path).unwrap();
    symlink(folder.0.join("real"), &path).unwrap();
    assert!(refusal().contains("it is a symbolic link"), "{}", refusal());
    fs::remove_file(&path).unwrap();
}
