//! What a query to PostgreSQL or MySQL does: its first word, never a table, a column or a value.

use std::sync::Arc;

use super::text;

/// Words with which a statement of either begins. What begins with another one has no label.
#[rustfmt::skip]
const FIRST_WORDS: &[&str] = &[
    "ABORT", "ALTER", "ANALYZE", "BEGIN", "CALL", "CHANGE", "CHECK", "CHECKPOINT", "CLOSE", "CLUSTER", "COMMENT", "COMMIT", "COPY",
    "CREATE", "DEALLOCATE", "DECLARE", "DELETE", "DESC", "DESCRIBE", "DISCARD", "DO", "DROP", "END", "EXECUTE", "EXPLAIN", "FETCH",
    "FLUSH", "GRANT", "HANDLER", "HELP", "IMPORT", "INSERT", "INSTALL", "KILL", "LISTEN", "LOAD", "LOCK", "MERGE", "MOVE", "NOTIFY",
    "OPTIMIZE", "PREPARE", "PURGE", "REASSIGN", "REFRESH", "REINDEX", "RELEASE", "RENAME", "REPAIR", "REPLACE", "RESET", "RESTART",
    "REVOKE", "ROLLBACK", "SAVEPOINT", "SECURITY", "SELECT", "SET", "SHOW", "SHUTDOWN", "SIGNAL", "START", "STOP", "TABLE",
    "TRUNCATE", "UNINSTALL", "UNLISTEN", "UNLOCK", "UPDATE", "USE", "VACUUM", "VALUES", "WITH", "XA",
];

/// Bytes of comments that may stand before the first word.
const MAX_COMMENT: usize = 512;

/// Reads a message of PostgreSQL's protocol 3 with a query, or one that prepares a statement.
pub(super) fn postgresql(bytes: &[u8]) -> Option<Arc<str>> {
    /// The longest name of a prepared statement, with its end.
    const MAX_NAME: usize = 64;
    const MAX_LENGTH: u32 = 1 << 30;
    let (kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = u32::from_be_bytes(*length);
    let query = match kind {
        b'Q' => rest,
        b'P' => &rest[rest.iter().take(MAX_NAME).position(|byte| *byte == 0)? + 1..],
        _ => return None,
    };
    let is_length = (5..=MAX_LENGTH).contains(&length);
    is_length.then(|| first_word(query)).flatten().map(|word| text::label("PostgreSQL", word.as_bytes(), false))
}

/// Reads a packet of MySQL's protocol with a query, or one that prepares a statement.
pub(super) fn mysql(bytes: &[u8]) -> Option<Arc<str>> {
    const QUERY: u8 = 0x03;
    const PREPARE: u8 = 0x16;
    let [a, b, c, 0, kind @ (QUERY | PREPARE), rest @ ..] = bytes else {
        return None;
    };
    // Attributes of a query come first where both ends know of them; mostly there are none.
    let query = match rest {
        [0, 1, query @ ..] if *kind == QUERY => query,
        query => query,
    };
    let is_length = u32::from_le_bytes([*a, *b, *c, 0]) > 1;
    is_length.then(|| first_word(query)).flatten().map(|word| text::label("MySQL", word.as_bytes(), false))
}

/// Returns the first word of a statement.
fn first_word(query: &[u8]) -> Option<&'static str> {
    let mut rest = &query[..query.len().min(MAX_COMMENT)];
    loop {
        rest = rest.trim_ascii_start();
        let after = |mark: &[u8]| rest.windows(mark.len()).position(|window| window == mark).map(|at| at + mark.len());
        rest = match rest {
            [b'(', ..] => &rest[1..],
            [b'-', b'-', ..] => &rest[after(b"\n")?..],
            [b'/', b'*', ..] => &rest[after(b"*/")?..],
            _ => break,
        };
    }
    let end = rest.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(rest.len());
    let word = &rest[..end];
    FIRST_WORDS.iter().find(|known| word.eq_ignore_ascii_case(known.as_bytes())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, text: &str) -> Vec<u8> {
        [&[kind][..], &(text.len() as u32 + 5).to_be_bytes(), text.as_bytes(), &[0]].concat()
    }

    fn packet(start: &[u8], text: &str) -> Vec<u8> {
        let length = (start.len() + text.len()) as u32;
        [&length.to_le_bytes()[..3], &[0], start, text.as_bytes()].concat()
    }

    #[test]
    fn a_query_has_its_first_word_and_nothing_else() {
        for (text, word) in [
            ("SELECT secret FROM secrets", Some("SELECT")),
            ("select 1", Some("SELECT")),
            ("  /* traceparent='00-1' */ -- a comment\n (with x as (select 1)) select 2", Some("WITH")),
            ("commit;", Some("COMMIT")),
            ("secret", None),
            ("SELECTED", None),
            ("/* no end", None),
            ("", None),
        ] {
            let of = |kind: &str| word.map(|word| format!("{kind} {word}"));
            assert_eq!(postgresql(&message(b'Q', text)).as_deref(), of("PostgreSQL").as_deref(), "{text}");
            assert_eq!(postgresql(&message(b'P', &format!("name\0{text}"))).as_deref(), of("PostgreSQL").as_deref());
            for start in [&[3][..], &[3, 0, 1], &[0x16]] {
                assert_eq!(mysql(&packet(start, text)).as_deref(), of("MySQL").as_deref(), "{text}");
            }
        }
    }

    #[test]
    fn messages_of_servers_and_other_protocols_have_no_label() {
        for bytes in [
            &b"QUIT\r\n"[..],
            b"POST select",
            b"Q",
            b"Q\0\0\0\x04SELECT",
            b"P\0\0\0\x20no-end-of-a-name",
            b"D\0\0\0\x20SELECT",
        ] {
            assert_eq!(postgresql(bytes), None, "{bytes:?}");
        }
        for bytes in [&b"\x08\0\0\x01\x03SELECT"[..], b"\x08\0\0\0\x04SELECT", b"\0\0\0\0\x03SELECT", b"\x08\0"] {
            assert_eq!(mysql(bytes), None, "{bytes:?}");
        }
    }
}
