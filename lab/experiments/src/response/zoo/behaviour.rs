//! What the zoo has: clients, servers and habits, as `behaviours.toml` and `held-out.toml` list them.

use dwell_testbed::{Error, Nanos, Result};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};
use serde::Deserialize;

use crate::loads::random::generator;

const TUNING: (&str, &str) = ("behaviours.toml", include_str!("behaviours.toml"));
const HELD_OUT: (&str, &str) = ("held-out.toml", include_str!("held-out.toml"));
/// Requests of a plan, which a client repeats when they are all sent.
const PLANNED: usize = 4_000;
/// Requests between two steps of the service time.
const STEP_EVERY: usize = 120;

/// The half of the behaviours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Half {
    /// The behaviours by which the estimator was made.
    Tuning,
    /// Other sizes, pauses, service times and paths, which it was not made by.
    HeldOut,
}

#[derive(Deserialize)]
struct List {
    behaviour: Vec<Habits>,
}

/// An entry of the list, which stands for a behaviour for each combination of its pauses, answers and paths.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Habits {
    name: String,
    /// Pauses of the client before a request, in milliseconds.
    #[serde(default = "no_pause")]
    think_ms: Vec<f64>,
    /// Whether pauses are exponentially distributed, with these means, instead of being all alike.
    #[serde(default)]
    pauses_vary: bool,
    /// Bytes of an answer.
    #[serde(default = "five_kilobytes")]
    answer: Vec<u64>,
    /// Those of its half if empty.
    #[serde(default)]
    path: Vec<Path>,
    /// The group in whose total the behaviour counts.
    pub(super) group: String,
    /// The client's program and its options.
    pub(super) client: String,
    /// The server's program and its options.
    #[serde(default = "asyncio")]
    pub(super) server: String,
    /// Whether the connections are encrypted.
    #[serde(default)]
    pub(super) tls: bool,
    /// Processes of the client, each with a connection of its own unless its options say otherwise.
    #[serde(default = "two")]
    pub(super) clients: usize,
    /// That of its half if absent.
    service: Option<Service>,
    /// Bytes of a request's body, of one in `body_one_in` requests.
    #[serde(default)]
    body: u64,
    #[serde(default = "one")]
    body_one_in: usize,
    /// Pieces of an answer, 2 ms apart.
    #[serde(default = "one")]
    pieces: usize,
    /// How many requests go together, in turn: 4 and 1 is a burst of four, then a single one. The last is repeated.
    #[serde(default = "single")]
    bursts: Vec<usize>,
    /// Whether the bursts begin again after the last, instead of its being repeated.
    #[serde(default)]
    bursts_repeat: bool,
    /// Whether the server has TCP timestamps.
    #[serde(default = "yes")]
    pub(super) timestamps: bool,
    /// Whether the server's interface takes several segments as one packet, as offloads do.
    #[serde(default = "yes")]
    pub(super) offloads: bool,
    /// Where the truth is from.
    #[serde(default)]
    pub(super) truth: Truth,
}

/// Where the truth of a behaviour is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Truth {
    /// The client's log of its requests.
    #[default]
    Log,
    /// The client keeps no log, and never has two requests under way on a connection: what it sends up to the first
    /// byte of an answer is one request.
    Turns,
}

/// What lies between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Path {
    /// Nothing that delays.
    Near,
    /// Links with a round trip of 20 ms.
    Far,
    /// Links with a round trip of 7 ms.
    Close,
    /// Links with a round trip of 60 ms.
    Distant,
}

impl Path {
    pub(super) fn rtt(self) -> Nanos {
        match self {
            Self::Near => Nanos::ZERO,
            Self::Far => Nanos::from_millis(20),
            Self::Close => Nanos::from_millis(7),
            Self::Distant => Nanos::from_millis(60),
        }
    }

    /// What the name of a behaviour ends with.
    fn suffix(self) -> &'static str {
        match self {
            Self::Near => "",
            Self::Far => ", far",
            Self::Close => ", 7 ms away",
            Self::Distant => ", 60 ms away",
        }
    }
}

