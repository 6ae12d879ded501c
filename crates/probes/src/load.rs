//! Opens and loads BPF objects, and keeps libbpf's message about a failure.
#![allow(unsafe_code)]

use std::{
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
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
    ObjectBuilder::default().open_memory(&bytes).map_err(|error| failure(what, &error))
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
