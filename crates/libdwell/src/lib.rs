//! `libdwell.so`: what the dynamic linker finds by name. All that it does is in `dwell_socket`.

mod api;
mod preload;
