//! Opens and loads BPF objects, and keeps libbpf's message about a failure.
#![allow(unsafe_code)]

use std::{
    cell::RefCell,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::Once,
    thread,
    time::Duration,
};

use flate2::read::ZlibDecoder;
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapMut, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
    libbpf_sys,
};
use nix::libc;

use crate::{
    Error,
    error::{io_error, load_remedy},
    host::{self, Capability},
    vantage::failed,
};

thread_local! {
    /// libbpf's first message in this thread since an object was opened. Objects are loaded in several threads at once.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Opens an object that is part of the executable, compressed (build.rs).
pub(crate) fn open(what: &'static str, compressed: &[u8]) -> Result<OpenObject, Error> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            MESSAGE.with_borrow_mut(|first| {
                if first.is_empty() {
                    first.push_str(message.trim().trim_start_matches("libbpf: "));
                }
            });
        })));
    });
    MESSAGE.with_borrow_mut(String::clear);
    let mut bytes = Vec::new();
    let read = ZlibDecoder::new(compressed).read_to_end(&mut bytes);
    read.unwrap_or_else(|error| panic!("the build compressed {what}: {error}"));
    // The name precedes that of its constants; without one it would be an address.
    let mut builder = ObjectBuilder::default();
    let named = builder.name("dwell").and_then(|builder| builder.open_memory(&bytes));
    named.map_err(|error| failure(what, &error))
}

/// Sizes the maps of an opened object, by their names, and writes the constants of its programs, by their sections.
pub(crate) fn configure(
    object: &mut OpenObject,
    entries: impl Fn(&str) -> Option<u32>,
    constants: &[(&str, &[u8])],
) -> Result<(), Error> {
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(entries) = entries(&name) {
            map.set_max_entries(entries).map_err(failed("size", "tables"))?;
        }
        if let Some((_, bytes)) = constants.iter().find(|(section, _)| name.ends_with(*section)) {
            map.set_initial_value(bytes).map_err(failed("write", "configuration"))?;
        }
    }
    Ok(())
}

/// Loads an opened object into the kernel.
pub(crate) fn load(what: &'static str, object: OpenObject) -> Result<Object, Error> {
    object.load().map_err(|error| failure(what, &error))
}

/// The same for programs that call bpf_loop: a kernel that lacks it refuses them as it refuses any wrong program.
pub(crate) fn load_looping(what: &'static str, object: OpenObject) -> Result<Object, Error> {
    load(what, object).map_err(|error| if host::has_loop() { error } else { Error::NoLoop { what } })
}

/// Returns the maps of a loaded object in their order, for [`load_more`].
pub(crate) fn handles(object: &Object) -> Result<Vec<MapHandle>, Error> {
    object.maps().map(|map| MapHandle::try_from(&map).map_err(failed("share", "maps"))).collect()
}

/// Loads another program of an object, over the maps of those that are loaded. Verifying one takes a quarter of a second, so
/// that those which are seldom needed are loaded when they are.
pub(crate) fn load_more(
    what: &'static str,
    compressed: &[u8],
    maps: &[MapHandle],
    name: &'static str,
) -> Result<Object, Error> {
    let mut object = open(what, compressed)?;
    // Not by their names: a map that was replaced has that of the other one.
    for (mut map, ours) in object.maps_mut().zip(maps) {
        map.reuse_fd(ours.as_fd()).map_err(|error| failure(what, &error))?;
    }
    for mut program in object.progs_mut() {
        let is_wanted = program.name() == name;
        program.set_autoload(is_wanted);
    }
    load(what, object)
}

fn failure(what: &'static str, error: &libbpf_rs::Error) -> Error {
    let io = io_error(error);
    let denied = io.kind() == io::ErrorKind::PermissionDenied;
    let lacking = Capability::missing(&Capability::TO_LOAD);
    let detail = if denied && !lacking.is_empty() {
        format!("this process lacks {}", lacking.join(", "))
    } else {
        MESSAGE.with_borrow(|message| message.lines().next().unwrap_or_default().to_owned())
    };
    Error::Load {
        what,
        remedy: load_remedy(&io, !lacking.is_empty()),
        io,
        detail: if detail.is_empty() { detail } else { format!(" ({detail})") },
    }
}

/// Finds a program of a loaded object. Panics if the object has no program of that name.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    find_program(object, name).unwrap_or_else(|| panic!("the object has the program {name}"))
}

pub(crate) fn find_program<'a>(object: &'a Object, name: &str) -> Option<ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name)
}

/// Finds a map of a loaded object. Panics if the object has no map of that name.
///
/// A chain's array takes the place of a map of the object, and its own name, which may be that of another map.
pub(crate) fn map<'a>(object: &'a mut Object, name: &str) -> MapMut<'a> {
    let is_named = |map: &MapMut<'_>| map.name() == name && map.map_type() != MapType::ProgArray;
    object.maps_mut().find(is_named).unwrap_or_else(|| panic!("the object has the map {name}"))
}

