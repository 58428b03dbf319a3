//! `settee stat`: a server's statistics, for eyes and for programs.

mod natural;

use serde_json::{Map, Value};

use crate::client::ConnectArgs;
use crate::exit::Failure;
use crate::output;

/// Show statistics of a server.
///
/// Without a group the general ones are shown. Groups of a settee node: vbucket,
/// vbucket-details [VB], vbucket-seqno [VB], failovers [VB], checkpoint [VB], memory, hash, timings,
/// warmup, diskinfo, config, collections, scopes, dcp, replication, durability-monitor [VB],
/// connections, threads, and those for less common needs in docs/stats.md. Other servers know
/// others.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Group of statistics
    group: Option<String>,
    /// Argument of the group, such as the number of a vBucket
    arg: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print one JSON object; numbers are numbers
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// One statistic: name and value as the server sent them.
type Row = (String, String);

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, or does not know the group.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let words: Vec<&str> = args
        .group
        .as_deref()
        .into_iter()
        .chain(args.arg.iter().map(String::as_str))
        .collect();
    let mut client = args.connect.connect()?;
    let mut rows: Vec<Row> = Vec::new();
    client.stat(&words.join(" "), |name, value| {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        rows.push((name, value));
    })?;
    if args.json {
        output::print_json(&to_json(rows))
    } else {
        output::print(&to_text(rows))
    }
}

/// ` name:   value`, values aligned, names in natural order; a row without name is its value.
fn to_text(mut rows: Vec<Row>) -> Vec<u8> {
    rows.sort_by(|a, b| natural::compare(&a.0, &b.0));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let bytes = rows.iter().map(|(_, value)| value.len() + width + 6).sum();
    let mut text = String::with_capacity(bytes);
    // There may be millions of them.
    for (name, value) in rows {
        text.push(' ');
        if !name.is_empty() {
            text.push_str(&name);
            text.push(':');
            text.extend(std::iter::repeat_n(' ', width - name.len() + 3));
        }
        text.push_str(&value);
        text.push('\n');
    }
    text.into_bytes()
}

/// An object by name; a name that occurs more than once holds an array, and rows that have no
/// name at all are an array alone.
fn to_json(rows: Vec<Row>) -> Value {
    if !rows.is_empty() && rows.iter().all(|(name, _)| name.is_empty()) {
        return rows
            .into_iter()
            .map(|(_, value)| to_value(&value))
            .collect();
    }
    let mut grouped: std::collections::BTreeMap<String, Vec<Value>> =
        std::collections::BTreeMap::new();
    for (name, value) in rows {
        grouped.entry(name).or_default().push(to_value(&value));
    }
    let single = |mut values: Vec<Value>| match values.len() {
        1 => values.remove(0),
        _ => Value::Array(values),
    };
    grouped
        .into_iter()
        .map(|(name, values)| (name, single(values)))
        .collect::<Map<_, _>>()
        .into()
}

/// Numbers, booleans, objects and arrays as such; anything else as text.
fn to_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if !is_exact(&number, text) => text.into(),
        Ok(Value::String(_) | Value::Null) | Err(_) => text.into(),
        Ok(value) => value,
    }
}

/// Whether an integer survived: one beyond 64 bits would have become an inexact fraction.
fn is_exact(number: &serde_json::Number, text: &str) -> bool {
    !number.is_f64() || text.contains(['.', 'e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str)]) -> Vec<Row> {
        rows.iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn text_is_aligned_and_in_natural_order() {
        let text = to_text(rows(&[
            ("vb_10", "active"),
            ("vb_9:queue", "0"),
            ("vb_9", "dead"),
        ]));
        let expected = " vb_9:         dead\n vb_9:queue:   0\n vb_10:        active\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(to_text(rows(&[("", "{}")])), b" {}\n");
        assert_eq!(to_text(Vec::new()), b"");
    }

    #[test]
    fn json_converts_numbers_but_never_changes_them() {
        let json = to_json(rows(&[
            ("count", "18446744073709551615"),
            ("negative", "-3"),
            ("fraction", "1.5"),
            ("too_long", "18446744073709551616"),
            ("version", "1.6.18"),
            ("hex", "0x8"),
            ("leading", "007"),
            ("flag", "true"),
            ("empty", ""),
            ("object", r#"{"a":[1]}"#),
            ("quoted", "\"x\""),
            ("null", "null"),
        ]));
        let expected = serde_json::json!({
            "count": u64::MAX, "negative": -3, "fraction": 1.5,
            "too_long": "18446744073709551616", "version": "1.6.18", "hex": "0x8",
            "leading": "007", "flag": true, "empty": "", "object": {"a": [1]},
            "quoted": "\"x\"", "null": "null",
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn rows_without_name_are_an_array() {
        let json = to_json(rows(&[("", r#"{"socket":1}"#), ("", r#"{"socket":2}"#)]));
        assert_eq!(json, serde_json::json!([{"socket": 1}, {"socket": 2}]));
        let json = to_json(rows(&[("a", "1"), ("a", "2"), ("b", "3")]));
        assert_eq!(json, serde_json::json!({"a": [1, 2], "b": 3}));
        assert_eq!(to_json(Vec::new()), serde_json::json!({}));
    }
}
