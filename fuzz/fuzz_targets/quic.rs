//! See `dwell_fuzz::targets::quic`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(quic);
