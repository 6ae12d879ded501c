//! Access to the maps of a balancer.

use std::{
    io::ErrorKind,
    os::fd::{AsFd, AsRawFd},
};

use dwell_engine::abi;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramInput, ProgramMut, libbpf_sys};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Error,
    error::io_error,
    vantage::{failed, read_percpu},
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

/// Reads the first values of an array, with one system call for all.
pub(super) fn read_array<V: FromBytes + KnownLayout + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    count: u32,
) -> Result<Vec<V>, Error> {
    let found = map.lookup_batch(count, MapFlags::ANY, MapFlags::ANY).map_err(failed("read", name))?;
    let values = found.take(count as usize).filter_map(|(_, value)| V::read_from_bytes(&value).ok());
    let values: Vec<V> = values.collect();
    match values.len() == count as usize {
        true => Ok(values),
        // The iterator ends at an error, too, and does not tell it.
        false => Err(Error::Map { operation: "read", map: name, io: ErrorKind::UnexpectedEof.into() }),
    }
}

/// Writes the first values of an array, with one system call for all.
pub(super) fn write_array<V: IntoBytes + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    values: &[V],
) -> Result<(), Error> {
    let count = values.len() as u32;
    let keys: Vec<u32> = (0..count).collect();
    let written = map.update_batch(keys.as_bytes(), values.as_bytes(), count, MapFlags::ANY, MapFlags::ANY);
    written.map_err(failed("write", name))
}

/// Deletes a key. A missing key is not an error.
pub(super) fn delete(map: &dyn MapCore, name: &'static str, key: &[u8]) -> Result<(), Error> {
    let gone = map.delete(key).map_err(failed("write", name));
    match gone {
        Err(Error::Map { io, .. }) if io.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Resets the counts under an index on all CPUs.
pub(super) fn reset_counts(map: &dyn MapCore, name: &'static str, index: u32) -> Result<(), Error> {
    let mut cpus = read_percpu(map, name, index)?;
    cpus.iter_mut().for_each(|cpu| cpu.fill(0));
    map.update_percpu(&index.to_ne_bytes(), &cpus, MapFlags::ANY).map_err(failed("write", name))
}

/// Reads the values of all CPUs under an index.
pub(super) fn read_cpus<V: FromBytes + KnownLayout + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    index: u32,
) -> Result<Vec<V>, Error> {
    let cpus = read_percpu(map, name, index)?;
    Ok(cpus.iter().filter_map(|bytes| V::read_from_prefix(bytes).ok()).map(|(value, _)| value).collect())
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

/// Creates the map of a Maglev table from the numbers of backends. It is not used before it is swapped in.
pub(super) fn maglev(entries: &[u32]) -> Result<MapHandle, Error> {
    let chunks = entries.len().div_ceil(abi::DWELL_CHUNK as usize).max(1) as u32;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_INNER_MAP,
        ..Default::default()
    };
    let map =
        MapHandle::create(MapType::Array, Some("maglev"), 4, size_of::<abi::dwell_chunk>() as u32, chunks, &options)
            .map_err(failed("create", "maglev"))?;
    let keys: Vec<u8> = (0..chunks).flat_map(u32::to_ne_bytes).collect();
    let mut values: Vec<u32> = entries.to_vec();
    values.resize((chunks * abi::DWELL_CHUNK) as usize, 0);
    map.update_batch(&keys, values.as_bytes(), chunks, MapFlags::ANY, MapFlags::ANY)
        .map_err(failed("write", "maglev"))?;
    Ok(map)
}

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
pub(super) fn swap(tables: &dyn MapCore, new: &[(u32, MapHandle)]) -> Result<(), Error> {
    if new.is_empty() {
        return Ok(());
    }
    let fd = |table: &MapHandle| table.as_fd().as_raw_fd().to_ne_bytes();
    let keys: Vec<u8> = new.iter().flat_map(|(vip, _)| vip.to_ne_bytes()).collect();
    let fds: Vec<u8> = new.iter().flat_map(|(_, table)| fd(table)).collect();
    let count = new.len() as u32;
    let batch = tables.update_batch(&keys, &fds, count, MapFlags::ANY, MapFlags::ANY);
    if batch.is_ok() {
        return Ok(());
    }
    // Kernels before 5.19 do not support batches of tables.
    new.iter().try_for_each(|(vip, table)| {
        tables.update(&vip.to_ne_bytes(), &fd(table), MapFlags::ANY).map_err(failed("write", "tables"))
    })
}

/// The XDP verdict of a packet that is passed on (linux/bpf.h).
pub(super) const XDP_PASS: u32 = 2;
/// The XDP verdict of a packet that leaves by another device.
pub(super) const XDP_REDIRECT: u32 = 4;

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
