//! See `dwell_fuzz::targets::capture`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(capture);
