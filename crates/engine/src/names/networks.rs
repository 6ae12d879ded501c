//! The autonomous systems and countries of addresses, from a table that the user gives.

use std::{
    cmp::Reverse,
    collections::HashSet,
    fmt,
    io::{self, BufRead, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::{Add, Sub},
    sync::Arc,
};

use thiserror::Error;

use crate::labels::{excerpt, harmless};

/// Ranges that a table may have: with 16 bytes of one of IPv4 and 48 of IPv6, at most 48 MB, and twice that if all overlap.
const MAX_RANGES: usize = 1_000_000;
/// Autonomous systems that may have a name, and the bytes that are kept of each name. The world has some 80,000.
const MAX_NAMES: usize = 200_000;
const LONGEST_NAME: usize = 48;
/// Characters of a field that an error shows.
const SHOWN: usize = 40;
const LONGEST_LINE: u64 = 1024;

/// What is known of the network of an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// The number of its autonomous system.
    pub asn: Option<u32>,
    /// The name of that system.
    pub as_name: Option<Arc<str>>,
    /// The country, as two letters of ISO 3166.
    pub country: Option<Country>,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asn = self.asn.map(|asn| format!("AS{asn}"));
        let country = self.country.as_ref().map(Country::as_str);
        let parts: Vec<&str> = [asn.as_deref(), self.as_name.as_deref(), country].into_iter().flatten().collect();
        f.write_str(&parts.join(" "))
    }
}

/// A country's two letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Country([u8; 2]);

impl Country {
    /// Reads two letters. `None` of other text, and of those that stand for no country.
    pub fn parse(text: &str) -> Option<Country> {
        let letters = <[u8; 2]>::try_from(text.as_bytes()).ok()?.map(|letter| letter.to_ascii_uppercase());
        (letters.iter().all(u8::is_ascii_uppercase) && !matches!(&letters, b"ZZ" | b"XX")).then_some(Country(letters))
    }

    /// Returns the letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("letters are text")
    }
}

/// Returns what may be shown of the name of an autonomous system, which a file has: without what a terminal would obey, and cut.
pub fn as_name(text: &str) -> Option<Arc<str>> {
    let mut name = harmless(text.trim());
    while name.len() > LONGEST_NAME {
        name.pop();
    }
    (!name.is_empty()).then(|| name.into())
}

/// Ranges of addresses with their autonomous systems and countries.
#[derive(Debug, Default)]
pub struct Networks {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
    /// The names of autonomous systems, by number.
    names: Vec<(u32, Arc<str>)>,
}

/// A table that cannot be read.
#[derive(Debug, Error)]
pub enum NetworksError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line cannot be read.
    #[error(
        "line {number}: {what}; a line is START, END, AS number, country and AS name with tabs between them, as of iptoasn.com"
    )]
    Line {
        /// Its number, from 1.
        number: usize,
        /// What is wrong.
        what: String,
    },
    /// More than is kept.
    #[error("line {0}: more than {MAX_RANGES} ranges; leave out those that are not needed")]
    TooMany(usize),
    /// The file has nothing that could be shown.
    #[error("it has no range with an AS number or a country")]
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range<T> {
    start: T,
    end: T,
    asn: u32,
    country: [u8; 2],
}

