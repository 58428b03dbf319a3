//! The result of a scenario: named figures, in one column or several.

use serde_json::{Map, Value, json};

use crate::console::Style;
use crate::measure::Latencies;
use crate::numbers::to_f64;
use crate::table::line;

const LABEL_WIDTH: usize = 36;

/// Reported quantiles, with their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// A result, printed as a table or as a JSON object.
#[derive(Debug)]
pub(crate) struct Sheet {
    title: String,
    /// Names of the columns; empty if there is only one.
    columns: Vec<&'static str>,
    rows: Vec<SheetRow>,
}

#[derive(Debug)]
struct SheetRow {
    name: String,
    label: String,
    digits: usize,
    figures: Vec<f64>,
}

impl Sheet {
    /// Creates an empty sheet.
    pub(super) fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a figure for each column. `name` is the JSON key, `label` the text in the table.
    pub(super) fn row(&mut self, name: &str, label: &str, digits: usize, figures: &[f64]) {
        self.rows.push(SheetRow {
            name: name.to_owned(),
            label: label.to_owned(),
            digits,
            figures: figures.to_vec(),
        });
    }

    /// Adds a figure to the only column.
    pub(super) fn figure(&mut self, name: &str, label: &str, digits: usize, figure: f64) {
        self.row(name, label, digits, &[figure]);
    }

    /// Adds a number of items.
    pub(super) fn count(&mut self, name: &str, label: &str, count: u64) {
        self.figure(name, label, 0, to_f64(count));
    }

    /// Adds the time for `changes`, and their number per second.
    pub(super) fn change_rate(&mut self, changes: f64, label: &str, seconds: f64) {
        self.figure("seconds", label, 3, seconds);
        self.figure("changes_per_second", "changes/s", 0, changes / seconds);
    }

    /// Adds quantiles of a latency for each column, and with two columns their ratio.
    pub(super) fn latencies(&mut self, name: &str, label: &str, of: &[&Latencies]) {
        for (quantile_name, quantile) in QUANTILES {
            let mut figures: Vec<f64> = of.iter().map(|all| all.quantile_us(quantile)).collect();
            if let [without, with] = figures[..] {
                figures.push(with / without.max(0.001));
            }
            let name = format!("{name}_{quantile_name}_us");
            self.row(&name, &format!("{label} {quantile_name}, us"), 1, &figures);
        }
    }

    /// Returns the table.
    pub(crate) fn to_text(&self, style: Style) -> String {
        let mut text = format!("{}\n", self.title);
        if !self.columns.is_empty() {
            let names = self.columns.iter().map(|&name| name.to_owned());
            text += &style.bold(&line(LABEL_WIDTH, "", names));
            text.push('\n');
        }
        for row in &self.rows {
            let cells = row.figures.iter().enumerate().map(|(index, figure)| {
                // The third column is a ratio.
                let digits = if index == 2 { 2 } else { row.digits };
                format!("{figure:.digits$}")
            });
            text += &line(LABEL_WIDTH, &row.label, cells);
            text.push('\n');
        }
        text
    }

    /// Returns the JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let named = |row: &SheetRow| match self.columns.as_slice() {
            [] => json!(row.figures.first()),
            names => {
                let figures = row.figures.iter().map(|figure| json!(figure));
                let names = names.iter().map(|&name| name.to_owned());
                Value::Object(names.zip(figures).collect())
            }
        };
        let rows = self.rows.iter();
        let figures: Map<_, _> = rows.map(|row| (row.name.clone(), named(row))).collect();
        json!({ "scenario": self.title, "figures": figures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheet_shows_one_or_three_columns() {
        let mut one = Sheet::new("drain", &[]);
        one.figure("rate", "documents/s", 0, 12.4);
        assert!(one.to_text(Style::new(false)).contains("documents/s"));
        assert_eq!(one.to_json()["figures"]["rate"], 12.4);
        let mut three = Sheet::new("front", &["without", "with", "ratio"]);
        let (mut fast, mut slow) = (Latencies::default(), Latencies::default());
        fast.record(1_000);
        slow.record(2_000);
        three.latencies("get", "get", &[&fast, &slow]);
        let ratio = &three.to_json()["figures"]["get_p50_us"]["ratio"];
        assert!((ratio.as_f64().unwrap() - 2.0).abs() < 0.01, "{ratio}");
    }
}
