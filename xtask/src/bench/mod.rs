//! Runs all benchmarks of the workspace and collects the figures.
//!
//! There are two kinds. Criterion benchmarks write `benchmark.json` and `estimates.json` below
//! `target/criterion`; the files written during this run are read. A benchmark with its own main function prints
//! JSON objects, one per line, each with at least `name`; these lines are used as they are.

pub(crate) mod page;
mod record;
pub(crate) mod results;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::process;
use crate::workspace::Workspace;

struct Options {
    /// Text that the names of the selected benchmarks contain.
    filter: Option<String>,
    json: bool,
    /// Whether to write the figures to `bench/results`.
    record: bool,
    /// Whether to write `docs/performance.md`. Benchmarks then run only with `record`.
    page: bool,
}

/// Runs the selected benchmarks; returns `false` if one failed.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let options = parse(arguments)?;
    let mut succeeded = true;
    if options.record || !options.page {
        let figures;
        (figures, succeeded) = measure(workspace, &options)?;
        if options.record {
            let recorded = record::write(workspace, &figures)?;
            eprintln!("recorded {recorded} rows of bench/results");
        }
    }
    if options.record || options.page {
        page::write(workspace)?;
        eprintln!("wrote {}", page::PATH);
    }
    Ok(succeeded)
}

/// Runs the benchmarks and prints their figures; returns `false` if one failed.
fn measure(workspace: &Workspace, options: &Options) -> Result<(Vec<Value>, bool)> {
    let started = SystemTime::now();
    let mut figures = Vec::new();
    let mut failed = Vec::new();
    for (package, target) in workspace.benches() {
        let source = target.src_path.as_std_path();
        if let Some(filter) = &options.filter
            && !names_rows(&sources(source)?, filter)
        {
            continue;
        }
        let name = format!("{}/{}", package.name, target.name);
        eprintln!("running {name}");
        let mut command = process::cargo(&workspace.root);
        command.args(["bench", "--quiet"]);
        command.args(["--package", &package.name, "--bench", &target.name]);
        command.args(options.filter.iter().flat_map(|filter| ["--", filter]));
        let ran = process::stream(&mut command, |line| {
            if !options.json && !line.starts_with('{') {
                println!("{line}");
            }
        })?;
        figures.extend(ran.lines.iter().filter_map(|line| passed_through(line)));
        if !ran.success {
            failed.push(name);
        }
    }
    gather_criterion(&workspace.target.join("criterion"), started, &mut figures)?;
    if let Some(filter) = &options.filter {
        // A filter that is a whole name selects one row, even if other names begin with it.
        let whole = figures.iter().any(|figure| name_of(figure) == filter);
        figures.retain(|figure| {
            let name = name_of(figure);
            name == filter || !whole && name.contains(filter)
        });
    }
    figures.sort_by(|a, b| name_of(a).cmp(name_of(b)));
    for figure in &figures {
        println!(
            "{}",
            if options.json {
                figure.to_string()
            } else {
                for_people(figure)
            }
        );
    }
    for name in &failed {
        eprintln!("xtask: benchmark {name} failed");
    }
    Ok((figures, failed.is_empty()))
}

/// Returns the source of a benchmark: its file, or all files of its folder if it has one.
fn sources(main: &Path) -> Result<String> {
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let folder = main.parent().filter(|_| main.ends_with("main.rs"));
    let Some(folder) = folder else {
        return read(main);
    };
    let mut all = String::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "rs") {
            all += &read(&path)?;
        }
    }
    Ok(all)
}

/// Whether a benchmark may have rows that match the filter. Names are composed of string literals in the source.
/// So the first part of the filter that is not a number must occur in one, and so must later parts with a capital
/// letter.
fn names_rows(source: &str, filter: &str) -> bool {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let texts: Vec<&str> = source.split('"').skip(1).step_by(2).collect();
    let parts = filter
        .split('/')
        .filter(|part| !is_number(part))
        .enumerate();
    let mut named = parts.filter(|(at, part)| *at == 0 || part.starts_with(char::is_uppercase));
    named.all(|(_, part)| texts.iter().any(|text| text.contains(part)))
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        filter: None,
        json: false,
        record: false,
        page: false,
    };
    for argument in arguments {
        match argument.as_str() {
            "--json" => options.json = true,
            "--record" => options.record = true,
            "--page" => options.page = true,
            flag if flag.starts_with('-') => {
                bail!("unknown option `{flag}`; known: --json, --record, --page")
            }
            _ if options.filter.is_some() => bail!("`{argument}`: one filter is enough"),
            filter => options.filter = Some(filter.to_owned()),
        }
    }
    Ok(options)
}

/// Parses a line that a benchmark printed for this program.
fn passed_through(line: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    value
        .get("name")
        .is_some_and(Value::is_string)
        .then_some(value)
}

fn name_of(figure: &Value) -> &str {
    figure["name"].as_str().unwrap_or_default()
}

/// Reads the criterion files written since `started`, at any depth below `folder`.
fn gather_criterion(folder: &Path, started: SystemTime, figures: &mut Vec<Value>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let estimates = path.join("estimates.json");
        let fresh = path.file_name().is_some_and(|name| name == "new")
            && fs::metadata(&estimates)
                .and_then(|m| m.modified())
                .is_ok_and(|time| time >= started);
        if fresh {
            let benchmark = read_json(&path.join("benchmark.json"))?;
            figures.push(criterion_figure(&benchmark, &read_json(&estimates)?)?);
        } else if path.is_dir() {
            gather_criterion(&path, started, figures)?;
        }
    }
    Ok(())
}

