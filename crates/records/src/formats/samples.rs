//! Records that the tests of all formats share.

use dwell_engine::{
    layers::Ends,
    measure::{CloseReason, Endpoint, FlowChange, FlowEvent, Method, PathCounts, Protocol, Sample, Tunnel},
    roles::Role,
    socket::{Account, Delay, Delays, Estimator, Peaks, Reading, Sum, TcpInfo, Totals, Viewpoint, control::Setting},
};

use crate::{Clock, Cost, Socket, SocketCounts, Source, Status, Verb};

/// Seconds on the boot clock; Unix time is 2026-11-21T05:10:00Z at 0.
pub(crate) fn source() -> Source {
    let mut source = Source { clock: Clock::with_offset(1_795_237_800_000_000_000), ..Source::default() };
    source.host = Some("here".to_owned());
    source.interfaces.insert(2, "eth0");
    source
}

pub(crate) fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.parse().unwrap(), port }
}

/// 1.234567 ms over IPv4.
pub(crate) fn tcp4() -> Sample {
    Sample {
        time_ns: 123_456_789,
        rtt_ns: 1_234_567,
        min_rtt_ns: 1_100_000,
        base_ns: 1_200_000,
        path: PathCounts { sent: 200, retransmitted: 3, received: 150, late: 1, ce: 6 },
        method: Method::TcpTimestamp,
        handshake: false,
        src: endpoint("192.0.2.1", 44_321),
        dst: endpoint("198.51.100.7", 443),
        src_role: None,
        protocol: Protocol::TCP,
        interface: 2,
        tunnel: Tunnel(0),
        packets: 17,
        bytes: 4_242,
    }
}

/// An upload that waits.
pub(crate) fn socket() -> Socket {
    let sum = |ns: f64, bytes| Sum { samples: 100, bytes, ns_bytes: ns * bytes as f64 };
    let delay = |ns| Some(Delay { ns, least_ns: ns - 5_000_000, most_ns: ns + 5_000_000, bytes: 12_000 });
    let info = TcpInfo {
        state: 1,
        rtt_us: 380_000,
        min_rtt_us: Some(50_000),
        cwnd: 320,
        ssthresh: 0x7fff_ffff,
        retransmissions: 3,
        bytes_acked: Some(1_200_001),
        bytes_received: Some(0),
        notsent_bytes: Some(750_000),
        out_of_order: Some(0),
        ..TcpInfo::default()
    };
    Socket {
        account: Account {
            cookie: 4_711,
            pid: Some(4_242),
            fd: Some(5),
            ends: Ends { src: endpoint("192.0.2.1", 44_321), dst: endpoint("198.51.100.7", 443) },
            viewpoint: Viewpoint::Inside,
            estimator: Estimator::Exact,
            reading: Reading { time_ns: 1_000_000_000, info, unacknowledged: Some(800_000), readable: Some(0) },
            delays: Delays { sender: delay(610_000_000), receiver: None },
            peaks: Peaks { sender_ns: Some(655_000_000), receiver_ns: None },
            waiting_ns: Some(640_000_000),
            totals: Totals {
                sender: sum(600e6, 1_200_000),
                acked_bytes: 1_200_000,
                written_bytes: 1_950_000,
                ..Totals::default()
            },
            setting: Setting::default(),
            ended: false,
        },
        before: SocketCounts::default(),
    }
}

/// Of which nothing is known yet, on a kernel that counts no bytes.
pub(crate) fn socket_idle() -> Socket {
    let mut socket = socket();
    socket.account = Account {
        cookie: 4_712,
        pid: None,
        fd: None,
        ends: Ends { src: endpoint("2001:db8::1", 50_000), dst: endpoint("2001:db8:0:1::443", 443) },
        viewpoint: Viewpoint::Outside,
        estimator: Estimator::Paper,
        reading: Reading::default(),
        delays: Delays::default(),
        peaks: Peaks::default(),
        waiting_ns: None,
        totals: Totals::default(),
        ended: true,
        ..socket.account
    };
    socket
}

/// One of each kind that a format may stumble over.
pub(crate) fn all() -> Vec<Sample> {
    vec![
        tcp4(),
        Sample {
            time_ns: 1_000_000_000,
            rtt_ns: 456_000,
            min_rtt_ns: 456_000,
            base_ns: 456_000,
            path: PathCounts { sent: 1, received: 1, ..PathCounts::default() },
            method: Method::TcpSeq,
            handshake: true,
            src: endpoint("2001:db8::1", 50_000),
            dst: endpoint("2001:db8:0:1::443", 443),
            ..tcp4()
        },
        Sample {
            time_ns: 2_000_000_001,
            rtt_ns: 789,
            min_rtt_ns: 0,
            base_ns: 0,
            path: PathCounts { received: 1, ..PathCounts::default() },
            method: Method::Icmp,
            src_role: Some(Role::Client),
            src: endpoint("192.0.2.1", 17),
            dst: endpoint("203.0.113.255", 17),
            protocol: Protocol(1),
            interface: 7,
            ..tcp4()
        },
        Sample {
            time_ns: 3_599_999_999_999,
            rtt_ns: 12_345_678_901,
            min_rtt_ns: 999_999,
            base_ns: 999_999,
            path: PathCounts { received: 1, ce: 1, ..PathCounts::default() },
            method: Method::Icmpv6,
            src_role: Some(Role::Client),
            src: endpoint("fe80::1", 65_535),
            dst: endpoint("fe80::2", 65_535),
            protocol: Protocol(58),
            ..tcp4()
        },
        Sample {
            rtt_ns: u64::MAX,
            min_rtt_ns: 20_000_000,
            base_ns: 20_000_000,
            path: PathCounts::default(),
            method: Method::QuicSpinLoop,
            protocol: Protocol::UDP,
            packets: u64::MAX,
            ..tcp4()
        },
        Sample { method: Method::Dns, src_role: Some(Role::Client), protocol: Protocol::SCTP, ..tcp4() },
    ]
}

pub(crate) fn flows() -> Vec<FlowEvent> {
    let open = FlowEvent {
        time_ns: 10_000_000,
        change: FlowChange::Open,
        first_ns: 10_000_000,
        src: endpoint("192.0.2.1", 44_321),
        dst: endpoint("198.51.100.7", 443),
        src_role: None,
        protocol: Protocol::TCP,
        interface: 2,
        tunnel: Tunnel(0),
        samples: 0,
        packets: 1,
        bytes: 74,
        data: 0,
        retransmitted: 0,
        late: 0,
        ce: 0,
    };
    vec![
        open,
        FlowEvent {
            time_ns: 35_000_000,
            change: FlowChange::FirstRtt(Method::TcpTimestamp, 25_000_000),
            samples: 1,
            packets: 2,
            bytes: 148,
            ..open
        },
        FlowEvent {
            time_ns: 61_500_000_000,
            change: FlowChange::Close(CloseReason::Idle),
            src: endpoint("fe80::1", 9),
            dst: endpoint("fe80::2", 9),
            protocol: Protocol(58),
            samples: 3,
            packets: 6,
            bytes: 708,
            ..open
        },
    ]
}

pub(crate) fn status() -> Status {
    Status {
        verb: Verb::Rtt,
        time_ns: None,
        last: true,
        lost: 7,
        cost: Cost { cpu_ns: Some(5), ..Cost::default() }.over(100),
        counters: vec![("packets".into(), 100), ("bytes".into(), 101)],
        verdict: None,
    }
}
