//! What limits a transfer, where the packets show it.

use super::*;

/// The shape of a transfer: round trips in each of which some segments leave and are acknowledged.
struct Transfer {
    is_whole: bool,
    window: u16,
    /// Segments of each burst.
    bursts: &'static [u32],
    /// When bursts leave after the acknowledgement of the one before, one after the other.
    after_ns: &'static [u64],
}

impl Transfer {
    fn verdict(&self) -> Verdict {
        let mut wire = Wire::new();
        if self.is_whole {
            wire.handshake(50 * MS);
        }
        let mut after_ns = self.after_ns.iter().cycle();
        for _ in 0..8 {
            for segments in self.bursts {
                // Something is always under way: the last segments are acknowledged after the next ones have left.
                for _ in 0..*segments {
                    wire.data(10_000, End::Client, 1_000);
                }
                let left = 3_000;
                wire.sent[0] -= left;
                wire.packet(50 * MS, End::Server, wire.sent[1], "A", self.window, 0);
                wire.sent[0] += left;
                wire.now_ns += after_ns.next().unwrap();
            }
        }
        wire.verdict()
    }
}

#[test]
fn a_sender_that_fills_up_when_acknowledgements_make_room_has_a_small_buffer() {
    let transfer = Transfer { is_whole: true, window: 5_000, bursts: &[40, 10, 10, 10, 10], after_ns: &[100_000] };
    let verdict = transfer.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SmallSendBuffer), "{verdict:?}");
    assert_eq!(verdict.certainty, Some(Certainty::Possible), "no packet shows a buffer");
}

#[test]
fn a_sender_that_fills_up_when_it_likes_is_an_application_that_pauses() {
    let transfer = Transfer { is_whole: true, window: 5_000, bursts: &[40, 10, 10, 10, 10], after_ns: &[23 * MS] };
    let verdict = transfer.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowApplication), "{verdict:?}");
}

/// As of a small send buffer, seen where the acknowledgements of its receiver are not as soon at the sender as at other times.
#[test]
fn a_sender_that_often_fills_up_when_acknowledgements_make_room_is_surely_no_application() {
    let after_ns = &[100_000, 23 * MS, 23 * MS];
    let transfer = Transfer { is_whole: true, window: 5_000, bursts: &[40, 10, 10, 10, 10], after_ns };
    let verdict = transfer.verdict();
    assert_eq!(verdict.outcome, Outcome::NotEnough, "{verdict:?}");
}

#[test]
fn without_the_handshake_a_window_that_is_always_filled_is_the_limit_whatever_its_scale() {
    // 320 with a scale of 7 has room for 40 segments.
    for verdict in [bulk(true, 320), bulk(false, 320)] {
        assert_eq!(cause(&verdict), Some(Cause::ReceiverWindow), "{verdict:?}");
    }
}

/// A transfer with 40 segments in flight at most.
fn bulk(is_whole: bool, window: u16) -> Verdict {
    Transfer { is_whole, window, bursts: &[37, 37, 37, 37], after_ns: &[100_000] }.verdict()
}

#[test]
fn without_the_handshake_a_window_that_is_larger_than_what_is_in_flight_tells_nothing() {
    let verdict = bulk(false, 500);
    assert_eq!(verdict.outcome, Outcome::NotEnough, "{verdict:?}");
}

#[test]
fn what_waited_between_its_sender_and_the_capture_was_in_a_queue_of_the_sender() {
    let mut wire = Wire::new();
    wire.stamps = Some([(100, 900), (900, 100)]);
    wire.handshake(4 * MS);
    for round in 0..200 {
        let now = round * 6;
        // The client's data left TCP before the last four acknowledgements had come.
        wire.stamps = Some([(100 + now, 900 + now.saturating_sub(24)), (900 + now, 100 + now)]);
        for _ in 0..4 {
            wire.data(10_000, End::Client, 1_000);
        }
        wire.ack(4 * MS, End::Server);
        wire.now_ns += 2 * MS;
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::LocalQueue), "{verdict:?}");
}

#[test]
fn a_window_that_was_halved_in_a_pause_grows_again() {
    let mut wire = Wire::new();
    wire.handshake(80 * MS);
    for _ in 0..5 {
        for segments in [30, 60, 120, 240] {
            for _ in 0..segments {
                wire.data(10_000, End::Client, 1_000);
            }
            wire.ack(80 * MS, End::Server);
        }
        wire.data(MS, End::Server, 100);
        wire.ack(10_000, End::Client);
        wire.now_ns += 1_500 * MS;
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowStart), "{verdict:?}");
}

#[test]
fn gaps_that_close_without_being_sent_again_were_overtaken_beyond_the_capture() {
    let mut wire = Wire::new();
    wire.handshake(20 * MS);
    for _ in 0..100 {
        let first = wire.sent[0];
        for _ in 0..8 {
            wire.data(10_000, End::Client, 1_000);
        }
        let all = wire.sent[0];
        // The second segment comes late: the peer reports those that it has beyond.
        wire.sent[0] = first + 1_000;
        wire.sack = Some((first + 2_000, all));
        wire.ack(20 * MS, End::Server);
        (wire.sent[0], wire.sack) = (all, None);
        wire.ack(30 * MS, End::Server);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::Reordering), "{verdict:?}");
}

