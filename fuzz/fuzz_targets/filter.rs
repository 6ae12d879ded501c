//! See `dwell_fuzz::targets::filter`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(filter);
