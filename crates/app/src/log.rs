//! Messages to people, on standard error. Nobody may be there to read them: standard error can be closed or full, and
//! that must not end a measurement.

use std::{
    env,
    ffi::OsStr,
    fmt::Display,
    io::{Write, stderr},
    path::Path,
    sync::OnceLock,
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use dwell_engine::labels::is_harmless;

/// Writes one line that begins with the program's name, as it was called. Characters that names of others may have, and a terminal
/// would obey, are replaced.
pub fn log(words: impl Display) {
    show(format_args!("{}: {}\n", program(), printable(words)));
}

/// Writes such a line about something that is not as it must be: in red where a person looks at it and the environment does
/// not say otherwise (`NO_COLOR`, `CLICOLOR`, `TERM=dumb`).
pub fn alarm(words: impl Display) {
    const STYLE: Style = AnsiColor::Red.on_default();
    match AutoStream::choice(&stderr()) {
        ColorChoice::Never => log(words),
        _ => show(format_args!("{}: {STYLE}{}{STYLE:#}\n", program(), printable(words))),
    }
}

fn printable(words: impl Display) -> String {
    words.to_string().replace(|character| !is_harmless(character) && !matches!(character, '\n' | '\t'), "\u{fffd}")
}

fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let called = env::args_os().next().unwrap_or_default();
        Path::new(&called).file_name().and_then(OsStr::to_str).unwrap_or("dwell").to_owned()
    })
}

/// Writes a text as it is.
pub fn show(words: impl Display) {
    // In one piece, as lines of others may come between pieces.
    let _ = stderr().write_all(words.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(printable("a\tb\nc\u{202e}d\u{200b}e\x1b[2Jß漢"), "a\tb\nc\u{fffd}d\u{fffd}e\u{fffd}[2Jß漢");
    }
}
