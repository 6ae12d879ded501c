//! See `dwell_fuzz::targets::trace`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(trace);
