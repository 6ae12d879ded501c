//! Settings against delay in the send buffer, and the throughput that they cost.

use dwell_app::Exit;
use dwell_sim::report;
use serde::Serialize;

use super::{Bench, Goal, SCHEMA, mean, millis, percent};
use crate::{
    failure::Failure,
    socket::{
        Outcome, Scenario, Setting, Watch,
        accuracy::{Delays, Series},
        goals::{self, Minimized},
        over_time, supports,
    },
};

/// The stamps give the delays; the samples of `dwell run` are for its round trips alone, so they are rare.
const WATCH: Watch = Watch { estimator: "exact", outside: false, interval_ms: 100 };
/// A program whose settings stay as they are is watched from outside.
const UNTOUCHED: Watch = Watch { outside: true, ..WATCH };
/// The `way` of samples from inside the program.
const INSIDE: &str = "inside";
/// The settings that are drawn.
const DRAWN: [Setting; 2] = [Setting::Plain, Setting::Lowat];

/// The result of a run.
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

/// The figures of a run.
#[derive(Clone)]
struct Figures {
    goodput: Option<f64>,
    sending: Option<Distribution>,
    reading: Option<Distribution>,
    end_to_end: Option<Distribution>,
    rtt: Option<f64>,
    others: Vec<Option<f64>>,
    /// Whether `dwell run` could load its library.
    inside: bool,
}

/// All runs with a setting.
struct Row {
    setting: Setting,
    runs: Vec<Figures>,
}

pub(super) fn run(bench: &Bench<'_>, scenarios: &[Scenario]) -> Result<Exit, Failure> {
    let mut goals = Vec::new();
    let mut all = Vec::new();
    for scenario in scenarios {
        let settings = Setting::ALL.into_iter().filter(|&setting| {
            let wanted = &bench.args.settings;
            setting == Setting::Plain || wanted.is_empty() || wanted.contains(&setting)
        });
        let mut rows: Vec<Row> = settings
            .filter(|setting| supports(scenario.application, *setting))
            .map(|setting| Row { setting, runs: Vec::new() })
            .collect();
        let mut drawn = Vec::new();
        for run in 1..=bench.args.runs {
            for row in &mut rows {
                let name = row.setting.name();
                let watch = if row.setting.is_dwells() { WATCH } else { UNTOUCHED };
                let outcome = bench.run(scenario, (row.setting, watch), &format!("{name}-{run}"))?;
                let figures = Figures::of(&outcome, scenario.others.len());
                print(bench, scenario.name, &name, run, &figures)?;
                row.runs.push(figures);
                if run == 1 && DRAWN.contains(&row.setting) {
                    let (begin, sending) = outcome.sending();
                    drawn.push((name, begin, sending));
                }
            }
        }
        bench.say(&table(scenario, &rows))?;
        draw(bench, scenario, &drawn)?;
        let own = judge(scenario, &rows);
        bench.judge(&own)?;
        goals.extend(own);
        all.push((scenario.name, rows));
    }
    if all.len() > 1 {
        bench.say(&summary(&all))?;
    }
    Ok(Goal::exit(&goals))
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
            inside: outcome.sender.iter().any(|sample| sample.way == INSIDE),
        }
    }
}

impl From<Delays> for Distribution {
    fn from(delays: Delays) -> Distribution {
        Distribution { bytes: delays.bytes, mean_ns: delays.mean_ns, p50_ns: delays.p50_ns, p95_ns: delays.p95_ns }
    }
}

