//! Fields of bodies that are forms.

use serde_json::{Map, Value};

/// What is wrong with the fields of a form, by field.
pub(super) type FieldErrors = Map<String, Value>;

/// A field of a form body.
pub(super) fn field(body: &[u8], name: &str) -> Option<String> {
    fields(body)
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

/// All fields of a form body that can be read, in their order.
pub(super) fn fields(body: &[u8]) -> impl Iterator<Item = (String, String)> {
    body.split(|byte| *byte == b'&').filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&pair[..at], &pair[at + 1..]);
        Some((decoded(key)?, decoded(value)?))
    })
}

/// Complains of fields that are not among those that the call reads.
pub(super) fn refuse_unknown(body: &[u8], known: &[&str], wrong: &mut FieldErrors) {
    for (name, _) in fields(body) {
        if !known.contains(&&*name) {
            wrong.entry(name).or_insert("Unsupported key".into());
        }
    }
}

/// A form, and what is wrong with it so far.
pub(super) struct Form<'a> {
    pub(super) body: &'a [u8],
    pub(super) wrong: FieldErrors,
}

impl<'a> Form<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        let wrong = FieldErrors::new();
        Self { body, wrong }
    }

    /// A field that is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        field(self.body, name).filter(|text| !text.is_empty())
    }

    pub(super) fn complain(&mut self, name: &str, what: &str) {
        self.wrong.insert(name.into(), what.into());
    }

    /// A field as `read` takes it; `otherwise` if it is not there or wrong.
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

    /// The same; `what` says what it may be.
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

    /// Whether it is so.
    pub(super) fn flag(&mut self, name: &str, otherwise: bool) -> bool {
        self.or(name, otherwise, |text| match text {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
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
