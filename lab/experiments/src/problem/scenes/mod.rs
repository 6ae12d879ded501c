//! The hosts and the traffic of each page, a file per page.

mod container;
mod dns;
mod encrypted;
mod not_the_network;
mod one_direction;
mod one_slow_server;
mod quic_0rtt;
mod slow_api;
mod slow_customers;
mod slow_sometimes;
mod upload_lags;
mod what_changed;

use dwell_testbed::Result;

use super::stage::Stage;

/// A page by problem.
#[derive(Debug)]
pub struct Page {
    /// The name of its file in docs/problems, without `.md`.
    pub name: &'static str,
    pub text: &'static str,
    /// Makes the hosts and starts what always runs.
    pub prepare: fn(&mut Stage) -> Result<()>,
    /// What must have happened before a step, the first one being 1; returns the host of the step.
    pub before: fn(&mut Stage, usize) -> Result<&'static str>,
}

macro_rules! page {
    ($name:literal, $scene:ident) => {
        Page {
            name: $name,
            text: include_str!(concat!("../../../../../docs/problems/", $name, ".md")),
            prepare: $scene::prepare,
            before: $scene::before,
        }
    };
}

/// The pages that can be walked.
pub const PAGES: &[Page] = &[
    page!("slow-api", slow_api),
    page!("slow-customers", slow_customers),
    page!("slow-sometimes", slow_sometimes),
    page!("upload-lags", upload_lags),
    page!("dns", dns),
    page!("container", container),
    page!("one-slow-server", one_slow_server),
    page!("not-the-network", not_the_network),
    page!("encrypted", encrypted),
    page!("quic-0rtt", quic_0rtt),
    page!("one-direction", one_direction),
    page!("what-changed", what_changed),
];
