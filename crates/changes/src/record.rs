//! The text of one change: a line of JSON, or a CloudEvent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::utc;
use model::{Cas, Datatype, Seqno, VbId, VbUuid};
use serde::de::IgnoredAny;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The document was written.
    Mutation,
    /// The document was deleted.
    Deletion,
    /// The document was deleted because it had expired.
    Expiration,
}

impl ChangeKind {
    /// The name of the event in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutation => "mutation",
            Self::Deletion => "deletion",
            Self::Expiration => "expiration",
        }
    }
}

/// Names of the scope and the collection of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'a> {
    /// The scope.
    pub scope: &'a str,
    /// The collection.
    pub collection: &'a str,
}

/// One change, as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The kind of the change.
    pub event: ChangeKind,
    /// Scope and collection of the document.
    pub names: Names<'a>,
    /// The vBucket of the document.
    pub vbucket: VbId,
    /// Position of the change in the vBucket.
    pub seqno: Seqno,
    /// The CAS that the change assigned.
    pub cas: Cas,
    /// Number of changes of the document (its revision).
    pub rev: u64,
    /// Flags of the client; only of a mutation.
    pub flags: u32,
    /// Time of the expiry, or of the deletion, in Unix seconds; 0 for never or unknown.
    pub time_s: u32,
    /// Key of the document, without a collection id.
    pub key: &'a [u8],
    /// The value of a mutation, decompressed and without extended attributes. `None` if it is left out.
    pub value: Option<&'a [u8]>,
    /// Datatype of the value; it includes whether the value is JSON.
    pub datatype: Datatype,
}

impl Change<'_> {
    /// Appends one JSON object, without a line feed in it or after it.
    ///
    /// Members: `event`, `key` (`key_base64` if it is not UTF-8), `value` if it is included (JSON is embedded,
    /// other UTF-8 is a string, else `value_base64`), `scope`, `collection`, `vb`, `seqno`, `cas` (a string,
    /// since many JSON readers round large numbers), `rev`; of a mutation `flags` and `expiry`, else
    /// `delete_time` if it is known.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.head(out);
        if let Some(value) = self.value.filter(|_| self.event == ChangeKind::Mutation) {
            out.push(b',');
            self.value(value, ["value", "value_base64"], out);
        }
        self.tail(out);
    }

    /// Appends the same object without its value: `head` is the part before the value, `tail` the part after it.
    pub fn write_json_around(&self, shown: Shown, head: &mut Vec<u8>, tail: &mut Vec<u8>) {
        self.head(head);
        head.push(b',');
        member(shown.name(), head);
        self.tail(tail);
    }

    /// Appends the members before the value.
    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"event\":\"");
        out.extend_from_slice(self.event.name().as_bytes());
        out.extend_from_slice(b"\",");
        text_or_base64("key", self.key, out);
    }

    /// Appends the members after the value.
    fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"scope\":");
        string(self.names.scope, out);
        out.extend_from_slice(b",\"collection\":");
        string(self.names.collection, out);
        number(",\"vb\":", self.vbucket.0.into(), out);
        number(",\"seqno\":", self.seqno.0, out);
        number(",\"cas\":\"", self.cas.0, out);
        number("\",\"rev\":", self.rev, out);
        match self.event {
            ChangeKind::Mutation => {
                number(",\"flags\":", self.flags.into(), out);
                number(",\"expiry\":", self.time_s.into(), out);
            }
            _ if self.time_s > 0 => number(",\"delete_time\":", self.time_s.into(), out),
            _ => {}
        }
        out.push(b'}');
    }

    /// Appends a CloudEvent (version 1.0, JSON format), without a line feed in it or after it.
    ///
    /// `source` names the bucket. `id` consists of vBucket UUID, vBucket and seqno, so a repeated change has the
    /// same id. The extension attributes are `scope`, `collection`, `vbucket`, `seqno` and `cas`.
    pub fn write_cloud_event(&self, source: &str, uuid: VbUuid, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"specversion\":\"1.0\",\"type\":\"settee.document.");
        out.extend_from_slice(self.event.name().as_bytes());
        out.extend_from_slice(b"\",\"source\":");
        string(source, out);
        let (vbucket, seqno) = (self.vbucket.0, self.seqno.0);
        let id = format!(",\"id\":\"{:x}-{vbucket}-{seqno}\",\"subject\":", uuid.0);
        out.extend_from_slice(id.as_bytes());
        string(&String::from_utf8_lossy(self.key), out);
        out.extend_from_slice(b",\"time\":\"");
        // The CAS is the reading of a clock, in nanoseconds.
        out.extend_from_slice(utc(self.cas.0).as_bytes());
        out.extend_from_slice(b"Z\",\"scope\":");
        string(self.names.scope, out);
        out.extend_from_slice(b",\"collection\":");
        string(self.names.collection, out);
        number(",\"vbucket\":", vbucket.into(), out);
        number(",\"seqno\":\"", seqno, out);
        number("\",\"cas\":\"", self.cas.0, out);
        out.push(b'"');
        if let Some(value) = self.value.filter(|_| self.event == ChangeKind::Mutation) {
            let json = self.datatype.contains(Datatype::JSON);
            let kind: &[u8] = match (json, std::str::from_utf8(value)) {
                (true, _) => b",\"datacontenttype\":\"application/json\",",
                (false, Ok(_)) => b",\"datacontenttype\":\"text/plain\",",
                (false, Err(_)) => b",\"datacontenttype\":\"application/octet-stream\",",
            };
            out.extend_from_slice(kind);
            self.value(value, ["data", "data_base64"], out);
        }
        out.push(b'}');
    }

    /// Returns the change without its value.
    #[must_use]
    pub fn without_value(self) -> Self {
        Self {
            value: None,
            ..self
        }
    }

    fn value(&self, value: &[u8], [name, base64_name]: [&str; 2], out: &mut Vec<u8>) {
        if Shown::of(value, self.datatype) == Shown::Json {
            member(name, out);
            Compact::default().write(value, out);
        } else {
            text_or(name, base64_name, value, out);
        }
    }
}

