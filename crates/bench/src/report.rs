//! What a run has shown: one column for each server, and the ratio of two.

use std::fmt::Write as _;

use model::DurabilityLevel;
use serde_json::{Value, json};
use wire::Status;

use crate::console::Style;
use crate::measure::{Counts, Slice};
use crate::numbers::{median, to_f64};
use crate::plan::{Amount, Plan};
use crate::side::Side;

/// Quantiles that are reported, with their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
const LABEL_WIDTH: usize = 26;
const COLUMN_WIDTH: usize = 16;

/// Figures of one server.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    address: String,
    counts: Counts,
    /// Operations a second of each slice.
    rates: Vec<f64>,
    /// 99th percentile of each slice.
    p99s_us: Vec<f64>,
    /// CPU time of the server for each operation, of each slice.
    cpu_us: Vec<f64>,
}

impl Column {
    fn new(name: String, address: String, slices: &[Slice]) -> Self {
        let mut counts = Counts::default();
        for slice in slices {
            counts.merge(&slice.counts);
        }
        Self {
            name,
            address,
            counts,
            rates: slices.iter().map(Slice::ops_per_second).collect(),
            p99s_us: slices
                .iter()
                .map(|slice| slice.counts.latencies.quantile_us(0.99))
                .collect(),
            cpu_us: slices.iter().filter_map(Slice::cpu_us_per_op).collect(),
        }
    }

    fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    fn p99_us(&self) -> f64 {
        median(self.p99s_us.iter().copied())
    }

    fn cpu_us(&self) -> Option<f64> {
        (!self.cpu_us.is_empty()).then(|| median(self.cpu_us.iter().copied()))
    }

    fn slowest(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn fastest(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }
}

/// The report of a run against one or two servers.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    plan: Plan,
    columns: Vec<Column>,
}

/// A row of the table: label, a figure for each column, and whether a ratio makes sense.
struct Row {
    label: String,
    figures: Vec<Option<f64>>,
    digits: usize,
    ratio: bool,
}

impl Report {
    /// Sums up what the sides measured.
    pub(crate) fn new(plan: &Plan, sides: &[Side]) -> Self {
        let column = |side: &Side| {
            Column::new(
                side.target.name.clone(),
                side.target.server.address.to_string(),
                &side.slices,
            )
        };
        Self {
            plan: plan.clone(),
            columns: sides.iter().map(column).collect(),
        }
    }

    /// Everything that the first server was asked.
    pub(crate) fn counts(&self) -> &Counts {
        &self.columns[0].counts
    }

    /// Wrong values that were read, from all servers.
    pub(crate) fn violations(&self) -> u64 {
        self.columns
            .iter()
            .map(|column| column.counts.violations.total())
            .sum()
    }

    /// Operations that were refused, by all servers.
    pub(crate) fn errors(&self) -> u64 {
        self.columns
            .iter()
            .map(|column| column.counts.errors_total())
            .sum()
    }

