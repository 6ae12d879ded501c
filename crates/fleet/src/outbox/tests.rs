use std::{
    fs::{self, OpenOptions},
    io,
};

use super::*;
use crate::wire::{IntervalReport, MAX_FRAME_BYTES};

const NO_WAIT: Duration = Duration::ZERO;

fn content(bytes: usize) -> Content {
    let names = (0..bytes).step_by(60).map(|at| "x".repeat(60.min(bytes - at)));
    Content { counters: names.map(|name| (name, 1)).collect(), ..Content::default() }
}

fn hello(run: u8) -> Hello {
    let name = "web".to_owned().try_into().unwrap();
    Hello { name, run: [run; 16], boot: format!("boot {run}"), sync_port: None, is_past: false, confirmed: 0 }
}

fn outbox() -> Outbox {
    Outbox::new(1000, &hello(1))
}

fn next_batch(outbox: &Outbox) -> Option<Batch> {
    match outbox.next(&outbox.next_run().0, NO_WAIT) {
        Next::Batch(_, bytes) => match wire::decode(Version::NEWEST, &bytes).unwrap() {
            AgentMessage::Batch(batch) => Some(*batch),
            other => panic!("{other:?}"),
        },
        Next::Timeout | Next::Closed | Next::OtherRun => None,
    }
}

fn next_number(outbox: &Outbox) -> Option<u64> {
    next_batch(outbox).map(|batch| batch.number)
}

fn next_loss(outbox: &Outbox) -> Option<(u64, u64, LossCause)> {
    let batch = next_batch(outbox)?;
    batch.content.lost.map(|lost| (lost.from, batch.number, lost.why))
}

/// Begins a run that keeps its batches in a folder.
fn kept(folder: &Path, run: u8) -> Outbox {
    let outbox = Outbox::new(100_000, &hello(run));
    outbox.keep_in(folder).unwrap();
    outbox
}

fn acknowledge(outbox: &Outbox, through: u64) {
    outbox.acknowledge(&outbox.next_run().0, through);
}

/// Names of the segments in a folder.
fn segments(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".batches")).collect();
    names.sort();
    names
}

#[test]
fn a_batch_stays_until_it_is_stored() {
    let outbox = outbox();
    (0..3).for_each(|_| outbox.push(content(10)));
    assert_eq!((next_number(&outbox), next_number(&outbox)), (Some(1), Some(1)));
    acknowledge(&outbox, 2);
    assert_eq!(next_number(&outbox), Some(3));
    assert!(!outbox.wait_until_empty(NO_WAIT));
    acknowledge(&outbox, 3);
    assert!(outbox.wait_until_empty(NO_WAIT));
    assert_eq!(outbox.backlog(), Backlog::default());
    assert_eq!(outbox.next_run().1, 3);
}

#[test]
fn a_full_outbox_drops_the_oldest_batch_and_says_so_in_its_place() {
    let outbox = outbox();
    (0..10).for_each(|_| outbox.push(content(300)));
    assert_eq!(next_loss(&outbox), Some((1, 7, LossCause::BufferFull)));
    let backlog = outbox.backlog();
    assert_eq!((backlog.batches, backlog.dropped), (3, 7));
    assert!((900..1000).contains(&backlog.bytes));
    // The report grows while it is under way.
    outbox.push(content(300));
    acknowledge(&outbox, 7);
    assert_eq!(next_loss(&outbox), Some((1, 8, LossCause::BufferFull)));
    acknowledge(&outbox, 8);
    assert_eq!(next_number(&outbox), Some(9));
    // A batch that is larger than the outbox.
    outbox.push(content(2000));
    assert_eq!(next_loss(&outbox), Some((9, 12, LossCause::BufferFull)));
    assert_eq!(outbox.backlog().dropped, 12);
    acknowledge(&outbox, 12);
    outbox.push(content(1));
    assert_eq!(next_number(&outbox), Some(13));
    assert_eq!(next_loss(&outbox), None);
}

#[test]
fn a_batch_that_is_rejected_makes_way_for_the_next() {
    let outbox = outbox();
    (0..2).for_each(|_| outbox.push(content(10)));
    let (run, _) = outbox.next_run();
    outbox.reject(&run, 2);
    assert_eq!(next_loss(&outbox), None, "it is not its turn");
    outbox.reject(&run, 1);
    assert_eq!(next_loss(&outbox), Some((1, 1, LossCause::Rejected)));
    acknowledge(&outbox, 1);
    assert_eq!(next_number(&outbox), Some(2));
}

