//! `cargo xtask bench --record`: writes measured figures to the files in `bench/results`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::results::{self, text, texts};
use crate::workspace::Workspace;

/// Writes the figures of all rows whose benchmarks were measured; returns the number of these rows.
pub(crate) fn write(workspace: &Workspace, figures: &[Value]) -> Result<usize> {
    let (machine, date) = (machine()?, today()?);
    let mut recorded = 0;
    for mut area in results::read(workspace)? {
        let mut changed = false;
        for row in &mut area.rows {
            if let Some(now) = measured(row, figures)? {
                row["now"] = match now.as_slice() {
                    [one] => json!(one),
                    _ => json!(now),
                };
                row["machine"] = json!(machine);
                row["date"] = json!(date);
                row["missed"] = json!(results::is_missed(row));
                recorded += 1;
                changed = true;
            }
        }
        if changed {
            results::write(workspace, &mut area)?;
        }
    }
    Ok(recorded)
}

/// Returns the figures of a row in its unit; `None` if not all of its benchmarks were measured.
fn measured(row: &Value, figures: &[Value]) -> Result<Option<Vec<f64>>> {
    let (benchmarks, keys) = (texts(row, "benchmark"), texts(row, "figure"));
    let count = benchmarks.len().max(keys.len());
    if benchmarks.is_empty() || keys.is_empty() {
        return Ok(None);
    }
    let overs = texts(row, "over");
    let mut now = Vec::new();
    for index in 0..count {
        let key = keys[index % keys.len()];
        let benchmark = benchmarks[index % benchmarks.len()];
        let mut values = rounds(benchmark, key, figures);
        if overs.is_empty() {
            let factor = factor(key, text(row, "unit"))?;
            values = values.iter().map(|value| value * factor).collect();
        } else {
            let others = rounds(overs[index % overs.len()], key, figures);
            values = values.iter().zip(&others).map(|(a, b)| a / b).collect();
        }
        match median(values) {
            Some(value) => now.push(rounded(value)),
            None => return Ok(None),
        }
    }
    Ok(Some(now))
}

/// Returns a figure of the benchmark with this name, or else of its numbered rounds.
fn rounds(benchmark: &str, key: &str, figures: &[Value]) -> Vec<f64> {
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<f64> {
        let named = figures.iter().filter(|figure| wanted(text(figure, "name")));
        named.filter_map(|figure| figure[key].as_f64()).collect()
    };
    let whole = of(&|name| name == benchmark);
    if !whole.is_empty() {
        return whole;
    }
    let is_number = |round: &str| round.bytes().all(|byte| byte.is_ascii_digit());
    of(&|name| {
        let round = name.strip_prefix(benchmark);
        round.is_some_and(|round| round.strip_prefix('/').is_some_and(is_number))
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns the factor from the unit of a benchmark's figure to the unit of the row.
fn factor(key: &str, unit: &str) -> Result<f64> {
    let is_time = key.ends_with("_ns") || key == "ns_per_item";
    let is_rate = key.ends_with("per_second");
    Ok(match unit {
        "ns" if is_time => 1.0,
        "us" if is_time => 1e-3,
        "ms" if is_time => 1e-6,
        "/s" if is_rate => 1.0,
        "k/s" if is_rate => 1e-3,
        "M/s" if is_rate => 1e-6,
        "bytes" if !is_time && !is_rate => 1.0,
        _ => bail!("figure `{key}` cannot be told in `{unit}`"),
    })
}

/// Rounds to a whole number from 100 on, else to three significant digits.
fn rounded(value: f64) -> f64 {
    if value >= 100.0 {
        return value.round();
    }
    let text = format!("{value:.2e}");
    text.parse().unwrap_or(value)
}

/// Returns model and number of the processors.
fn machine() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or(std::env::consts::ARCH);
    Ok(format!("{model}, {cores} cores"))
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let output = output.context("cannot run `date`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Value> {
        vec![
            json!({"name": "a/1", "median_ns": 1500.0, "p99_ns": 3000.0}),
            json!({"name": "b/1", "median_ns": 1000.0, "p99_ns": 1000.0}),
            json!({"name": "c", "items_per_second": 1_234_567.0, "bytes": 10}),
        ]
    }

    fn now(row: &Value) -> Vec<f64> {
        let figures = measured(row, &figures()).expect("the units fit");
        figures.unwrap_or_default()
    }

    #[test]
    fn figures_have_unit_of_row() {
        let row = json!({"benchmark": "a/1", "figure": ["median_ns", "p99_ns"], "unit": "us"});
        assert_eq!(now(&row), [1.5, 3.0]);
        let row = json!({"benchmark": "c", "figure": "items_per_second", "unit": "k/s"});
        assert_eq!(now(&row), [1235.0]);
        let row = json!({"benchmark": ["c", "d"], "figure": "bytes", "unit": "bytes"});
        assert_eq!(now(&row), [0.0; 0], "not all were measured");
        let row = json!({"benchmark": "c", "figure": "bytes", "unit": "us"});
        assert!(measured(&row, &figures()).is_err());
    }

    /// Pretends that each benchmark was measured: all rows with a benchmark must be recordable.
    #[test]
    fn figures_of_all_rows_have_units() {
        let workspace = Workspace::load().expect("there is one");
        for area in results::read(&workspace).expect("they are JSON") {
            for row in area
                .rows
                .iter()
                .filter(|row| row.get("benchmark").is_some())
            {
                let named = texts(row, "benchmark")
                    .into_iter()
                    .chain(texts(row, "over"));
                let figures: Vec<Value> = named
                    .map(|name| {
                        let mut figure = json!({ "name": name });
                        for key in texts(row, "figure") {
                            figure[key] = json!(1.0);
                        }
                        figure
                    })
                    .collect();
                let now = measured(row, &figures).expect("its unit is known");
                let count = results::numbers(row, "now").len();
                assert_eq!(now.map(|now| now.len()), Some(count), "{row}");
            }
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let row = json!({"benchmark": "a", "over": "b", "figure": "p99_ns", "unit": "x"});
        assert_eq!(now(&row), [3.0]);
    }
}
