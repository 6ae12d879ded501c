//! The state of a TCP socket at one poll, decoded from the kernel's format.

/// One poll of a TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// The time of the poll, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// `TCP_INFO`.
    pub info: TcpInfo,
    /// Bytes that the application wrote and the peer has not acknowledged: SIOCOUTQ, or `idiag_wqueue`. One more after
    /// a FIN was queued.
    pub unacknowledged: Option<u64>,
    /// Bytes that the application can read: SIOCINQ, or `idiag_rqueue`.
    pub readable: Option<u64>,
}

impl Reading {
    /// Returns when data was last sent, to a tick of the kernel's; of a connection that has sent none, when it began.
    pub fn last_sent_ns(&self) -> u64 {
        self.time_ns.saturating_sub(u64::from(self.info.last_data_sent_ms) * 1_000_000)
    }
}

/// The fields of `struct tcp_info` (linux/tcp.h) that dwell uses. Fields that were added after Linux 3.14 are `None` on
/// kernels without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// The TCP state, such as `TCP_ESTABLISHED`.
    pub state: u8,
    /// The congestion control is BBR. False where it is another one, or was not asked for.
    pub uses_bbr: bool,
    /// The last delivery rate was limited by the application.
    pub app_limited: bool,
    /// The state of TCP's congestion avoidance: 3 and 4 while it repairs a loss, fast or after a timeout.
    pub congestion_state: u8,
    /// The maximum segment size for sending, in bytes.
    pub send_mss: u32,
    /// The maximum received segment size as estimated by the kernel, in bytes.
    pub receive_mss: u32,
    /// The number of segments in flight.
    pub unacked: u32,
    /// The number of segments that are taken for lost and were not yet sent again.
    pub lost: u32,
    /// The time since the last data was sent, in milliseconds, as coarse as the kernel's tick.
    pub last_data_sent_ms: u32,
    /// The time since the last data was received, in milliseconds, as coarse as the kernel's tick.
    pub last_data_received_ms: u32,
    /// The smoothed round-trip time; 0 before the first sample.
    pub rtt_us: u32,
    /// The mean deviation of the round-trip time.
    pub rtt_variation_us: u32,
    /// The slow-start threshold in segments; 2^31 - 1 before the first loss.
    pub ssthresh: u32,
    /// The congestion window in segments.
    pub cwnd: u32,
    /// The number of retransmitted segments.
    pub retransmissions: u32,
    /// The rate at which TCP sends at most now, in bytes per second: the congestion control's, and no more than the limit
    /// below (3.15).
    pub pacing_rate: Option<u64>,
    /// The limit of that rate that was set for the socket, as by SO_MAX_PACING_RATE, in bytes per second. `None` if there is
    /// none (3.15).
    pub max_pacing_rate: Option<u64>,
    /// The number of acknowledged bytes, plus one for the SYN (Linux 4.1).
    pub bytes_acked: Option<u64>,
    /// The number of bytes that arrived in order, plus one for the FIN (4.1).
    pub bytes_received: Option<u64>,
    /// The number of sent segments, with and without data (4.2).
    pub segments_out: Option<u32>,
    /// The number of received segments, with and without data (4.2).
    pub segments_in: Option<u32>,
    /// The number of bytes that were written and have not left (4.6).
    pub notsent_bytes: Option<u32>,
    /// The minimum round-trip time (4.6).
    pub min_rtt_us: Option<u32>,
    /// The number of received segments with data (4.6).
    pub data_segments_in: Option<u32>,
    /// The number of sent segments with data, including retransmissions (4.6).
    pub data_segments_out: Option<u32>,
    /// The delivery rate of the last acknowledged bytes, in bytes per second (4.9).
    pub delivery_rate: Option<u64>,
    /// The time with data that is not acknowledged yet, in microseconds, as coarse as the kernel's tick (4.10).
    pub busy_us: Option<u64>,
    /// The time limited by the peer's receive window, in microseconds (4.10).
    pub receiver_limited_us: Option<u64>,
    /// The time limited by the send buffer, in microseconds (4.10).
    pub buffer_limited_us: Option<u64>,
    /// The number of sent bytes, including retransmissions (4.19).
    pub bytes_sent: Option<u64>,
    /// The number of retransmitted bytes (4.19).
    pub bytes_retransmitted: Option<u64>,
    /// The number of segments sent again that the peer had already, by its DSACKs (4.19).
    pub needless: Option<u32>,
    /// How often it was found out that sent segments had overtaken each other (4.19).
    pub reorderings: Option<u32>,
    /// The number of segments that arrived out of order (5.4).
    pub out_of_order: Option<u32>,
    /// The receive window that the peer offers, in bytes (5.4).
    pub send_window: Option<u32>,
}

impl TcpInfo {
    /// A size that exceeds the structure of every kernel.
    pub const LONGEST: usize = 512;

    /// Decodes the result of getsockopt(TCP_INFO) or `INET_DIAG_INFO`. `None` if it is shorter than that of any
    /// supported kernel.
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
            uses_bbr: false,
            app_limited: bytes.get(7)? & 1 != 0,
            congestion_state: *bytes.get(1)?,
            send_mss: u32_at(16)?,
            receive_mss: u32_at(20)?,
            unacked: u32_at(24)?,
            lost: u32_at(32)?,
            last_data_sent_ms: u32_at(44)?,
            last_data_received_ms: u32_at(52)?,
            rtt_us: u32_at(68)?,
            rtt_variation_us: u32_at(72)?,
            ssthresh: u32_at(76)?,
            cwnd: u32_at(80)?,
            retransmissions: u32_at(100)?,
            pacing_rate: u64_at(104),
            max_pacing_rate: u64_at(112).filter(|&rate| rate != u64::MAX),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segments_out: u32_at(136),
            segments_in: u32_at(140),
            notsent_bytes: u32_at(144),
            min_rtt_us: u32_at(148).filter(|&rtt| rtt != u32::MAX),
            data_segments_in: u32_at(152),
            data_segments_out: u32_at(156),
            delivery_rate: u64_at(160),
            busy_us: u64_at(168),
            receiver_limited_us: u64_at(176),
            buffer_limited_us: u64_at(184),
            bytes_sent: u64_at(200),
            bytes_retransmitted: u64_at(208),
            needless: u32_at(216),
            reorderings: u32_at(220),
            out_of_order: u32_at(224),
            send_window: u32_at(228),
        })
    }

    /// Returns true while this end waits for the answer to its SYN.
    pub fn is_opening(&self) -> bool {
        self.state == 2
    }

    /// Returns true from the handshake until both ends have closed.
    pub fn is_connected(&self) -> bool {
        const ESTABLISHED: u8 = 1;
        const TIME_WAIT: u8 = 6;
        const CLOSE: u8 = 7;
        const LISTEN: u8 = 10;
        self.state >= ESTABLISHED && !matches!(self.state, 2 | 3 | TIME_WAIT | CLOSE | LISTEN) && self.state <= 11
    }
}