/// Waits until every program that is running now has ended, so that none still uses what it has read before.
fn wait_for_running_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: the call touches no memory of this process.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if waited != 0 {
        // Kernels with isolated CPUs refuse; a program runs for microseconds.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Switches programs to the other of two generations, which a map of one word names. Returns it when no program counts in
/// the past one any more.
pub(crate) fn flip(generation: &dyn MapCore, past: u32) -> Result<u32, Error> {
    let next = 1 - past;
    generation.update(&[0; 4], &next.to_ne_bytes(), MapFlags::ANY).map_err(|error| Error::Map {
        operation: "write",
        map: "generation",
        io: io_error(&error),
    })?;
    wait_for_running_programs();
    Ok(next)
}

/// Returns the size of what the kernel reads or writes for an element of a map: of an array with a value per CPU the values of
/// all possible CPUs, each at a multiple of eight bytes.
pub(crate) fn element_bytes(map: &dyn MapCore) -> io::Result<usize> {
    let bytes = map.value_size() as usize;
    match map.map_type().is_percpu() {
        true => Ok(bytes.next_multiple_of(8) * libbpf_rs::num_possible_cpus().map_err(|error| io_error(&error))?),
        false => Ok(bytes),
    }
}

/// The bytes that one system call reads or writes at most, unless a single element has more: with a value for each of hundreds of
/// CPUs, those of all elements together may be a gigabyte.
const BATCH_BYTES: usize = 1 << 18;

/// Returns how many elements of `element_bytes` bytes one system call reads or writes.
fn batch_len(element_bytes: usize) -> usize {
    (BATCH_BYTES / element_bytes).max(1)
}

/// Reads the elements of an array from index 0 on, as few system calls at a time as possible, and passes the bytes of some on at a
/// time, in order. Kernels before 5.13 refuse that for an array with a value per CPU.
pub(crate) fn read_batches(map: &dyn MapCore, count: u32, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    assert_eq!(map.key_size(), 4, "an array");
    let bytes = element_bytes(map)?;
    let most = batch_len(bytes).min(count as usize);
    let (mut values, mut keys) = (vec![0u8; bytes * most], vec![0u32; most]);
    let (mut last, mut left) = (None::<u32>, count as usize);
    let options = batch_options();
    while left > 0 {
        let wanted = most.min(left) as u32;
        let (mut next, mut found) = (0u32, wanted);
        // SAFETY: `keys` and `values` have room for `wanted` elements of the map, `next` has room for a key, and `last` has one
        // or is none.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                last.as_mut().map_or(ptr::null_mut(), |last| ptr::from_mut(last).cast()),
                ptr::from_mut(&mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &mut found,
                &options,
            )
        };
        match result {
            0 | MISSING if found == wanted => each(&values[..bytes * wanted as usize]),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
        last = Some(next);
        left -= wanted as usize;
    }
    Ok(())
}

/// What the kernel returns at the end of a map.
const MISSING: i32 = -libc::ENOENT;

/// Writes elements of an array under these indices, as [`read_batches`] reads them. After an error, some may have been written.
pub(crate) fn write_batch(map: &dyn MapCore, indices: &[u32], values: &[u8]) -> io::Result<()> {
    let bytes = element_bytes(map)?;
    assert_eq!((map.key_size(), values.len()), (4, bytes * indices.len()), "an element per index");
    let most = batch_len(bytes);
    let options = batch_options();
    for (indices, values) in indices.chunks(most).zip(values.chunks(most * bytes)) {
        let mut count = indices.len() as u32;
        // SAFETY: the kernel reads as many indices and elements as `count` says.
        let result = unsafe {
            libbpf_sys::bpf_map_update_batch(
                map.as_fd().as_raw_fd(),
                indices.as_ptr().cast(),
                values.as_ptr().cast(),
                &mut count,
                &options,
            )
        };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
    }
    Ok(())
}

/// Writes zeros to elements of an array, as [`write_batch`] writes.
pub(crate) fn write_zeros(map: &dyn MapCore, indices: &[u32]) -> io::Result<()> {
    let bytes = element_bytes(map)?;
    let most = batch_len(bytes);
    let zeros = vec![0u8; bytes * most.min(indices.len())];
    indices.chunks(most).try_for_each(|some| write_batch(map, some, &zeros[..bytes * some.len()]))
}

fn batch_options() -> libbpf_sys::bpf_map_batch_opts {
    libbpf_sys::bpf_map_batch_opts { sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as _, ..Default::default() }
}

/// The number of runs of a program and their time in nanoseconds, if the kernel counts them.
pub(crate) fn run_time(program: &ProgramMut<'_>) -> Option<(u64, u64)> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is as long as `length` says, and zeros ask for no arrays.
    let failed = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut length) };
    (failed == 0).then_some((info.run_cnt, info.run_time_ns))
}

/// Makes the kernel count runs and run time of all BPF programs until the descriptor is closed. `None` without privilege,
/// or before Linux 5.8.
pub fn count_run_times() -> Option<OwnedFd> {
    // SAFETY: the call touches no memory of this process.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: a descriptor that is not negative is new, so nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
