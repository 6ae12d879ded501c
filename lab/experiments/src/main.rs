//! `dwell-lab`: the laboratory of dwell.

use std::process::ExitCode;

fn main() -> ExitCode {
    dwell_experiments::main()
}
