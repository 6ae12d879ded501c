//! Method and path of requests in HTTP/2's compressed headers (RFC 7541).
//!
//! A decoder must follow the sender's table of all headers that were sent before. This one keeps only what labels need: of
//! other headers, such as cookies and credentials, it keeps their length, which decides when they leave the table. No library
//! does that.

use std::{collections::VecDeque, sync::LazyLock};

use super::http;

/// The largest table that is followed. Senders use 4,096 bytes unless the receiver offers more, and rarely do then.
const MAX_TABLE_BYTES: usize = 16_384;
const DEFAULT_TABLE_BYTES: usize = 4096;
/// What an entry of the table counts in addition to name and value (RFC 7541 section 4.1).
const ENTRY_BYTES: usize = 32;
/// Entries of the static table.
const STATIC: usize = 61;
/// Bytes of a string that are kept until it was looked at.
const KEPT: usize = 256;

/// What the headers of a request ask for, as far as labels have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Request {
    pub method: Option<Vec<u8>>,
    /// The path, without its query.
    pub path: Option<Vec<u8>>,
    /// Whether the content is gRPC's.
    pub is_grpc: bool,
}

/// The headers cannot be read, and so none that follow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Method,
    Path,
    ContentType,
    Other,
}

/// A header of a request, as a table has it.
#[derive(Debug, Clone)]
struct Field {
    name: Name,
    name_bytes: usize,
    /// Empty unless the name is one that labels need.
    value: Box<[u8]>,
    value_bytes: usize,
}

/// Follows the headers that one end of a connection sends.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The newest first.
    table: VecDeque<Field>,
    bytes: usize,
    max_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { table: VecDeque::new(), bytes: 0, max_bytes: DEFAULT_TABLE_BYTES }
    }
}

impl Decoder {
    /// Takes a whole block of headers.
    pub(super) fn block(&mut self, block: &[u8]) -> Result<Request, Malformed> {
        let (mut rest, mut request) = (block, Request::default());
        while let Some(first) = rest.first() {
            let (bits, is_kept) = match first {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    self.field(index)?.add_to(&mut request);
                    continue;
                }
                0x40.. => (6, true),
                0x20.. => {
                    let max_bytes = integer(&mut rest, 5)?;
                    if max_bytes > MAX_TABLE_BYTES {
                        return Err(Malformed);
                    }
                    self.max_bytes = max_bytes;
                    self.evict(0);
                    continue;
                }
                _ => (4, false),
            };
            let field = self.literal(&mut rest, bits)?;
            field.add_to(&mut request);
            if is_kept {
                self.insert(field);
            }
        }
        Ok(request)
    }

    /// Reads a header whose name may be in a table, and whose value is not.
    fn literal(&self, rest: &mut &[u8], bits: u32) -> Result<Field, Malformed> {
        let (name, name_bytes) = match integer(rest, bits)? {
            0 => {
                let (name, length) = string(rest)?;
                let name = match &*name {
                    b":method" => Name::Method,
                    b":path" => Name::Path,
                    b"content-type" => Name::ContentType,
                    _ => Name::Other,
                };
                (name, length)
            }
            index => {
                let field = self.field(index)?;
                (field.name, field.name_bytes)
            }
        };
        let (value, value_bytes) = string(rest)?;
        let value = match name {
            Name::Other => Box::default(),
            Name::Path => http::without_query(&value).into(),
            Name::Method | Name::ContentType => value.into(),
        };
        Ok(Field { name, name_bytes, value, value_bytes })
    }

    /// Returns an entry of the tables. Of the static table only what labels need.
    fn field(&self, index: usize) -> Result<Field, Malformed> {
        let of = |name, name_bytes, value: &[u8]| {
            let value_bytes = value.len();
            Ok(Field { name, name_bytes, value: value.into(), value_bytes })
        };
        match index {
            0 => Err(Malformed),
            2 => of(Name::Method, 7, b"GET"),
            3 => of(Name::Method, 7, b"POST"),
            4 => of(Name::Path, 5, b"/"),
            5 => of(Name::Path, 5, b"/index.html"),
            31 => of(Name::ContentType, 12, b""),
            1 | 6..=30 | 32..=STATIC => of(Name::Other, STATIC_NAME_BYTES[index - 1].into(), b""),
            _ => self.table.get(index - STATIC - 1).cloned().ok_or(Malformed),
        }
    }

    fn insert(&mut self, field: Field) {
        let bytes = field.bytes();
        self.evict(bytes);
        if bytes <= self.max_bytes {
            self.bytes += bytes;
            self.table.push_front(field);
        }
    }

    /// Makes room for so many bytes.
    fn evict(&mut self, bytes: usize) {
        while self.bytes + bytes > self.max_bytes
            && let Some(oldest) = self.table.pop_back()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

impl Field {
    fn bytes(&self) -> usize {
        self.name_bytes + self.value_bytes + ENTRY_BYTES
    }

    fn add_to(&self, request: &mut Request) {
        match self.name {
            Name::Method => request.method = Some(self.value.to_vec()),
            Name::Path => request.path = Some(self.value.to_vec()),
            Name::ContentType => request.is_grpc = self.value.starts_with(b"application/grpc"),
            Name::Other => {}
        }
    }
}

/// Reads an integer that begins in the lower bits of a byte (section 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Malformed> {
    /// The bytes of the greatest integer that is read, below 2^28.
    const LONGEST: u32 = 4;
    let (first, mut left) = rest.split_first().ok_or(Malformed)?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        for number in 0.. {
            let (byte, more) = left.split_first().filter(|_| number < LONGEST).ok_or(Malformed)?;
            left = more;
            value += usize::from(byte & 0x7f) << (7 * number);
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = left;
    Ok(value)
}

/// Reads a string (section 5.2). Returns its beginning and its whole length.
fn string(rest: &mut &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let is_huffman = rest.first().ok_or(Malformed)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (bytes, left) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = left;
    match is_huffman {
        true => huffman(bytes),
        false => Ok((bytes[..length.min(KEPT)].to_vec(), length)),
    }
}

/// Reads a string in the code of Appendix B. Returns its beginning and its whole length.
fn huffman(bytes: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    const SHORTEST: u32 = 5;
    let code = &*CODE;
    let (mut kept, mut length) = (Vec::new(), 0);
    let (mut word, mut bits) = (0u64, 0u32);
    let mut input = bytes.iter();
    loop {
        while bits <= 32
            && let Some(byte) = input.next()
        {
            word = word << 8 | u64::from(*byte);
            bits += 8;
        }
        let symbol = (SHORTEST..=bits.min(LONGEST_CODE)).find_map(|length| {
            let value = (word >> (bits - length)) as u32 & ((1 << length) - 1);
            code.symbol(length, value).map(|symbol| (symbol, length))
        });
        match symbol {
            Some((symbol, code_bits)) => {
                if kept.len() < KEPT {
                    kept.push(symbol);
                }
                length += 1;
                bits -= code_bits;
            }
            // What is left are the first bits of the longest code, all ones.
            None if bits < 8 && word & ((1 << bits) - 1) == (1 << bits) - 1 => return Ok((kept, length)),
            None => return Err(Malformed),
        }
    }
}

const LONGEST_CODE: u32 = 30;

/// A canonical code: of one length, greater symbols have greater codes.
struct Code {
    /// By length: the first code, and where its symbol is.
    first: [(u32, usize); LONGEST_CODE as usize + 2],
    symbols: Vec<u8>,
}

impl Code {
    fn symbol(&self, length: u32, value: u32) -> Option<u8> {
        let [(first, at), (_, end)] = [self.first[length as usize], self.first[length as usize + 1]];
        let number = value.checked_sub(first)? as usize;
        (number < end - at).then(|| self.symbols[at + number])
    }
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let (mut first, mut symbols, mut code) = ([(0, 0); LONGEST_CODE as usize + 2], Vec::new(), 0u32);
    for length in 1..=LONGEST_CODE {
        first[length as usize] = (code, symbols.len());
        let of_length = (0..=255u8).filter(|symbol| u32::from(CODE_BITS[usize::from(*symbol)]) == length);
        let before = symbols.len();
        symbols.extend(of_length);
        code = (code + (symbols.len() - before) as u32) << 1;
    }
    first[LONGEST_CODE as usize + 1] = (0, symbols.len());
    Code { first, symbols }
});

