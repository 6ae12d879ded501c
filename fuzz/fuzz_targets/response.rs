//! See `dwell_fuzz::targets::response`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(response);
