//! Access to the maps of a balancer.

use std::{
    io::ErrorKind,
    os::fd::{AsFd, AsRawFd},
    panic::resume_unwind,
    thread,
};

use dwell_engine::{abi, balance::Load};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramInput, ProgramMut, libbpf_sys};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Error,
    error::io_error,
    load,
    vantage::{failed, read_cpus, read_percpu},
};

/// Reads the value of a key.
pub(super) fn read<V: FromBytes + KnownLayout + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    key: &[u8],
) -> Result<Option<V>, Error> {
    let found = map.lookup(key, MapFlags::ANY).map_err(failed("read", name))?;
    Ok(found.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
}

/// Writes the value of a key.
pub(super) fn write<V: IntoBytes + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    key: &[u8],
    value: &V,
) -> Result<(), Error> {
    map.update(key, value.as_bytes(), MapFlags::ANY).map_err(failed("write", name))
}

/// Reads the first values of an array, with few system calls.
pub(super) fn read_array<V: FromBytes + KnownLayout + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    count: u32,
) -> Result<Vec<V>, Error> {
    let mut values = Vec::with_capacity(count as usize);
    let read = load::read_batches(map, count, |bytes| {
        values.extend(bytes.chunks_exact(size_of::<V>()).filter_map(|value| V::read_from_bytes(value).ok()));
    });
    read.map_err(|io| Error::Map { operation: "read", map: name, io })?;
    Ok(values)
}

/// Writes values of an array under these indices, with few system calls.
pub(super) fn write_array<V: IntoBytes + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    indices: &[u32],
    values: &[V],
) -> Result<(), Error> {
    let written = load::write_batch(map, indices, values.as_bytes());
    written.map_err(|io| Error::Map { operation: "write", map: name, io })
}

/// Deletes a key. A missing key is not an error.
pub(super) fn delete(map: &dyn MapCore, name: &'static str, key: &[u8]) -> Result<(), Error> {
    let gone = map.delete(key).map_err(failed("write", name));
    match gone {
        Err(Error::Map { io, .. }) if io.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Resets the counts under these indices on all CPUs.
pub(super) fn reset_counts(map: &dyn MapCore, name: &'static str, indices: &[u32]) -> Result<(), Error> {
    if load::write_zeros(map, indices).is_ok() {
        return Ok(());
    }
    // Kernels before 5.13 have no batches of values per CPU.
    indices.iter().try_for_each(|index| {
        let mut cpus = read_percpu(map, name, *index)?;
        cpus.iter_mut().for_each(|cpu| cpu.fill(0));
        map.update_percpu(&index.to_ne_bytes(), &cpus, MapFlags::ANY).map_err(failed("write", name))
    })
}

/// Reads the traffic under the first indices, summed over all CPUs.
pub(super) fn read_loads(map: &dyn MapCore, name: &'static str, count: u32) -> Result<Vec<Load>, Error> {
    const CPU_BYTES: usize = size_of::<abi::dwell_load>();
    const { assert!(CPU_BYTES.is_multiple_of(8), "there is nothing between the values of two CPUs") }
    let bytes = load::element_bytes(map).map_err(|io| Error::Map { operation: "read", map: name, io })?;
    let mut loads = Vec::with_capacity(count as usize);
    let sum = |cpus: &[u8]| {
        Load::sum(cpus.chunks_exact(CPU_BYTES).filter_map(|cpu| abi::dwell_load::read_from_bytes(cpu).ok()))
    };
    if load::read_batches(map, count, |some| loads.extend(some.chunks_exact(bytes).map(sum))).is_ok() {
        return Ok(loads);
    }
    // Kernels before 5.13 have no batches of values per CPU.
    (0..count).map(|index| Ok(Load::sum(read_cpus(map, name, index)?))).collect()
}

/// Reads the keys and values of the map of VIPs, including the entries for ICMP.
pub(super) fn vips(map: &dyn MapCore) -> Result<Vec<(abi::dwell_vip_key, abi::dwell_vip)>, Error> {
    let mut found = Vec::new();
    for key in map.keys() {
        let Some(vip) = read(map, "vips", &key)? else {
            continue;
        };
        if let Ok(key) = abi::dwell_vip_key::read_from_bytes(&key) {
            found.push((key, vip));
        }
    }
    Ok(found)
}

/// The number of threads that make tables, at most.
const MAX_THREADS: usize = 8;
/// Fewer tables are not worth a thread.
const TABLES_PER_THREAD: usize = 16;

/// Makes the maps of tables, on up to eight processors if there are many. They are not used before they are swapped in.
pub(super) fn maglevs(tables: &[(u32, &[u32])]) -> Result<Vec<(u32, MapHandle)>, Error> {
    let make = |tables: &[(u32, &[u32])]| -> Result<Vec<(u32, MapHandle)>, Error> {
        tables.iter().map(|(number, entries)| Ok((*number, maglev(entries)?))).collect()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let mut parts = tables.chunks(tables.len().div_ceil(threads).max(TABLES_PER_THREAD));
    let Some(own) = parts.next() else { return Ok(Vec::new()) };
    thread::scope(|scope| {
        let start = |part| (part, thread::Builder::new().spawn_scoped(scope, move || make(part)).ok());
        let others: Vec<_> = parts.map(start).collect();
        let mut made = make(own)?;
        for (part, other) in others {
            made.extend(match other {
                Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic))?,
                None => make(part)?,
            });
        }
        Ok(made)
    })
}

/// Creates the map of a Maglev table from the numbers of backends.
fn maglev(entries: &[u32]) -> Result<MapHandle, Error> {
    let chunks = entries.len().div_ceil(CHUNK).max(1) as u32;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_INNER_MAP,
        ..Default::default()
    };
    let map =
        MapHandle::create(MapType::Array, Some("maglev"), 4, size_of::<abi::dwell_chunk>() as u32, chunks, &options)
            .map_err(failed("create", "maglev"))?;
    let (whole, rest) = entries.as_chunks::<CHUNK>();
    let indices: Vec<u32> = (0..whole.len() as u32).collect();
    write_array(&map, "maglev", &indices, whole)?;
    if !rest.is_empty() {
        let mut last = [0; CHUNK];
        last[..rest.len()].copy_from_slice(rest);
        write_array(&map, "maglev", &[chunks - 1], &[last])?;
    }
    Ok(map)
}