    /// The table for people.
    pub(crate) fn to_text(&self, style: Style) -> String {
        let mut text = format!("{}\n", describe(&self.plan));
        for column in &self.columns {
            text.extend([column.name.as_str(), ": ", &column.address, "\n"]);
        }
        let pair = self.columns.len() == 2;
        let names = self.columns.iter().map(|column| column.name.as_str());
        let heads: Vec<&str> = names.chain(pair.then_some("A/B")).collect();
        text += &style.bold(&line("", heads));
        text.push('\n');
        for row in self.rows() {
            let figures = row
                .figures
                .iter()
                .map(|figure| figure.map_or("-".to_owned(), |figure| grouped(figure, row.digits)));
            let mut cells: Vec<String> = figures.collect();
            if pair && row.ratio {
                let ratio = ratio(row.figures[0], row.figures[1]);
                cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
            text += &line(&row.label, cells.iter().map(String::as_str));
            text.push('\n');
        }
        for column in &self.columns {
            text += &complaints(column, style);
        }
        text
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |label: &str, digits, ratio, figure: &dyn Fn(&Column) -> Option<f64>| {
            let figures: Vec<_> = self.columns.iter().map(figure).collect();
            if figures.iter().any(Option::is_some) {
                rows.push(Row {
                    label: label.to_owned(),
                    figures,
                    digits,
                    ratio,
                });
            }
        };
        row("ops/s, median of slices", 0, true, &|of| Some(of.rate()));
        row("ops/s, slowest slice", 0, false, &|of| Some(of.slowest()));
        row("ops/s, fastest slice", 0, false, &|of| Some(of.fastest()));
        for (name, quantile) in QUANTILES {
            row(&format!("latency {name}, us"), 1, true, &|of| {
                Some(of.counts.latencies.quantile_us(quantile))
            });
        }
        row("latency max, us", 1, true, &|of| {
            Some(of.counts.latencies.max_us())
        });
        row("latency mean, us", 1, true, &|of| {
            Some(of.counts.latencies.mean_us())
        });
        row("p99, median of slices, us", 1, true, &|of| {
            Some(of.p99_us())
        });
        row("server CPU, us/op", 2, true, &Column::cpu_us);
        let counted = |count: u64| (count > 0).then(|| to_f64(count));
        row("operations", 0, false, &|of| Some(to_f64(of.counts.ops)));
        row("misses", 0, false, &|of| counted(of.counts.misses));
        row("due but never sent", 0, false, &|of| {
            counted(of.counts.unsent)
        });
        rows
    }

    /// The figures for programs.
    pub(crate) fn to_json(&self) -> Value {
        let plan = &self.plan;
        let (seconds, ops) = match plan.slice {
            Amount::Time(time) => (Some(time.as_secs_f64()), None),
            Amount::Ops(ops) => (None, Some(ops)),
        };
        let mut report = json!({
            "plan": {
                "connections": plan.connections,
                "threads": plan.threads,
                "depth": plan.depth,
                "keys": plan.keys,
                "distribution": plan.distribution.to_string(),
                "ratio": plan.ratio.to_string(),
                "value_bytes": plan.sizes.least,
                "value_bytes_max": plan.sizes.most,
                "deletes_percent": plan.deletes_percent,
                "slices": plan.slices,
                "slice_seconds": seconds,
                "slice_ops": ops,
                "rate": plan.rate,
                "verify": plan.verify,
                "durability": plan.durability.map_or("none", DurabilityLevel::name),
                "seed": plan.seed,
            },
            "servers": self.columns.iter().map(column_json).collect::<Vec<_>>(),
        });
        if let [a, b] = self.columns.as_slice() {
            report["ratio"] = json!({
                "ops_per_second": ratio(Some(a.rate()), Some(b.rate())),
                "p99": ratio(Some(a.p99_us()), Some(b.p99_us())),
                "server_cpu": ratio(a.cpu_us(), b.cpu_us()),
            });
        }
        report
    }
}

fn column_json(column: &Column) -> Value {
    let counts = &column.counts;
    let mut latency = json!({
        "mean": counts.latencies.mean_us(),
        "max": counts.latencies.max_us(),
        "p99_median_of_slices": column.p99_us(),
    });
    for (name, quantile) in QUANTILES {
        latency[name] = counts.latencies.quantile_us(quantile).into();
    }
    let errors = counts.errors.iter().map(|(&status, &count)| {
        (
            format!("0x{status:02x} {}", Status(status).name()),
            Value::from(count),
        )
    });
    json!({
        "name": column.name,
        "address": column.address,
        "ops_per_second": column.rate(),
        "ops_per_second_slices": column.rates,
        "latency_us": latency,
        "server_cpu_us_per_op": column.cpu_us(),
        "ops": counts.ops,
        "gets": counts.gets,
        "sets": counts.sets,
        "misses": counts.misses,
        "unsent": counts.unsent,
        "errors": errors.collect::<serde_json::Map<_, _>>(),
        "violations": {
            "wrong_key": counts.violations.wrong_key,
            "corrupt": counts.violations.corrupt,
            "stale": counts.violations.stale,
        },
    })
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let (a, b) = a.zip(b)?;
    (b > 0.0).then(|| a / b)
}

fn describe(plan: &Plan) -> String {
    let load = format!(
        "{} connections, {} threads, depth {}, {} keys {}, set:get {}, values of {} bytes",
        plan.connections,
        plan.threads,
        plan.depth,
        plan.keys,
        plan.distribution,
        plan.ratio,
        plan.sizes,
    );
    let slices = match plan.slice {
        Amount::Time(time) => format!("{} slices of {:.2} s", plan.slices, time.as_secs_f64()),
        Amount::Ops(ops) => format!("{} slices of {ops} operations", plan.slices),
    };
    let pace = match plan.rate {
        Some(rate) => format!("open loop at {rate} ops/s"),
        None => "closed loop".to_owned(),
    };
    let deletes = match plan.deletes_percent {
        0 => String::new(),
        percent => format!(", {percent} % of writes delete"),
    };
    let checked = if plan.verify { ", values checked" } else { "" };
    let durable = plan
        .durability
        .map_or(String::new(), |level| format!(", writes {}", level.name()));
    format!("{load}{deletes}, {slices}, {pace}{durable}{checked}")
}

fn line<'a>(label: &str, cells: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = format!("{label:<LABEL_WIDTH$}");
    for cell in cells {
        write!(line, "{cell:>COLUMN_WIDTH$}").expect("text can always grow");
    }
    line
}

