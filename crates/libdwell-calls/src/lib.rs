//! `libdwell_calls.so`: the symbols that the dynamic linker finds by name. The implementation is in `dwell_socket`.

mod calls;
#[path = "../../libdwell-preload/src/preload.rs"]
mod preload;
