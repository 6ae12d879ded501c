//! What is done against waiting, and what it costs.

use dwell_app::Exit;
use serde::Serialize;

use super::{Bench, Goal, SCHEMA, mean, millis, percent};
use crate::{
    failure::Failure,
    socket::{
        Outcome, Scenario, Setting, Watch,
        accuracy::{Delays, Series},
        can, over_time,
    },
};

/// Delays are known from stamps; round trips are asked for rarely.
const WATCH: Watch = Watch { estimator: "exact", outside: false, interval_ms: 100 };
/// A program that is left as it is, is only looked at.
const UNTOUCHED: Watch = Watch { outside: true, ..WATCH };
/// How it calls that its library is in the program.
const INSIDE: &str = "inside";
/// Of the throughput, what shall be left.
const KEPT: f64 = 0.97;
/// Of the delay, what shall be left at most.
const LEFT: f64 = 0.1;
/// How far other flows' throughput may be from what it is beside a plain flow.
const FAIR: f64 = 0.05;
/// What a picture is of.
const DRAWN: [Setting; 2] = [Setting::Plain, Setting::Lowat];

/// What a run came to.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    scenario: &'a str,
    setting: &'a str,
    run: u32,
    goodput_bps: Option<f64>,
    sender_delay: Option<Distribution>,
    receiver_delay: Option<Distribution>,
    end_to_end: Option<Distribution>,
    network_rtt_ns: Option<f64>,
    others_goodput_bps: &'a [Option<f64>],
}

#[derive(Serialize, Clone, Copy)]
struct Distribution {
    bytes: usize,
    mean_ns: f64,
    p50_ns: f64,
    p95_ns: f64,
}

/// Its figures.
#[derive(Clone)]
struct Figures {
    goodput: Option<f64>,
    sending: Option<Distribution>,
    reading: Option<Distribution>,
    end_to_end: Option<Distribution>,
    rtt: Option<f64>,
    others: Vec<Option<f64>>,
    /// `dwell run` could load its library.
    inside: bool,
}

/// All runs with a setting.
struct Row {
    setting: Setting,
    runs: Vec<Figures>,
}

pub(super) fn run(bench: &Bench<'_>, scenarios: &[Scenario]) -> Result<Exit, Failure> {
    let mut checks = Vec::new();
    let mut all = Vec::new();
    for scenario in scenarios {
        let settings = Setting::ALL.into_iter();
        let mut rows: Vec<Row> = settings
            .filter(|setting| can(scenario.application, *setting))
            .map(|setting| Row { setting, runs: Vec::new() })
            .collect();
        let mut drawn = Vec::new();
        for run in 1..=bench.args.runs {
            for row in &mut rows {
                let name = row.setting.name();
                let watch = if row.setting.is_dwells() { WATCH } else { UNTOUCHED };
                let outcome = bench.run(scenario, (row.setting, watch), &format!("{name}-{run}"))?;
                let figures = Figures::of(&outcome, scenario.others.len());
                tell(bench, scenario.name, &name, run, &figures)?;
                row.runs.push(figures);
                if run == 1 && DRAWN.contains(&row.setting) {
                    let (begin, sending) = outcome.sending();
                    drawn.push((name, begin, sending));
                }
            }
        }
        bench.say(&table(scenario, &rows))?;
        draw(bench, scenario, &drawn)?;
        let own = check(scenario, &rows);
        for check in &own {
            bench.say(&check.line())?;
        }
        checks.extend(own);
        all.push((scenario.name, rows));
    }
    if all.len() > 1 {
        bench.say(&summary(&all))?;
    }
    Ok(Goal::exit(&checks))
}

impl Figures {
    fn of(outcome: &Outcome, others: usize) -> Figures {
        let flow = outcome.flow(0);
        let delays = |series: Option<Series>| {
            let delays = series?.delays(outcome.span)?;
            Some(Distribution::from(delays))
        };
        Figures {
            goodput: flow.and_then(|flow| flow.goodput_bps(outcome.span)),
            sending: delays(flow.map(|flow| flow.sending())),
            reading: delays(flow.map(|flow| flow.reading())),
            end_to_end: delays(flow.map(|flow| flow.end_to_end())),
            rtt: outcome.rtt_ns(),
            others: (1..=others).map(|number| outcome.flow(number)?.goodput_bps(outcome.span)).collect(),
            inside: outcome.sender.iter().any(|look| look.way == INSIDE),
        }
    }
}

impl From<Delays> for Distribution {
    fn from(delays: Delays) -> Distribution {
        Distribution { bytes: delays.bytes, mean_ns: delays.mean_ns, p50_ns: delays.p50_ns, p95_ns: delays.p95_ns }
    }
}