/// How long the server works on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Service {
    /// 10 to 30 ms.
    Usual,
    /// 0.2 to 2 ms.
    Fast,
    /// 10 ms, and 100 ms for one request in five.
    Bimodal,
    /// 10 ms and 30 ms in turn, each for [`STEP_EVERY`] requests.
    Steps,
    /// 150 to 250 ms.
    Slow,
    /// 4 to 60 ms.
    Uneven,
    /// 0.5 to 5 ms.
    Quick,
    /// 6 ms, and 45 ms for one request in three.
    Skewed,
    /// From 8 to 40 ms and back, over twice [`STEP_EVERY`] requests.
    Tide,
}

/// A client, a server, and how the one uses the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Behaviour {
    pub(super) name: String,
    pub(super) path: Path,
    think_ms: f64,
    answer: u64,
    pub(super) habits: Habits,
    service: Service,
}

impl Behaviour {
    /// All of a half, in the order of the list.
    pub(super) fn all(half: Half) -> Result<Vec<Self>> {
        let (file, text) = half.list();
        let list: List = toml::from_str(text).map_err(|why| Error::invalid(file, why))?;
        Ok(list.behaviour.iter().flat_map(|habits| habits.behaviours(half)).collect())
    }

    /// The name of its files.
    pub(super) fn file_stem(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        self.name.replace(',', "").chars().map(word).collect()
    }

    /// The requests of one of its clients: a line each, as `programs/plan.py` explains.
    pub(super) fn plan(&self, seed: u64, client: usize) -> String {
        let habits = &self.habits;
        let mut random = generator(seed, 0, client as u64);
        let mut bursts = Bursts { habits, at: 0, left: 0 };
        let mut line = |number: usize| {
            let is_together = bursts.next_is_together();
            let think_ms = match is_together {
                true => 0.0,
                false if habits.pauses_vary => -self.think_ms * (1.0 - random.random::<f64>()).ln(),
                false => self.think_ms,
            };
            let service_ms = self.service.draw_ms(number, &mut random);
            let body = if number % habits.body_one_in == habits.body_one_in - 1 { habits.body } else { 0 };
            format!("{think_ms} {service_ms:.3} {} {body} {} {}\n", self.answer, habits.pieces, u8::from(is_together))
        };
        (0..PLANNED).map(&mut line).collect()
    }
}

impl Half {
    fn list(self) -> (&'static str, &'static str) {
        match self {
            Self::Tuning => TUNING,
            Self::HeldOut => HELD_OUT,
        }
    }

    fn paths(self) -> [Path; 2] {
        match self {
            Self::Tuning => [Path::Near, Path::Far],
            Self::HeldOut => [Path::Close, Path::Distant],
        }
    }

    fn service(self) -> Service {
        match self {
            Self::Tuning => Service::Usual,
            Self::HeldOut => Service::Uneven,
        }
    }
}

struct Bursts<'a> {
    habits: &'a Habits,
    at: usize,
    left: usize,
}

impl Bursts<'_> {
    /// Whether the next request goes together with the one before.
    fn next_is_together(&mut self) -> bool {
        let sizes = &self.habits.bursts;
        let is_together = self.left > 0;
        if !is_together {
            let at = if self.habits.bursts_repeat { self.at % sizes.len() } else { self.at.min(sizes.len() - 1) };
            self.left = sizes[at].max(1);
            self.at += 1;
        }
        self.left -= 1;
        is_together
    }
}

impl Service {
    fn draw_ms(self, number: usize, random: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Self::Usual => random.random_range(10.0..30.0),
            Self::Fast => random.random_range(0.2..2.0),
            Self::Bimodal if random.random_bool(0.2) => 100.0,
            Self::Bimodal => 10.0,
            Self::Steps if (number / STEP_EVERY) % 2 == 1 => 30.0,
            Self::Steps => 10.0,
            Self::Slow => random.random_range(150.0..250.0),
            Self::Uneven => random.random_range(4.0..60.0),
            Self::Quick => random.random_range(0.5..5.0),
            Self::Skewed if random.random_bool(1.0 / 3.0) => 45.0,
            Self::Skewed => 6.0,
            Self::Tide => {
                let part = (number % (2 * STEP_EVERY)) as f64 / STEP_EVERY as f64;
                8.0 + 32.0 * part.min(2.0 - part)
            }
        }
    }
}

impl Habits {
    fn behaviours(&self, half: Half) -> Vec<Behaviour> {
        let mut all = Vec::new();
        let of_half = half.paths();
        let paths = if self.path.is_empty() { &of_half[..] } else { &self.path };
        for &path in paths {
            for &answer in &self.answer {
                for &think_ms in &self.think_ms {
                    all.push(self.behaviour(half, path, answer, think_ms));
                }
            }
        }
        all
    }

