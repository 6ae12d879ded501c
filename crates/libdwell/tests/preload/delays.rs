//! Measured delays are those that the program itself knows.

use dwell_socket::table::Config;

use super::harness::run;

#[test]
fn bytes_wait_as_long_as_the_receiver_does_not_read() {
    let outcome = run("waits", &["500"], &Config::default()).succeeded();
    let total = outcome.numbers("total")[0];
    let sender = outcome.socket("sender");
    let receiver = outcome.socket("receiver");
    let info = &sender.reading.info;
    let left = info.bytes_sent.unwrap() - info.bytes_retransmitted.unwrap();
    assert_eq!(left, total);
    assert_eq!(sender.totals.written_bytes, total);
    assert_eq!(receiver.totals.received_bytes, total);
    for (peaks, socket, name) in
        [(&outcome.sender_peaks, sender, "waited"), (&outcome.receiver_peaks, receiver, "unread")]
    {
        let peak = peaks[&socket.cookie];
        // Idle sockets are polled less often, and some bytes were written before the buffer was full.
        let most = outcome.numbers(name)[0] + 300_000_000;
        assert!((400_000_000..most).contains(&peak), "{name}: {peak}");
    }
}
