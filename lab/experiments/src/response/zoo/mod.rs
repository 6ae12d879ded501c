//! `dwell-lab response zoo`: real clients and servers of many kinds, and how near `dwell response` comes to what the
//! clients know, from the packets of one direction.

mod behaviour;
mod goals;
mod programs;
mod score;
mod stage;
mod table;
mod truth;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::anyhow;
use dwell_app::{Exit, args::positive_duration};
use dwell_testbed::{Error, error::find_program, signals::Signals};
use rcgen::{CertificateParams, KeyPair};

use self::{
    behaviour::{Behaviour, Half},
    programs::{Lack, ZooPrograms},
    score::Score,
    stage::{Recorded, Zoo},
    table::Subject,
};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    loads::watch::replay,
    print::{Format, folders, say},
    values::positive,
};

/// The estimator that the goals judge.
const JUDGED: &str = "auto";

/// Options of `dwell-lab response zoo`.
#[derive(Debug, clap::Args)]
pub struct ZooArgs {
    /// Words: only behaviours whose names contain one of them run [default: all]
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Which half of the behaviours
    #[arg(long, value_enum, default_value_t = Half::Tuning)]
    settings: Half,
    /// List the behaviours, and run none
    #[arg(long)]
    list: bool,
    /// How long the clients of a behaviour send requests
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Behaviours that run at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    jobs: usize,
    /// Python with the packages of the clients, as tests/zoo/setup installs them [default: python3 on the search path]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Random seed, of the service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to keep, for each behaviour, what the clients sent, as NAME.pcap, and the truth, as NAME.truth.jsonl
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    /// Run no clients, and compare what an earlier run kept
    #[arg(long, value_name = "FOLDER", conflicts_with = "keep_in")]
    replay: Option<PathBuf>,
}

/// What a behaviour gave: a score per estimator, or why there is none.
type Scores = Result<Vec<Score>, Lack>;

/// What all behaviours gave with an estimator: by group, and together.
#[derive(Default)]
struct Totals {
    groups: BTreeMap<String, Score>,
    all: Score,
}

/// Runs the behaviours, prints the tables, and judges.
pub fn run(args: &ZooArgs, estimators: &[String], epoch: Duration, format: Format) -> Result<Exit, Failure> {
    let behaviours = args.behaviours()?;
    if args.list {
        for behaviour in &behaviours {
            say(&behaviour.name)?;
        }
        return Ok(Exit::Done);
    }
    let folder = folders("dwell-zoo-", args.keep_in.as_deref())?;
    let signals = Signals::watch()?;
    let programs = Programs::find()?;
    let zoo = Zoo {
        programs: ZooPrograms::write(folder.path(), &args.python())?,
        lab: &programs.lab,
        signals: &signals,
        identity: write_identity(folder.path())?,
        duration: args.duration,
        seed: args.seed,
    };
    let run = Run { zoo, args, dwell: &programs.dwell, estimators, epoch, folder: folder.path() };
    let mut report = Report { format, estimators, totals: BTreeMap::new(), skipped: 0, failed: 0 };
    format.say(&table::heading())?;
    run.each(&behaviours, |behaviour, scores| report.add(behaviour, scores))?;
    report.finish()
}

impl ZooArgs {
    fn behaviours(&self) -> Result<Vec<Behaviour>, Failure> {
        let mut behaviours = Behaviour::all(self.settings)?;
        let is_named = |name: &str| self.words.is_empty() || self.words.iter().any(|word| name.contains(word));
        behaviours.retain(|behaviour| is_named(&behaviour.name));
        if behaviours.is_empty() {
            return Err(Failure::usage(anyhow!(
                "no behaviour has a name that contains {}; --list prints them",
                self.words.join(" or ")
            )));
        }
        Ok(behaviours)
    }

    fn python(&self) -> PathBuf {
        self.python.clone().or_else(|| find_program("python3")).unwrap_or_else(|| "python3".into())
    }
}

/// Writes the servers' certificate and its key.
fn write_identity(folder: &Path) -> Result<[PathBuf; 2], Failure> {
    let wrong = |why: rcgen::Error| Error::invalid("certificate", why);
    let key = KeyPair::generate().map_err(wrong)?;
    let certificate = CertificateParams::new(["zoo".to_owned()]).and_then(|of| of.self_signed(&key)).map_err(wrong)?;
    let files = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
    for (file, text) in files.iter().zip([certificate.pem(), key.serialize_pem()]) {
        fs::write(file, text).map_err(Error::file("write", file))?;
    }
    Ok(files)
}

