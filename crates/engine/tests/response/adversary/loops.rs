//! A client in a loop: it asks, waits for the answer, and pauses for a moment. `dwell lb` follows slow servers by such clients,
//! in short epochs.

use dwell_engine::response::{Config, Reason, estimate};
use rand::{RngExt, SeedableRng};

use super::{Random, usual};
use crate::{
    support::{MS, SECOND, US, epochs},
    wire::{Draw, Setting, run},
};

/// Returns the errors of estimates that are valid, or are not because they are as short as a tick of the server's clock, and
/// how many epochs had an answer.
fn errors_ns(setting: impl Fn(&mut Random) -> Setting, epoch_ns: u64) -> (Vec<u64>, usize) {
    let config = Config { epoch_ns, ..Config::default() };
    let (mut errors_ns, mut answered) = (Vec::new(), 0);
    for connection in 0..20 {
        let mut random = Random::seed_from_u64(connection);
        let traffic = run(&setting(&mut random), random.random(), 4 * SECOND);
        for epoch in epochs(&config, &traffic.packets) {
            let Some((_, mean_ns)) = traffic.mean(epoch.start_ns, epoch.epoch_ns) else { continue };
            let made = estimate(&config, &epoch);
            answered += 1;
            if made.is_valid() || made.reason == Some(Reason::CoarseClock) {
                errors_ns.push(made.response_ns.unwrap().abs_diff(mean_ns as u64));
            }
        }
    }
    (errors_ns, answered)
}

/// A small request, a pause of some 2 ms, and a small answer after `service_ns` and what a scheduler adds.
fn small_loop(service_ns: u64) -> impl Fn(&mut Random) -> Setting {
    move |random| Setting {
        rtt_ns: random.random_range(60 * US..300 * US),
        service_ns: Draw::Between(service_ns + 20 * US, service_ns + 300 * US),
        think_ns: Draw::Between(2 * MS, 3 * MS),
        request_bytes: Draw::Always(1),
        answer_bytes: Draw::Always(1),
        merge_ns: 0,
        is_text: false,
        ..usual(random)
    }
}

#[test]
fn a_client_in_a_loop_shows_how_slow_its_server_is() {
    for service_ms in [0, 1, 3, 10, 20, 40, 80] {
        for epoch_ms in [200, 1000] {
            let (errors_ns, answered) = errors_ns(small_loop(service_ms * MS), epoch_ms * MS);
            // The server's clock tells to a tick when an answer left.
            let most_ns = MS + service_ms * MS / 10;
            let is_right = errors_ns.iter().all(|error_ns| *error_ns < most_ns);
            let what = format!("{service_ms} ms, epochs of {epoch_ms} ms: {} of {answered} known", errors_ns.len());
            assert!(is_right && 100 * errors_ns.len() >= 95 * answered, "{what}, {:?} ns", errors_ns.iter().max());
        }
    }
}
