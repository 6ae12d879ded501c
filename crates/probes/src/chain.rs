//! XDP programs that call each other: a slot in another's program array.

use std::{
    fmt, io,
    num::ParseIntError,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    str::FromStr,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramMut};

use crate::{Error, error::io_error};

/// A slot of a pinned program array that an XDP program of somebody else makes tail calls to, and the slot to call from
/// there. As text: `MAP:SLOT[:NEXT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The path where the array is pinned.
    pub map: PathBuf,
    /// The slot to fill. It must be empty.
    pub slot: u32,
    /// The slot to call next; without one, or if it is empty, the packet passes.
    pub next: Option<u32>,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.map.display(), self.slot)?;
        self.next.map_or(Ok(()), |next| write!(f, ":{next}"))
    }
}

impl FromStr for Chain {
    type Err = String;

    fn from_str(text: &str) -> Result<Chain, String> {
        let wanted = "write MAP:SLOT or MAP:SLOT:NEXT, as in /sys/fs/bpf/slots:1:2";
        let number = |text: &str| -> Result<u32, ParseIntError> { text.parse() };
        let (map, last) = text.rsplit_once(':').ok_or(wanted)?;
        let last = number(last).map_err(|_| wanted)?;
        let (map, slot, next) = match map.rsplit_once(':').map(|(map, slot)| (map, number(slot))) {
            Some((map, Ok(slot))) => (map, slot, Some(last)),
            _ => (map, last, None),
        };
        if map.is_empty() {
            return Err(wanted.into());
        }
        if next == Some(slot) {
            return Err("NEXT is SLOT: the program would call itself".into());
        }
        Ok(Chain { map: map.into(), slot, next })
    }
}

impl Chain {
    /// Opens the array.
    pub(crate) fn open(&self) -> Result<MapHandle, Error> {
        let map = MapHandle::from_pinned_path(&self.map)
            .map_err(|error| self.failure(io_error(&error), "is a program array pinned there?"))?;
        if map.map_type() != MapType::ProgArray {
            let io = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(self.failure(io, "the map is not a program array"));
        }
        Ok(map)
    }

    /// Puts a program into the slot, until the result is dropped.
    pub(crate) fn enter(&self, program: &ProgramMut<'_>) -> Result<Slot, Error> {
        let map = self.open()?;
        let key = self.slot.to_ne_bytes();
        if let Ok(Some(_)) = map.lookup(&key, MapFlags::ANY) {
            let io = io::Error::from_raw_os_error(nix::libc::EBUSY);
            return Err(self.failure(io, "another program has this slot: name an empty one"));
        }
        let fd = program.as_fd().as_raw_fd().to_ne_bytes();
        map.update(&key, &fd, MapFlags::ANY).map_err(|error| {
            let io = io_error(&error);
            self.failure(io, "is the slot within the array, and are its programs XDP programs?")
        })?;
        let entry = map.lookup(&key, MapFlags::ANY).ok().flatten();
        Ok(Slot { map, key, entry })
    }

    /// Replaces dwell's program in the slot, atomically.
    pub(crate) fn replace(&self, program: &ProgramMut<'_>) -> Result<(), Error> {
        let fd = program.as_fd().as_raw_fd().to_ne_bytes();
        self.open()?
            .update(&self.slot.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|error| self.failure(io_error(&error), "was the array replaced?"))
    }

    fn failure(&self, io: io::Error, remedy: &'static str) -> Error {
        Error::Chain { chain: self.to_string(), io, remedy }
    }
}

/// A filled slot. Dropping it empties the slot, unless another program has been put there.
#[derive(Debug)]
pub(crate) struct Slot {
    map: MapHandle,
    key: [u8; 4],
    /// The content that the kernel shows: our program's number.
    entry: Option<Vec<u8>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let entry = self.map.lookup(&self.key, MapFlags::ANY).ok().flatten();
        if entry == self.entry {
            // An error cannot be reported here.
            let _ = self.map.delete(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_map_and_slots() {
        let chain = |map: &str, slot, next| Ok(Chain { map: map.into(), slot, next });
        assert_eq!("/b/slots:3".parse(), chain("/b/slots", 3, None));
        assert_eq!("/b/slots:3:4".parse(), chain("/b/slots", 3, Some(4)));
        assert_eq!("/b/odd:name:4".parse(), chain("/b/odd:name", 4, None));
        for wrong in ["/b/slots", "/b/slots:", ":1", "/b/slots:-1", "/b/slots:1:x", "/b/slots:1:1"] {
            assert!(wrong.parse::<Chain>().is_err(), "{wrong}");
        }
    }
}
