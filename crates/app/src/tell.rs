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

/// Writes one line that begins with the program's name, as it was called.
pub fn tell(words: impl Display) {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let called = env::args_os().next().unwrap_or_default();
        Path::new(&called).file_name().and_then(OsStr::to_str).unwrap_or("dwell").to_owned()
    });
    show(format_args!("{program}: {words}\n"));
}

/// Writes a text as it is.
pub fn show(words: impl Display) {
    // In one piece, as lines of others may come between pieces.
    let _ = stderr().write_all(words.to_string().as_bytes());
}
