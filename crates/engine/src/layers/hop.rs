//! The path of bytes from device to device: `core/stack/hops.h`.

use zerocopy::FromBytes;

use crate::{abi, histogram::Histogram};

/// The position of a packet at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Before the queueing discipline.
    Queue,
    /// Handed to the driver.
    Out,
    /// Received from the driver.
    In,
}

impl Point {
    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Point::Queue => "queue",
            Point::Out => "out",
            Point::In => "in",
        }
    }
}

/// A point at a network device where packets are observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevicePoint {
    /// The number of the network namespace of the device.
    pub namespace: u32,
    /// The number of the device in its namespace.
    pub device: u32,
    /// The position at the device.
    pub point: Point,
}

impl DevicePoint {
    /// Converts to the core's format.
    pub fn to_core(self) -> abi::dwell_device_point {
        abi::dwell_device_point {
            netns: self.namespace,
            device: self.device,
            point: match self.point {
                Point::Queue => abi::DWELL_POINT_QUEUE,
                Point::Out => abi::DWELL_POINT_OUT,
                Point::In => abi::DWELL_POINT_IN,
            },
            reserved: 0,
        }
    }

    fn from_core(point: &abi::dwell_device_point) -> DevicePoint {
        DevicePoint {
            namespace: point.netns,
            device: point.device,
            point: match point.point {
                abi::DWELL_POINT_QUEUE => Point::Queue,
                abi::DWELL_POINT_OUT => Point::Out,
                _ => Point::In,
            },
        }
    }
}

/// The part of a path between two adjacent observed devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The point where the bytes were first observed.
    pub origin: DevicePoint,
    /// The start of the hop.
    pub from: DevicePoint,
    /// The end of the hop.
    pub to: DevicePoint,
}

impl Hop {
    pub(super) fn from_core(hop: &abi::dwell_stack_hop) -> Hop {
        Hop {
            origin: DevicePoint::from_core(&hop.origin),
            from: DevicePoint::from_core(&hop.from),
            to: DevicePoint::from_core(&hop.to),
        }
    }
}

/// The time that a hop took in an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct HopTime {
    /// The hop.
    pub hop: Hop,
    /// The histogram generation that counted it, 0 or 1.
    pub generation: u64,
    /// The mean time from the origin to the start of the hop, in nanoseconds.
    pub since_ns: u64,
    /// The distribution of times, with the coarse buckets of a flow.
    pub histogram: Histogram,
}

impl HopTime {
    /// Decodes an entry of the kernel's map. `None` if the kernel did not write these bytes.
    pub fn from_kernel(key: &[u8], value: &[u8]) -> Option<HopTime> {
        let hop = abi::dwell_stack_hop::read_from_bytes(key).ok()?;
        let (time, _) = abi::dwell_stack_hop_time::ref_from_prefix(value).ok()?;
        let mut histogram = Histogram::default();
        histogram.merge_coarse(&time.took);
        Some(HopTime {
            hop: Hop::from_core(&hop),
            generation: hop.generation,
            since_ns: time.since_ns.checked_div(time.took.count).unwrap_or(0),
            histogram,
        })
    }
}
