//! The report of a run: a column for each server, and the ratio of two.

use model::DurabilityLevel;
use serde_json::{Value, json};
use wire::Status;

use crate::console::Style;
use crate::measure::{Counts, Slice, Summary};
use crate::numbers::to_f64;
use crate::plan::{Amount, Plan};
use crate::side::Side;
use crate::table::{LABEL_WIDTH, grouped, line};

/// Reported quantiles, with their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Figures of one server.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    address: String,
    nodes: usize,
    summary: Summary,
}

impl Column {
    fn new(name: &str, address: String, nodes: usize, slices: &[Slice]) -> Self {
        let mut summary = Summary::default();
        for slice in slices {
            summary.add(slice);
        }
        let name = name.to_owned();
        Self {
            name,
            address,
            nodes,
            summary,
        }
    }
}

/// The report of a run against one or two servers.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    plan: Plan,
    columns: Vec<Column>,
}

impl Report {
    /// Sums up the measurements of the sides.
    pub(crate) fn new(plan: &Plan, sides: &[Side]) -> Self {
        let column = |side: &Side| {
            let address = side.target.server.address.to_string();
            Column::new(&side.target.name, address, side.nodes, &side.slices)
        };
        Self {
            plan: plan.clone(),
            columns: sides.iter().map(column).collect(),
        }
    }

    /// Counts of the first server.
    pub(crate) fn counts(&self) -> &Counts {
        &self.columns[0].summary.counts
    }

    /// Number of wrong values from all servers.
    pub(crate) fn violations(&self) -> u64 {
        let counts = self.columns.iter().map(|column| &column.summary.counts);
        counts.map(|counts| counts.violations.total()).sum()
    }

    /// Number of refused operations of all servers.
    pub(crate) fn errors(&self) -> u64 {
        let counts = self.columns.iter().map(|column| &column.summary.counts);
        counts.map(Counts::errors_total).sum()
    }

    /// Returns the table.
    pub(crate) fn to_text(&self, style: Style) -> String {
        let mut text = format!("{}\n", describe(&self.plan));
        for column in &self.columns {
            text.extend([column.name.as_str(), ": ", &column.address]);
            if column.nodes > 1 {
                text.extend([", ", &column.nodes.to_string(), " nodes"]);
            }
            text.push('\n');
        }
        let names = self.columns.iter().map(|column| column.name.clone());
        let ratio = (self.columns.len() == 2).then(|| "A/B".to_owned());
        text += &style.bold(&line(LABEL_WIDTH, "", names.chain(ratio)));
        text.push('\n');
        text += &self.rows();
        for column in &self.columns {
            text += &complaints(column, style);
        }
        text
    }

    /// Returns a line for each known figure, with a ratio where it is meaningful.
    fn rows(&self) -> String {
        let mut text = String::new();
        let mut row = |label: &str, digits, compared, figure: &dyn Fn(&Summary) -> Option<f64>| {
            let figures = self.columns.iter().map(|column| figure(&column.summary));
            let figures: Vec<_> = figures.collect();
            if figures.iter().all(Option::is_none) {
                return;
            }
            let none = || "-".to_owned();
            let cell = |figure: &Option<f64>| figure.map_or_else(none, |it| grouped(it, digits));
            let mut cells: Vec<String> = figures.iter().map(cell).collect();
            if let (&[a, b], true) = (figures.as_slice(), compared) {
                cells.push(ratio(a, b).map_or_else(none, |ratio| format!("{ratio:.2}")));
            }
            text += &line(LABEL_WIDTH, label, cells);
            text.push('\n');
        };
        let slowest = |rates: &[f64]| rates.iter().copied().fold(f64::INFINITY, f64::min);
        let fastest = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let counted = |count: u64| (count > 0).then(|| to_f64(count));
        row("ops/s, median of slices", 0, true, &|of| Some(of.rate()));
        row("ops/s, slowest slice", 0, false, &|of| {
            Some(slowest(&of.rates))
        });
        row("ops/s, fastest slice", 0, false, &|of| {
            Some(fastest(&of.rates))
        });
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
        row("server CPU, us/op", 2, true, &Summary::cpu_us);
        row("operations", 0, false, &|of| Some(to_f64(of.counts.ops)));
        row("misses", 0, false, &|of| counted(of.counts.misses));
        row("sent again to another node", 0, false, &|of| {
            counted(of.counts.retries)
        });
        row("due but never sent", 0, false, &|of| {
            counted(of.counts.unsent)
        });
        text
    }

    /// Returns the JSON object.
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
            let (a, b) = (&a.summary, &b.summary);
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
    let summary = &column.summary;
    let counts = &summary.counts;
    let mut latency = json!({
        "mean": counts.latencies.mean_us(),
        "max": counts.latencies.max_us(),
        "p99_median_of_slices": summary.p99_us(),
    });
    for (name, quantile) in QUANTILES {
        latency[name] = counts.latencies.quantile_us(quantile).into();
    }
    let errors = counts.errors.iter();
    let errors = errors.map(|(&status, &count)| (status_text(status), Value::from(count)));
    json!({
        "name": column.name,
        "address": column.address,
        "nodes": column.nodes,
        "ops_per_second": summary.rate(),
        "ops_per_second_slices": summary.rates,
        "latency_us": latency,
        "server_cpu_us_per_op": summary.cpu_us(),
        "ops": counts.ops,
        "gets": counts.gets,
        "sets": counts.sets,
        "misses": counts.misses,
        "retries": counts.retries,
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

fn status_text(status: u16) -> String {
    format!("0x{status:02x} {}", Status(status).name())
}

/// Returns the errors and wrong values, one line for each kind.
fn complaints(column: &Column, style: Style) -> String {
    let mut text = String::new();
    let mut complain = |count: u64, what: String| {
        if count > 0 {
            text += &style.alarm(&format!("{}: {count} {what}", column.name));
            text.push('\n');
        }
    };
    let counts = &column.summary.counts;
    for (count, what) in [
        (counts.violations.wrong_key, "values of another key"),
        (counts.violations.corrupt, "values with a wrong checksum"),
        (counts.violations.stale, "values older than known"),
    ] {
        complain(count, what.to_owned());
    }
    for (&status, &count) in &counts.errors {
        complain(count, format!("answers {}", status_text(status)));
    }
    text
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
            Column::new("A", "couchbase://a".to_owned(), 3, &a),
            Column::new("B", "memcached://b".to_owned(), 1, &b),
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
    fn table_names_errors_and_violations() {
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
        assert!(text.contains("A: couchbase://a, 3 nodes\nB: memcached://b\n"));
        assert!(text.contains("B: 2 values older than known"), "{text}");
        assert!(text.contains("B: 1 answers 0x86"), "{text}");
        assert!(!text.contains("misses"), "{text}");
        assert_eq!((report.violations(), report.errors()), (2, 1));
    }
}
