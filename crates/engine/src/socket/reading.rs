//! What one look at a TCP socket tells, decoded from what the kernel gives.

/// One look at a TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// `TCP_INFO`.
    pub info: TcpInfo,
    /// Bytes that the application wrote and the other end has not acknowledged: SIOCOUTQ, or
    /// `idiag_wqueue`. After a FIN was queued one more.
    pub unacknowledged: Option<u64>,
    /// Bytes that the application may read: SIOCINQ, or `idiag_rqueue`.
    pub readable: Option<u64>,
}

/// The fields of `struct tcp_info` (linux/tcp.h) that dwell uses. Those that were added after Linux 3.14 are
/// `None` where the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// `TCP_ESTABLISHED` and its like.
    pub state: u8,
    /// The last delivery rate was of a flow that had nothing more to send.
    pub app_limited: bool,
    /// Greatest segment that is sent, in bytes.
    pub send_mss: u32,
    /// Greatest segment that came, as the kernel guesses it, in bytes.
    pub receive_mss: u32,
    /// Segments that are sent and not acknowledged.
    pub unacked: u32,
    /// Smoothed round-trip time; 0 before the first.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rtt_variation_us: u32,
    /// Slow-start threshold, in segments; 2^31 - 1 before the first loss.
    pub ssthresh: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Segments that were sent again.
    pub retransmissions: u32,
    /// Bytes that were acknowledged, and one for the SYN (Linux 4.1).
    pub bytes_acked: Option<u64>,
    /// Bytes that came in order, and one for the FIN (4.1).
    pub bytes_received: Option<u64>,
    /// Segments that came, with and without data (4.2).
    pub segments_in: Option<u32>,
    /// Bytes that were written and have not left (4.6).
    pub notsent_bytes: Option<u32>,
    /// Least round-trip time (4.6).
    pub min_rtt_us: Option<u32>,
    /// Segments with data that came (4.6).
    pub data_segments_in: Option<u32>,
    /// Bytes a second, of the last that were acknowledged (4.9).
    pub delivery_rate: Option<u64>,
    /// For how long the other end's window was in the way, in microseconds (4.10).
    pub receiver_limited_us: Option<u64>,
    /// For how long the send buffer was in the way, in microseconds (4.10).
    pub buffer_limited_us: Option<u64>,
    /// Bytes that have left, again or not (4.19).
    pub bytes_sent: Option<u64>,
    /// Bytes that have left again (4.19).
    pub bytes_retransmitted: Option<u64>,
    /// Segments that came out of order (5.4).
    pub out_of_order: Option<u32>,
}

impl TcpInfo {
    /// The longest that any kernel gives, with room for more.
    pub const LONGEST: usize = 512;

    /// Reads what getsockopt(TCP_INFO) or `INET_DIAG_INFO` gave. `None` if it is shorter than any kernel's.
    pub fn parse(bytes: &[u8]) -> Option<TcpInfo> {
        let u32_at = |offset: usize| {
            let field = bytes.get(offset..offset.checked_add(4)?)?;
            Some(u32::from_ne_bytes(field.try_into().ok()?))
        };
        let u64_at = |offset: usize| {
            let field = bytes.get(offset..offset.checked_add(8)?)?;
            Some(u64::from_ne_bytes(field.try_into().ok()?))
        };
        Some(TcpInfo {
            state: *bytes.first()?,
            app_limited: bytes.get(7)? & 1 != 0,
            send_mss: u32_at(16)?,
            receive_mss: u32_at(20)?,
            unacked: u32_at(24)?,
            rtt_us: u32_at(68)?,
            rtt_variation_us: u32_at(72)?,
            ssthresh: u32_at(76)?,
            cwnd: u32_at(80)?,
            retransmissions: u32_at(100)?,
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segments_in: u32_at(140),
            notsent_bytes: u32_at(144),
            min_rtt_us: u32_at(148).filter(|&rtt| rtt != u32::MAX),
            data_segments_in: u32_at(152),
            delivery_rate: u64_at(160),
            receiver_limited_us: u64_at(176),
            buffer_limited_us: u64_at(184),
            bytes_sent: u64_at(200),
            bytes_retransmitted: u64_at(208),
            out_of_order: u32_at(224),
        })
    }

    /// True from the handshake until both ends have closed.
    pub fn is_connected(&self) -> bool {
        const ESTABLISHED: u8 = 1;
        const TIME_WAIT: u8 = 6;
        const CLOSE: u8 = 7;
        const LISTEN: u8 = 10;
        self.state >= ESTABLISHED && !matches!(self.state, 2 | 3 | TIME_WAIT | CLOSE | LISTEN) && self.state <= 11
    }
}
