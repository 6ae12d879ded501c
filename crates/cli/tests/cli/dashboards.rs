//! What ships for Grafana and Prometheus, held against the metrics that the sources declare and the guides document.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use dwell_testbed::pages::root;
use serde_json::Value;

/// Guides that document metrics.
const GUIDES: [&str; 6] = ["rtt", "response", "stack", "run", "collect", "lb"];
/// Labels of groups of round trips and responses, and of what each probe counts about itself.
const GROUPS: [&str; 3] = ["interface", "method", "prefix"];
const OF_PROBES: [&str; 3] = ["reason", "map", "program"];
/// Labels that Prometheus adds, and that of a histogram's buckets.
const ALWAYS: [&str; 3] = ["instance", "job", "le"];

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The files of a folder, and below it, with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files(&path, ending),
        false => vec![path],
    });
    found.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

fn dashboards() -> Vec<(String, Value)> {
    let files = files(Path::new("dist/grafana"), ".json");
    assert!(files.len() >= 3, "{files:?}");
    files.iter().map(|file| (file.display().to_string(), serde_json::from_str(&read(file)).unwrap())).collect()
}

fn rules() -> String {
    files(Path::new("dist/prometheus"), ".rules.yml").iter().map(read).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The metrics that a text names, without the endings of a histogram's series.
fn named_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter| !is_of_name(letter));
    let words = words.filter(|word| word.starts_with("dwell_") && !word.ends_with('_'));
    let bare = words.map(|word| {
        let ending = ["_bucket", "_sum", "_count"].into_iter().find(|ending| word.ends_with(ending));
        word.strip_suffix(ending.unwrap_or_default()).unwrap_or(word).to_owned()
    });
    bare.collect()
}

/// The metrics that the sources declare, each with its labels; those of what a probe counts about itself may have any that
/// probes have.
fn declared() -> BTreeMap<String, BTreeSet<String>> {
    let mut declared = BTreeMap::new();
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
    for file in files(Path::new("crates"), ".rs") {
        let path = file.display().to_string();
        if !path.contains("/src/") || path.contains("tests") {
            continue;
        }
        let text = read(&file);
        let text = text.split("#[cfg(test)]").next().unwrap();
        for (at, _) in text.match_indices("\"dwell_") {
            let (name, rest) = text[at + 1..].split_once('"').unwrap();
            // The beginning of the names of several.
            if name.ends_with('_') {
                continue;
            }
            // What follows a family's name are its labels.
            let after = rest.trim_start_matches([',', ' ', '\n', '&']);
            let own = match (after.starts_with("GROUP_LABELS"), after.strip_prefix('[')) {
                (true, _) => labels(&GROUPS),
                (false, Some(list)) => {
                    let list = list.split(']').next().unwrap().split('"');
                    list.filter(|label| !label.is_empty() && label.chars().all(is_of_name)).map(str::to_owned).collect()
                }
                // A counter of groups, of which the name is given to what declares it.
                (false, None) if text.contains("GROUP_LABELS") => labels(&GROUPS),
                (false, None) => continue,
            };
            declared.insert(name.to_owned(), own);
        }
        for (at, found) in text.match_indices("name!(verb, \"") {
            let name = text[at + found.len()..].split('"').next().unwrap();
            for verb in ["rtt", "response"] {
                declared.insert(format!("dwell_{verb}_{name}"), labels(&OF_PROBES));
            }
        }
    }
    assert!(declared.len() > 100, "{declared:?}");
    declared
}

#[test]
fn every_metric_is_documented_and_has_a_panel_and_no_panel_or_rule_has_another() {
    let declared: BTreeSet<String> = declared().into_keys().collect();
    let guides: String = GUIDES.map(|guide| read(format!("docs/guide/{guide}.md"))).concat();
    let mut documented = named_in(&guides);
    // The guide of `dwell response` refers to that of `dwell rtt`.
    let of_response = documented.iter().map(|name| name.replace("dwell_rtt_", "dwell_response_"));
    let of_response: BTreeSet<_> = of_response.filter(|name| declared.contains(name)).collect();
    documented.extend(of_response);
    let missing: Vec<_> = declared.difference(&documented).collect();
    assert!(missing.is_empty(), "no guide has {missing:?}");

    let shown: String = dashboards().iter().map(|(_, dashboard)| dashboard.to_string()).collect();
    let (shown, watched) = (named_in(&shown), named_in(&rules()));
    let strangers: Vec<_> = shown.union(&watched).filter(|name| !declared.contains(*name)).collect();
    assert!(strangers.is_empty(), "nothing exports {strangers:?}");
    let unseen: Vec<_> = declared.difference(&shown).collect();
    assert!(unseen.is_empty(), "no panel shows {unseen:?}");
    assert!(watched.len() >= 15, "{watched:?}");
}