impl Networks {
    /// Reads a table of lines with tabs: start, end, number of the autonomous system, country and its name. Addresses of IPv4
    /// may be numbers. Lines that begin with # are comments; ranges without an owner are left out. Where two ranges overlap, the
    /// one that begins later counts, and so the inner one of two.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or a line is not such a line: which one, and what is wrong.
    pub fn read(mut table: impl BufRead) -> Result<Networks, NetworksError> {
        let mut networks = Networks::default();
        let mut named = HashSet::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if (&mut table).take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let wrong = |what: String| NetworksError::Line { number, what };
            if line.len() as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
                return Err(wrong(format!("it has more than {LONGEST_LINE} bytes")));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if networks.v4.len() + networks.v6.len() >= MAX_RANGES {
                return Err(NetworksError::TooMany(number));
            }
            if let Some((asn, name)) = networks.add(text).map_err(wrong)?
                && networks.names.len() < MAX_NAMES
                && named.insert(asn)
            {
                networks.names.extend(as_name(name).map(|name| (asn, name)));
            }
        }
        networks.names.sort_unstable_by_key(|(asn, _)| *asn);
        networks.names.shrink_to_fit();
        networks.v4 = apart(networks.v4);
        networks.v6 = apart(networks.v6);
        networks.v4.shrink_to_fit();
        networks.v6.shrink_to_fit();
        match networks.ranges() {
            0 => Err(NetworksError::Empty),
            _ => Ok(networks),
        }
    }

    /// Adds a line. Returns the autonomous system's number and name, if it has both.
    fn add<'a>(&mut self, line: &'a str) -> Result<Option<(u32, &'a str)>, String> {
        let mut fields = line.split('\t');
        let mut field = |what: &str| fields.next().ok_or_else(|| format!("it has no {what}"));
        let (start, end) = (address(field("START")?)?, address(field("END")?)?);
        let asn = field("AS number")?;
        let digits = asn.strip_prefix("AS").unwrap_or(asn);
        let asn: u32 = digits.parse().map_err(|_| format!("'{}' is not an AS number", excerpt(asn, SHOWN)))?;
        let country = field("country").ok().and_then(Country::parse);
        let name = field("AS name").ok();
        if asn == 0 && country.is_none() {
            return Ok(None);
        }
        let country = country.map_or([0; 2], |country| country.0);
        match (start, end) {
            (IpAddr::V4(start), IpAddr::V4(end)) if start <= end => {
                self.v4.push(Range { start: start.into(), end: end.into(), asn, country });
            }
            (IpAddr::V6(start), IpAddr::V6(end)) if start <= end => {
                self.v6.push(Range { start: start.into(), end: end.into(), asn, country });
            }
            (start, end) => return Err(format!("{start} to {end} is not a range")),
        }
        Ok(name.filter(|_| asn != 0).map(|name| (asn, name)))
    }

    /// Returns what the table has of an address.
    pub fn of(&self, address: IpAddr) -> Option<Network> {
        let (asn, country) = match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, address.into())?,
            IpAddr::V6(address) => find(&self.v6, address.into())?,
        };
        let name = self.names.binary_search_by_key(&asn, |(number, _)| *number).ok();
        Some(Network {
            asn: (asn != 0).then_some(asn),
            as_name: name.map(|at| Arc::clone(&self.names[at].1)),
            country: (country != [0; 2]).then_some(Country(country)),
        })
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// Sorts ranges, and divides those that overlap: each address has the range that begins last before it, and of those that begin
/// at once the one that ends first.
fn apart<T>(mut ranges: Vec<Range<T>>) -> Vec<Range<T>>
where
    T: Copy + Ord + From<u8> + Add<Output = T> + Sub<Output = T>,
{
    ranges.sort_unstable_by_key(|range| (range.start, Reverse(range.end), range.asn, range.country));
    if ranges.windows(2).all(|two| two[0].end < two[1].start) {
        return ranges;
    }
    let one = T::from(1);
    let (mut divided, mut open) = (Vec::with_capacity(ranges.len()), Vec::<Range<T>>::new());
    let mut last: Option<T> = None;
    let mut add = |range: &Range<T>, end: T| {
        let start = last.filter(|last| *last >= range.start).map_or(Some(range.start), |last| {
            // Nothing is left of a range that ends there too.
            (last < end).then(|| last + one)
        });
        if let Some(start) = start.filter(|start| *start <= end) {
            divided.push(Range { start, end, ..*range });
            last = Some(end);
        }
    };
    for range in ranges {
        while let Some(ended) = open.pop_if(|open| open.end < range.start) {
            add(&ended, ended.end);
        }
        if let Some(around) = open.last().filter(|open| open.start < range.start) {
            add(around, range.start - one);
        }
        open.push(range);
    }
    while let Some(ended) = open.pop() {
        add(&ended, ended.end);
    }
    divided
}

/// Returns what the range has that begins last before a value, or at it, if that is in it.
fn find<T: Copy + Ord>(ranges: &[Range<T>], value: T) -> Option<(u32, [u8; 2])> {
    let at = ranges.partition_point(|range| range.start <= value).checked_sub(1)?;
    let range = &ranges[at];
    (value <= range.end).then_some((range.asn, range.country))
}