/// The number of entries in an element of a table's map.
const CHUNK: usize = abi::DWELL_CHUNK as usize;

/// Reads the numbers of backends in a Maglev table, with zeros behind the last one; none if there is no such table.
pub(super) fn read_maglev(tables: &dyn MapCore, number: u32) -> Result<Vec<u32>, Error> {
    let id: Option<u32> = read(tables, "tables", &number.to_ne_bytes())?;
    let Some(id) = id else { return Ok(Vec::new()) };
    let table = MapHandle::from_map_id(id).map_err(failed("read", "tables"))?;
    let chunks: Vec<abi::dwell_chunk> = read_array(&table, "maglev", table.max_entries())?;
    Ok(chunks.iter().flat_map(|chunk| chunk.real).collect())
}

/// The number of tables that are swapped in at once. Each needs a file descriptor until then.
pub(super) const SWAP_BATCH: usize = 256;

/// Swaps tables in, by the numbers of their VIPs. A single update waits until no CPU uses the old table; a batch waits
/// only once.
pub(super) fn swap(tables: &dyn MapCore, new: &[(u32, &MapHandle)]) -> Result<(), Error> {
    let numbers: Vec<u32> = new.iter().map(|(number, _)| *number).collect();
    let fds: Vec<i32> = new.iter().map(|(_, table)| table.as_fd().as_raw_fd()).collect();
    if load::write_batch(tables, &numbers, fds.as_bytes()).is_ok() {
        return Ok(());
    }
    // Kernels before 5.19 do not support batches of tables.
    numbers.iter().zip(&fds).try_for_each(|(number, fd)| write(tables, "tables", &number.to_ne_bytes(), fd))
}

/// Removes tables. As each removal waits until no CPU uses the table, a table of zeros takes the place of several, which is `zeros`
/// once it was needed: [`read_maglev`] finds zeros there.
pub(super) fn remove(tables: &dyn MapCore, numbers: &[u32], zeros: &mut Option<MapHandle>) -> Result<(), Error> {
    let id = |map: &MapHandle| map.info().map(|info| info.info.id).ok();
    let gone = zeros.as_ref().and_then(id);
    let mut there = Vec::new();
    for number in numbers {
        let table: Option<u32> = read(tables, "tables", &number.to_ne_bytes())?;
        there.extend(table.filter(|table| Some(*table) != gone).map(|_| *number));
    }
    if there.len() > 1 {
        if zeros.is_none() {
            *zeros = maglev(&[]).ok();
        }
        let replace = |zeros: &MapHandle| {
            let fds = vec![zeros.as_fd().as_raw_fd(); SWAP_BATCH.min(there.len())];
            let mut parts = there.chunks(SWAP_BATCH);
            parts.all(|some| load::write_batch(tables, some, fds[..some.len()].as_bytes()).is_ok())
        };
        if zeros.as_ref().is_some_and(replace) {
            return Ok(());
        }
    }
    // Kernels before 5.19 do not support batches of tables.
    there.iter().try_for_each(|number| delete(tables, "tables", &number.to_ne_bytes()))
}

/// The bytes that encapsulation may add to a frame, with some to spare.
const GROWTH: usize = 256;

/// Runs an XDP program over a frame. Returns its verdict and the frame after it.
pub(super) fn run_xdp(program: &ProgramMut<'_>, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
    let mut out = vec![0; frame.len() + GROWTH];
    let ran = program
        .test_run(ProgramInput { data_in: Some(frame), data_out: Some(&mut out), ..Default::default() })
        .map_err(|error| Error::Run(io_error(&error)))?;
    let frame = ran.data.map_or_else(Vec::new, |data| data.to_vec());
    Ok((ran.return_value, frame))
}
