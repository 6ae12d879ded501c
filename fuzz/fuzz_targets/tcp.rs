//! See `dwell_fuzz::targets::tcp`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(tcp);