fn address(text: &str) -> Result<IpAddr, String> {
    let number = || text.parse::<u32>().ok().map(|number| IpAddr::V4(Ipv4Addr::from(number)));
    text.parse::<Ipv4Addr>()
        .map(IpAddr::V4)
        .or_else(|_| text.parse::<Ipv6Addr>().map(IpAddr::V6))
        .ok()
        .or_else(number)
        .ok_or_else(|| format!("'{}' is not an IP address", excerpt(text, SHOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# comment\n\
        1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n\
        1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n\
        16778240\t16779263\t38803\tau\tWPL-AS-AP Wirefreebroadband\r\n\
        2001:db8::\t2001:db8:ffff:ffff:ffff:ffff:ffff:ffff\tAS64496\tZZ\tDOC \u{1b}[2J\n\
        9.9.9.0\t9.9.9.255\t0\tCH\t\n";

    fn read(table: &str) -> Result<Networks, String> {
        Networks::read(table.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_have_the_system_and_the_country_of_their_range() {
        let networks = read(TABLE).unwrap();
        let of = |address: &str| {
            let network = networks.of(address.parse().unwrap())?;
            Some((
                network.asn,
                network.as_name.as_deref().map(str::to_owned),
                network.country.map(|it| it.as_str().to_owned()),
            ))
        };
        let known = |asn, name: &str, country: Option<&str>| {
            Some((Some(asn), Some(name.to_owned()), country.map(str::to_owned)))
        };
        assert_eq!(of("1.0.0.0"), known(13335, "CLOUDFLARENET", Some("US")));
        assert_eq!(of("::ffff:1.0.0.255"), known(13335, "CLOUDFLARENET", Some("US")));
        assert_eq!(of("1.0.4.0"), known(38803, "WPL-AS-AP Wirefreebroadband", Some("AU")));
        assert_eq!(of("2001:db8:7::1"), known(64496, "DOC \u{fffd}[2J", None));
        assert_eq!(of("9.9.9.9"), Some((None, None, Some("CH".into()))));
        assert_eq!([of("1.0.1.0"), of("0.0.0.1"), of("1.0.8.0"), of("2001:db9::")], [const { None }; 4]);
        assert_eq!(networks.ranges(), 4);
    }

    #[test]
    fn of_ranges_that_overlap_the_inner_one_counts_and_none_is_forgotten() {
        let whole = "0.0.0.0\t255.255.255.255\t1\tUS\t\n";
        let table = format!(
            "10.0.0.0\t10.255.255.255\t2\tUS\t\n10.1.0.0\t10.1.255.255\t3\tUS\t\n{whole}\
             10.1.2.0\t10.1.2.255\t4\tUS\t\n10.1.255.0\t10.2.0.255\t5\tUS\t\n255.0.0.0\t255.255.255.255\t6\tUS\t\n\
             10.9.0.0\t10.9.0.255\t7\tUS\t\n10.9.0.0\t10.9.255.255\t8\tUS\t\n::\tffff::\t9\tUS\t\n"
        );
        let networks = read(&table).unwrap();
        let asn = |address: &str| networks.of(address.parse().unwrap()).and_then(|network| network.asn);
        for (address, expected) in [
            ("0.0.0.0", 1),
            ("9.255.255.255", 1),
            ("10.0.0.0", 2),
            ("10.1.0.0", 3),
            ("10.1.1.255", 3),
            ("10.1.2.0", 4),
            ("10.1.2.255", 4),
            ("10.1.3.0", 3),
            ("10.1.254.255", 3),
            ("10.1.255.0", 5),
            ("10.2.0.255", 5),
            ("10.2.1.0", 2),
            ("10.9.0.0", 7),
            ("10.9.1.0", 8),
            ("10.10.0.0", 2),
            ("11.0.0.0", 1),
            ("254.255.255.255", 1),
            ("255.255.255.255", 6),
            ("::5", 9),
        ] {
            assert_eq!(asn(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn a_name_that_would_turn_the_order_of_text_is_shown_without_that() {
        assert_eq!(as_name("A\u{202e}B\u{1b}").as_deref(), Some("A\u{fffd}B\u{fffd}"));
    }

    #[test]
    fn an_error_names_the_line_and_what_is_wrong() {
        let error = |line: &str| read(&format!("# a\n{line}\n")).unwrap_err();
        for (line, what) in [
            ("1.0.0\t1.0.0.1\t1\tUS\tA", "line 2: '1.0.0' is not an IP address; "),
            ("1.0.0.0\t1.0.0.1\tA\u{1b}\tUS\tA", "line 2: 'A\u{fffd}' is not an AS number; "),
            ("1.0.0.9\t1.0.0.1\t1\tUS\tA", "line 2: 1.0.0.9 to 1.0.0.1 is not a range; "),
            ("1.0.0.9\t::1\t1\tUS\tA", "line 2: 1.0.0.9 to ::1 is not a range; "),
            ("1.0.0.0", "line 2: it has no END; "),
            (&"x".repeat(5000), "line 2: it has more than 1024 bytes; "),
        ] {
            assert!(error(line).starts_with(what), "{}", error(line));
        }
        assert!(error("1.0.0.0\t1.0.0.1\t0\tNone\tNot routed").starts_with("it has no range"));
    }

    #[test]
    fn a_table_is_bounded() {
        let lines = |number: u32| -> String {
            (0..number).map(|n| format!("{}\t{}\t{}\tUS\tname\n", n * 256, n * 256 + 255, 1 + n % 70_000)).collect()
        };
        assert_eq!(read(&lines(300_000)).unwrap().names.len(), 70_000);
        let error = read(&lines(MAX_RANGES as u32 + 1)).unwrap_err();
        assert!(error.starts_with("line 1000001: more than 1000000 ranges"), "{error}");
    }
}
