//! What tools of today say of a path.

use std::time::Duration;

use dwell_lab::socket::tools::compare;

use crate::support::{Script, skipped};

#[test]
fn root_tools_tell_of_the_network_and_not_of_the_send_buffer() {
    if skipped() {
        return;
    }
    let exe = Script::emulator("tools");
    let rows = compare(Duration::from_secs(5), &exe.path()).unwrap();
    for row in &rows {
        println!("{row:?} {:?}", row.share());
        let share = row.share().unwrap();
        match row.tool {
            "libdwell" => assert!((0.6..1.4).contains(&share), "{row:?}"),
            // Each of its requests is two round trips.
            "httping" => assert!(share < 1.6, "{row:?}"),
            _ => assert!(share < 0.8, "{row:?}"),
        }
    }
    assert_eq!(rows.len(), 6);
}

/// Not a test: the table of the guide.
#[test]
#[ignore = "takes a minute"]
fn root_compare() {
    let exe = Script::emulator("tools-compare");
    for row in compare(Duration::from_secs(20), &exe.path()).unwrap() {
        println!(
            "{:<9} {:<46} {:>4} {:>6.0} {:>6.0} {:>5.0} %",
            row.tool,
            row.tells,
            row.samples
                .map_or("-".to_owned(), |samples| samples.to_string()),
            row.says.unwrap().as_millis_f64(),
            row.truth.unwrap().as_millis_f64(),
            row.share().unwrap() * 100.0
        );
    }
}
