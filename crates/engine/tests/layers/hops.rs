//! Hops from device to device.

use dwell_engine::layers::{ByteRange, DevicePoint, Hop, Point};

use crate::support::{GRID, Host};

const BYTE: ByteRange = ByteRange { seq: GRID, bytes: 100 };

fn place(namespace: u32, device: u32, point: Point) -> DevicePoint {
    DevicePoint { namespace, device, point }
}

#[test]
fn a_byte_is_timed_from_each_device_to_the_next() {
    let mut host = Host::new();
    let way = [
        (place(7, 2, Point::Queue), 1_000),
        (place(7, 2, Point::Out), 5_000),
        (place(1, 9, Point::In), 6_000),
        (place(1, 3, Point::Out), 16_000),
    ];
    let mut hops = Vec::new();
    for (place, now_ns) in way {
        hops.extend(host.path.cross(host.flow, BYTE, place, now_ns));
    }
    let hop = |index: usize| Hop { origin: way[0].0, from: way[index].0, to: way[index + 1].0 };
    assert_eq!(hops, [(hop(0), 4_000), (hop(1), 1_000), (hop(2), 10_000)]);
}

/// The wait for the second copy is not a hop from the last device to the first.
#[test]
fn a_byte_that_is_sent_again_starts_its_path_anew() {
    let mut host = Host::new();
    let [first, second] = [place(7, 2, Point::Out), place(1, 9, Point::In)];
    host.path.cross(host.flow, BYTE, first, 1_000);
    assert_eq!(host.path.cross(host.flow, BYTE, second, 2_000).len(), 1);
    assert_eq!(host.path.cross(host.flow, BYTE, first, 200_000_000), []);
    let again = host.path.cross(host.flow, BYTE, second, 200_003_000);
    assert_eq!(again.iter().map(|(_, ns)| *ns).collect::<Vec<_>>(), [3_000]);
}

#[test]
fn other_bytes_and_the_same_place_are_no_hop() {
    let mut host = Host::new();
    let [first, second] = [place(7, 2, Point::Out), place(1, 9, Point::In)];
    host.path.cross(host.flow, BYTE, first, 1_000);
    let other = ByteRange { seq: 2 * GRID, bytes: 100 };
    assert_eq!(host.path.cross(host.flow, other, second, 2_000), []);
    assert_eq!(host.path.cross(host.flow, BYTE, second, 2_000).len(), 1);
    assert_eq!(host.path.cross(host.flow, BYTE, second, 3_000), []);
}
