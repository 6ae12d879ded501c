//! See `dwell_fuzz::targets::token`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(token);