fn tell(bench: &Bench<'_>, scenario: &str, setting: &str, run: u32, figures: &Figures) -> Result<(), Failure> {
    let object = Object {
        kind: "lab_minimize",
        schema: SCHEMA,
        scenario,
        setting,
        run,
        goodput_bps: figures.goodput,
        sender_delay: figures.sending,
        receiver_delay: figures.reading,
        end_to_end: figures.end_to_end,
        network_rtt_ns: figures.rtt,
        others_goodput_bps: &figures.others,
    };
    let sending = figures.sending.map(|delays| delays.mean_ns);
    bench.print(&object, || {
        format!("{scenario}, {setting}: {} Mbit/s, {} ms in the send buffer", mbit(figures.goodput), millis(sending))
    })
}

impl Row {
    fn mean(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        mean(self.runs.iter().map(of))
    }

    fn goodput(&self) -> Option<f64> {
        self.mean(|run| run.goodput)
    }

    fn sending(&self) -> Option<f64> {
        self.mean(|run| Some(run.sending?.mean_ns))
    }

    fn other(&self, number: usize) -> Option<f64> {
        self.mean(|run| run.others[number])
    }
}

fn table(scenario: &Scenario, rows: &[Row]) -> String {
    let mut text = format!(
        "\n{}: {}\n{:<20}{:>10}{:>9}{:>12}{:>8}{:>8}{:>10}{:>12}{:>8}{:>8}",
        scenario.name,
        scenario.about,
        "",
        "goodput",
        "of plain",
        "send buffer",
        "p50",
        "p95",
        "srtt",
        "end to end",
        "p50",
        "p95"
    );
    if !scenario.others.is_empty() {
        text += "  others, of plain";
    }
    text += &format!(
        "\n{:<20}{:>10}{:>9}{:>12}{:>8}{:>8}{:>10}{:>12}{:>8}{:>8}\n",
        "", "Mbit/s", "%", "mean ms", "ms", "ms", "ms", "mean ms", "ms", "ms"
    );
    let plain = &rows[0];
    for row in rows {
        let of = |figure: fn(&Figures) -> Option<f64>| millis(row.mean(figure));
        text += &format!(
            "{:<20}{:>10}{:>9}{:>12}{:>8}{:>8}{:>10}{:>12}{:>8}{:>8}",
            row.setting.name(),
            mbit(row.goodput()),
            percent(ratio(row.goodput(), plain.goodput())),
            millis(row.sending()),
            of(|run| Some(run.sending?.p50_ns)),
            of(|run| Some(run.sending?.p95_ns)),
            of(|run| run.rtt),
            of(|run| Some(run.end_to_end?.mean_ns)),
            of(|run| Some(run.end_to_end?.p50_ns)),
            of(|run| Some(run.end_to_end?.p95_ns)),
        );
        for number in 0..scenario.others.len() {
            let share = ratio(row.other(number), plain.other(number));
            text += &format!("{:>8} %", percent(share));
        }
        text.push('\n');
    }
    text
}

/// A line a scenario: what `dwell run` does, beside the fixed setting that has bytes wait least and lets enough through.
fn summary(all: &[(&str, Vec<Row>)]) -> String {
    let mut text = format!(
        "\nmean wait in the send buffer in ms, and throughput in % of that of a plain flow\n\
         {:<14}{:>8}{:>10}{:>8}{:>12}{:>8}{:>12}{:>8}  best fixed that leaves {} %\n",
        "scenario",
        "plain",
        "lowat",
        "%",
        "lowat + bbr",
        "%",
        "best fixed",
        "%",
        KEPT * 100.0
    );
    for (scenario, rows) in all {
        let plain = rows[0].goodput();
        let kept = |row: &Row| ratio(row.goodput(), plain);
        let fixed = rows.iter().filter(|row| row.setting.is_fixed() && kept(row).is_some_and(|kept| kept >= KEPT));
        let wait = |row: &&Row| row.sending().unwrap_or(f64::INFINITY);
        let best = fixed.min_by(|one, other| wait(one).total_cmp(&wait(other)));
        let find = |setting| rows.iter().find(|row| row.setting == setting);
        text += &format!("{scenario:<14}{:>8}", millis(rows[0].sending()));
        let columns = [find(Setting::Lowat), find(Setting::LowatBbr), best];
        for (row, width) in columns.into_iter().zip([10, 12, 12]) {
            let (wait, kept) = (row.and_then(Row::sending), row.and_then(kept));
            text += &format!("{:>width$}{:>8}", millis(wait), percent(kept));
        }
        let name = best.map_or_else(|| "-".to_owned(), |row| row.setting.name());
        text += &format!("  {name}\n");
    }
    text
}

fn draw(bench: &Bench<'_>, scenario: &Scenario, drawn: &[(String, u64, Series)]) -> Result<(), Failure> {
    let heading = format!("dwell-lab socket: {}", scenario.about);
    let file = format!("{}.svg", scenario.name);
    bench.keep(&file, &over_time(&heading, drawn))
}

