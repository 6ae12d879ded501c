//! Round trips that tcptrace finds in a capture taken at the client.

use std::{path::Path, process::Command};

use dwell_testbed::{
    Error, Lab, Result, Role,
    error::{find_program, run},
};

/// Mean over all round trips of the client's packets in nanoseconds, and how many there are; None where tcptrace is
/// not installed. It tells tenths of a millisecond.
pub(super) fn round_trips(capture: &Path) -> Result<Option<(f64, usize)>> {
    let Some(program) = find_program("tcptrace") else {
        return Ok(None);
    };
    // Long output with round trips, addresses as numbers.
    let mut command = Command::new(program);
    command.args(["-l", "-r", "-n", "--csv"]).arg(capture);
    let table = run(&mut command, "")?;
    let client = Lab::address_v4(Role::Client).to_string();
    sum(&table, &client).map(Some)
}

/// Lines after the head of the table are connections. The client is their end a or b.
fn sum(table: &str, client: &str) -> Result<(f64, usize)> {
    let mut lines = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let (mut sum_ns, mut count) = (0.0, 0);
    for line in lines {
        let cell = |name: &str| {
            let at = head.iter().position(|column| *column == name);
            let cell = at.and_then(|at| line.get(at));
            cell.ok_or_else(|| Error::invalid("what tcptrace says", format!("no {name}")))
        };
        let way = if *cell("host_a")? == client { "a2b" } else { "b2a" };
        let number = |name: &str| {
            let cell = cell(&format!("{name}_{way}"))?;
            cell.parse::<f64>().map_err(|why| Error::invalid("what tcptrace says", why))
        };
        let samples = number("RTT_samples")?;
        sum_ns += samples * number("RTT_avg")? * 1e6;
        count += samples as usize;
    }
    Ok((sum_ns / (count as f64).max(1.0), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_those_of_the_clients_packets() {
        let table = "#tcptrace\nconn_#,host_a,host_b,RTT_samples_a2b,RTT_samples_b2a,RTT_avg_a2b,RTT_avg_b2a\n\n\
                     1,10.0.0.1,10.0.0.2,   30,  500,  2.0, 0.1\n2,10.0.0.2,10.0.0.1, 70, 10, 0.5, 6.0\n";
        assert_eq!(sum(table, "10.0.0.1").unwrap(), (3_000_000.0, 40));
        assert_eq!(sum("#none\n", "10.0.0.1").unwrap(), (0.0, 0));
        assert!(sum("host_a\n10.0.0.1\n", "10.0.0.1").is_err());
    }
}
