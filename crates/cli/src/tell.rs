//! Words for people, on standard error. Nobody may be there to read them: standard error can be
//! closed or full, and that must not end a measurement.

use std::{
    fmt::Display,
    io::{Write, stderr},
};

/// Says a line, if it can be said.
pub fn tell(words: impl Display) {
    show(format_args!("dwell: {words}\n"));
}

/// The same, without a beginning or an end.
pub fn show(words: impl Display) {
    // In one piece, as lines of others may come between pieces.
    let _ = stderr().write_all(words.to_string().as_bytes());
}