#[test]
fn a_report_of_a_loss_that_is_rejected_costs_no_batch() {
    let outbox = outbox();
    (0..2).for_each(|_| outbox.push(content(10)));
    let (run, _) = outbox.next_run();
    outbox.reject(&run, 1);
    outbox.reject(&run, 1);
    assert_eq!((next_loss(&outbox), next_number(&outbox)), (None, Some(2)));
    assert_eq!(outbox.backlog().batches, 1);
}

#[test]
fn a_closed_outbox_ends_once_it_is_empty() {
    let outbox = outbox();
    outbox.push(content(1));
    outbox.close();
    assert_eq!(next_number(&outbox), Some(1));
    acknowledge(&outbox, 1);
    let (run, _) = outbox.next_run();
    assert!(matches!(outbox.next(&run, Duration::from_secs(60)), Next::Closed));
}

#[test]
fn what_a_run_leaves_on_disk_is_sent_by_the_next_before_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for run in 1..=2 {
        let outbox = Outbox::new(100_000, &hello(run));
        assert_eq!(outbox.keep_in(folder.path()).unwrap(), Unread::default());
        (0..3).for_each(|_| outbox.push(content(10)));
        assert!(outbox.backlog().is_on_disk);
        let run = Run { id: [run; 16], boot: format!("boot {run}") };
        outbox.acknowledge(&run, 1);
    }
    let outbox = kept(folder.path(), 3);
    outbox.push(content(10));
    for (run, numbers) in [(1, vec![2, 3]), (2, vec![1, 2, 3]), (3, vec![1])] {
        let (next, _) = outbox.next_run();
        assert_eq!((next.id, next.boot.as_str()), ([run; 16], format!("boot {run}").as_str()));
        assert_eq!(outbox.is_live(&next), run == 3);
        for number in numbers {
            assert_eq!(next_number(&outbox), Some(number));
            outbox.acknowledge(&next, number);
        }
        if run < 3 {
            assert!(matches!(outbox.next(&next, NO_WAIT), Next::OtherRun));
        }
    }
    assert_eq!(outbox.backlog().batches, 0);
    assert_eq!(segments(folder.path()).len(), 1, "that of the live run");
}

/// The numbers that a run of `hello` finds in a folder, and the number through which the first run there was confirmed.
fn found(folder: &Path, run: u8) -> (Vec<u64>, u64) {
    let outbox = Outbox::new(100_000, &hello(run));
    assert_eq!(outbox.keep_in(folder).unwrap(), Unread::default());
    let numbers = outbox.state().queue.iter().map(|entry| entry.number).collect();
    (numbers, outbox.next_run().1)
}

#[test]
fn what_was_confirmed_is_not_sent_by_the_next_run_which_may_have_another_collector() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = kept(folder.path(), 1);
    (0..5).for_each(|_| outbox.push(content(10)));
    acknowledge(&outbox, 2);
    drop(outbox);
    // That of the run before this one is confirmed in part, and what was not is there still.
    let outbox = kept(folder.path(), 2);
    assert_eq!((next_number(&outbox), outbox.next_run().1), (Some(3), 2));
    acknowledge(&outbox, 3);
    drop(outbox);
    assert_eq!(found(folder.path(), 3), (vec![4, 5], 3));
    let outbox = kept(folder.path(), 4);
    acknowledge(&outbox, 5);
    (0..5).for_each(|_| outbox.push(content(10)));
    acknowledge(&outbox, 5);
    drop(outbox);
    assert_eq!(found(folder.path(), 5).0, [] as [u64; 0]);
}

#[test]
fn a_confirmation_can_follow_a_record_that_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = kept(folder.path(), 1);
    (0..3).for_each(|_| outbox.push(content(10)));
    drop(outbox);
    let path = folder.path().join(&segments(folder.path())[0]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let outbox = Outbox::new(100_000, &hello(2));
    assert!(outbox.keep_in(folder.path()).unwrap().damaged > 0);
    acknowledge(&outbox, 1);
    drop(outbox);
    assert_eq!(found(folder.path(), 3), (vec![2], 1));
}