fn check(scenario: &Scenario, rows: &[Row]) -> Vec<Goal> {
    let find = |setting| rows.iter().find(|row| row.setting == setting);
    let (Some(plain), Some(lowat)) = (find(Setting::Plain), find(Setting::Lowat)) else {
        return Vec::new();
    };
    let name = scenario.name;
    let kept = ratio(lowat.goodput(), plain.goodput());
    let left = ratio(lowat.sending(), plain.sending());
    let untouched = rows.iter().filter(|row| row.setting.is_dwells() && row.runs.iter().any(|run| !run.inside));
    let mut checks: Vec<Goal> = untouched
        .map(|row| Goal {
            holds: None,
            what: format!("{name}: {} was not done, as dwell run could not load its library", row.setting.name()),
        })
        .collect();
    checks.push(Goal {
        holds: kept.map(|kept| kept >= KEPT),
        what: format!(
            "{name}: with --minimize {} % of the throughput are left, wanted: {} %",
            percent(kept),
            KEPT * 100.0
        ),
    });
    if name == "10m-50ms" {
        checks.push(Goal {
            holds: left.map(|left| left <= LEFT),
            what: format!("{name}: and {} % of the delay, wanted: at most {} %", percent(left), LEFT * 100.0),
        });
    }
    if name == "three-flows" {
        for number in 0..scenario.others.len() {
            let share = ratio(lowat.other(number), plain.other(number));
            checks.push(Goal {
                holds: share.map(|share| (share - 1.0).abs() <= FAIR),
                what: format!(
                    "{name}: beside it flow {} has {} % of its throughput, wanted: within {} %",
                    number + 2,
                    percent(share),
                    FAIR * 100.0
                ),
            });
        }
    }
    checks
}

fn mbit(bps: Option<f64>) -> String {
    bps.map_or_else(|| "-".to_owned(), |bps| format!("{:.2}", bps / 1e6))
}

fn ratio(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    Some(value? / of.filter(|&of| of > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: Setting, mbit: f64, delay_ms: f64, other_mbit: f64) -> Row {
        let delays = Distribution { bytes: 1, mean_ns: delay_ms * 1e6, p50_ns: 0.0, p95_ns: 0.0 };
        Row {
            setting,
            runs: vec![Figures {
                goodput: Some(mbit * 1e6),
                sending: Some(delays),
                reading: None,
                end_to_end: None,
                rtt: None,
                others: vec![Some(other_mbit * 1e6); 2],
                inside: true,
            }],
        }
    }

    fn holds(scenario: &str, rows: &[Row]) -> Vec<Option<bool>> {
        let scenario = Scenario::find(scenario, None).unwrap();
        let checks = check(&scenario, rows);
        checks.iter().map(|check| check.holds).collect()
    }

    #[test]
    fn throughput_delay_and_the_others_are_beside_those_of_a_plain_flow() {
        let plain = || row(Setting::Plain, 10.0, 500.0, 3.0);
        let good = [plain(), row(Setting::Lowat, 9.8, 49.0, 3.1)];
        assert_eq!(holds("10m-50ms", &good), [Some(true); 2]);
        assert_eq!(holds("three-flows", &good), [Some(true); 3]);
        assert_eq!(holds("reno", &good), [Some(true)]);
        let bad = [plain(), row(Setting::Lowat, 9.6, 51.0, 2.8)];
        assert_eq!(holds("10m-50ms", &bad), [Some(false); 2]);
        assert_eq!(holds("three-flows", &bad), [Some(false); 3]);
    }

    #[test]
    fn the_best_fixed_setting_is_one_that_lets_enough_through() {
        let fixed = |kib, mbit, ms| row(Setting::NotsentLowat(kib), mbit, ms, 0.0);
        let rows = vec![
            row(Setting::Plain, 10.0, 500.0, 0.0),
            fixed(16, 9.0, 1.0),
            fixed(64, 9.8, 30.0),
            fixed(128, 10.0, 80.0),
            row(Setting::Lowat, 9.9, 20.0, 0.0),
        ];
        let text = summary(&[("reno", rows)]);
        let line = text.lines().last().unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let figures = ["reno", "500", "20.0", "99.0", "-", "-", "30.0", "98.0"];
        assert_eq!(words[..8], figures, "{text}");
        assert_eq!(words[8..].join(" "), "NOTSENT_LOWAT 64 K");
    }

    #[test]
    fn what_dwell_run_could_not_do_is_not_told_as_done() {
        let mut lowat = row(Setting::Lowat, 10.0, 500.0, 3.0);
        lowat.runs[0].inside = false;
        let rows = [row(Setting::Plain, 10.0, 500.0, 3.0), lowat];
        assert_eq!(holds("reno", &rows), [None, Some(true)]);
    }
}