    /// Its name has what sets it apart from others of the entry.
    fn behaviour(&self, half: Half, path: Path, answer: u64, think_ms: f64) -> Behaviour {
        let mut name = self.name.clone();
        if self.answer.len() > 1 {
            name += &format!(", {answer} B");
        }
        if self.think_ms.len() > 1 {
            name += &format!(", pause {think_ms} ms");
        }
        name += path.suffix();
        let service = self.service.unwrap_or(half.service());
        Behaviour { name, path, think_ms, answer, habits: self.clone(), service }
    }
}

fn no_pause() -> Vec<f64> {
    vec![0.0]
}

fn five_kilobytes() -> Vec<u64> {
    vec![5_000]
}

fn asyncio() -> String {
    "server.py".to_owned()
}

fn single() -> Vec<usize> {
    vec![1]
}

fn one() -> usize {
    1
}

fn two() -> usize {
    2
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_behaviour_of_the_lists_has_a_name_and_files_of_its_own() {
        let [tuning, held_out] = [Half::Tuning, Half::HeldOut].map(|half| Behaviour::all(half).unwrap());
        assert!(tuning.iter().any(|behaviour| behaviour.path == Path::Far));
        assert!(held_out.iter().all(|behaviour| matches!(behaviour.path, Path::Close | Path::Distant)));
        let groups =
            |all: &[Behaviour]| -> HashSet<String> { all.iter().map(|one| one.habits.group.clone()).collect() };
        assert_eq!(groups(&tuning), groups(&held_out));
        let all = [tuning, held_out].concat();
        let stems: HashSet<String> = all.iter().map(Behaviour::file_stem).collect();
        assert_eq!(stems.len(), all.len());
    }

    #[test]
    fn held_out_service_times_are_in_their_ranges() {
        let mut random = generator(1, 0, 0);
        for (service, least_ms, most_ms) in [
            (Service::Uneven, 4.0, 60.0),
            (Service::Quick, 0.5, 5.0),
            (Service::Skewed, 6.0, 45.0),
            (Service::Tide, 8.0, 40.0),
        ] {
            let drawn: Vec<f64> = (0..1_000).map(|number| service.draw_ms(number, &mut random)).collect();
            assert!(drawn.iter().all(|ms| (least_ms..=most_ms).contains(ms)), "{service:?}");
            assert!(drawn.iter().any(|ms| *ms > (least_ms + most_ms) / 2.0), "{service:?}");
        }
    }

    #[test]
    fn a_plan_has_bodies_and_bursts_where_the_habits_say() {
        let mut behaviour = Behaviour::all(Half::Tuning).unwrap().remove(0);
        behaviour.think_ms = 5.0;
        behaviour.habits.bursts = vec![2, 1];
        behaviour.habits.body = 300;
        behaviour.habits.body_one_in = 3;
        let column = |plan: &str, column: usize| -> Vec<String> {
            plan.lines().take(6).map(|line| line.split(' ').nth(column).unwrap().to_owned()).collect()
        };
        let plan = behaviour.plan(1, 0);
        assert_eq!(column(&plan, 0), ["5", "0", "5", "5", "5", "5"]);
        assert_eq!(column(&plan, 3), ["0", "0", "300", "0", "0", "300"]);
        assert_eq!(column(&plan, 5), ["0", "1", "0", "0", "0", "0"]);
        behaviour.habits.pauses_vary = true;
        let pauses: Vec<f64> =
            behaviour.plan(1, 0).lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        let apart: Vec<f64> = pauses.into_iter().filter(|pause_ms| *pause_ms > 0.0).collect();
        let mean_ms = apart.iter().sum::<f64>() / apart.len() as f64;
        assert!((4.5..5.5).contains(&mean_ms) && apart.iter().any(|pause_ms| *pause_ms > 15.0), "{mean_ms}");
        behaviour.habits.bursts_repeat = true;
        assert_eq!(column(&behaviour.plan(1, 0), 5), ["0", "1", "0", "0", "1", "0"]);
        assert_eq!(behaviour.plan(2, 0), behaviour.plan(2, 0));
        assert_ne!(behaviour.plan(1, 0), behaviour.plan(1, 1));
    }
}
