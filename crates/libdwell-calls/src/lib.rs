//! `libdwell_calls.so`: what the dynamic linker finds by name. All that it does is in `dwell_socket`.

mod calls;
#[path = "../../libdwell/src/preload.rs"]
mod preload;