/// A run over several behaviours.
struct Run<'a> {
    zoo: Zoo<'a>,
    args: &'a ZooArgs,
    dwell: &'a Path,
    estimators: &'a [String],
    epoch: Duration,
    folder: &'a Path,
}

impl Run<'_> {
    /// Runs the behaviours, several at the same time, and reports each in their order.
    fn each(
        &self,
        behaviours: &[Behaviour],
        mut report: impl FnMut(&Behaviour, Scores) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            for _ in 0..self.args.jobs.min(behaviours.len()) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(behaviour) = behaviours.get(number) else { break };
                        // Nobody receives after an interruption.
                        if sender.send((number, self.score(number, behaviour))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let mut waiting = BTreeMap::new();
            let mut reported = 0;
            for (number, scores) in ended {
                if matches!(scores, Err(Lack::Failed(Error::Interrupted))) {
                    return Err(Error::Interrupted.into());
                }
                waiting.insert(number, scores);
                while let Some(scores) = waiting.remove(&reported) {
                    report(&behaviours[reported], scores)?;
                    reported += 1;
                }
            }
            Ok(())
        })
    }

    fn score(&self, number: usize, behaviour: &Behaviour) -> Scores {
        let folder = self.folder.join(number.to_string());
        fs::create_dir(&folder).map_err(Error::file("make the folder", &folder))?;
        let recorded = match &self.args.replay {
            Some(kept) => Recorded::kept(behaviour, kept)?,
            None => self.zoo.record(behaviour, &folder)?,
        };
        if let Some(keep) = &self.args.keep_in {
            recorded.keep(behaviour, keep)?;
        }
        let mut scores = Vec::new();
        for estimator in self.estimators {
            let epoch = format!("{}ns", self.epoch.as_nanos());
            let arguments: Vec<String> = ["--interval", &epoch, "--estimator"]
                .into_iter()
                .chain(estimator.split_whitespace())
                .map(str::to_owned)
                .collect();
            let records = folder.join("records.jsonl");
            replay(self.dwell, "response", &recorded.half, &arguments, &records, self.zoo.signals)?;
            scores.push(Score::read(&records, &recorded.answers, self.epoch)?);
        }
        // A run of all behaviours would else need much space.
        fs::remove_dir_all(&folder).map_err(Error::file("remove the folder", &folder))?;
        Ok(scores)
    }
}

/// What is printed, and what it adds up to.
struct Report<'a> {
    format: Format,
    estimators: &'a [String],
    totals: BTreeMap<usize, Totals>,
    skipped: usize,
    failed: usize,
}

impl Report<'_> {
    fn add(&mut self, behaviour: &Behaviour, scores: Scores) -> Result<(), Failure> {
        let name = &behaviour.name;
        let scores = match scores {
            Ok(scores) => scores,
            Err(Lack::Skipped(reason)) => {
                self.skipped += 1;
                return table::print_absence(self.format, name, true, &reason);
            }
            Err(Lack::Failed(error)) => {
                self.failed += 1;
                return table::print_absence(self.format, name, false, &error.to_string());
            }
        };
        for (number, (estimator, score)) in self.estimators.iter().zip(&scores).enumerate() {
            table::print_score(self.format, Subject::Behaviour(name), estimator, score)?;
            let totals = self.totals.entry(number).or_default();
            totals.groups.entry(behaviour.habits.group.clone()).or_default().merge(score);
            totals.all.merge(score);
        }
        Ok(())
    }

    /// Prints the totals, how reliable confidence is, and the goals.
    fn finish(&self) -> Result<Exit, Failure> {
        let each = || self.totals.iter().map(|(&number, totals)| (&*self.estimators[number], totals));
        self.format.say(&format!("\n{}", table::heading()))?;
        for (estimator, totals) in each() {
            for (group, score) in &totals.groups {
                table::print_score(self.format, Subject::Group(group), estimator, score)?;
            }
            table::print_score(self.format, Subject::All, estimator, &totals.all)?;
        }
        for (estimator, totals) in each() {
            table::print_reliability(self.format, estimator, &totals.all)?;
        }
        self.format.say(&format!("\n{} behaviours skipped, {} failed\n", self.skipped, self.failed))?;
        let mut goals = Vec::new();
        for (estimator, totals) in each().filter(|(estimator, _)| estimator.split(' ').next() == Some(JUDGED)) {
            goals.extend(goals::judge(estimator, &totals.all, &totals.groups));
        }
        for goal in &goals {
            self.format.say(&goal.line())?;
        }
        Ok(match Goal::exit(&goals) {
            Exit::Done if self.failed > 0 => Exit::Incomplete,
            exit => exit,
        })
    }
}
