//! `libdwell_preload.so`: the symbols that the dynamic linker finds by name. The implementation is in `dwell_socket`.

mod preload;