/// As on a disk that was full in the middle of one.
#[test]
fn a_confirmation_can_follow_a_record_that_could_not_be_written_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = kept(folder.path(), 1);
    (0..3).for_each(|_| outbox.push(content(10)));
    let path = folder.path().join(&segments(folder.path())[0]);
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    io::Write::write_all(&mut file, b"the beginning of a record").unwrap();
    outbox.state().disk.as_mut().unwrap().give_up_for_now(&io::Error::other("full"));
    acknowledge(&outbox, 1);
    drop(outbox);
    assert_eq!(found(folder.path(), 2), (vec![2, 3], 1));
}

#[test]
fn a_record_that_was_cut_off_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = kept(folder.path(), 1);
    (0..3).for_each(|_| outbox.push(content(50)));
    drop(outbox);
    let path = folder.path().join(&segments(folder.path())[0]);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    fs::write(folder.path().join("00000000000000000007.batches"), "of another program").unwrap();
    let outbox = Outbox::new(100_000, &hello(2));
    let unread = outbox.keep_in(folder.path()).unwrap();
    assert!(unread.damaged > 50 && unread.newer == 0, "{unread:?}");
    assert_eq!(outbox.backlog().batches, 2);
    assert_eq!(segments(folder.path()).len(), 1);
}

/// As after an update that was taken back, or that went over several versions. The headers are of versions that do not exist yet,
/// or any more.
#[test]
fn what_a_newer_or_much_older_dwell_left_stays_for_it() {
    let [oldest, newest] = [Version::ALL.last().unwrap(), &Version::NEWEST].map(|version| version.byte());
    let bytes = 4 + 8 + 4 + 7;
    let [newer, older] = [Unread { newer: bytes, ..Unread::default() }, Unread { older: bytes, ..Unread::default() }];
    for (version, wanted) in [(newest + 1, newer), (oldest - 1, older), (0, older)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000000000000000007.batches");
        let body = [version, 1, 2, 3];
        let digest = ring::digest::digest(&ring::digest::SHA256, &body);
        let written = [&4_u32.to_be_bytes(), &digest.as_ref()[..8], &body, b"records"].concat();
        fs::write(&path, &written).unwrap();
        for run in 1..=2 {
            let outbox = Outbox::new(100_000, &hello(run));
            assert_eq!(outbox.keep_in(folder.path()).unwrap(), wanted);
            (0..3).for_each(|_| outbox.push(content(10)));
            acknowledge(&outbox, 3);
            assert_eq!(fs::read(&path).unwrap(), written);
        }
    }
}

#[test]
fn what_version_3_left_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let name = "00000000000000000000.batches";
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v3").join(name), folder.path().join(name)).unwrap();
    let outbox = Outbox::new(100_000, &hello(1));
    assert_eq!(outbox.keep_in(folder.path()).unwrap(), Unread::default());
    let (run, _) = outbox.next_run();
    assert_eq!((run.id, outbox.backlog().batches), ([7; 16], 3));
    for wanted in 1..=3 {
        let Next::Batch(number, bytes) = outbox.next(&run, NO_WAIT) else { panic!("{wanted}") };
        assert_eq!((number, wire::version_of(&bytes).unwrap()), (wanted, Version::V3));
        let newest = wire::for_version(Version::NEWEST, &bytes).unwrap();
        let message = wire::decode(Version::NEWEST, &newest).unwrap();
        let AgentMessage::Batch(batch) = &message else { panic!("{message:?}") };
        assert_eq!((batch.number, batch.content.is_last), (wanted, wanted == 3));
        assert_eq!(wire::encode(Version::V3, &message).unwrap(), *bytes);
        outbox.acknowledge(&run, number);
    }
    assert_eq!(segments(folder.path()), [""; 0]);
}

