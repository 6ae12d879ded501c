//! What a source reports: raw facts, each with its time.

/// A packet as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Nanoseconds on the source's clock: Unix time for captures.
    pub time_ns: u64,
    /// The source's number for the interface; flows are kept apart by it.
    pub interface: u32,
    /// Registry number of the link type (LINKTYPE_*), which tells what `data` starts with.
    pub link: u32,
    /// The bytes that were kept, from the link header on.
    pub data: &'a [u8],
    /// Length on the wire, at least `data.len()`.
    pub wire_len: u32,
}

/// Link types that the parser knows, by registry number.
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

/// True if packets of this link type can be parsed.
pub fn knows_link(link: u32) -> bool {
    LINK_TYPES.iter().any(|(number, _)| *number == link)
}
