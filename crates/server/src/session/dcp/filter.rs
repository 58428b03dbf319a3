//! The JSON value of a stream request: which collections, which stream.

use model::{CollectionId, Seqno};
use serde_json::{Map, Value};
use wire::Status;

use crate::session::Refusal;

/// The only scope there is.
const DEFAULT_SCOPE: u32 = 0;
/// Most bytes that are parsed.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// What a stream request asks for beyond seqnos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The stream's own number.
    pub(crate) stream_id: Option<u16>,
    /// Up to here the peer knows which tombstones are gone.
    pub(crate) purge_seqno: Seqno,
    /// Whether collections were named, rather than all taken.
    pub(crate) filtered: bool,
}

fn invalid(reason: &'static str) -> Refusal {
    Refusal::because(Status::EINVAL, reason)
}

fn hex(value: &Value) -> Option<u64> {
    let text = value.as_str()?.strip_prefix("0x").or(value.as_str())?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

impl Filter {
    /// Reads the value; empty for everything. Keys that mean nothing are passed over.
    ///
    /// # Errors
    /// EINVAL for what is no such JSON, UNKNOWN_COLLECTION and UNKNOWN_SCOPE for what is not
    /// here.
    pub(crate) fn read(value: &[u8]) -> Result<Self, Refusal> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(invalid("the filter is too long"));
        }
        let json: Value =
            serde_json::from_slice(value).map_err(|_| invalid("the filter is not JSON"))?;
        let Value::Object(fields) = &json else {
            return Err(invalid("the filter is no object"));
        };
        if let Some(uid) = fields.get("uid") {
            // A manifest that this node has yet to see would be a reason to wait; there is one
            // manifest only, and whoever knows a newer one knows it from elsewhere.
            hex(uid).ok_or_else(|| invalid("uid is no hexadecimal text"))?;
        }
        let mut filter = Self::default();
        filter.read_collections(fields)?;
        if let Some(id) = fields.get("sid") {
            let id = id.as_u64().and_then(|id| u16::try_from(id).ok());
            filter.stream_id = Some(
                id.filter(|&id| id != 0)
                    .ok_or_else(|| invalid("sid is no number from 1 to 65535"))?,
            );
        }
        if let Some(purge) = fields.get("purge_seqno") {
            let purge = purge.as_str().and_then(|text| text.parse().ok());
            filter.purge_seqno = Seqno(purge.ok_or_else(|| invalid("purge_seqno is no number"))?);
        }
        Ok(filter)
    }

    fn read_collections(&mut self, fields: &Map<String, Value>) -> Result<(), Refusal> {
        let (scope, collections) = (fields.get("scope"), fields.get("collections"));
        if scope.is_some() && collections.is_some() {
            return Err(invalid("scope and collections exclude each other"));
        }
        if let Some(scope) = scope {
            let id = hex(scope).ok_or_else(|| invalid("scope is no hexadecimal text"))?;
            if id != u64::from(DEFAULT_SCOPE) {
                return Err(Status::UNKNOWN_SCOPE.into());
            }
        }
        if let Some(collections) = collections {
            let list = collections
                .as_array()
                .filter(|list| !list.is_empty())
                .ok_or_else(|| invalid("collections is no list of collections"))?;
            for one in list {
                let id = hex(one).ok_or_else(|| invalid("a collection is no hexadecimal text"))?;
                if id != u64::from(CollectionId::DEFAULT.0) {
                    return Err(Refusal::UnknownCollection);
                }
            }
        }
        self.filtered = scope.is_some() || collections.is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<Status> {
        match Filter::read(text.as_bytes()) {
            Ok(_) => None,
            Err(Refusal::Status(status, _)) => Some(status),
            Err(Refusal::UnknownCollection) => Some(Status::UNKNOWN_COLLECTION),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_understood() {
        let filter = |text: &str| Filter::read(text.as_bytes()).expect("it is valid");
        assert_eq!(filter(""), Filter::default());
        assert_eq!(filter("{}"), Filter::default());
        assert_eq!(filter(r#"{"uid":"0","else":[1]}"#), Filter::default());
        let full = filter(r#"{"uid":"1f","collections":["0"],"sid":7,"purge_seqno":"12"}"#);
        assert_eq!(full.stream_id, Some(7));
        assert_eq!(full.purge_seqno, Seqno(12));
        assert!(full.filtered);
        assert!(filter(r#"{"scope":"0"}"#).filtered);
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "[]",
            "1",
            "{",
            "\u{ff}",
            r#"{"uid":1}"#,
            r#"{"uid":"x"}"#,
            r#"{"uid":""}"#,
            r#"{"sid":0}"#,
            r#"{"sid":65536}"#,
            r#"{"sid":"1"}"#,
            r#"{"collections":[]}"#,
            r#"{"collections":"0"}"#,
            r#"{"collections":[0]}"#,
            r#"{"collections":["0"],"scope":"0"}"#,
            r#"{"scope":0}"#,
            r#"{"purge_seqno":5}"#,
        ] {
            assert_eq!(status(text), Some(Status::EINVAL), "{text}");
        }
        let unknown = [
            (r#"{"collections":["0","8"]}"#, Status::UNKNOWN_COLLECTION),
            (r#"{"scope":"8"}"#, Status::UNKNOWN_SCOPE),
        ];
        for (text, expected) in unknown {
            assert_eq!(status(text), Some(expected), "{text}");
        }
    }
}
