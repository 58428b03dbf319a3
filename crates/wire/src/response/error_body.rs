//! The JSON text that explains a refusal.

use std::fmt::Write as _;

use model::ManifestUid;

/// Explanation of a refusal, for humans and for error maps; the value of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    /// Human-readable text.
    pub context: Option<&'a str>,
    /// Identifier of the event in the log.
    pub reference: Option<&'a str>,
    /// UID of the manifest in which a collection was not found.
    pub manifest: Option<ManifestUid>,
}

impl ErrorBody<'_> {
    /// Returns the text; empty without any field.
    ///
    /// Shape: `{"error":{"context":"..","ref":".."},"manifest_uid":"1f"}`; the UID is hexadecimal
    /// without prefix or leading zeros.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        if *self == Self::default() {
            return json;
        }
        json.push_str("{\"error\":{");
        if let Some(context) = self.context {
            json.push_str("\"context\":");
            push_text(&mut json, context);
        }
        if let Some(reference) = self.reference {
            json.push_str(if self.context.is_some() {
                ",\"ref\":"
            } else {
                "\"ref\":"
            });
            push_text(&mut json, reference);
        }
        json.push('}');
        if let Some(manifest) = self.manifest {
            write!(json, ",\"manifest_uid\":\"{:x}\"", manifest.0)
                .expect("a String can be written to");
        }
        json.push('}');
        json
    }
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                json.push('\\');
                json.push(c);
            }
            c if c < ' ' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a String can be written to");
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observed_body_of_an_unknown_collection() {
        let body = ErrorBody {
            context: Some("Unknown scope or collection in operation"),
            manifest: Some(ManifestUid(3)),
            ..ErrorBody::default()
        };
        let expected = "{\"error\":{\"context\":\"Unknown scope or collection in operation\"},\
             \"manifest_uid\":\"3\"}";
        assert_eq!(body.to_json(), expected);
    }

    #[test]
    fn any_text_stays_json() {
        let context = "a \"quoted\" \\ line\nand \u{1} \u{e9}";
        let body = ErrorBody {
            context: Some(context),
            reference: Some("r"),
            ..ErrorBody::default()
        };
        let json: serde_json::Value = serde_json::from_str(&body.to_json()).unwrap();
        assert_eq!(json["error"]["context"], context);
        assert_eq!(json["error"]["ref"], "r");
        assert_eq!(ErrorBody::default().to_json(), "");
    }
}
