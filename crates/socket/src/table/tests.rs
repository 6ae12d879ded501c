//! Properties of a table that processes share.
#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use dwell_engine::{
    layers::Ends,
    measure::Endpoint,
    socket::{Account, Delay, Estimator, Peaks, Sum, control::Setting},
};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

use super::{
    Claim, Config, ControllerKind, Count, Counts, Error, Poller, RawConfig, Refused, SLOTS, SlotIndex, SocketOption,
    Table, Writer, record,
};
use crate::{
    Watch,
    sys::{self, Errno},
};

fn open(table: &Table) -> Writer {
    let path = CString::new(table.path().as_os_str().as_bytes()).unwrap();
    Writer::open(&path).unwrap()
}

fn me() -> Poller {
    Poller { pid: sys::pid(), thread: sys::pid() }
}

fn table() -> (Table, Writer) {
    let table = Table::create(&Config::default()).unwrap();
    let writer = open(&table);
    (table, writer)
}

fn account(cookie: u64) -> Account {
    let mut account = record::blank();
    account.cookie = cookie;
    account.reading.time_ns = sys::monotonic_ns();
    account
}

fn mine(writer: &Writer, cookie: u64) -> SlotIndex {
    match writer.claim(cookie, me(), sys::monotonic_ns()) {
        Claim::Mine(index) => index,
        other => panic!("{other:?}"),
    }
}

fn visit(table: &mut Table) -> BTreeMap<u64, Account> {
    visit_at(table, sys::monotonic_ns())
}

fn visit_at(table: &mut Table, now_ns: u64) -> BTreeMap<u64, Account> {
    let mut seen = BTreeMap::new();
    table.visit_at(now_ns, &mut |account| {
        assert!(seen.insert(account.cookie, *account).is_none());
    });
    seen
}

/// Runs `body` in a child process, which ends with the test's thread at the latest. It must not allocate, because another
/// thread of the test may hold the allocator's lock.
fn child(body: impl FnOnce()) -> Pid {
    // SAFETY: the child only makes system calls, and ends without returning.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: it changes nothing but the signal that ends this process.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            body();
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => child,
    }
}

#[test]
fn a_library_reads_its_configuration() {
    let config = Config {
        poll: Duration::from_millis(7),
        budget: 0.5,
        estimator: Estimator::Paper,
        controller: Some(ControllerKind::Element),
        target: Duration::from_millis(40),
        wireless: true,
        congestion: Some("congestion_15_b".to_owned()),
    };
    let table = Table::create(&config).unwrap();
    let raw_config = open(&table).config();
    assert_eq!(raw_config, RawConfig::new(&config).unwrap());
    assert_eq!(&raw_config.congestion, b"congestion_15_b\0");
    assert_eq!(raw_config.poll_ns, 7_000_000);
    let nameless = Table::create(&Config { congestion: Some("sixteen_letters_".to_owned()), ..config });
    assert!(matches!(nameless, Err(Error::Congestion { .. })));
}

#[test]
fn what_one_mapping_writes_the_other_reads() {
    let (mut table, writer) = table();
    let index = mine(&writer, 11);
    let mut sent = account(11);
    sent.pid = Some(me().pid);
    sent.fd = Some(0);
    sent.ends = Ends {
        src: Endpoint { address: "192.0.2.1".parse().unwrap(), port: 443 },
        dst: Endpoint { address: "2001:db8::1".parse().unwrap(), port: 65_535 },
    };
    sent.reading.info.bytes_sent = Some(0);
    sent.reading.info.min_rtt_us = None;
    sent.reading.info.out_of_order = Some(u32::MAX);
    sent.delays.sender = Some(Delay { ns: 1, least_ns: 2, most_ns: 3, bytes: 4 });
    sent.totals.receiver = Sum { samples: 1, bytes: 2, ns_bytes: 1e20 };
    sent.setting = Setting { notsent_lowat: Some(0), send_buffer: None, piece_bytes: Some(2896), hold_above: Some(5) };
    assert!(visit(&mut table).is_empty(), "nothing is written yet");
    assert!(writer.publish(index, me(), &sent));
    assert_eq!(visit(&mut table)[&11], sent);
}

#[test]
fn a_peak_is_reported_once() {
    let (mut table, writer) = table();
    let index = mine(&writer, 5);
    let peaks = |sender_ns| Peaks { sender_ns, receiver_ns: None };
    for peak in [Some(0), Some(70), Some(30), None] {
        let mut account = account(5);
        account.peaks = peaks(peak);
        assert!(writer.publish(index, me(), &account));
    }
    assert_eq!(visit(&mut table)[&5].peaks, peaks(Some(70)));
    assert_eq!(visit(&mut table)[&5].peaks, peaks(None));
}

