//! A line on the terminal that shows the current figures.

use std::io::{IsTerminal, stderr};

use dwell_engine::socket::Sum;
use dwell_records::{Latency, Rate, Socket, counted};
use indicatif::{ProgressBar, ProgressStyle};

use super::Args;
use crate::args::FormatOrNone;

/// The line. It is removed from the terminal however the run ends.
pub struct LiveLine(ProgressBar);

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl LiveLine {
    /// Creates the line, hidden unless standard error is a terminal that gets no lines of intervals.
    pub fn new(args: &Args) -> LiveLine {
        let is_wanted = args.format == FormatOrNone::Text && (args.summary || args.write.write.is_some());
        if !is_wanted || !stderr().is_terminal() {
            return LiveLine(ProgressBar::hidden());
        }
        let line = ProgressBar::new_spinner();
        LiveLine(match ProgressStyle::with_template("dwell: {msg}") {
            Ok(style) => line.with_style(style),
            Err(_) => line,
        })
    }

    /// Shows the figures of an interval.
    pub fn show(&self, sockets: &[Socket], length_ns: u64) {
        if !self.0.is_hidden() {
            self.0.set_message(message(sockets, length_ns));
            self.0.tick();
        }
    }

    /// Removes the line for good.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }

    /// Hides the line while something else is printed.
    pub fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

fn message(sockets: &[Socket], length_ns: u64) -> String {
    let living = sockets.iter().filter(|socket| !socket.account.ended);
    let connections = counted(living.count() as u64, "connection", "connections");
    let rate = |bytes: fn(&Socket) -> Option<u64>| {
        let bytes: u64 = sockets.iter().filter_map(bytes).sum();
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        let bps = bits / u128::from(length_ns.max(1));
        Rate(u64::try_from(bps).unwrap_or(u64::MAX)).to_string()
    };
    let mean = |sum: fn(&Socket) -> Sum| {
        let (bytes, ns_bytes) = sockets
            .iter()
            .map(sum)
            .fold((0, 0.0), |(bytes, ns_bytes), sum| (bytes + sum.bytes, ns_bytes + sum.ns_bytes));
        match bytes {
            0 => "-".into(),
            _ => Latency((ns_bytes / bytes as f64) as u64).to_string(),
        }
    };
    format!(
        "{connections}, {} sent, {} received, send buffer {}, receive buffer {}",
        rate(Socket::acked_bytes).trim(),
        rate(Socket::received_bytes).trim(),
        mean(Socket::sender).trim(),
        mean(Socket::receiver).trim()
    )
}
