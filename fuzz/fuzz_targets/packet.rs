//! See `dwell_fuzz::targets::packet`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(packet);
