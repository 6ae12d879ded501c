/// Byte order of the numbers in a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// Reads two bytes at `at`. The caller has checked that the bytes are there.
    #[inline]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = array(bytes, at);
        match self {
            Order::Little => u16::from_le_bytes(raw),
            Order::Big => u16::from_be_bytes(raw),
        }
    }

    /// Reads four bytes; see [`Order::u16`].
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = array(bytes, at);
        match self {
            Order::Little => u32::from_le_bytes(raw),
            Order::Big => u32::from_be_bytes(raw),
        }
    }

    /// Reads eight bytes; see [`Order::u16`].
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let raw = array(bytes, at);
        match self {
            Order::Little => u64::from_le_bytes(raw),
            Order::Big => u64::from_be_bytes(raw),
        }
    }

    /// Writes two bytes.
    pub(crate) fn to_u16(self, value: u16) -> [u8; 2] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    /// Writes four bytes.
    pub(crate) fn to_u32(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    /// Writes eight bytes.
    pub(crate) fn to_u64(self, value: u64) -> [u8; 8] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes makes an array of N bytes")
}
