//! `libdwell.so`: the C API of `include/dwell.h`. It intercepts nothing: libdwell-preload does. The implementation is in
//! `dwell_socket`.

mod api;