/// The labels that a query, a legend or a text of an alert names.
fn labels_in(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let mut add = |list: &str| {
        let words = list.split(',').map(|word| word.trim().split(|letter| !is_of_name(letter)).next().unwrap());
        labels.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    };
    for (opening, closing) in [("by (", ')'), ("on (", ')'), ("by(", ')'), ("{{", '}'), ("$labels.", ' ')] {
        for (at, _) in text.match_indices(opening) {
            let list = text[at + opening.len()..].split(closing).next().unwrap();
            if !list.contains('$') {
                add(list);
            }
        }
    }
    for (at, _) in text.match_indices('{') {
        let list = text[at + 1..].split('}').next().unwrap();
        // Values have no commas.
        list.split(',').filter(|matcher| matcher.contains(['=', '~'])).for_each(&mut add);
    }
    labels
}

fn has_labels(of: &str, text: &str, declared: &BTreeMap<String, BTreeSet<String>>) {
    let metrics = named_in(text);
    let known: BTreeSet<&str> =
        metrics.iter().flat_map(|name| &declared[name]).map(String::as_str).chain(ALWAYS).collect();
    for label in labels_in(text) {
        assert!(known.contains(&*label), "{of}: none of {metrics:?} has the label {label}: {text}");
    }
}

#[test]
fn panels_and_alerts_have_no_labels_but_those_of_their_metrics() {
    let labels = labels_in("sum by (le, a) (x{b=~\"c|d\", e!=\"\"}) {{f}}");
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), ["a", "b", "e", "f", "le"]);
    let declared = declared();
    for (file, dashboard) in dashboards() {
        for target in
            dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap())
        {
            let (query, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            has_labels(&file, &format!("{query} {legend}"), &declared);
        }
    }
    let rules = rules();
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 10, "{rules}");
    alerts.iter().for_each(|alert| has_labels("rules", alert, &declared));
}

/// What Grafana asks of a dashboard (its schema of kind `dashboard`): panels of a known type, each with a place of its own on
/// the grid of 24 columns, a data source, and queries that are told apart.
#[test]
fn dashboards_have_what_grafana_asks_of_them() {
    let mut uids = BTreeSet::new();
    let kustomization = read("dist/grafana/kustomization.yaml");
    for (file, dashboard) in dashboards() {
        let name = Path::new(&file).file_name().unwrap().to_str().unwrap();
        assert!(kustomization.contains(&format!("[{name}]")), "{name} is not in the kustomization");
        assert!(!dashboard["title"].as_str().unwrap().is_empty() && dashboard["schemaVersion"].as_u64() >= Some(36));
        let uid = dashboard["uid"].as_str().unwrap().to_owned();
        assert!(uid.len() <= 40 && uids.insert(uid), "{file}: the uid is taken, or too long");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let variables: BTreeSet<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert!(variables.contains("datasource"), "{file}");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: {title} has the id of another panel");
            assert!(
                ["timeseries", "stat", "gauge", "table", "heatmap"].contains(&panel["type"].as_str().unwrap()),
                "{title}"
            );
            assert_eq!(
                panel["datasource"],
                serde_json::json!({"type": "prometheus", "uid": "${datasource}"}),
                "{title}"
            );
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= 24, "{file}: {title} is not on the grid");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{file}: {title} lies over another panel");
            }
            let mut queries = BTreeSet::new();
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                assert!(queries.insert(target["refId"].as_str().unwrap()) && !query.is_empty(), "{file}: {title}");
                for (at, _) in query.match_indices('$') {
                    let used = query[at + 1..].split(|letter| !is_of_name(letter)).next().unwrap();
                    assert!(used == "__rate_interval" || variables.contains(used), "{file}: {title}: ${used}");
                }
            }
            assert!(!queries.is_empty(), "{file}: {title} has no query");
        }
    }
}
