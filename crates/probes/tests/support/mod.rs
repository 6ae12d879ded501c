//! Captures, and their packets.

use std::path::{Path, PathBuf};

use dwell_capture::Reader;

/// Packets: their times in nanoseconds, and their bytes.
pub type Packets = Vec<(u64, Vec<u8>)>;

/// Reads the packets of an Ethernet capture, padded with zeros to their length on the wire, as the kernel accepts whole
/// packets only.
pub fn packets(path: &Path) -> Packets {
    let mut packets = Vec::new();
    let Ok(mut reader) = Reader::open(path) else {
        return packets;
    };
    while let Ok(Some(packet)) = reader.next_packet() {
        let mut data = packet.data.to_vec();
        data.resize(packet.wire_len.max(14) as usize, 0);
        // The kernel would give a packet without a time one of its own.
        if packet.link.0 == 1 && data.len() < 60_000 && packet.is_timed {
            packets.push((packet.time_ns, data));
        }
    }
    packets
}

pub fn captures() -> Vec<PathBuf> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = crate_folder.join("../../../shared/captures");
    if !shared.exists() {
        eprintln!("the folder of third-party captures is not here: only our own are compared");
    }
    let mut files = Vec::new();
    for folder in [crate_folder.join("../../tests/captures"), shared.clone(), shared.join("nasty")] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}