#[test]
fn the_disk_keeps_to_its_bound_and_is_emptied_as_batches_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = || -> u64 {
        segments(folder.path()).iter().map(|name| fs::metadata(folder.path().join(name)).unwrap().len()).sum()
    };
    for run in 1..=2 {
        let outbox = kept(folder.path(), run);
        for _ in 0..500 {
            outbox.push(content(1000));
            assert!(bytes() <= 100_000, "{}", bytes());
        }
        assert!(bytes() > 80_000, "{}", bytes());
        assert!(outbox.backlog().dropped >= 400);
    }
    let outbox = kept(folder.path(), 3);
    let (run, _) = outbox.next_run();
    outbox.acknowledge(&run, 500);
    for _ in 0..500 {
        outbox.push(content(1000));
        let (run, _) = outbox.next_run();
        outbox.acknowledge(&run, 500);
    }
    assert!(bytes() < 10_000, "{}", bytes());
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = outbox();
    first.keep_in(folder.path()).unwrap();
    let taken = outbox().keep_in(folder.path()).unwrap_err();
    assert!(taken.to_string().starts_with("another agent uses /"), "{taken}");
    drop(first);
    outbox().keep_in(folder.path()).unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let exposed = outbox().keep_in(folder.path()).unwrap_err();
    assert!(exposed.to_string().starts_with("other users can write to /"), "{exposed}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = outbox().keep_in(&file.join("buffer")).unwrap_err();
    assert!(error.to_string().starts_with("cannot create /"), "{error}");
}

#[test]
fn a_disk_that_fails_leaves_the_queue_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(100_000, &hello(1));
    let inside = folder.path().join("inside");
    outbox.keep_in(&inside).unwrap();
    fs::remove_dir_all(&inside).unwrap();
    outbox.push(content(10));
    let notice = outbox.tend_disk().unwrap();
    assert!(notice.contains("wait in memory only"), "{notice}");
    outbox.push(content(10));
    assert_eq!(outbox.tend_disk(), None, "once");
    let backlog = outbox.backlog();
    assert_eq!((backlog.batches, backlog.is_on_disk), (2, false));
}

fn take_unsent(outbox: &Outbox) -> Vec<u64> {
    let mut numbers = Vec::new();
    outbox.move_unsent(|batch| numbers.push(batch.number));
    numbers
}

#[test]
fn what_was_not_sent_can_be_taken_and_what_is_in_doubt_stays_also_after_a_restart() {
    for in_doubt in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let outbox = kept(folder.path(), 1);
        assert_eq!(take_unsent(&outbox), [0; 0]);
        (0..4).for_each(|_| outbox.push(content(10)));
        acknowledge(&outbox, 1);
        if in_doubt {
            assert_eq!(next_number(&outbox), Some(2));
        }
        let first = 2 + u64::from(in_doubt);
        assert_eq!(take_unsent(&outbox), (first..=4).collect::<Vec<_>>());
        assert_eq!(take_unsent(&outbox), [0; 0], "once");
        assert_eq!(outbox.backlog().batches, u64::from(in_doubt));
        outbox.push(content(10));
        drop(outbox);
        // The next run finds the same, although the records are still there.
        let outbox = kept(folder.path(), 2);
        let before = Run { id: [1; 16], boot: "boot 1".into() };
        outbox.acknowledge(&before, 1);
        if in_doubt {
            assert_eq!((next_number(&outbox), next_loss(&outbox)), (Some(2), None));
            outbox.acknowledge(&before, 2);
        }
        assert_eq!(next_loss(&outbox), Some((first, 4, LossCause::Moved)));
        outbox.acknowledge(&before, 4);
        assert_eq!(next_number(&outbox), Some(5));
        outbox.acknowledge(&before, 5);
        assert_eq!(outbox.backlog().batches, 0);
        assert_eq!(segments(folder.path()), [""; 0]);
    }
}

/// Each outage adds to the report of the one before: otherwise reports would fill the queue of a collector that stays away.
#[test]
fn reports_of_moves_that_follow_each_other_are_one_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(10_000, &hello(1));
    outbox.keep_in(folder.path()).unwrap();
    for outage in 0..200 {
        (0..2).for_each(|_| outbox.push(content(300)));
        assert_eq!(take_unsent(&outbox), [2 * outage + 1, 2 * outage + 2]);
        assert_eq!(next_loss(&outbox), Some((1, 2 * outage + 2, LossCause::Moved)));
    }
    drop(outbox);
    let outbox = Outbox::new(10_000, &hello(2));
    outbox.keep_in(folder.path()).unwrap();
    assert_eq!(next_loss(&outbox), Some((1, 400, LossCause::Moved)));
    acknowledge(&outbox, 400);
    assert_eq!(outbox.next_run().0.id, [2; 16]);
}