fn print(bench: &Bench<'_>, scenario: &str, setting: &str, run: u32, figures: &Figures) -> Result<(), Failure> {
    let object = Object {
        kind: "lab.minimize",
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

    /// The throughput of each other flow as a share of its throughput in the rows of a plain flow.
    fn others(&self, plain: &Row) -> Vec<Option<f64>> {
        let other = |row: &Row, number: usize| row.mean(|run| run.others[number]);
        let count = plain.runs.first().map_or(0, |run| run.others.len());
        (0..count).map(|number| ratio(other(self, number), other(plain, number))).collect()
    }
}

fn table(scenario: &Scenario, rows: &[Row]) -> String {
    let mut heading: Vec<String> =
        ["", "Mbit/s", "% of plain", "send buffer ms", "p50", "p95", "srtt ms", "end to end ms", "p50", "p95"]
            .map(str::to_owned)
            .to_vec();
    heading.extend((0..scenario.others.len()).map(|number| format!("flow {}, % of plain", number + 2)));
    let plain = &rows[0];
    let line = |row: &Row| {
        let of = |figure: fn(&Figures) -> Option<f64>| millis(row.mean(figure));
        let mut line = vec![
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
        ];
        line.extend(row.others(plain).into_iter().map(percent));
        line
    };
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let lines: Vec<_> = rows.iter().map(line).collect();
    format!("\n{}: {}; means\n{}", scenario.name, scenario.about, report::table(&heading, &lines))
}

/// A table with one row per scenario: `dwell run` compared with the fixed setting that has the shortest delay among those
/// that keep enough throughput.
fn summary(all: &[(&str, Vec<Row>)]) -> String {
    let line = |(scenario, rows): &(&str, Vec<Row>)| {
        let plain = rows[0].goodput();
        let kept = |row: &Row| ratio(row.goodput(), plain);
        let fixed =
            rows.iter().filter(|row| row.setting.is_fixed() && kept(row).is_some_and(|kept| kept >= goals::THROUGHPUT));
        let delay = |row: &&Row| row.sending().unwrap_or(f64::INFINITY);
        let best = fixed.min_by(|one, other| delay(one).total_cmp(&delay(other)));
        let find = |setting| rows.iter().find(|row| row.setting == setting);
        let mut line = vec![(*scenario).to_owned(), millis(rows[0].sending())];
        for row in [find(Setting::Lowat), find(Setting::LowatBbr), best] {
            line.extend([millis(row.and_then(Row::sending)), percent(row.and_then(kept))]);
        }
        line.push(best.map_or_else(|| "-".to_owned(), |row| row.setting.name()));
        line
    };
    let best = format!("best fixed that keeps {} %", goals::THROUGHPUT * 100.0);
    let heading = ["scenario", "plain", "lowat", "%", "lowat + bbr", "%", "best fixed", "%", &best];
    format!(
        "\nmean delay in the send buffer in ms, and throughput in % of a plain flow's\n{}",
        report::table(&heading, &all.iter().map(line).collect::<Vec<_>>())
    )
}

fn draw(bench: &Bench<'_>, scenario: &Scenario, drawn: &[(String, u64, Series)]) -> Result<(), Failure> {
    let heading = format!("dwell-lab socket: {}", scenario.about);
    let file = format!("{}.svg", scenario.name);
    bench.keep(&file, &over_time(&heading, drawn))
}

fn judge(scenario: &Scenario, rows: &[Row]) -> Vec<Goal> {
    let find = |setting| rows.iter().find(|row| row.setting == setting);
    let (Some(plain), Some(lowat)) = (find(Setting::Plain), find(Setting::Lowat)) else {
        return Vec::new();
    };
    let without_library = rows.iter().filter(|row| row.setting.is_dwells() && row.runs.iter().any(|run| !run.inside));
    let mut goals: Vec<Goal> =
        without_library.map(|row| goals::not_applied(scenario.name, &row.setting.name())).collect();
    goals.extend(goals::minimize(
        scenario.name,
        scenario.rate(),
        &Minimized {
            throughput: ratio(lowat.goodput(), plain.goodput()),
            wait: lowat.sending(),
            delay: ratio(lowat.sending(), plain.sending()),
            others: lowat.others(plain),
        },
    ));
    goals
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
        judge(&scenario, rows).iter().map(|goal| goal.holds).collect()
    }

    #[test]
    fn throughput_delay_and_the_others_are_compared_with_a_plain_flow() {
        let plain = || row(Setting::Plain, 10.0, 500.0, 3.0);
        let good = [plain(), row(Setting::Lowat, 9.8, 9.0, 3.1)];
        assert_eq!(holds("10m-50ms", &good), [Some(true); 3]);
        assert_eq!(holds("three-flows", &good), [Some(true); 4]);
        assert_eq!(holds("reno", &good), [Some(true); 2]);
        assert_eq!(holds("50m-50ms", &good), [Some(true), Some(false)]);
        let bad = [plain(), row(Setting::Lowat, 9.6, 51.0, 2.8)];
        assert_eq!(holds("10m-50ms", &bad), [Some(false); 3]);
        assert_eq!(holds("three-flows", &bad), [Some(false); 4]);
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
    fn a_setting_that_dwell_run_could_not_apply_is_undecided() {
        let mut lowat = row(Setting::Lowat, 10.0, 500.0, 3.0);
        lowat.runs[0].inside = false;
        let rows = [row(Setting::Plain, 10.0, 500.0, 3.0), lowat];
        assert_eq!(holds("reno", &rows), [None, Some(true), Some(false)]);
    }
}
