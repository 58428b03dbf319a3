//! The JSON value of a stream request: filter and stream ID.

use collections::{COLLECTIONS_MAX, Manifest};
use engine::VBucket;
use engine::dcp::StreamFilter;
use model::{CollectionId, ScopeId, Seqno};
use serde_json::{Map, Value};
use wire::Status;

use crate::outcome::Refusal;

/// Bytes of JSON that are parsed at most.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Options of a stream request beyond seqnos.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// ID that the consumer gave the stream.
    pub(crate) stream_id: Option<u16>,
    /// Seqno up to which the peer knows which tombstones were purged.
    pub(crate) purge_seqno: Seqno,
    /// Collections or scope to stream; `None` for everything.
    pub(crate) limit: Option<Limit>,
}

/// Limit of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// These collections.
    Collections(Vec<CollectionId>),
    /// The collections of a scope.
    Scope(ScopeId),
}

impl Limit {
    /// Returns the engine's filter for a stream of this vBucket.
    pub(crate) fn for_stream(self, vbucket: &VBucket) -> StreamFilter {
        match self {
            Self::Collections(ids) => StreamFilter::Collections(ids.into()),
            Self::Scope(scope) => StreamFilter::scope(scope, vbucket),
        }
    }
}

fn hex(value: &Value) -> Option<u64> {
    let text = value.as_str()?.strip_prefix("0x").or(value.as_str())?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

impl Filter {
    /// Reads the value; empty for everything. It ignores unknown keys.
    ///
    /// # Errors
    /// EINVAL for invalid JSON; UNKNOWN_COLLECTION and UNKNOWN_SCOPE for an ID that is not in the manifest.
    pub(crate) fn read(value: &[u8], manifest: &Manifest) -> Result<Self, Refusal> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refusal::invalid("the filter is too long"));
        }
        let json: Value = serde_json::from_slice(value)
            .map_err(|_| Refusal::invalid("the filter is not JSON"))?;
        let Value::Object(fields) = &json else {
            return Err(Refusal::invalid("the filter is no object"));
        };
        if let Some(uid) = fields.get("uid") {
            // A consumer with a newer manifest has it from a node that this one follows. A collection that it
            // asks for is either here already or unknown, so the UID itself is not compared.
            hex(uid).ok_or_else(|| Refusal::invalid("uid is no hexadecimal text"))?;
        }
        let mut filter = Self {
            limit: read_limit(fields, manifest)?,
            ..Self::default()
        };
        if let Some(id) = fields.get("sid") {
            let id = id.as_u64().and_then(|id| u16::try_from(id).ok());
            filter.stream_id = Some(
                id.filter(|&id| id != 0)
                    .ok_or_else(|| Refusal::invalid("sid is no number from 1 to 65535"))?,
            );
        }
        if let Some(purge) = fields.get("purge_seqno") {
            let purge = purge.as_str().and_then(|text| text.parse().ok());
            filter.purge_seqno =
                Seqno(purge.ok_or_else(|| Refusal::invalid("purge_seqno is no number"))?);
        }
        Ok(filter)
    }
}

fn read_limit(fields: &Map<String, Value>, manifest: &Manifest) -> Result<Option<Limit>, Refusal> {
    let number = |value: &Value| hex(value).and_then(|id| u32::try_from(id).ok());
    let list = match (fields.get("scope"), fields.get("collections")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("scope and collections exclude each other"));
        }
        (Some(scope), None) => {
            let id =
                number(scope).ok_or_else(|| Refusal::invalid("scope is no hexadecimal text"))?;
            let known = manifest.scope(ScopeId(id)).ok_or(Status::UNKNOWN_SCOPE)?;
            return Ok(Some(Limit::Scope(known.id)));
        }
        (None, Some(list)) => list,
    };
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| Refusal::invalid("collections is no list of collections"))?;
    let mut ids = Vec::with_capacity(list.len().min(COLLECTIONS_MAX));
    for one in list {
        let id =
            number(one).ok_or_else(|| Refusal::invalid("a collection is no hexadecimal text"))?;
        let known = manifest.collection(CollectionId(id));
        let (_, collection) = known.ok_or(Refusal::UnknownCollection)?;
        if !ids.contains(&collection.id) {
            ids.push(collection.id);
        }
    }
    Ok(Some(Limit::Collections(ids)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<Status> {
        match Filter::read(text.as_bytes(), &Manifest::default()) {
            Ok(_) => None,
            Err(Refusal::Status(status, _)) => Some(status),
            Err(Refusal::UnknownCollection) => Some(Status::UNKNOWN_COLLECTION),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn filters_are_parsed() {
        let filter =
            |text: &str| Filter::read(text.as_bytes(), &Manifest::default()).expect("it is valid");
        assert_eq!(filter(""), Filter::default());
        assert_eq!(filter("{}"), Filter::default());
        assert_eq!(filter(r#"{"uid":"0","else":[1]}"#), Filter::default());
        let full = filter(r#"{"uid":"1f","collections":["0"],"sid":7,"purge_seqno":"12"}"#);
        assert_eq!(full.stream_id, Some(7));
        assert_eq!(full.purge_seqno, Seqno(12));
        assert_eq!(
            full.limit,
            Some(Limit::Collections(vec![CollectionId::DEFAULT]))
        );
        assert_eq!(
            filter(r#"{"scope":"0"}"#).limit,
            Some(Limit::Scope(ScopeId::DEFAULT))
        );
    }

    #[test]
    fn invalid_filters_are_refused() {
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
