//! See `dwell_fuzz::targets::replay`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(replay);
