//! See `dwell_fuzz::targets::clock`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(clock);
