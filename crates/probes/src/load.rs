//! Opens and loads BPF objects, and keeps libbpf's message about a failure.
#![allow(unsafe_code)]

use std::{
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::{Mutex, Once},
    thread,
    time::Duration,
};

use flate2::read::ZlibDecoder;
use libbpf_rs::{MapCore, MapFlags, MapMut, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut, libbpf_sys};
use nix::libc;

use crate::{
    Error,
    error::{io_error, load_remedy},
    host::Capability,
    vantage::failed,
};

/// libbpf's first message since an object was opened.
static MESSAGE: Mutex<String> = Mutex::new(String::new());

/// Opens an object that is part of the executable, compressed (build.rs).
pub(crate) fn open(what: &'static str, compressed: &[u8]) -> Result<OpenObject, Error> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            if let Ok(mut first) = MESSAGE.lock()
                && first.is_empty()
            {
                first.push_str(message.trim().trim_start_matches("libbpf: "));
            }
        })));
    });
    if let Ok(mut first) = MESSAGE.lock() {
        first.clear();
    }
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

/// Loads another program of an object, over the maps of those that are loaded. Verifying one takes a quarter of a second, so
/// that those which are seldom needed are loaded when they are.
pub(crate) fn load_more(
    what: &'static str,
    compressed: &[u8],
    loaded: &Object,
    name: &'static str,
) -> Result<Object, Error> {
    let mut object = open(what, compressed)?;
    for mut map in object.maps_mut() {
        let ours = loaded.maps().find(|ours| ours.name() == map.name());
        let ours = ours.unwrap_or_else(|| panic!("both are the same object"));
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
        let message = MESSAGE.lock().map(|message| message.clone());
        let message = message.unwrap_or_default();
        message.lines().next().unwrap_or_default().to_owned()
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
pub(crate) fn map<'a>(object: &'a mut Object, name: &str) -> MapMut<'a> {
    object.maps_mut().find(|map| map.name() == name).unwrap_or_else(|| panic!("the object has the map {name}"))
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

/// Reads the elements of an array from index 0 on with one system call. Kernels before 5.13 refuse that for an array with a
/// value per CPU.
pub(crate) fn read_batch(map: &dyn MapCore, count: u32) -> io::Result<Vec<u8>> {
    assert_eq!(map.key_size(), 4, "an array");
    let mut values = vec![0u8; element_bytes(map)? * count as usize];
    let mut keys = vec![0u32; count as usize];
    let (mut last, mut found) = (0u32, count);
    let options = batch_options();
    // SAFETY: `keys` and `values` have room for `count` elements of the map, and `last` for a key.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            ptr::null_mut(),
            ptr::from_mut(&mut last).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut found,
            &options,
        )
    };
    match result {
        0 | MISSING if found == count => Ok(values),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What the kernel returns at the end of a map.
const MISSING: i32 = -libc::ENOENT;

/// Writes elements of an array under these indices with one system call, as [`read_batch`] reads them.
pub(crate) fn write_batch(map: &dyn MapCore, indices: &[u32], values: &[u8]) -> io::Result<()> {
    assert_eq!((map.key_size(), values.len()), (4, element_bytes(map)? * indices.len()), "an element per index");
    if indices.is_empty() {
        return Ok(());
    }
    let mut count = indices.len() as u32;
    let options = batch_options();
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
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
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
