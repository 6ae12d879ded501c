//! Traces in CSV: start, client, packets, bytes.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use super::{Flow, MAX_DURATION_S, TraceError};

/// Maximum length of a line.
const MAX_LINE_BYTES: u64 = 4096;

const FIELDS: [&str; 4] = ["start", "client", "packets", "bytes"];

/// Reads the connections of a file; see [`read_csv`].
pub(super) fn read(path: &Path, gap_ns: f64) -> Result<Vec<Flow>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Read { path: path.to_owned(), source })?;
    read_csv(BufReader::new(file), path, gap_ns)
}

/// Reads connections in CSV. Returns them sorted by start, relative to the first one, each with `gap_ns` as its mean time
/// between packets. `path` appears in errors only.
///
/// # Errors
///
/// [`TraceError`], if reading fails or a line is not valid.
pub fn read_csv(mut reader: impl BufRead, path: &Path, gap_ns: f64) -> Result<Vec<Flow>, TraceError> {
    let failed = |source| TraceError::Read { path: path.to_owned(), source };
    let (mut rows, mut clients) = (Vec::new(), HashMap::new());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            break;
        }
        let at = |(column, reason)| TraceError::Line { path: path.to_owned(), line: number, column, reason };
        if line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(at((1, format!("the line is longer than {MAX_LINE_BYTES} bytes"))));
        }
        let text = std::str::from_utf8(&line).map_err(|error| {
            let good = String::from_utf8_lossy(&line[..error.valid_up_to()]);
            at((good.chars().count() + 1, "not valid UTF-8".to_owned()))
        })?;
        // Spreadsheets write a byte order mark.
        let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() || text.starts_with('#') || (number == 1 && is_header(text)) {
            continue;
        }
        rows.push(row(text, number, &mut clients).map_err(at)?);
    }
    rows.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(TraceError::Empty { path: path.to_owned(), filter: String::new() });
    };
    if last.start_s - first.start_s > MAX_DURATION_S {
        let (start, line, first_start) = (last.start_s, first.line, first.start_s);
        return Err(TraceError::Line {
            path: path.to_owned(),
            line: last.line,
            column: 1,
            reason: format!(
                "start is {start}, and {first_start} in line {line}; they may be {MAX_DURATION_S} seconds apart"
            ),
        });
    }
    let flow = |row: &Row| Flow {
        start_ns: ((row.start_s - first.start_s) * 1e9).round() as u64,
        client: row.client,
        packets: row.packets,
        bytes: row.bytes,
        gap_ns,
    };
    Ok(rows.iter().map(flow).collect())
}

fn is_header(text: &str) -> bool {
    text.split(',').map(str::trim).eq(FIELDS)
}

struct Row {
    line: u64,
    start_s: f64,
    client: u32,
    packets: u32,
    bytes: u64,
}

/// A column, and what is wrong there.
type Fault = (usize, String);

fn row(text: &str, line: u64, clients: &mut HashMap<String, u32>) -> Result<Row, Fault> {
    let mut fields = Vec::with_capacity(4);
    let mut column = 1;
    for field in text.split(',') {
        let blanks = field.chars().take_while(|c| c.is_whitespace()).count();
        fields.push((column + blanks, field.trim()));
        column += field.chars().count() + 1;
    }
    if let Some((column, field)) = fields.get(4) {
        return Err((*column, format!("'{field}' is a field too many; a line is {}", FIELDS.join(","))));
    }
    let field = |n: usize| {
        let missing = || (column - 1, format!("{} is missing; a line is {}", FIELDS[n], FIELDS.join(",")));
        fields.get(n).copied().ok_or_else(missing)
    };
    let out_of_range = |(column, text): (usize, &str), n: usize, range: &str| {
        (column, format!("{} is '{text}'; it may be {range}", FIELDS[n]))
    };
    let (start, client, packets, bytes) = (field(0)?, field(1)?, field(2)?, field(3)?);
    let start_s = start.1.parse().ok().filter(|s: &f64| (0.0..1e11).contains(s));
    let count = packets.1.parse().ok().filter(|n| (1..=1 << 30).contains(n));
    let size = bytes.1.parse().ok().filter(|n: &u64| *n <= 1 << 50);
    if client.1.is_empty() {
        return Err(out_of_range(client, 1, "any name"));
    }
    let row = Row {
        line,
        start_s: start_s.ok_or_else(|| out_of_range(start, 0, "seconds, 0 to 10^11"))?,
        packets: count.ok_or_else(|| out_of_range(packets, 2, "a number, 1 to 2^30"))?,
        bytes: size.ok_or_else(|| out_of_range(bytes, 3, "a number, 0 to 2^50"))?,
        client: match clients.get(client.1) {
            Some(number) => *number,
            None => {
                let number = clients.len() as u32;
                clients.insert(client.1.to_owned(), number);
                number
            }
        },
    };
    Ok(row)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read_text(text: &[u8]) -> Result<Vec<Flow>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let error =
            |error: TraceError| error.to_string().split_once("', ").map_or(error.to_string(), |e| e.1.to_owned());
        read(file.path(), 1e6).map_err(error)
    }

    #[test]
    fn flows_are_sorted_and_start_at_zero() {
        let flows = read_text(
            b"\xef\xbb\xbfstart,client,packets,bytes\n# two clients\n12.5,b,3,700\r\n\n10,a,1,0\n11.000000001, b ,2,50",
        );
        let flows = flows.unwrap();
        let seen: Vec<_> = flows.iter().map(|f| (f.start_ns, f.client, f.packets, f.bytes)).collect();
        assert_eq!(seen, [(0, 1, 1, 0), (1_000_000_001, 0, 2, 50), (2_500_000_000, 0, 3, 700)]);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, expected) in [
            (&b"1,a,2,3\n1,a,x,3\n"[..], "line 2, column 5: packets is 'x'; it may be a number, 1 to 2^30"),
            (b"1,a,0,3", "line 1, column 5: packets is '0'; it may be a number, 1 to 2^30"),
            (b"1, a,2,-3", "line 1, column 8: bytes is '-3'; it may be a number, 0 to 2^50"),
            (b"nan,a,2,3", "line 1, column 1: start is 'nan'; it may be seconds, 0 to 10^11"),
            (b"-1,a,2,3", "line 1, column 1: start is '-1'; it may be seconds, 0 to 10^11"),
            (b"1,,2,3", "line 1, column 3: client is ''; it may be any name"),
            (b"1,\xc3\xa9,2", "line 1, column 6: bytes is missing; a line is start,client,packets,bytes"),
            (b"1,a,2,3,4", "line 1, column 9: '4' is a field too many; a line is start,client,packets,bytes"),
            (b"1,\xc3\xa9\xff,2,3", "line 1, column 4: not valid UTF-8"),
            (
                b"1.7e9,a,2,3\n0,b,1,1\n5,b,1,1",
                "line 1, column 1: start is 1700000000, and 0 in line 2; they may be 10000000 seconds apart",
            ),
            (
                b"1,a,2,3\nstart,client,packets,bytes",
                "line 2, column 1: start is 'start'; it may be seconds, 0 to 10^11",
            ),
        ] {
            assert_eq!(read_text(text).unwrap_err(), expected);
        }
        let long = [b'1'; 5000];
        assert_eq!(read_text(&long).unwrap_err(), "line 1, column 1: the line is longer than 4096 bytes");
        assert!(read_text(b"start,client,packets,bytes\n").unwrap_err().ends_with("has no connection"));
    }
}
