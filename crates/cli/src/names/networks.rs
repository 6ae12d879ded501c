//! `--as-file`: tables of autonomous systems and countries.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    net::IpAddr,
    path::Path,
    sync::Arc,
};

use anyhow::anyhow;
use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{Country, FlowNames, NameFlows, Network, Networks, NetworksError, as_name},
};
use flate2::bufread::MultiGzDecoder;
use maxminddb::{MaxMindDbError, PathElement, Reader};
use thiserror::Error;

use crate::exit::Failure;

/// The largest database that is read into memory.
const MAX_DATABASE_BYTES: u64 = 128 << 20;

/// Tables, of which the first one that knows something of an address tells it.
#[derive(Debug)]
pub struct Tables(Vec<Table>);

enum Table {
    Ranges(Networks),
    Database(Box<Reader<Vec<u8>>>),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Table::Ranges(_) => "Ranges",
            Table::Database(_) => "Database",
        })
    }
}

#[derive(Debug, Error)]
enum Error {
    #[error("{0}")]
    Open(#[from] io::Error),
    #[error("{0}")]
    Ranges(#[from] NetworksError),
    #[error("{0}")]
    Database(#[from] MaxMindDbError),
    #[error(
        "it has {0} bytes, and a database of at most {MAX_DATABASE_BYTES} is read: use one of AS numbers or countries alone"
    )]
    TooLarge(u64),
}

impl Tables {
    /// Reads the tables in these files.
    pub fn open<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Tables, Failure> {
        let open = |path: &Path| {
            Table::open(path).map_err(|error| Failure::usage(anyhow!("--as-file {}: {error}", path.display())))
        };
        Ok(Tables(paths.into_iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Returns what is known of an address; `None` of nothing.
    pub fn of(&self, address: IpAddr) -> Option<Network> {
        let found = self.0.iter().filter_map(|table| table.of(address)).reduce(|first, next| Network {
            as_name: if first.asn.is_none() { next.as_name } else { first.as_name },
            asn: first.asn.or(next.asn),
            country: first.country.or(next.country),
        });
        found.filter(|network| *network != Network::default())
    }
}

impl Table {
    fn open(path: &Path) -> Result<Table, Error> {
        let mut file = File::open(path)?;
        if is_database(&mut file) {
            let bytes = file.metadata()?.len();
            if bytes > MAX_DATABASE_BYTES {
                return Err(Error::TooLarge(bytes));
            }
            let mut database = Vec::with_capacity(bytes as usize);
            file.take(MAX_DATABASE_BYTES).read_to_end(&mut database)?;
            return Ok(Table::Database(Box::new(Reader::from_source(database)?)));
        }
        let mut text = BufReader::new(file);
        let networks = match text.fill_buf()? {
            [0x1f, 0x8b, ..] => Networks::read(BufReader::new(MultiGzDecoder::new(text)))?,
            _ => Networks::read(text)?,
        };
        Ok(Table::Ranges(networks))
    }

    fn of(&self, address: IpAddr) -> Option<Network> {
        match self {
            Table::Ranges(networks) => networks.of(address),
            Table::Database(database) => of_database(database, address),
        }
    }
}

/// Whether a file ends like a database of MaxMind's format. Where it can be read once alone it is none.
fn is_database(file: &mut File) -> bool {
    const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
    const METADATA: i64 = 128 << 10;
    let read = || -> io::Result<bool> {
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::End(-METADATA.min(bytes as i64)))?;
        let mut end = Vec::new();
        (&mut *file).take(METADATA as u64).read_to_end(&mut end)?;
        file.rewind()?;
        Ok(end.windows(MARKER.len()).any(|window| window == MARKER))
    };
    let mut read = read;
    read().unwrap_or(false)
}

/// Returns what a database has, by the keys that MaxMind, DB-IP and IPinfo use.
fn of_database(database: &Reader<Vec<u8>>, address: IpAddr) -> Option<Network> {
    let found = database.lookup(address).ok().filter(|found| found.has_data())?;
    let number = |key| found.decode_path::<u32>(&[PathElement::Key(key)]).ok().flatten();
    let text = |keys: &[&str]| {
        let path: Vec<_> = keys.iter().map(|key| PathElement::Key(key)).collect();
        found.decode_path::<&str>(&path).ok().flatten()
    };
    let first = |names: &[&[&str]]| names.iter().find_map(|keys| text(keys));
    let asn = number("autonomous_system_number")
        .or_else(|| number("asn"))
        .or_else(|| text(&["asn"])?.strip_prefix("AS")?.parse().ok());
    let country =
        first(&[&["country", "iso_code"], &["registered_country", "iso_code"], &["country_code"], &["country"]]);
    Some(Network {
        asn,
        as_name: asn.and_then(|_| as_name(first(&[&["autonomous_system_organization"], &["as_name"], &["name"]])?)),
        country: country.and_then(Country::parse),
    })
}

/// Names of flows, with the networks of both ends.
#[derive(Debug)]
pub struct WithNetworks {
    pub names: Arc<dyn NameFlows>,
    pub tables: Arc<Tables>,
}

impl NameFlows for WithNetworks {
    fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowNames {
        let mut names = self.names.names(src, dst, protocol);
        names.src.network = self.tables.of(src.address);
        names.dst.network = self.tables.of(dst.address);
        names
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const TABLE: &str = "192.0.2.0\t192.0.2.255\t64496\tCH\tEXAMPLE-NET Example\n";

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn text(text: &str) -> Vec<u8> {
        let length = match text.len() as u8 {
            length @ ..29 => vec![0x40 | length],
            length => vec![0x40 | 29, length - 29],
        };
        [&length[..], text.as_bytes()].concat()
    }

    fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let content = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
        [0xe0 | pairs.len() as u8].into_iter().chain(content).collect()
    }

    /// A database in which addresses of IPv4 below 128.0.0.0 have this record (MaxMind DB format 2.0).
    fn database(record: &[u8]) -> Vec<u8> {
        let number = |number: u8, kind: u8| match kind {
            0..=7 => vec![kind << 5 | 1, number],
            _ => vec![1, kind - 7, number],
        };
        let metadata = map(&[
            ("node_count", number(1, 6)),
            ("record_size", number(24, 5)),
            ("ip_version", number(4, 5)),
            ("database_type", text("Test")),
            ("languages", vec![0, 4]),
            ("binary_format_major_version", number(2, 5)),
            ("binary_format_minor_version", vec![5 << 5]),
            ("build_epoch", number(1, 9)),
            ("description", map(&[])),
        ]);
        let tree = [0, 0, 1 + 16, 0, 0, 1];
        [&tree[..], &[0; 16], record, b"\xab\xcd\xefMaxMind.com", &metadata].concat()
    }

    fn known(tables: &Tables, address: &str) -> Option<(Option<u32>, Option<String>, Option<String>)> {
        let network = tables.of(address.parse().unwrap())?;
        let country = network.country.map(|country| country.as_str().to_owned());
        Some((network.asn, network.as_name.as_deref().map(str::to_owned), country))
    }

    #[test]
    fn a_table_may_be_plain_or_compressed() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(TABLE.as_bytes()).unwrap();
        for bytes in [TABLE.as_bytes(), &packed.finish().unwrap()] {
            let file = file(bytes);
            let tables = Tables::open([file.path()]).unwrap();
            let known = |address| known(&tables, address);
            assert_eq!(known("192.0.2.7"), Some((Some(64496), Some("EXAMPLE-NET Example".into()), Some("CH".into()))));
            assert_eq!(known("198.51.100.1"), None);
        }
    }

    #[test]
    fn databases_of_several_makers_are_read_and_add_to_each_other() {
        let asn = map(&[
            ("autonomous_system_number", vec![6 << 5 | 2, 0xfb, 0xf0]),
            ("autonomous_system_organization", text("Example")),
        ]);
        let country = map(&[("country", map(&[("iso_code", text("CH"))]))]);
        let both = map(&[("asn", text("AS64496")), ("as_name", text("Example")), ("country_code", text("CH"))]);
        for records in [vec![&asn, &country], vec![&country, &asn], vec![&both]] {
            let files: Vec<_> = records.into_iter().map(|record| file(&database(record))).collect();
            let tables = Tables::open(files.iter().map(|file| file.path())).unwrap();
            assert_eq!(known(&tables, "10.0.0.1"), Some((Some(64496), Some("Example".into()), Some("CH".into()))));
            assert_eq!(known(&tables, "192.0.2.1"), None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let damaged = database(&[])[20..].to_vec();
        for (bytes, error) in [
            (&b"192.0.2.0\t192.0.2.255\tx\tCH\tA\n"[..], ": line 1: 'x' is not an AS number; "),
            (b"\x1f\x8b\x08damaged", ": "),
            (b"", ": it has no range "),
            (&damaged, ": "),
        ] {
            let file = file(bytes);
            let failure = Tables::open([file.path()]).unwrap_err();
            let start = format!("--as-file {}{error}", file.path().display());
            let error = failure.error.unwrap().to_string();
            assert!(error.starts_with(&start), "{error}");
        }
        assert!(Tables::open([Path::new("/nonexistent")]).is_err());
    }
}