#[test]
fn what_is_let_go_has_ended_when_nobody_takes_it_over() {
    let (mut table, writer) = table();
    let (vacate, taken) = (mine(&writer, 1), mine(&writer, 2));
    assert!(writer.publish(vacate, me(), &account(1)));
    assert!(writer.publish(taken, me(), &account(2)));
    let now_ns = sys::monotonic_ns();
    writer.vacate(vacate, 1, me(), now_ns);
    writer.vacate(taken, 2, me(), now_ns);
    assert!(!writer.publish(vacate, me(), &account(1)));
    assert!(!visit_at(&mut table, now_ns)[&1].ended, "not so soon");
    assert_eq!(writer.claim(2, me(), now_ns), Claim::Mine(taken));
    let later = visit_at(&mut table, now_ns + 1_000_000_000);
    assert!(later[&1].ended);
    assert!(!later[&2].ended);
    let last = visit_at(&mut table, now_ns + 1_000_000_000);
    assert!(!last.contains_key(&1), "reported once, and free");
    assert_eq!(writer.find(1), None);
    let next = mine(&writer, 1 + SLOTS as u64);
    assert_eq!(next, vacate, "the place is used again");
    assert!(!visit(&mut table).contains_key(&1), "and nothing remains of its former socket");
}

#[test]
fn a_process_that_lives_keeps_its_slots_from_others() {
    let (_table, writer) = table();
    let index = mine(&writer, 9);
    let other = Poller { pid: me().pid + 1, thread: me().pid + 1 };
    let now_ns = sys::monotonic_ns();
    assert_eq!(writer.claim(9, other, now_ns), Claim::Others(index));
    assert_eq!(writer.claim(9, other, now_ns + 2_000_000_000), Claim::Others(index), "it is silent, but there");
    assert_eq!(
        writer.claim(9, other, now_ns + 60_000_000_000),
        Claim::Mine(index),
        "numbers of processes do not tell all"
    );
    assert!(!writer.publish(index, me(), &account(9)));
}

#[test]
fn a_forked_child_takes_over_from_a_parent_that_let_go() {
    let (mut table, writer) = table();
    let index = mine(&writer, 21);
    assert!(writer.publish(index, me(), &account(21)));
    writer.vacate(index, 21, me(), sys::monotonic_ns());
    let pid = child(|| {
        let mut account = account(21);
        account.pid = Some(me().pid);
        if writer.take_over(index, 21, me(), sys::monotonic_ns()) {
            writer.publish(index, me(), &account);
        }
    });
    waitpid(pid, None).unwrap();
    let reported = visit(&mut table)[&21];
    assert_eq!(reported.pid, Some(pid.as_raw() as u32));
    assert!(!reported.ended);
    let later = visit_at(&mut table, sys::monotonic_ns() + 2_000_000_000);
    assert!(later[&21].ended, "its process is gone");
}

#[test]
fn a_process_killed_at_any_point_leaves_a_table_that_can_be_read() {
    let (mut table, writer) = table();
    for round in 0..20 {
        let pid = child(|| {
            let mut cookies = (round * 1000 + 1)..;
            loop {
                let cookie = cookies.next().unwrap_or_default();
                if let Claim::Mine(index) = writer.claim(cookie, me(), sys::monotonic_ns()) {
                    for _ in 0..100 {
                        let mut account = account(cookie);
                        account.reading.info.bytes_sent = Some(account.reading.time_ns);
                        writer.publish(index, me(), &account);
                    }
                    writer.free(index, cookie, me());
                }
            }
        });
        std::thread::sleep(Duration::from_millis(5));
        kill(pid, Signal::SIGKILL).unwrap();
        waitpid(pid, None).unwrap();
        for account in visit(&mut table).values() {
            let info = account.reading.info;
            assert_eq!(info.bytes_sent, Some(account.reading.time_ns));
        }
        let later = sys::monotonic_ns() + 2_000_000_000;
        assert!(visit_at(&mut table, later).values().all(|last| last.ended));
        assert!(visit_at(&mut table, later).is_empty(), "no slot is lost");
    }
}