/// A collector would reject the second batch.
#[test]
fn a_batch_that_is_not_valid_counts_as_dropped_when_others_move() {
    let outbox = outbox();
    let intervals = [1, u64::MAX, 1].map(|end_ns| IntervalReport {
        end_ns,
        end_unix_ns: 1,
        length_ns: 1,
        sample_bytes: 64,
        segments: Vec::new(),
        flows: Vec::new(),
        rtts: Vec::new(),
    });
    for interval in intervals {
        outbox.push(Content { intervals: vec![interval], ..Content::default() });
    }
    assert_eq!(take_unsent(&outbox), [1, 3]);
    assert_eq!(outbox.backlog().dropped, 1);
}

#[test]
fn what_was_lost_does_not_count_as_moved() {
    let outbox = Outbox::new(100_000, &hello(1));
    outbox.push(content(10));
    outbox.push(content(MAX_FRAME_BYTES));
    outbox.push(content(10));
    assert_eq!(take_unsent(&outbox), [1, 3]);
    for (number, why) in [(1, LossCause::Moved), (2, LossCause::TooLong), (3, LossCause::Moved)] {
        assert_eq!(next_loss(&outbox), Some((number, number, why)));
        acknowledge(&outbox, number);
    }
    assert_eq!(outbox.backlog(), Backlog { dropped: 1, ..Backlog::default() });
}

/// The next agent would send what is still in its segments a second time.
#[test]
fn what_is_on_disk_stays_if_the_report_that_it_has_moved_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = kept(folder.path(), 1);
    (0..2).for_each(|_| outbox.push(content(10)));
    outbox.state().disk.as_mut().unwrap().give_up_for_now(&io::Error::other("full"));
    outbox.push(content(10));
    assert_eq!(take_unsent(&outbox), [3], "what is in memory only");
    assert_eq!(take_unsent(&outbox), [0; 0]);
    assert_eq!(next_number(&outbox), Some(1));
    acknowledge(&outbox, 2);
    assert_eq!(next_loss(&outbox), Some((3, 3, LossCause::Moved)));
}

/// The answer to a hello says whether a batch was stored.
#[test]
fn what_a_collector_has_answered_for_is_not_in_doubt() {
    let outbox = outbox();
    (0..3).for_each(|_| outbox.push(content(10)));
    assert_eq!(next_number(&outbox), Some(1));
    acknowledge(&outbox, 0);
    assert_eq!(take_unsent(&outbox), [1, 2, 3]);
    assert_eq!(next_loss(&outbox), Some((1, 3, LossCause::Moved)));
    outbox.push(content(10));
    acknowledge(&outbox, 3);
    assert_eq!(next_number(&outbox), Some(4));
}

#[test]
fn batches_for_a_collector_that_is_gone_go_to_another_one_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let [base, first, second, gone] = ["", "first", "second", "gone"].map(|name| folder.path().join(name));
    for (run, place) in [(1, &base), (2, &gone), (3, &second), (4, &first)] {
        let outbox = Outbox::new(100_000, &hello(run));
        outbox.keep_in(place).unwrap();
        (0..2).for_each(|_| outbox.push(content(10)));
    }
    let kept = [first.clone(), second.clone()];
    assert_eq!(adopt(&base, &kept, &first).unwrap(), 2);
    assert_eq!(adopt(&base, &kept, &first).unwrap(), 0);
    let outbox = Outbox::new(100_000, &hello(5));
    outbox.keep_in(&first).unwrap();
    for run in [4, 1, 2] {
        let (next, _) = outbox.next_run();
        assert_eq!(next.id, [run; 16]);
        outbox.acknowledge(&next, 2);
    }
    assert_eq!(outbox.backlog().batches, 0);
    // Back to one collector, whose folder is the outer one.
    drop(outbox);
    assert_eq!(adopt(&base, &[], &base).unwrap(), 1);
    let taken = Outbox::new(100_000, &hello(6));
    taken.keep_in(&second).unwrap();
    assert!(matches!(adopt(&base, &[], &base), Err(BufferError::Taken(_))));
}