/// The bits of each symbol's code (Appendix B).
#[rustfmt::skip]
const CODE_BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The length of each name of the static table (Appendix A).
const STATIC_NAME_BYTES: [u8; STATIC] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14, 16, 13, 12, 6, 4,
    4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3, 16,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn request(method: &str, path: &str) -> Result<Request, Malformed> {
        Ok(Request { method: Some(method.into()), path: Some(path.into()), is_grpc: false })
    }

    #[test]
    fn the_examples_of_rfc_7541_are_read() {
        // Appendix C.3 without the code, and C.4 with it; sizes of the table are those it states.
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut decoder = Decoder::default();
            for ((block, path), size) in blocks.iter().zip(["/", "/", "/index.html"]).zip([57, 110, 164]) {
                assert_eq!(decoder.block(&bytes(block)), request("GET", path), "{block}");
                assert_eq!(decoder.bytes, size, "{block}");
            }
        }
    }

    #[test]
    fn responses_of_rfc_7541_leave_the_table_as_it_says() {
        // Appendix C.6: a table of 256 bytes, from which entries leave.
        let mut decoder = Decoder { max_bytes: 256, ..Decoder::default() };
        for (block, size) in [
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                222,
            ),
            ("4883 640e ffc1 c0bf", 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                215,
            ),
        ] {
            assert_eq!(decoder.block(&bytes(block)), Ok(Request::default()));
            assert_eq!(decoder.bytes, size, "{block}");
        }
    }

    #[test]
    fn a_path_that_was_sent_once_is_known_later_and_its_query_is_not_kept() {
        let mut decoder = Decoder::default();
        let path = b"/a.B/C?secret";
        let block = [&[0x83, 0x44, path.len() as u8], &path[..], &[0x5f, 16], b"application/grpc"].concat();
        let asked = Request { is_grpc: true, ..request("POST", "/a.B/C").unwrap() };
        assert_eq!(decoder.block(&block), Ok(asked.clone()));
        assert_eq!(decoder.block(&[0x83, 0xbf, 0xbe]), Ok(asked));
        assert!(!format!("{decoder:?}").contains(&format!("{:?}", b's')), "{decoder:?}");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for block in ["80", "be", "ff ff ff ff ff 7f", "41", "44 05 61", "44 81 00", "44 84 ff ff ff ff", "3f e1 ff 7f"]
        {
            assert_eq!(Decoder::default().block(&bytes(block)), Err(Malformed), "{block}");
        }
        // A table of no bytes keeps nothing.
        let mut decoder = Decoder::default();
        assert_eq!(decoder.block(&bytes("20 4401 61")), Ok(Request { path: Some(b"a".into()), ..Request::default() }));
        assert_eq!(decoder.block(&bytes("be")), Err(Malformed));
    }
}
