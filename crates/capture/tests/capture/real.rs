//! Captures from elsewhere, with the packet counts other programs found in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dwell_capture::{Error, LinkType, Reader};
use serde_json::Value;

use crate::{
    build::{drain, dribble, gzip},
    skip::skip,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");

/// The folder with the captures, which are not part of this repository.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(FOLDER);
    if folder.is_dir() {
        return Some(folder.to_owned());
    }
    skip("there are no captures of others");
    None
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Path of the capture that a reference speaks of, under `folder`.
fn capture_of(reference: &Value, folder: &Path) -> PathBuf {
    let listed = Path::new(reference["file"].as_str().unwrap());
    folder.join(listed.file_name().unwrap())
}

#[test]
fn good_captures_hold_as_many_packets_as_other_programs_count() {
    let Some(folder) = folder() else { return };
    for number in 1..=14 {
        let reference = json(&folder.join(format!("refs/A{number:02}.json")));
        let path = capture_of(&reference, &folder);
        let (packets, error) = drain(Reader::open(&path));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(Some(packets.len() as u64), reference["scan"]["n"].as_u64(), "{path:?}");
        let first_s = reference["scan"]["t0"].as_f64().unwrap();
        let difference_s = packets[0].time_ns as f64 / 1e9 - first_s;
        assert!(difference_s.abs() < 1e-5, "{path:?} begins {difference_s} s off");
    }
}

#[test]
fn nasty_captures_hold_as_many_packets_as_tshark_counts() {
    let Some(folder) = folder() else { return };
    let references = json(&folder.join("refs/nasty_A.json"));
    let references = references.as_array().unwrap();
    assert_eq!(references.len(), 34);
    for reference in references {
        let path = capture_of(reference, &folder.join("nasty"));
        let mut expected = reference["obs"]["tshark_frames"].as_u64();
        if reference["id"] == "N04" {
            // tshark also shows its three custom blocks as frames; capinfos counts 8 packets.
            expected = expected.map(|frames| frames - 3);
        }
        let (packets, error) = drain(Reader::open(&path));
        assert_eq!(Some(packets.len() as u64), expected, "{path:?}");
        let faultless = reference["obs"]["tshark_rc"] == 0;
        match error {
            None => assert!(faultless, "{path:?}"),
            Some(error) => assert!(!faultless && error.is_incomplete_data(), "{path:?}: {error}"),
        }
    }
}

#[test]
fn nasty_captures_show_what_makes_them_nasty() {
    let Some(folder) = folder() else { return };
    let nasty = |name: &str| drain(Reader::open(&folder.join("nasty").join(name)));

    let (packets, _) = nasty("N04_test202.pcapng");
    let seen: Vec<_> =
        packets.iter().map(|packet| (packet.interface, packet.link, packet.data.len(), packet.wire_len)).collect();
    let (ethernet, null) = (LinkType::EN10MB, LinkType::NULL);
    assert_eq!(
        seen,
        [
            (0, ethernet, 96, 314),
            (0, ethernet, 96, 342),
            (1, null, 168, 168),
            (2, ethernet, 128, 314),
            (2, ethernet, 128, 342),
            (2, ethernet, 128, 314),
            (2, ethernet, 128, 342),
            // It goes on in the third section under its name; the other one's first packet there has no time.
            (1, null, 168, 168),
        ]
    );
    let (packets, _) = nasty("N23_pcap_v2.2.dmp.gz");
    assert_eq!((packets[39].data.len(), packets[39].wire_len), (68, 590));
    assert_eq!(packets[39].time_ns, 855_707_159_266_986_000);

    let (_, error) = nasty("N15_truncated_dns_2.pcap");
    assert!(matches!(error, Some(Error::Truncated { packets: 1, offset: 240, .. })), "{error:?}");
    let (_, error) = nasty("N16_tls_DER-incomplete-header.pcap");
    assert!(matches!(error, Some(Error::Corrupt { packets: 6, offset: 5035, .. })), "{error:?}");
    let (packets, _) = nasty("N20_fuzz-2021-10-13.pcap");
    assert_eq!((packets[0].link, packets[0].wire_len), (null, 524_501));
}

#[test]
fn neither_gzip_nor_small_reads_change_a_real_capture() {
    let Some(folder) = folder() else { return };
    for folder in [folder.clone(), folder.join("nasty")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let (expected, error) = drain(Reader::open(&path));
            if path.is_dir() || matches!(error, Some(Error::NotACapture { .. })) {
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let (packets, _) = drain(Reader::from_read("test", Box::new(dribble(&bytes, 1009))));
            assert!(packets == expected, "{path:?} read in small pieces");
            if !bytes.starts_with(&[0x1f, 0x8b]) {
                let packed = gzip(&bytes);
                let (packets, _) = drain(Reader::from_read("test", Box::new(dribble(&packed, 4099))));
                assert!(packets == expected, "{path:?} packed");
            }
        }
    }
}

#[test]
fn other_files_are_no_captures() {
    let Some(folder) = folder() else { return };
    for entry in fs::read_dir(folder.join("nonpcap")).unwrap() {
        let (_, error) = drain(Reader::open(&entry.unwrap().path()));
        assert!(matches!(error, Some(Error::NotACapture { .. })), "{error:?}");
    }
}
