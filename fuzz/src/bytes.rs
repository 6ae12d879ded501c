//! Decoding of a fuzzer's bytes into choices.

/// The unread rest of an input. Past its end every choice is 0, which stands for the simplest case.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Starts at the beginning of an input.
    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    /// Reads the next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let n = N.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        array[..n].copy_from_slice(head);
        self.0 = rest;
        array
    }

    /// Reads the rest as records of `N` bytes. The last one is padded with zeros.
    pub fn records<const N: usize>(mut self) -> impl Iterator<Item = [u8; N]> {
        std::iter::from_fn(move || (!self.0.is_empty()).then(|| self.array()))
    }

    /// Returns the unread rest.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
