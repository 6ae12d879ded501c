//! Polls of a socket with arbitrary results from the kernel.

use std::collections::BTreeSet;

use dwell_engine::{
    measure::Method,
    socket::{
        Calls, Estimator, Meter, Reading, TcpInfo,
        control::{Controller, Element, Lowat, State},
    },
};

use crate::bytes::Bytes;

/// Length of the record of one poll.
const RECORD_BYTES: usize = 32;

/// Reads a byte of options and a record per poll: time step, calls, length of TCP_INFO, counts, and the queue lengths.
pub fn socket(bytes: &[u8]) -> BTreeSet<Method> {
    let mut bytes = Bytes::new(bytes);
    let choices = bytes.u8();
    let wanted = match choices & 1 {
        0 => Estimator::Exact,
        _ => Estimator::Paper,
    };
    let mut meter = Meter::new(wanted);
    let mut calls = Calls::default();
    let mut lowat = Lowat::new(25_000_000);
    let mut element = Element::new(25_000_000, choices & 2 != 0);
    let mut now_ns = 0_u64;
    for record in bytes.records::<RECORD_BYTES>() {
        let mut record = Bytes::new(&record);
        now_ns = now_ns.wrapping_add(u32::from_le_bytes(record.array()).into());
        let reading = reading(now_ns, &mut record);
        if choices & 4 != 0 {
            calls.begin_write(now_ns);
            calls.end_write(record.u8().into());
            calls.read(now_ns, record.u8().into());
        }
        let observed = meter.observe_calls(&reading, (choices & 4 != 0).then_some(&mut calls));
        for delay in [observed.sender, observed.receiver].into_iter().flatten() {
            assert!(delay.least_ns <= delay.ns && delay.ns <= delay.most_ns);
            assert!(delay.bytes > 0);
        }
        let state = State {
            reading: &reading,
            delay: observed.sender,
            waiting_ns: meter.waiting_ns(now_ns),
            average_ns: calls.average_ns(),
            send_buffer: now_ns as u32,
        };
        if let Some(bytes) = lowat.update(&state).notsent_lowat {
            assert!(bytes > 0 && bytes <= 1 << 31, "{bytes}");
        }
        element.update(&state);
    }
    let totals = meter.totals();
    assert!(totals.sender.ns_bytes.is_finite());
    BTreeSet::new()
}

/// Reads a TCP_INFO of arbitrary length, as older and newer kernels return it, with counts at the offsets that matter.
fn reading(now_ns: u64, record: &mut Bytes<'_>) -> Reading {
    let length = usize::from(record.u8());
    let mut info = [0; 256];
    info[0] = 1;
    let mut put = |offset: usize, bytes: &[u8]| {
        info[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(7, &[record.u8()]);
    put(16, &[0xa8, record.u8(), 0, 0]);
    put(20, &[0xa8, record.u8(), 0, 0]);
    put(24, &record.array::<2>());
    put(80, &record.array::<2>());
    put(120, &record.array::<3>());
    put(128, &record.array::<3>());
    put(140, &record.array::<2>());
    put(144, &record.array::<3>());
    put(200, &record.array::<4>());
    put(208, &record.array::<1>());
    let [unacknowledged, readable] = record.array::<2>();
    Reading {
        time_ns: now_ns,
        info: TcpInfo::parse(&info[..length]).unwrap_or_default(),
        unacknowledged: (unacknowledged > 0).then(|| u64::from(unacknowledged) << 8),
        readable: (readable > 0).then(|| u64::from(readable) << 8),
    }
}
