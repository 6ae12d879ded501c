//! The way of bytes from device to device: `core/stack/hops.h`.

use zerocopy::FromBytes;

use crate::{abi, histogram::Histogram};

/// Where a packet is at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Before its queueing discipline.
    Queue,
    /// Given to its driver.
    Out,
    /// Taken from its driver.
    In,
}

impl Point {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Point::Queue => "queue",
            Point::Out => "out",
            Point::In => "in",
        }
    }
}

/// A point at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The number of the network namespace that the device is in.
    pub namespace: u32,
    /// The device's number there.
    pub device: u32,
    /// At which side of it.
    pub point: Point,
}

impl Place {
    /// As the core takes it.
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

    fn from_core(place: &abi::dwell_device_point) -> Place {
        Place {
            namespace: place.netns,
            device: place.device,
            point: match place.point {
                abi::DWELL_POINT_QUEUE => Point::Queue,
                abi::DWELL_POINT_OUT => Point::Out,
                _ => Point::In,
            },
        }
    }
}

/// From one device to the next, on a way that begins at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// Where the bytes were seen first.
    pub origin: Place,
    /// Where the hop begins.
    pub from: Place,
    /// Where it ends.
    pub to: Place,
}

impl Hop {
    pub(super) fn from_core(hop: &abi::dwell_stack_hop) -> Hop {
        Hop { origin: Place::from_core(&hop.origin), from: Place::from_core(&hop.from), to: Place::from_core(&hop.to) }
    }
}

/// What a hop took in an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct HopTime {
    /// Which hop.
    pub hop: Hop,
    /// Which of the two generations counted it.
    pub generation: u64,
    /// How long after the origin it began, on average.
    pub since_ns: u64,
    /// What it took; as coarse as a flow's.
    pub histogram: Histogram,
}

impl HopTime {
    /// As the kernel wrote it. `None` of bytes that it did not write.
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