/// What went wrong, one line for each kind.
fn complaints(column: &Column, style: Style) -> String {
    let mut text = String::new();
    let mut complain = |count: u64, what: String| {
        if count > 0 {
            text += &style.alarm(&format!("{}: {count} {what}", column.name));
            text.push('\n');
        }
    };
    let violations = column.counts.violations;
    complain(violations.wrong_key, "values of another key".to_owned());
    complain(
        violations.corrupt,
        "values with a wrong checksum".to_owned(),
    );
    complain(violations.stale, "values older than known".to_owned());
    for (&status, &count) in &column.counts.errors {
        complain(
            count,
            format!("answers 0x{status:02x} {}", Status(status).name()),
        );
    }
    text
}

/// `1234567.8` with one digit is `1,234,567.8`.
fn grouped(figure: f64, digits: usize) -> String {
    let text = format!("{figure:.digits$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::small_plan;

    fn slice(ops: u64, latency_us: u64, cpu: Option<Duration>) -> Slice {
        let mut counts = Counts::default();
        for _ in 0..ops {
            counts.ops += 1;
            counts.latencies.record(latency_us * 1_000);
        }
        Slice {
            counts,
            elapsed: Duration::from_secs(1),
            server_cpu: cpu,
        }
    }

    fn report() -> Report {
        let a = [
            slice(3_000, 10, None),
            slice(1_000, 10, None),
            slice(2_000, 10, None),
        ];
        let cpu = Some(Duration::from_millis(5));
        let mut b = [
            slice(1_000, 20, cpu),
            slice(1_000, 20, cpu),
            slice(1_000, 20, cpu),
        ];
        b[0].counts.error(Status::ETMPFAIL);
        b[1].counts.violations.stale = 2;
        let columns = vec![
            Column::new("A".to_owned(), "couchbase://a".to_owned(), &a),
            Column::new("B".to_owned(), "memcached://b".to_owned(), &b),
        ];
        Report {
            plan: small_plan(),
            columns,
        }
    }

    #[test]
    fn two_servers_are_compared_by_medians() {
        let json = report().to_json();
        assert_eq!(json["ratio"]["ops_per_second"], json!(2.0));
        assert_eq!(json["servers"][0]["ops_per_second"], json!(2000.0));
        assert_eq!(json["servers"][1]["server_cpu_us_per_op"], json!(5.0));
        assert_eq!(json["servers"][1]["violations"]["stale"], json!(2));
        assert_eq!(
            json["ratio"]["server_cpu"],
            json!(null),
            "only one side is known"
        );
        let p99 = json["ratio"]["p99"].as_f64().unwrap();
        assert!((p99 - 0.5).abs() < 0.01, "{p99}");
    }

    #[test]
    fn the_table_names_what_went_wrong() {
        let report = report();
        let text = report.to_text(Style::new(false));
        let row = |label: &str| text.lines().find(|line| line.starts_with(label)).unwrap();
        let cells = |label: &str| {
            row(label)[LABEL_WIDTH..]
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(cells("ops/s, median"), ["2,000", "1,000", "2.00"]);
        assert_eq!(cells("server CPU"), ["-", "5.00", "-"]);
        assert!(text.contains("B: 2 values older than known"), "{text}");
        assert!(text.contains("B: 1 answers 0x86"), "{text}");
        assert!(!text.contains("misses"), "{text}");
        assert_eq!((report.violations(), report.errors()), (2, 1));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_234_567.89, 1), "1,234,567.9");
        assert_eq!(grouped(123.0, 0), "123");
        assert_eq!(grouped(0.0, 2), "0.00");
    }
}
