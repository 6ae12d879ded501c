//! Links with the kernel's own queueing disciplines.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{
    BitsPerSecond, BoxLink, BoxSpec, Discipline, LinkBox, Namespace, Nanos, ProcessId, Shaper, Statistics, Towards,
    skip::skip,
    workload::{Ends, Ping},
};
use nix::sys::socket::{setsockopt, sockopt};

use crate::support::{eventually, exists, other_process, skipped, start_and_read};

fn cannot() -> bool {
    let lack = LinkBox::missing_requirement();
    if let Some(lack) = &lack {
        skip(lack);
    }
    lack.is_some() || skipped()
}

fn bottleneck(discipline: Discipline, ecn: bool) -> BoxSpec {
    BoxSpec::one_way(BoxLink { rate: BitsPerSecond::new(10_000_000), delay: Nanos::from_millis(10), discipline, ecn })
}

/// The lowest of some round trips from left to right.
fn ping(link: &LinkBox) -> Nanos {
    let ends = Ends { client: &link.left, server: &link.right, address: Shaper::RIGHT.into() };
    let ping = Ping { count: 10, interval: Duration::from_millis(20) };
    let report = ping.run(ends, &AtomicBool::new(false)).unwrap();
    report.round_trips.quantile(0.0).unwrap()
}

/// Sends all the time by cubic until the queue has done something, and gives what the queue did and what it made of
/// round trips meanwhile: their median.
fn fill(link: &LinkBox, until: impl Fn(&Statistics) -> bool) -> (Statistics, Nanos) {
    let address = SocketAddr::from((Shaper::RIGHT, 5001));
    let listener = link.right.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut sender = link.left.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    setsockopt(&sender, sockopt::TcpCongestion, &"cubic".into()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || while receiver.read(&mut [0; 65536]).is_ok_and(|got| got > 0) {});
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sender.write_all(&[1; 16384]).unwrap();
            }
            drop(sender);
        });
        let begun = Instant::now();
        let mut statistics = link.statistics().unwrap();
        while !until(&statistics) && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(100));
            statistics = link.statistics().unwrap();
        }
        let ends = Ends { client: &link.left, server: &link.right, address: Shaper::RIGHT.into() };
        let ping = Ping { count: 30, interval: Duration::from_millis(100) };
        let report = ping.run(ends, &AtomicBool::new(false)).unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(until(&statistics), "{statistics:?}");
        (statistics, report.round_trips.quantile(0.5).unwrap())
    })
}

#[test]
fn root_codel_keeps_the_queue_short_where_a_fifo_fills_it() {
    if cannot() {
        return;
    }
    let fifo = LinkBox::start("box-fifo", &bottleneck(Discipline::Fifo { packets: 200 }, false)).unwrap();
    let (statistics, with_fifo) = fill(&fifo, |seen| seen.to_right.unwrap().dropped > 0);
    assert_eq!(statistics.to_right.unwrap().marked, None);
    assert_eq!((statistics.to_left, statistics.lost_elsewhere), (None, 0));
    drop(fifo);
    let codel = LinkBox::start("box-codel", &bottleneck(Discipline::Codel, false)).unwrap();
    let (statistics, with_codel) = fill(&codel, |seen| seen.to_right.unwrap().dropped > 20);
    assert_eq!(statistics.to_right.unwrap().marked, Some(0));
    // 200 packets wait 240 ms.
    println!("round trips: {with_fifo} behind a FIFO, {with_codel} behind CoDel");
    assert!(with_fifo > Nanos::from_millis(110), "{with_fifo}");
    assert!(with_codel.0 * 2 < with_fifo.0, "{with_codel}, {with_fifo}");
}

#[test]
fn root_packets_are_marked_and_not_dropped_where_both_ends_know_ecn() {
    if cannot() {
        return;
    }
    for discipline in [Discipline::Codel, Discipline::FqCodel] {
        let link = LinkBox::start("box-ecn", &bottleneck(discipline, true)).unwrap();
        let (statistics, _) = fill(&link, |seen| seen.to_right.unwrap().marked > Some(20));
        let queue = statistics.to_right.unwrap();
        println!("{}: {queue:?}", discipline.name());
        assert_eq!(queue.dropped, 0, "{}", discipline.name());
        assert_eq!(statistics.lost_elsewhere, 0);
    }
}

#[test]
fn root_each_discipline_is_in_force_and_a_delay_can_change() {
    if cannot() {
        return;
    }
    let link = LinkBox::start("box-each", &bottleneck(Discipline::Pie, true)).unwrap();
    let round_trip = ping(&link);
    assert!((20..60).contains(&(round_trip.0 / 1_000_000)), "{round_trip}");
    for discipline in [Discipline::Pie, Discipline::FqCodel, Discipline::Codel, Discipline::Fifo { packets: 10 }] {
        let to_right = bottleneck(discipline, true).to_right;
        link.change(Towards::Right, &to_right).unwrap();
        let queue = link.statistics().unwrap().to_right.unwrap();
        let marks = !matches!(discipline, Discipline::Fifo { .. });
        assert_eq!(queue.marked.is_some(), marks, "{discipline:?}");
    }
    let slower = BoxLink { delay: Nanos::from_millis(90), ..bottleneck(Discipline::Codel, false).to_right };
    link.change(Towards::Right, &slower).unwrap();
    let round_trip = ping(&link);
    assert!((100..160).contains(&(round_trip.0 / 1_000_000)), "{round_trip}");
}

#[test]
fn root_nothing_of_a_link_box_stays() {
    if cannot() {
        return;
    }
    let (left, right) = (Namespace::create("box-own").unwrap(), Namespace::create("box-own").unwrap());
    let shaper = Shaper::join("box-ends", &BoxSpec::default(), &left, &right).unwrap();
    let process = ProcessId::of(shaper.process()).unwrap();
    let tree = children(shaper.process());
    assert!(tree.len() > 2, "{tree:?}");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _shaper = shaper;
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert!(!process.is_alive());
    for child in tree {
        eventually("a process of the machine has ended", || !child.is_alive());
    }
    assert!(exists(left.name()) && exists(right.name()));
}

/// The processes below one.
fn children(of: u32) -> Vec<ProcessId> {
    let file = format!("/proc/{of}/task/{of}/children");
    let direct = std::fs::read_to_string(file).unwrap_or_default();
    let direct: Vec<u32> = direct.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let below = direct.iter().flat_map(|&child| children(child));
    let direct = direct.iter().filter_map(|&child| ProcessId::of(child).ok());
    direct.chain(below).collect()
}

#[test]
fn root_a_machine_ends_with_a_process_that_is_killed() {
    if cannot() {
        return;
    }
    let (mut owner, made) = start_and_read(other_process("link_box::owner_to_be_killed"), "made ");
    let machine = made.trim().parse().unwrap();
    let tree = children(machine);
    assert!(tree.len() > 2, "{tree:?}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    for child in tree {
        eventually("a process of the machine has ended", || !child.is_alive());
    }
}

/// Not a test: a process with a link box.
#[test]
#[ignore = "started by other tests"]
fn owner_to_be_killed() {
    let (left, right) = (Namespace::create("box-killed").unwrap(), Namespace::create("box-killed").unwrap());
    let shaper = Shaper::join("box-killed", &BoxSpec::default(), &left, &right).unwrap();
    println!("made {}", shaper.process());
    thread::sleep(Duration::from_secs(1000));
}
