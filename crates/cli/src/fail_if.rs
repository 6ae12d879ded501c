//! `--fail-if CONDITION`: conditions on the latencies of a run, under which its exit status is 1.
//!
//! A condition compares one figure with a limit: `[NAME] FIGURE COMPARISON LIMIT`, as in `p99>50ms`. NAME restricts it to
//! one method, segment or buffer. Several are joined by `or`.

use std::collections::BTreeMap;

use dwell_engine::{
    histogram::{Figure, Histogram},
    units::nanos,
};
use dwell_records::{ConditionOutcome, Latency, Verdict, counted};

use crate::{
    args::duration,
    exit::Exit,
    log::{alarm, log},
};

/// Conditions that were given together, joined by `or`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    /// As it was given.
    text: String,
    name: Option<String>,
    figure: Figure,
    comparison: Comparison,
    /// Nanoseconds, or a number of samples.
    limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Comparison {
    /// Longer signs come first, because they begin with the shorter ones.
    const SIGNS: [(&'static str, Comparison); 4] =
        [(">=", Comparison::AtLeast), ("<=", Comparison::AtMost), (">", Comparison::Above), ("<", Comparison::Below)];

    fn holds(self, value: u64, limit: u64) -> bool {
        match self {
            Comparison::Above => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Below => value < limit,
            Comparison::AtMost => value <= limit,
        }
    }
}

/// What the conditions of a verb can be about.
pub struct Vocabulary {
    /// What a name stands for, as in "method".
    pub kind: &'static str,
    /// The names that may precede a figure.
    pub names: Vec<String>,
    /// The figures that the verb knows.
    pub figures: &'static [Figure],
}

/// Parses conditions. An error message says what is wrong, and at which character.
pub fn parse(text: &str, vocabulary: &Vocabulary) -> Result<Conditions, String> {
    let mut conditions = Vec::new();
    let mut start = 0;
    for (at, word) in words(text) {
        match word {
            "or" => {
                conditions.push(condition(text, start, at, vocabulary)?);
                start = at + word.len();
            }
            "and" | "&&" | "||" | "," => return Err(wrong(text, at, "join conditions with `or`, the only connective")),
            _ => {}
        }
    }
    conditions.push(condition(text, start, text.len(), vocabulary)?);
    Ok(Conditions(conditions))
}

/// Parses the condition between two offsets of a text.
fn condition(text: &str, start: usize, end: usize, vocabulary: &Vocabulary) -> Result<Condition, String> {
    let whole = &text[start..end];
    let Some(offset) = whole.find(['<', '>', '=', '!']) else {
        let why = "a comparison is missing: write FIGURE>LIMIT, as in p99>50ms";
        return Err(wrong(text, start + whole.trim_end().len(), why));
    };
    let sign_at = start + offset;
    let sign = Comparison::SIGNS.into_iter().find(|(sign, _)| text[sign_at..end].starts_with(sign));
    let Some((sign, comparison)) = sign else {
        return Err(wrong(text, sign_at, "compare with >, >=, < or <="));
    };
    let (name, figure) = subject(text, start, sign_at, vocabulary)?;
    let rest = &text[sign_at + sign.len()..end];
    let limit_at = end - rest.trim_start().len();
    let limit = limit(figure, rest.trim()).map_err(|why| wrong(text, limit_at, &why))?;
    Ok(Condition { text: whole.trim().to_owned(), name, figure, comparison, limit })
}

/// Parses `[NAME] FIGURE` between two offsets of a text.
fn subject(text: &str, start: usize, end: usize, vocabulary: &Vocabulary) -> Result<(Option<String>, Figure), String> {
    let mut words: Vec<_> = words(&text[start..end]).map(|(at, word)| (start + at, word)).collect();
    let names = || vocabulary.figures.iter().map(|figure| figure.name()).collect::<Vec<_>>().join(", ");
    let Some((at, word)) = words.pop() else {
        return Err(wrong(text, end, &format!("a figure is missing before the comparison: {}", names())));
    };
    let Some(figure) = Figure::from_name(word).filter(|figure| vocabulary.figures.contains(figure)) else {
        return Err(wrong(text, at, &format!("'{word}' is not a figure; the figures are {}", names())));
    };
    let Some((at, _)) = words.first() else {
        return Ok((None, figure));
    };
    let name = words.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
    match vocabulary.names.contains(&name) {
        true => Ok((Some(name), figure)),
        false if vocabulary.names.is_empty() => Err(wrong(text, *at, "a figure comes first, as in p99>50ms")),
        false => {
            let (kind, known) = (vocabulary.kind, vocabulary.names.join(", "));
            Err(wrong(text, *at, &format!("'{name}' is not a {kind}; before a figure, write {known}")))
        }
    }
}

fn limit(figure: Figure, text: &str) -> Result<u64, String> {
    match figure {
        Figure::Count => text.parse().map_err(|_| "count is compared with a number, as in count<100".to_owned()),
        _ => duration(text).map(nanos),
    }
}

/// Returns the words of a text, each with its offset.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Words are slices of the text.
    text.split_whitespace().map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

fn wrong(text: &str, at: usize, why: &str) -> String {
    format!("at character {}: {why}", text[..at].chars().count() + 1)
}

/// The figures of what a condition is about.
pub struct Subject {
    /// Its name for people; `None` for everything that the run has measured.
    pub of: Option<String>,
    /// Its figures as far as they are known. The count always is.
    pub figures: BTreeMap<Figure, u64>,
}

impl Subject {
    /// Returns the subject of a distribution.
    pub fn new(of: Option<String>, histogram: &Histogram) -> Subject {
        let figures = Figure::ALL.into_iter().filter_map(|figure| Some((figure, figure.of(histogram)?)));
        Subject { of, figures: figures.collect() }
    }

    fn count(&self) -> u64 {
        self.figures.get(&Figure::Count).copied().unwrap_or(0)
    }
}

/// Compares the figures of a run with its conditions; `None` without conditions. `find` returns the subjects of a name, or
/// without a name those that a condition is about then. A condition holds if it does for any of them that has samples.
pub fn judge(conditions: &[Conditions], find: impl Fn(Option<&str>) -> Vec<Subject>) -> Option<Verdict> {
    let all = || conditions.iter().flat_map(|one| &one.0);
    all().next()?;
    let conditions: Vec<_> = all().flat_map(|one| one.outcomes(find(one.name.as_deref()))).collect();
    Some(Verdict { failed: conditions.iter().any(|one| one.holds != Some(false)), conditions })
}

impl Condition {
    fn outcomes(&self, mut subjects: Vec<Subject>) -> Vec<ConditionOutcome> {
        if subjects.iter().any(|subject| subject.count() > 0) {
            subjects.retain(|subject| subject.count() > 0);
        } else {
            // None has a sample: that is one fact, however many there are, and the only figure that is known.
            let of = match &mut subjects[..] {
                [only] => only.of.take(),
                _ => self.name.clone(),
            };
            subjects = vec![Subject { of, figures: BTreeMap::from([(Figure::Count, 0)]) }];
        }
        subjects.into_iter().map(|subject| self.outcome(subject)).collect()
    }

    fn outcome(&self, subject: Subject) -> ConditionOutcome {
        let value = subject.figures.get(&self.figure).copied();
        ConditionOutcome {
            condition: self.text.clone(),
            count: subject.count(),
            value_ns: value.filter(|_| self.figure != Figure::Count),
            holds: value.map(|value| self.comparison.holds(value, self.limit)),
            of: subject.of,
        }
    }
}

/// Reports what became of each condition. `samples` is the verb's name for a sample, in the singular and the plural.
pub fn announce(verdict: &Verdict, (one, many): (&str, &str)) {
    for outcome in &verdict.conditions {
        let sentence = sentence(outcome, (one, many));
        if outcome.holds == Some(false) { log(sentence) } else { alarm(sentence) }
    }
}

fn sentence(outcome: &ConditionOutcome, (one, many): (&str, &str)) -> String {
    let ConditionOutcome { condition, of, count, value_ns, holds } = outcome;
    let of = of.as_ref().map_or(String::new(), |of| format!(" of {of}"));
    let samples = counted(*count, one, many);
    let outcome = match holds {
        Some(true) => format!("{condition} holds, so this run has failed"),
        Some(false) => format!("{condition} does not hold"),
        None => format!("whether {condition} holds is unknown, so this run has failed"),
    };
    let figure = condition.split(['<', '>']).next().and_then(|before| before.split_whitespace().last());
    match (value_ns, holds, figure) {
        (Some(ns), _, Some(figure)) => {
            format!("{figure}{of} is {} over {samples}: {outcome}", Latency(*ns).to_string().trim())
        }
        (None, Some(_), _) if *count > 0 => format!("there are {samples}{of}: {outcome}"),
        _ if *count == 0 => format!("there are no {many}{of}: {outcome}"),
        _ => format!("there are {samples}{of}, but not this figure: {outcome}"),
    }
}

/// Returns the exit status of a run that ended with `exit` and this verdict.
pub fn exit(verdict: Option<&Verdict>, exit: Exit) -> Exit {
    match verdict {
        Some(Verdict { failed: true, .. }) if exit == Exit::Done => Exit::False,
        _ => exit,
    }
}

/// The latencies that conditions are about, by key. Without conditions nothing is collected.
pub struct Latencies<K> {
    conditions: Vec<Conditions>,
    histograms: BTreeMap<K, Histogram>,
    /// What became of the conditions, once the run is over.
    pub verdict: Option<Verdict>,
}

impl<K: Ord> Latencies<K> {
    /// Collects what these conditions need.
    pub fn new(conditions: &[Conditions]) -> Latencies<K> {
        Latencies { conditions: conditions.to_owned(), histograms: BTreeMap::new(), verdict: None }
    }

    /// Returns true if there are conditions.
    pub fn are_wanted(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Adds latencies of a key.
    pub fn add(&mut self, key: K, add: impl FnOnce(&mut Histogram)) {
        if self.are_wanted() {
            add(self.histograms.entry(key).or_default());
        }
    }

    /// Ends the run: returns what becomes of the conditions. `find` returns the subjects that a name stands for: each a
    /// name for people and the keys whose latencies it has.
    pub fn judge(&mut self, find: impl Fn(Option<&str>) -> Vec<(Option<String>, Vec<K>)>) -> Option<&Verdict> {
        let subjects = |name: Option<&str>| {
            let of_keys = |keys: Vec<K>| {
                let mut all = Histogram::default();
                keys.iter().filter_map(|key| self.histograms.get(key)).for_each(|one| all.merge(one));
                all
            };
            find(name).into_iter().map(|(of, keys)| Subject::new(of, &of_keys(keys))).collect()
        };
        self.verdict = judge(&self.conditions, subjects);
        self.verdict.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let names = ["dns", "tx total"].map(str::to_owned);
        Vocabulary { kind: "method", names: names.into(), figures: &Figure::ALL }
    }

    fn parsed(text: &str) -> Conditions {
        parse(text, &vocabulary()).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn outcomes(text: &str, latencies: &[u64]) -> (bool, Vec<Option<bool>>) {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|ns| histogram.record(*ns));
        let find = |name: Option<&str>| vec![Subject::new(name.map(str::to_owned), &histogram)];
        let verdict = judge(&[parsed(text)], find).unwrap();
        (verdict.failed, verdict.conditions.iter().map(|one| one.holds).collect())
    }

    #[test]
    fn a_condition_has_a_figure_a_comparison_and_a_limit_and_may_have_a_name() {
        for text in ["p99.9>=1.5ms", " p99.9 >= 1500us ", "p99.9>=1ms 500us"] {
            let [condition] = &parsed(text).0[..] else { panic!("{text}") };
            assert_eq!((condition.figure, condition.comparison), (Figure::P99_9, Comparison::AtLeast), "{text}");
            assert_eq!((&condition.name, condition.limit), (&None, 1_500_000), "{text}");
            assert_eq!(condition.text, text.trim());
        }
        let joined = parsed("dns max > 2s or tx  total count<10 or mean<=0");
        let names: Vec<_> = joined.0.iter().map(|one| one.name.as_deref()).collect();
        assert_eq!(names, [Some("dns"), Some("tx total"), None]);
        let limits: Vec<_> = joined.0.iter().map(|one| (one.comparison, one.limit)).collect();
        assert_eq!(limits, [(Comparison::Above, 2_000_000_000), (Comparison::Below, 10), (Comparison::AtMost, 0)]);
        assert_eq!(joined.0[1].text, "tx  total count<10");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, at, words) in [
            ("", 1, "a comparison is missing"),
            ("p99", 4, "a comparison is missing"),
            ("p99>5ms or ", 11, "a comparison is missing"),
            ("or p99>5ms", 1, "a comparison is missing"),
            (">5ms", 1, "a figure is missing"),
            ("p98>5ms", 1, "'p98' is not a figure; the figures are count, mean, min, max, p50"),
            ("p99=5ms", 4, "compare with >, >=, < or <="),
            ("p99!=5ms", 4, "compare with"),
            ("p99>", 5, "write a number and a unit"),
            ("p99> 5", 6, "write a number and a unit"),
            ("p99>>5ms", 5, "write a number and a unit"),
            ("µ p99>5ms", 1, "'µ' is not a method; before a figure, write dns, tx total"),
            ("max>1µs or total p99>5ms", 12, "'total' is not a method"),
            ("p99>5ms and max>1s", 9, "join conditions with `or`"),
            ("count<5ms", 7, "count is compared with a number"),
        ] {
            let why = parse(text, &vocabulary()).unwrap_err();
            assert!(why.starts_with(&format!("at character {at}: {words}")), "{text}: {why}");
        }
    }

    #[test]
    fn a_run_fails_if_any_condition_holds() {
        let latencies = [1_000_000, 2_000_000, 3_000_000];
        assert_eq!(outcomes("max>3ms or min<1ms", &latencies), (false, vec![Some(false); 2]));
        assert_eq!(outcomes("max>=3ms", &latencies), (true, vec![Some(true)]));
        assert_eq!(outcomes("max>1s or mean<=2ms", &latencies), (true, vec![Some(false), Some(true)]));
        assert_eq!(outcomes("count<3", &latencies), (false, vec![Some(false)]));
        assert_eq!(outcomes("count<4", &latencies), (true, vec![Some(true)]));
        assert!(judge(&[], |_| Vec::new()).is_none());
    }

    #[test]
    fn a_run_without_samples_fails_where_nobody_knows_the_figure() {
        assert_eq!(outcomes("p99>1s", &[]), (true, vec![None]));
        assert_eq!(outcomes("count>100 or max>1s", &[]), (true, vec![Some(false), None]));
    }

    #[test]
    fn without_samples_the_count_is_known() {
        for (condition, holds) in [("count>0", false), ("count<1", true), ("count<=0", true), ("count>=1", false)] {
            assert_eq!(outcomes(condition, &[]), (holds, vec![Some(holds)]), "{condition}");
        }
    }

    #[test]
    fn a_subject_without_samples_does_not_matter_beside_one_with_some() {
        let mut some = Histogram::default();
        some.record(5);
        let both = |_: Option<&str>| {
            let subjects = [("rx", &Histogram::default()), ("tx", &some)];
            subjects.map(|(of, histogram)| Subject::new(Some(of.to_owned()), histogram)).into()
        };
        let verdict = judge(&[parsed("max>1s")], both).unwrap();
        assert_eq!((verdict.failed, verdict.conditions.len()), (false, 1));
        assert_eq!(verdict.conditions[0].of.as_deref(), Some("tx"));
    }

    #[test]
    fn a_sentence_says_which_figure_it_was_and_over_how_many_samples() {
        let outcome = |value_ns, holds, count| ConditionOutcome {
            condition: "dns p99 > 50ms".to_owned(),
            of: Some("dns".to_owned()),
            count,
            value_ns,
            holds,
        };
        let said = |outcome: &ConditionOutcome| sentence(outcome, ("sample", "samples"));
        assert_eq!(
            said(&outcome(Some(61_200_000), Some(true), 240)),
            "p99 of dns is 61.2 ms over 240 samples: dns p99 > 50ms holds, so this run has failed"
        );
        assert_eq!(
            said(&outcome(None, None, 0)),
            "there are no samples of dns: whether dns p99 > 50ms holds is unknown, so this run has failed"
        );
        let few = ConditionOutcome { condition: "count<9".to_owned(), of: None, ..outcome(None, Some(false), 240) };
        assert_eq!(said(&few), "there are 240 samples: count<9 does not hold");
        let none = ConditionOutcome { condition: "count>0".to_owned(), of: None, ..outcome(None, Some(false), 0) };
        assert_eq!(said(&none), "there are no samples: count>0 does not hold");
    }
}
