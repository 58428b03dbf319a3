//! Writes rows as text or as one JSON value.

use std::io::{self, Write};

use serde_json::Value;

/// Number of bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// Format of the rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowFormat {
    /// ` name:   value`, with values aligned after names of `width` bytes; only the value if there is no name.
    Text { width: usize },
    /// An object by name. A name with several consecutive values has an array.
    Object,
    /// An array of values, for rows without names.
    Array,
}

/// A writer of an answer.
///
/// Cost: one buffer, which is reused. Nothing is allocated per row, except for values that are JSON themselves.
#[derive(Debug)]
pub(super) struct Report<W> {
    to: W,
    shape: RowFormat,
    buffer: Vec<u8>,
    rows: u64,
    /// The last member written, if the format is an object.
    last: JsonMember,
}

/// A name, and the position of its first value in the buffer.
#[derive(Debug, Default)]
struct JsonMember {
    name: Vec<u8>,
    value_at: usize,
    has_many: bool,
}

impl<W: Write> Report<W> {
    /// Creates a writer of text that is not aligned.
    pub(super) fn new(to: W) -> Self {
        Self {
            to,
            shape: RowFormat::Text { width: 0 },
            buffer: Vec::new(),
            rows: 0,
            last: JsonMember::default(),
        }
    }

    /// Sets the format, before the first row.
    pub(super) fn begin(&mut self, shape: RowFormat) {
        self.shape = shape;
        self.buffer.extend_from_slice(match shape {
            RowFormat::Text { .. } => b"",
            RowFormat::Object => b"{",
            RowFormat::Array => b"[",
        });
    }

