//! See `dwell_fuzz::targets::labels`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(labels);