fn read_json(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Returns the figure of a criterion benchmark: per item if it counts items, else per iteration.
fn criterion_figure(benchmark: &Value, estimates: &Value) -> Result<Value> {
    let name = benchmark["full_id"]
        .as_str()
        .context("benchmark.json has no full_id")?;
    let median = &estimates["median"];
    let iteration_ns = median["point_estimate"]
        .as_f64()
        .context("estimates.json has no median")?;
    let throughput = &benchmark["throughput"];
    let items = throughput["Elements"].as_f64();
    let bytes = throughput["Bytes"]
        .as_f64()
        .or_else(|| throughput["BytesDecimal"].as_f64());
    let interval = &median["confidence_interval"];
    let per = items.filter(|items| *items > 0.0).unwrap_or(1.0);
    let mut figure = Map::new();
    figure.insert("name".to_owned(), json!(name));
    figure.insert("median_ns".to_owned(), json!(iteration_ns / per));
    if let (Some(low), Some(high)) = (
        interval["lower_bound"].as_f64(),
        interval["upper_bound"].as_f64(),
    ) {
        figure.insert("median_ns_low".to_owned(), json!(low / per));
        figure.insert("median_ns_high".to_owned(), json!(high / per));
    }
    if let Some(items) = items {
        figure.insert(
            "items_per_second".to_owned(),
            json!(items * 1e9 / iteration_ns),
        );
    }
    if let Some(bytes) = bytes {
        figure.insert(
            "bytes_per_second".to_owned(),
            json!(bytes * 1e9 / iteration_ns),
        );
    }
    Ok(Value::Object(figure))
}

/// Formats a figure as `name  key value  key value`, with short numbers.
fn for_people(figure: &Value) -> String {
    let fields = figure
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "name");
    let fields = fields.map(|(key, value)| {
        format!(
            "{key} {}",
            value.as_f64().map_or_else(|| value.to_string(), short)
        )
    });
    format!(
        "{:<48}  {}",
        name_of(figure),
        fields.collect::<Vec<_>>().join("  ")
    )
}

fn short(number: f64) -> String {
    if number.abs() >= 1000.0 || number.fract() == 0.0 {
        format!("{number:.0}")
    } else {
        format!("{number:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criterion_figure_is_per_item() {
        let benchmark = json!({"full_id": "engine/get", "throughput": {"Elements": 100}});
        let estimates = json!({"median": {"point_estimate": 5000.0,
            "confidence_interval": {"lower_bound": 4000.0, "upper_bound": 6000.0}}});
        let figure = criterion_figure(&benchmark, &estimates).expect("both files are whole");
        assert_eq!(figure["median_ns"], 50.0);
        assert_eq!(figure["median_ns_high"], 60.0);
        assert_eq!(figure["items_per_second"], 2e7);
    }

    #[test]
    fn only_named_objects_pass_through() {
        assert!(passed_through(r#"{"name":"a","median_ns":1}"#).is_some());
        assert!(passed_through(r#"{"reason":"compiler"}"#).is_none());
        assert!(passed_through("running 3 tests").is_none());
    }

    /// Checks which benchmarks are compiled and run for a filter. A full name must select its own benchmark.
    #[test]
    fn filter_selects_benchmarks_by_name() {
        let workspace = Workspace::load().expect("there is one");
        let chosen = |filter: &str| -> Vec<String> {
            let named = workspace.benches().filter(|(_, target)| {
                let text = sources(target.src_path.as_std_path()).expect("it has a source");
                names_rows(&text, filter)
            });
            named.map(|(_, target)| target.name.clone()).collect()
        };
        assert_eq!(chosen("FlushVBucket/insert/10000"), ["flush"]);
        assert_eq!(chosen("FlushVBucket"), ["flush"]);
        let whole = "MemTrackingVBucketBench/FlushVBucket/0/10000/1";
        assert_eq!(chosen(whole), ["flush"]);
        assert_eq!(chosen("perf_latency_core/alone/get/1"), ["streams"]);
        assert_eq!(chosen("no_such_row"), [""; 0]);
        assert!(
            chosen("1000").len() > 5,
            "a number alone may be in any name"
        );
    }

    #[test]
    fn benchmarks_of_recorded_rows_exist() {
        let workspace = Workspace::load().expect("there is one");
        let texts: Vec<String> = workspace
            .benches()
            .map(|(_, target)| sources(target.src_path.as_std_path()).expect("it has a source"))
            .collect();
        for area in results::read(&workspace).expect("they are JSON") {
            for row in &area.rows {
                let over = results::texts(row, "over");
                for name in results::texts(row, "benchmark").into_iter().chain(over) {
                    let is_known = texts.iter().any(|text| names_rows(text, name));
                    assert!(is_known, "no benchmark has rows named {name}");
                }
            }
        }
    }

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(parse(&words("get --json")).is_ok_and(|o| o.json && o.filter.is_some()));
        assert!(parse(&words("--record get")).is_ok_and(|o| o.record && !o.page));
        assert!(parse(&words("--jason")).is_err());
        assert!(parse(&words("a b")).is_err());
    }
}
