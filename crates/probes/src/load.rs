//! Opening and loading BPF objects, with what libbpf says about a failure.

use std::sync::{Mutex, Once};

use libbpf_rs::{MapCore, MapMut, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut};

use crate::{
    Error,
    error::{io_error, load_remedy},
};

static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

/// Opens an object whose bytes are part of the executable.
pub(crate) fn open(what: &'static str, bytes: &[u8]) -> Result<OpenObject, Error> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            if let Ok(mut last) = LAST_WORDS.lock()
                && last.is_empty()
            {
                last.push_str(message.trim().trim_start_matches("libbpf: "));
            }
        })));
    });
    if let Ok(mut last) = LAST_WORDS.lock() {
        last.clear();
    }
    ObjectBuilder::default()
        .open_memory(bytes)
        .map_err(|error| failure(what, &error))
}

/// Loads it into the kernel.
pub(crate) fn load(what: &'static str, object: OpenObject) -> Result<Object, Error> {
    object.load().map_err(|error| failure(what, &error))
}

fn failure(what: &'static str, error: &libbpf_rs::Error) -> Error {
    let io = io_error(error);
    let last = LAST_WORDS
        .lock()
        .map(|words| words.clone())
        .unwrap_or_default();
    let detail = if last.is_empty() {
        String::new()
    } else {
        format!(" ({})", last.lines().next().unwrap_or_default())
    };
    Error::Load {
        what,
        remedy: load_remedy(&io),
        io,
        detail,
    }
}

/// A program of a loaded object. The name is one of our own.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .unwrap_or_else(|| panic!("the object has the program {name}"))
}

/// A map of a loaded object. The name is one of our own.
pub(crate) fn map<'a>(object: &'a mut Object, name: &str) -> MapMut<'a> {
    object
        .maps_mut()
        .find(|map| map.name() == name)
        .unwrap_or_else(|| panic!("the object has the map {name}"))
}
