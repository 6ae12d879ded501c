//! Input of the engine: raw observations, each with its time.

/// A packet as a source saw it.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The time in nanoseconds on the source's clock: Unix time for captures.
    pub time_ns: u64,
    /// The source's number of the interface. Flows of different interfaces are kept apart.
    pub interface: u32,
    /// The registry number of the link type (LINKTYPE_*), which determines the header at the start of `data`.
    pub link: u32,
    /// The captured bytes, starting with the link header.
    pub data: &'a [u8],
    /// The length on the wire, at least `data.len()`.
    pub wire_len: u32,
}

/// The link types that the parser supports, by registry number.
pub const LINK_TYPES: [(u32, &str); 10] = [
    (0, "NULL"),
    (1, "EN10MB"),
    (12, "RAW"),
    (14, "RAW"),
    (101, "RAW"),
    (108, "LOOP"),
    (113, "LINUX_SLL"),
    (228, "IPV4"),
    (229, "IPV6"),
    (276, "LINUX_SLL2"),
];

/// Returns whether packets of this link type can be parsed.
pub fn knows_link(link: u32) -> bool {
    LINK_TYPES.iter().any(|(number, _)| *number == link)
}