/// Appends the line of a rollback: the changes of the vBucket after `seqno` are void.
///
/// Members: `event` (`rollback`), `vb`, `seqno`.
pub fn void_after(vbucket: VbId, seqno: Seqno, out: &mut Vec<u8>) {
    number("{\"event\":\"rollback\",\"vb\":", vbucket.0.into(), out);
    number(",\"seqno\":", seqno.0, out);
    out.push(b'}');
}

/// Appends a rollback as a CloudEvent of the type `settee.stream.rollback`.
pub fn cloud_rollback(source: &str, vbucket: VbId, seqno: Seqno, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"{\"specversion\":\"1.0\",\"type\":\"settee.stream.rollback\",\"source\":",
    );
    string(source, out);
    let (vbucket, seqno) = (vbucket.0, seqno.0);
    let rest = format!(
        ",\"id\":\"rollback-{vbucket}-{seqno}\",\"vbucket\":{vbucket},\"seqno\":\"{seqno}\"}}"
    );
    out.extend_from_slice(rest.as_bytes());
}

fn number(before: &str, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(number.to_string().as_bytes());
}

fn string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string is written to memory");
}

fn member(name: &str, out: &mut Vec<u8>) {
    string(name, out);
    out.push(b':');
}

fn text_or_base64(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    text_or(name, &format!("{name}_base64"), bytes, out);
}

fn text_or(name: &str, base64_name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        member(name, out);
        string(text, out);
    } else {
        member(base64_name, out);
        string(&STANDARD.encode(bytes), out);
    }
}

/// Copies valid JSON, in one or more parts, without white space between tokens, and therefore without line feeds.
/// Numbers stay as they were written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compact {
    in_string: bool,
    escaped: bool,
}

impl Compact {
    /// Appends the next part without white space.
    pub fn write(&mut self, part: &[u8], out: &mut Vec<u8>) {
        for byte in part.iter().copied() {
            if self.in_string {
                self.in_string = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
            } else if byte.is_ascii_whitespace() {
                continue;
            } else {
                self.in_string = byte == b'"';
            }
            out.push(byte);
        }
    }
}

/// Representation of a value in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// As embedded JSON.
    Json,
    /// As a string.
    Text,
    /// As base64.
    Base64,
}

impl Shown {
    /// Chooses the representation of a value. It is JSON only if both the datatype and its text say so.
    pub fn of(value: &[u8], datatype: Datatype) -> Self {
        let json = datatype.contains(Datatype::JSON);
        match std::str::from_utf8(value) {
            Ok(text) if json && serde_json::from_str::<IgnoredAny>(text).is_ok() => Self::Json,
            Ok(_) => Self::Text,
            Err(_) => Self::Base64,
        }
    }

