//! See `dwell_fuzz::targets::fleet`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(fleet);