#[test]
fn a_reader_never_sees_two_looks_mixed() {
    let (mut table, writer) = table();
    let index = mine(&writer, 77);
    let pid = child(|| {
        let taken = Owned(&writer, index);
        loop {
            // With a time of long ago, the slot would end at the first visit.
            taken.publish(sys::monotonic_ns());
        }
    });
    // Until the reader has found it between two often, however busy the machine is.
    let mut times = BTreeSet::new();
    while times.len() < 1000 {
        for account in visit(&mut table).values() {
            assert!(!account.ended);
            assert_eq!(account.reading.info.bytes_sent, Some(account.reading.time_ns));
            assert_eq!(account.totals.acked_bytes, account.reading.time_ns);
            times.insert(account.reading.time_ns);
        }
    }
    kill(pid, Signal::SIGKILL).unwrap();
    waitpid(pid, None).unwrap();
}

struct Owned<'a>(&'a Writer, SlotIndex);

impl Owned<'_> {
    fn publish(&self, time: u64) {
        let mut account = account(77);
        account.reading.time_ns = time;
        account.reading.info.bytes_sent = Some(time);
        account.totals.acked_bytes = time;
        // Writes as the parent, which owns the slot.
        let pid = nix::unistd::getppid().as_raw() as u32;
        let parent = Poller { pid, thread: pid };
        self.0.publish(self.1, parent, &account);
    }
}

#[test]
fn a_full_table_says_so_and_counts_go_on() {
    let (table, writer) = table();
    for cookie in 1..=SLOTS as u64 {
        mine(&writer, cookie);
    }
    let claim = writer.claim(SLOTS as u64 + 1, me(), sys::monotonic_ns());
    assert_eq!(claim, Claim::Full);
    writer.count(Count::NoSlot);
    writer.count(Count::TooShort);
    writer.count(Count::TooShort);
    writer.refused(SocketOption::Congestion, Errno(libc::EPERM));
    writer.refused(SocketOption::NotsentLowat, Errno(libc::EPERM));
    writer.refused(SocketOption::Congestion, Errno(libc::EPERM));
    let refused = |option, times| Refused { option, errno: libc::EPERM, times };
    let expected = Counts {
        no_slot: 1,
        too_short: 2,
        refused: vec![refused(SocketOption::Congestion, 2), refused(SocketOption::NotsentLowat, 1)],
        ..Counts::default()
    };
    assert_eq!(table.counts(), expected);
}

#[test]
fn sums_of_counts_name_each_refusal_once() {
    let refused = |option, times| Refused { option, errno: libc::EPERM, times };
    let counts = |hands_off, refused| Counts { hands_off, refused, ..Counts::default() };
    let mut sum = counts(1, vec![refused(SocketOption::Congestion, 2)]);
    sum += counts(3, vec![refused(SocketOption::NotsentLowat, 1), refused(SocketOption::Congestion, 5)]);
    let expected = vec![refused(SocketOption::Congestion, 7), refused(SocketOption::NotsentLowat, 1)];
    assert_eq!(sum, counts(4, expected));
}

#[test]
fn files_other_than_tables_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
    assert!(Writer::open(&path).is_err(), "empty");
    file.as_file().set_len(64 << 20).unwrap();
    assert!(Writer::open(&path).is_err(), "zeroes");
    assert!(Writer::open(c"/nowhere").is_err());
}

#[test]
fn any_words_make_an_account() {
    struct Noise(u64);
    impl record::Words for Noise {
        fn next(&mut self, word: &mut u64) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *word = self.0;
        }
    }
    for seed in 0..1000 {
        let mut account = record::blank();
        record::transfer(&mut account, &mut Noise(seed));
        let _ = account.totals.sender.mean_ns();
    }
}

#[test]
fn a_table_is_watched_as_any_source() {
    let (mut table, writer) = table();
    let index = mine(&writer, 4);
    writer.publish(index, me(), &account(4));
    let mut cookies = Vec::new();
    let Ok(()) = table.visit(&mut |account| cookies.push(account.cookie));
    assert_eq!(cookies, [4]);
}

#[test]
fn a_poller_that_is_configured_to_poll_rarely_is_not_considered_dead() {
    let config = Config { poll: Duration::from_secs(60), ..Config::default() };
    let mut table = Table::create(&config).unwrap();
    let writer = open(&table);
    let now_ns = sys::monotonic_ns();
    // Uses a number that no process has here, as a process in a container may appear.
    let other = Poller { pid: 4_194_303, thread: 4_194_303 };
    let Claim::Mine(index) = writer.claim(9, other, now_ns) else {
        panic!("it is free");
    };
    let mut quiet = account(9);
    quiet.reading.time_ns = now_ns;
    assert!(writer.publish(index, other, &quiet));
    assert!(!visit_at(&mut table, now_ns + 100_000_000_000)[&9].ended);
    assert!(visit_at(&mut table, now_ns + 200_000_000_000)[&9].ended);
}