    /// Writes a row.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn row(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let is_repeated =
            self.rows > 0 && matches!(self.shape, RowFormat::Object) && self.last.name == name;
        if self.buffer.len() >= WRITE_BYTES && !is_repeated {
            self.write()?;
        }
        match self.shape {
            RowFormat::Text { width } => self.text(width, name, value),
            RowFormat::Object if is_repeated => self.another_value(value)?,
            RowFormat::Object => self.member(name, value)?,
            RowFormat::Array => {
                self.element();
                self.json_value(value)?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Ends the answer; returns the output.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.end_member();
        let end: &[u8] = match (self.shape, self.rows) {
            (RowFormat::Text { .. }, _) => b"",
            (RowFormat::Object, 0) => b"}\n",
            (RowFormat::Object, _) => b"\n}\n",
            (RowFormat::Array, 0) => b"]\n",
            (RowFormat::Array, _) => b"\n]\n",
        };
        self.buffer.extend_from_slice(end);
        self.write()?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn write(&mut self) -> io::Result<()> {
        self.end_member();
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn text(&mut self, width: usize, name: &[u8], value: &[u8]) {
        self.buffer.push(b' ');
        if !name.is_empty() {
            self.lossy(name);
            self.buffer.extend_from_slice(b":   ");
            let gap = width.saturating_sub(name.len());
            self.buffer.resize(self.buffer.len() + gap, b' ');
        }
        self.lossy(value);
        self.buffer.push(b'\n');
    }

    /// Appends a text. Bytes that are not UTF-8 become replacement characters.
    fn lossy(&mut self, text: &[u8]) {
        if text.is_ascii() {
            self.buffer.extend_from_slice(text);
        } else {
            let text = String::from_utf8_lossy(text);
            self.buffer.extend_from_slice(text.as_bytes());
        }
    }

    /// Appends the separator before an element.
    fn element(&mut self) {
        let before: &[u8] = if self.rows > 0 { b",\n  " } else { b"\n  " };
        self.buffer.extend_from_slice(before);
    }

    fn member(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.end_member();
        self.element();
        serde_json::to_writer(&mut self.buffer, &String::from_utf8_lossy(name))?;
        self.buffer.extend_from_slice(b": ");
        self.last.name.clear();
        self.last.name.extend_from_slice(name);
        self.last.value_at = self.buffer.len();
        self.json_value(value)
    }

    /// Appends a further value under the same name.
    fn another_value(&mut self, value: &[u8]) -> io::Result<()> {
        if !std::mem::replace(&mut self.last.has_many, true) {
            self.buffer.insert(self.last.value_at, b'[');
        }
        self.buffer.extend_from_slice(b", ");
        self.json_value(value)
    }

    fn end_member(&mut self) {
        if std::mem::take(&mut self.last.has_many) {
            self.buffer.push(b']');
        }
    }

    /// Appends a JSON value: numbers, booleans, objects and arrays as such, anything else as a string.
    fn json_value(&mut self, value: &[u8]) -> io::Result<()> {
        if is_plain_number(value) {
            self.buffer.extend_from_slice(value);
            return Ok(());
        }
        let text = String::from_utf8_lossy(value);
        let known = value
            .first()
            .is_some_and(|first| b"{[-0123456789tf".contains(first));
        match known.then(|| serde_json::from_slice(value)) {
            Some(Ok(Value::Number(number))) if !is_exact(&number, &text) => {
                serde_json::to_writer(&mut self.buffer, &text)?;
            }
            Some(Ok(value)) => serde_json::to_writer(&mut self.buffer, &value)?,
            _ => serde_json::to_writer(&mut self.buffer, &text)?,
        }
        Ok(())
    }
}

/// Whether a value is an integer that fits 64 bits and is written the same way in JSON.
fn is_plain_number(value: &[u8]) -> bool {
    (1..20).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && (value[0] != b'0' || value.len() == 1)
}

/// Whether a number is exact: an integer beyond 64 bits would become an inexact fraction.
fn is_exact(number: &serde_json::Number, text: &str) -> bool {
    !number.is_f64() || text.contains(['.', 'e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(shape: RowFormat, rows: &[(&str, &str)]) -> String {
        let mut report = Report::new(Vec::new());
        report.begin(shape);
        for (name, value) in rows {
            report.row(name.as_bytes(), value.as_bytes()).unwrap();
        }
        String::from_utf8(report.end().unwrap()).unwrap()
    }

    fn json(shape: RowFormat, rows: &[(&str, &str)]) -> Value {
        serde_json::from_str(&written(shape, rows)).unwrap()
    }

    #[test]
    fn text_is_aligned() {
        let rows = [("vb_10", "active"), ("", "{}"), ("vb_9:queue", "0")];
        let text = written(RowFormat::Text { width: 10 }, &rows);
        assert_eq!(text, " vb_10:        active\n {}\n vb_9:queue:   0\n");
        assert_eq!(
            written(RowFormat::Text { width: 0 }, &rows[..1]),
            " vb_10:   active\n"
        );
        assert_eq!(written(RowFormat::Text { width: 0 }, &[]), "");
    }

    #[test]
    fn json_converts_numbers_but_never_changes_them() {
        let found = json(
            RowFormat::Object,
            &[
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
                ("zero", "0"),
                ("a \"name\"\n", "x\ty"),
            ],
        );
        let expected = serde_json::json!({
            "count": u64::MAX, "negative": -3, "fraction": 1.5,
            "too_long": "18446744073709551616", "version": "1.6.18", "hex": "0x8",
            "leading": "007", "flag": true, "empty": "", "object": {"a": [1]},
            "quoted": "\"x\"", "null": "null", "zero": 0, "a \"name\"\n": "x\ty",
        });
        assert_eq!(found, expected);
        assert_eq!(json(RowFormat::Object, &[]), serde_json::json!({}));
        assert_eq!(json(RowFormat::Array, &[]), serde_json::json!([]));
    }

    #[test]
    fn rows_of_one_name_are_an_array() {
        let rows = [("", r#"{"socket":1}"#), ("", r#"{"socket":2}"#)];
        let expected = serde_json::json!([{"socket": 1}, {"socket": 2}]);
        assert_eq!(json(RowFormat::Array, &rows), expected);
        let rows = [
            ("a", "1"),
            ("a", "2"),
            ("a", "x"),
            ("b", "3"),
            ("c", "4"),
            ("c", "5"),
        ];
        let expected = serde_json::json!({"a": [1, 2, "x"], "b": 3, "c": [4, 5]});
        assert_eq!(json(RowFormat::Object, &rows), expected);
    }

    /// One name has more values than a buffer holds, and other names lie at the end of a buffer.
    #[test]
    fn large_answers_are_valid() {
        let value = "v".repeat(1000);
        let rows: Vec<(String, &str)> = (0..1000)
            .map(|row| (format!("name {}", row / 400), value.as_str()))
            .collect();
        let rows: Vec<(&str, &str)> = rows
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        let found = json(RowFormat::Object, &rows);
        let lengths =
            ["name 0", "name 1", "name 2"].map(|name| found[name].as_array().unwrap().len());
        assert_eq!(lengths, [400, 400, 200]);
        assert_eq!(
            written(RowFormat::Text { width: 0 }, &rows).lines().count(),
            1000
        );
    }
}