    /// Name of the member that holds the value.
    fn name(self) -> &'static str {
        match self {
            Self::Json | Self::Text => "value",
            Self::Base64 => "value_base64",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change(value: &'static [u8], datatype: Datatype) -> Change<'static> {
        Change {
            event: ChangeKind::Mutation,
            names: Names {
                scope: "_default",
                collection: "chairs",
            },
            vbucket: VbId(12),
            seqno: Seqno(345),
            cas: Cas(1_600_000_000_123_000_064),
            rev: 3,
            flags: 0x0200_0006,
            time_s: 0,
            key: b"sofa",
            value: Some(value),
            datatype,
        }
    }

    fn line(change: &Change<'_>) -> Value {
        let mut out = Vec::new();
        change.write_json(&mut out);
        assert!(!out.contains(&b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn mutation_is_written_as_json() {
        let expected = json!({
            "event": "mutation", "key": "sofa", "value": {"seats": 3}, "scope": "_default",
            "collection": "chairs", "vb": 12, "seqno": 345, "cas": "1600000000123000064",
            "rev": 3, "flags": 0x0200_0006, "expiry": 0,
        });
        assert_eq!(
            line(&change(b"{\"seats\":\n 3 }", Datatype::JSON)),
            expected
        );
    }

    #[test]
    fn values_keep_their_kind() {
        let value = |bytes, datatype| line(&change(bytes, datatype));
        assert_eq!(value(b"3", Datatype::RAW)["value"], "3");
        assert_eq!(value(b"{broken", Datatype::JSON)["value"], "{broken");
        assert_eq!(value(b"\xff", Datatype::RAW)["value_base64"], "/w==");
        assert_eq!(value(b"\xff", Datatype::JSON)["value_base64"], "/w==");
        assert_eq!(value(b"", Datatype::RAW)["value"], "");
    }

    #[test]
    fn numbers_and_strings_stay_as_they_are() {
        let mut out = Vec::new();
        let text = "{ \"a b\" : [ 12345678901234567890.10, \"x\\\" \\\\\" , \" y\\n\" ] }\r\n";
        Compact::default().write(text.as_bytes(), &mut out);
        let expected = "{\"a b\":[12345678901234567890.10,\"x\\\" \\\\\",\" y\\n\"]}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn change_without_value_omits_value() {
        let keys_only = change(b"3", Datatype::JSON).without_value();
        let told = line(&keys_only);
        assert_eq!(
            (&told["value"], &told["key"]),
            (&Value::Null, &json!("sofa"))
        );
        let mut event = Vec::new();
        keys_only.write_cloud_event("/buckets/b", VbUuid(1), &mut event);
        let event: Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(
            (&event["data"], &event["subject"]),
            (&Value::Null, &json!("sofa"))
        );
        assert_eq!(event["datacontenttype"], Value::Null);
    }

    #[test]
    fn deletions_have_no_value() {
        let mut gone = change(b"", Datatype::RAW);
        gone.event = ChangeKind::Expiration;
        gone.time_s = 1_600_000_000;
        gone.key = b"\xfe";
        let expected = json!({
            "event": "expiration", "key_base64": "/g==", "scope": "_default",
            "collection": "chairs", "vb": 12, "seqno": 345, "cas": "1600000000123000064",
            "rev": 3, "delete_time": 1_600_000_000,
        });
        assert_eq!(line(&gone), expected);
    }

    #[test]
    fn cloud_event_has_required_attributes() {
        let event = |change: &Change<'_>| -> Value {
            let mut out = Vec::new();
            change.write_cloud_event("/buckets/travel", VbUuid(0xabc), &mut out);
            serde_json::from_slice(&out).unwrap()
        };
        let expected = json!({
            "specversion": "1.0", "type": "settee.document.mutation", "source": "/buckets/travel",
            "id": "abc-12-345", "subject": "sofa", "time": "2020-09-13T12:26:40.123000064Z",
            "scope": "_default", "collection": "chairs", "vbucket": 12, "seqno": "345",
            "cas": "1600000000123000064", "datacontenttype": "application/json",
            "data": {"seats": 3},
        });
        assert_eq!(event(&change(b"{\"seats\":3}", Datatype::JSON)), expected);
        assert_eq!(
            event(&change(b"\xff", Datatype::RAW))["data_base64"],
            "/w=="
        );
        let mut gone = change(b"", Datatype::RAW);
        gone.event = ChangeKind::Deletion;
        assert_eq!(event(&gone).get("data"), None);
        assert_eq!(event(&gone)["type"], "settee.document.deletion");
    }

    #[test]
    fn rollback_is_written_as_json_and_cloud_event() {
        let mut out = Vec::new();
        void_after(VbId(5), Seqno(400), &mut out);
        let expected = json!({"event": "rollback", "vb": 5, "seqno": 400});
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        out.clear();
        cloud_rollback("/buckets/travel", VbId(5), Seqno(400), &mut out);
        let event: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(event["type"], "settee.stream.rollback");
        assert_eq!(
            (&event["vbucket"], &event["seqno"]),
            (&json!(5), &json!("400"))
        );
    }
}
