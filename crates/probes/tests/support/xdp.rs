//! XDP programs by their instructions.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::PathBuf,
    process,
};

use dwell_testbed::skip::skip;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

/// A program array that stays pinned until it is dropped.
pub struct Slots {
    pub map: MapHandle,
    pub path: PathBuf,
}

impl Slots {
    /// Reports that the test is skipped, and returns `None`, if nothing can be pinned here.
    pub fn new(name: &str) -> Option<Slots> {
        let path = PathBuf::from(format!("/sys/fs/bpf/dwell-test-{name}-{}", process::id()));
        let mut map = map(MapType::ProgArray, 4);
        match map.pin(&path) {
            Ok(()) => Some(Slots { map, path }),
            Err(why) => {
                skip(format_args!("nothing can be pinned at {}: {why}", path.display()));
                None
            }
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A map of 4 entries by number.
pub fn map(kind: MapType, value_bytes: u32) -> MapHandle {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    MapHandle::create(kind, Some("test"), 4, value_bytes, 4, &options).unwrap()
}

/// Puts a program into a slot of an array.
pub fn put(slots: &MapHandle, slot: u32, program: &OwnedFd) {
    let fd = program.as_raw_fd().to_ne_bytes();
    slots.update(&slot.to_ne_bytes(), &fd, MapFlags::ANY).unwrap();
}

/// True if nothing is in a slot.
pub fn is_empty(slots: &MapHandle, slot: u32) -> bool {
    let found = slots.lookup(&slot.to_ne_bytes(), MapFlags::ANY);
    !matches!(found, Ok(Some(_)))
}

/// Loads a program, as libbpf loads those of a section "xdp": an array takes programs of one kind only.
pub fn load(instructions: &[u64]) -> OwnedFd {
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64,
        expected_attach_type: libbpf_sys::BPF_XDP,
        ..Default::default()
    };
    // SAFETY: the instructions are valid for their length, and copied.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"test".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as u64,
            (&raw const options).cast_mut(),
        )
    };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Attaches a program to a device of this network namespace, until the link is dropped.
pub fn attach(program: &OwnedFd, device: &str) -> OwnedFd {
    let index = nix::net::if_::if_nametoindex(device).unwrap();
    // SAFETY: the program's descriptor is open.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), index as i32, libbpf_sys::BPF_XDP, std::ptr::null())
    };
    assert!(link >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(link) }
}

pub const EXIT: u64 = 0x95;

/// r0 = a verdict.
pub fn verdict(number: u64) -> u64 {
    number << 32 | 0xb7
}

/// Adds one to the first entry of an array of numbers of 8 bytes.
pub fn count(counter: &MapHandle) -> [u64; 11] {
    [
        0x16bf,                         // r6 = r1, the packet
        0xfffc << 16 | 0x0a62,          // *(u32 *)(r10 - 4) = 0
        0xa2bf,                         // r2 = r10
        0xffff_fffc << 32 | 0x0207,     // r2 += -4
        number(counter) << 32 | 0x1118, // r1 = the array
        0,
        1 << 32 | 0x85,   // bpf_map_lookup_elem
        2 << 16 | 0x0015, // if r0 == 0 goto +2
        1 << 32 | 0x01b7, // r1 = 1
        0x10db,           // lock *(u64 *)r0 += r1
        0x61bf,           // r1 = r6
    ]
}

/// Calls a slot of an array, and goes on if there is nothing in it.
pub fn call(slots: &MapHandle, slot: u64) -> [u64; 4] {
    [
        number(slots) << 32 | 0x1218, // r2 = the array
        0,
        slot << 32 | 0x03b7, // r3 = the slot
        12 << 32 | 0x85,     // bpf_tail_call
    ]
}

fn number(map: &MapHandle) -> u64 {
    map.as_fd().as_raw_fd() as u64
}
