//! The files in `bench/results`: one per area, with the goal and the latest figures of each row.
//!
//! A row is a JSON object. It always has `area`, `what`, `now` (a number or a list of numbers), `unit`,
//! `lower_is_better`, `command`, `machine`, `date` and `missed`. It may have `goal` (like `now`) and `reference`
//! (a text). A row that `cargo xtask bench --record` measures names its `benchmark` and the `figure` (each a
//! text, or a list as long as `now`); a ratio also names the benchmark of the divisor, `over`.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::Workspace;

const FOLDER: &str = "bench/results";

/// Names and headings of the files, in the order of the page.
const AREAS: [(&str, &str); 10] = [
    ("node", "Whole node against memcached"),
    (
        "latency",
        "Latency beside a change stream, and holds of locks",
    ),
    ("checkpoints", "Checkpoints"),
    ("flush", "Flush and warmup"),
    ("table", "Hash table and memory of a document"),
    ("dcp", "Change streams (DCP), replicas and durable writes"),
    ("statistics", "Statistics"),
    ("stores", "Stores, and more documents than memory"),
    ("start", "Start, stop and an empty node"),
    ("tools", "Command-line tools"),
];

const REQUIRED: [&str; 8] = [
    "area",
    "what",
    "now",
    "unit",
    "lower_is_better",
    "command",
    "machine",
    "date",
];

const KNOWN: [&str; 6] = ["goal", "reference", "benchmark", "figure", "over", "missed"];

/// The rows of one file.
pub(crate) struct Area {
    pub(crate) name: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) rows: Vec<Value>,
}

/// Reads all files.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Area>> {
    let areas = AREAS.iter().map(|(name, heading)| {
        let path = format!("{FOLDER}/{name}.json");
        let rows = serde_json::from_str(&workspace.read(&path)?)
            .with_context(|| format!("{path} is not a JSON array"))?;
        Ok(Area {
            name,
            heading,
            rows,
        })
    });
    areas.collect()
}

/// Writes an area back, with rows sorted by `what`.
pub(crate) fn write(workspace: &Workspace, area: &mut Area) -> Result<()> {
    area.rows
        .sort_by(|a, b| text(a, "what").cmp(text(b, "what")));
    let path = format!("{FOLDER}/{}.json", area.name);
    let content = serde_json::to_string_pretty(&area.rows)? + "\n";
    fs::write(workspace.root.join(&path), content).with_context(|| format!("cannot write {path}"))
}

/// Returns the faults of an area's rows, one line each.
pub(crate) fn faults(area: &Area) -> Vec<String> {
    let mut faults = Vec::new();
    for row in &area.rows {
        let what = text(row, "what");
        let mut fault = |text: &str| faults.push(format!("{}: {what}: {text}", area.name));
        for key in REQUIRED.iter().filter(|key| row.get(**key).is_none()) {
            fault(&format!("has no `{key}`"));
        }
        let keys = row.as_object().into_iter().flatten().map(|(key, _)| key);
        for key in keys.filter(|key| ![&REQUIRED[..], &KNOWN].concat().contains(&key.as_str())) {
            fault(&format!("nothing reads `{key}`"));
        }
        if text(row, "area") != area.name {
            fault("`area` is another file's");
        }
        if numbers(row, "now").is_empty() {
            fault("`now` holds no number");
        }
        if row["missed"] != Value::Bool(is_missed(row)) {
            fault("`missed` does not agree with `goal` and `now`");
        }
    }
    let is_sorted = area.rows.is_sorted_by_key(|row| text(row, "what"));
    if !is_sorted {
        faults.push(format!("{}: rows are not sorted by `what`", area.name));
    }
    faults
}

/// Whether any figure of a row misses its goal. One goal may apply to all figures.
pub(crate) fn is_missed(row: &Value) -> bool {
    let goals = numbers(row, "goal");
    let lower_is_better = row["lower_is_better"].as_bool().unwrap_or(true);
    let mut pairs = numbers(row, "now").into_iter().zip(goals.iter().cycle());
    pairs.any(|(now, goal)| {
        if lower_is_better {
            now > *goal
        } else {
            now < *goal
        }
    })
}

/// Returns the text of a field; empty if there is none.
pub(crate) fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Returns the numbers of a field with a number or a list of numbers.
pub(crate) fn numbers(row: &Value, key: &str) -> Vec<f64> {
    one_or_more(&row[key]).filter_map(Value::as_f64).collect()
}

/// Returns the texts of a field with a text or a list of texts.
pub(crate) fn texts<'a>(row: &'a Value, key: &str) -> Vec<&'a str> {
    one_or_more(&row[key]).filter_map(Value::as_str).collect()
}

fn one_or_more(value: &Value) -> impl Iterator<Item = &Value> {
    let one = std::slice::from_ref(value);
    value.as_array().map_or(one, Vec::as_slice).iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn area(rows: Vec<Value>) -> Area {
        Area {
            name: "table",
            heading: "",
            rows,
        }
    }

    #[test]
    fn a_goal_is_missed_by_any_figure_in_its_direction() {
        let missed = |now: Value, goal: Value, lower: bool| {
            is_missed(&json!({"now": now, "goal": goal, "lower_is_better": lower}))
        };
        assert!(missed(json!(86), json!(85), true));
        assert!(!missed(json!(85), json!(85), true));
        assert!(missed(json!([80, 60]), json!(70), false));
        assert!(missed(json!([1.0, 1.4]), json!([1.15, 1.3]), true));
        assert!(!missed(json!(1), Value::Null, true));
    }

    #[test]
    fn rows_have_their_fields_and_their_order() {
        let row = |what: &str| {
            json!({"area": "table", "what": what, "now": 1, "unit": "ns", "lower_is_better": true,
                "command": "c", "machine": "m", "date": "d", "missed": false})
        };
        assert_eq!(faults(&area(vec![row("a"), row("b")])), [""; 0]);
        assert_eq!(faults(&area(vec![row("b"), row("a")])).len(), 1);
        let mut odd = row("a");
        odd["goal"] = json!(0.5);
        odd["colour"] = json!("red");
        let faults = faults(&area(vec![odd]));
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
