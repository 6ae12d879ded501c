//! See `dwell_fuzz::targets::socket`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(socket);
