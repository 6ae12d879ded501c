//! Watches the connections of a running process and its descendants from outside, and prints the cost:
//! `watch PID [POLL_MS [SECONDS]]`.
#![allow(clippy::print_stdout)]

use std::{
    env,
    error::Error,
    thread,
    time::{Duration, Instant},
};

use dwell_socket::{
    Watch,
    outside::{Config, Outside, Scope},
};
use nix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let pid = arguments.next().ok_or("name a process")?.parse()?;
    let poll = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let scope = Scope::Tree(pid);
    scope.check()?;
    let config = Config {
        poll: Duration::from_millis(poll),
        discovery: Duration::from_millis(poll.max(50)),
        ..Config::default()
    };
    let mut outside = Outside::start(scope, config)?;
    let begun = Instant::now();
    let mut last = (begun, cpu()?);
    while begun.elapsed() < Duration::from_secs(seconds) {
        outside.poll()?;
        thread::sleep(Duration::from_millis(1));
        if last.0.elapsed() < Duration::from_secs(1) {
            continue;
        }
        let (mut sockets, mut waiting) = (0, 0);
        outside.visit(&mut |account| {
            sockets += 1;
            waiting += usize::from(account.waiting_ns.is_some());
        })?;
        let now = (Instant::now(), cpu()?);
        let share = (now.1 - last.1).as_secs_f64() / (now.0 - last.0).as_secs_f64();
        println!(
            "{sockets} connections, {waiting} with bytes that wait, each looked at each {:?}: {:.2} % of a core",
            outside.interval(),
            share * 100.0
        );
        last = now;
    }
    Ok(())
}

fn cpu() -> Result<Duration, nix::Error> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}