/// A sender that has had 40 segments under way, and then sends trains of a few pieces.
struct Trains {
    round_trip_ns: u64,
    /// From one train to the next.
    every_ns: u64,
    pieces: u64,
    /// From one piece to the next, and the bytes of each segment of a piece.
    apart_ns: u64,
    piece: &'static [usize],
}

impl Trains {
    fn verdict(&self) -> Verdict {
        let mut wire = Wire::new();
        wire.stamps = Some([(100, 900), (900, 100)]);
        wire.handshake(self.round_trip_ns);
        for _ in 0..40 {
            wire.data(10_000, End::Client, 988);
        }
        wire.ack(self.round_trip_ns, End::Server);
        let (start_ns, first, bytes) = (wire.now_ns + MS, wire.sent[0], self.piece.iter().sum::<usize>() as u32);
        let leaves = (0..100).flat_map(|train| {
            (0..self.pieces).map(move |piece| start_ns + train * self.every_ns + piece * self.apart_ns)
        });
        // Of each piece, when it leaves and when its acknowledgement comes.
        let mut packets: Vec<(u64, Option<u32>)> = Vec::new();
        for (number, leaves_ns) in (1..).zip(leaves) {
            packets.extend([(leaves_ns, None), (leaves_ns + self.round_trip_ns, Some(first + number * bytes))]);
        }
        packets.sort();
        for (time_ns, acked) in packets {
            wire.now_ns = time_ns;
            let all = wire.sent[0];
            match acked {
                None => self.piece.iter().for_each(|bytes| wire.data(0, End::Client, *bytes)),
                Some(acked) => {
                    wire.sent[0] = acked;
                    wire.ack(0, End::Server);
                    wire.sent[0] = all;
                }
            }
        }
        wire.verdict()
    }
}

#[test]
fn trains_that_acknowledgements_start_are_of_a_small_buffer_although_their_pieces_are_spaced() {
    // A train leaves when all but the last piece of the one before are acknowledged.
    let (round_trip_ns, every_ns, apart_ns) = (16 * MS, 16 * MS + 4 * MS * 12 / 10 + MS / 10, MS * 12 / 10);
    let verdict = Trains { round_trip_ns, every_ns, pieces: 6, apart_ns, piece: &[988, 988] }.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SmallSendBuffer), "{verdict:?}");
}

#[test]
fn full_segments_that_leave_evenly_may_be_held_back_by_a_pace() {
    let even = Trains { round_trip_ns: 16 * MS, every_ns: 5 * MS, pieces: 1, apart_ns: 0, piece: &[988, 988] };
    for paced in [Trains { ..even }, Trains { round_trip_ns: MS, ..even }] {
        let verdict = paced.verdict();
        assert_eq!((cause(&verdict), verdict.outcome), (None, Outcome::NotEnough), "{verdict:?}");
    }
    let written = Trains { round_trip_ns: MS, piece: &[988, 500], ..even };
    let verdict = written.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowApplication), "nothing is left over of what is written: {verdict:?}");
}

/// A server limits the rate of its socket, so that hardly more than a segment is under way.
#[test]
fn a_stream_at_an_even_pace_is_not_far_away() {
    for at_server in [true, false] {
        let mut wire = Wire::new();
        let (to_server_ns, to_client_ns) = if at_server { (10_000, 20 * MS) } else { (20 * MS, 10_000) };
        wire.handshake_between(to_server_ns, to_client_ns);
        wire.data(MS, End::Client, 100);
        wire.data(to_server_ns, End::Server, 1_000);
        for _ in 0..500 {
            wire.ack(to_client_ns, End::Client);
            wire.data(22 * MS - to_client_ns, End::Server, 1_000);
            wire.data(0, End::Server, 1_000);
        }
        let verdict = wire.verdict();
        assert_eq!(verdict.outcome, Outcome::NotEnough, "{verdict:?}");
    }
}

/// BBR paces what the window of a slow reader allows, so that it looks like pauses.
#[test]
fn a_window_that_a_paced_flight_fills_at_its_end_is_the_limit() {
    let mut wire = Wire::new();
    wire.handshake(20 * MS);
    for _ in 0..40 {
        let begin = wire.sent[0];
        let ack = |wire: &mut Wire, after_ns: u64, pairs: u32| {
            let sent = std::mem::replace(&mut wire.sent[0], begin + 2_000 * pairs);
            wire.packet(after_ns, End::Server, wire.sent[1], "A", ((16_000 - 2_000 * pairs) / 128) as u16, 0);
            wire.sent[0] = sent;
        };
        for pair in 0..8 {
            wire.data(4 * MS, End::Client, 1_000);
            wire.data(0, End::Client, 1_000);
            if pair >= 5 {
                ack(&mut wire, 0, pair - 4);
            }
        }
        (4..=8).for_each(|pairs| ack(&mut wire, 4 * MS, pairs));
        wire.packet(20 * MS, End::Server, wire.sent[1], "A", 125, 0);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::ReceiverWindow), "{verdict:?}");
}
