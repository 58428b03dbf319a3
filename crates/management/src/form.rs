//! Fields of form bodies.

use serde_json::{Map, Value};

/// Errors of a form, by field.
pub(super) type FieldErrors = Map<String, Value>;

/// Returns a field of a form body.
pub(super) fn field(body: &[u8], name: &str) -> Option<String> {
    fields(body)
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

/// Returns all readable fields of a form body, in order.
pub(super) fn fields(body: &[u8]) -> impl Iterator<Item = (String, String)> {
    body.split(|byte| *byte == b'&').filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&pair[..at], &pair[at + 1..]);
        Some((decoded(key)?, decoded(value)?))
    })
}

/// Reads the value of a field that is true or false, also as a digit.
pub(super) fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("The value must be one of the following: [true, false]"),
    }
}

/// Returns the words of a list, which commas separate.
pub(super) fn words(list: &str) -> impl Iterator<Item = &str> {
    let words = list.split(',').map(str::trim);
    words.filter(|word| !word.is_empty())
}

/// A form with its errors so far.
pub(super) struct Form<'a> {
    pub(super) body: &'a [u8],
    pub(super) wrong: FieldErrors,
}

impl<'a> Form<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        let wrong = FieldErrors::new();
        Self { body, wrong }
    }

    /// Returns a field that is present and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        field(self.body, name).filter(|text| !text.is_empty())
    }

    pub(super) fn complain(&mut self, name: &str, what: &str) {
        self.wrong.insert(name.into(), what.into());
    }

    /// Adds an error for each field that the call does not read.
    pub(super) fn refuse_unknown(&mut self, known: &[&str]) {
        for (name, _) in fields(self.body) {
            if !known.contains(&&*name) {
                self.wrong.entry(name).or_insert("Unsupported key".into());
            }
        }
    }

    /// Reads a field with `read`; returns `otherwise` if it is missing or wrong.
    pub(super) fn or<T>(
        &mut self,
        name: &str,
        otherwise: T,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        let text = self.text(name).unwrap_or_default();
        let what = format!("{text:?} is not possible here");
        self.choice(name, otherwise, &what, read)
    }

    /// Reads a field like [`Form::or`]; `what` describes the allowed values in the error.
    pub(super) fn choice<T>(
        &mut self,
        name: &str,
        otherwise: T,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(text) = self.text(name) else {
            return otherwise;
        };
        read(&text).unwrap_or_else(|| {
            self.complain(name, what);
            otherwise
        })
    }

    /// Reads a field that is true or false.
    pub(super) fn flag(&mut self, name: &str, otherwise: bool) -> bool {
        let text = self.text(name);
        let read = text.map_or(Ok(otherwise), |text| flag(&text));
        read.unwrap_or_else(|what| {
            self.complain(name, what);
            otherwise
        })
    }
}

fn decoded(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_forms() {
        let body = b"name=a%25b+c&maxTTL=-1&empty=&bad=%4&%6eoted=1&%zz=2";
        let of = |name| field(body, name);
        assert_eq!(of("name").as_deref(), Some("a%b c"));
        assert_eq!(of("maxTTL").as_deref(), Some("-1"));
        assert_eq!(of("empty").as_deref(), Some(""));
        assert_eq!(of("bad"), None);
        assert_eq!(of("noted").as_deref(), Some("1"));
        assert_eq!(field(b"", "name"), None);
    }
}
