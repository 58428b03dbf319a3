//! Parser of RANGE_SCAN_CREATE's JSON.

use std::ops::Bound;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bucket::{Sampling, ScanRequest};
use model::{CollectionId, Seqno, VbId, VbUuid};
use serde::Deserialize;

use crate::scanning::RequiredSeqno;

/// Bytes of a range's first or last key at most, without the collection prefix.
const KEY_BYTES_MAX: usize = 250;
const NAME_BYTES_MAX: usize = 50;
/// Default wait for a change that the view must contain.
const PERSISTED_WAIT: Duration = Duration::from_secs(1);

/// Error text about a request, for people.
type InvalidScan = &'static str;

#[derive(Deserialize)]
struct Json {
    collection: Option<String>,
    #[serde(default)]
    key_only: bool,
    #[serde(default)]
    include_xattrs: bool,
    range: Option<RangeJson>,
    sampling: Option<SamplingJson>,
    snapshot_requirements: Option<SnapshotJson>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct RangeJson {
    start: Option<String>,
    excl_start: Option<String>,
    end: Option<String>,
    excl_end: Option<String>,
}

#[derive(Deserialize)]
struct SamplingJson {
    samples: u64,
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
struct SnapshotJson {
    vb_uuid: String,
    seqno: u64,
    #[serde(default)]
    seqno_exists: bool,
    timeout_ms: Option<u64>,
}

/// Reads the JSON of a request.
pub(super) fn read(
    vb: VbId,
    text: &[u8],
) -> Result<(ScanRequest, Option<RequiredSeqno>), InvalidScan> {
    let json: Json =
        serde_json::from_slice(text).map_err(|_| "the value is not the JSON of a range scan")?;
    let collection = match json.collection {
        None => CollectionId::DEFAULT,
        Some(digits) => collection(&digits)?,
    };
    let (from, to, sampling) = match (json.range, json.sampling) {
        (Some(range), None) => {
            let from = bound(range.start, range.excl_start)
                .ok_or("either start or excl_start is needed, a key in base64")?;
            let to = bound(range.end, range.excl_end)
                .ok_or("either end or excl_end is needed, a key in base64")?;
            (from, to, None)
        }
        (None, Some(SamplingJson { samples: 0, .. })) => {
            return Err("a sample needs at least one document");
        }
        (None, Some(SamplingJson { samples, seed })) => {
            let sampling = Sampling { samples, seed };
            (Bound::Unbounded, Bound::Unbounded, Some(sampling))
        }
        _ => return Err("either range or sampling is needed"),
    };
    let name = json.name.unwrap_or_default();
    if name.len() > NAME_BYTES_MAX {
        return Err("the name is longer than 50 bytes");
    }
    let needs = json.snapshot_requirements.as_ref().map(needs).transpose()?;
    let exists = json
        .snapshot_requirements
        .filter(|needs| needs.seqno_exists);
    let ask = ScanRequest {
        vb,
        collection,
        from,
        to,
        keys_only: json.key_only,
        attributes: json.include_xattrs,
        sampling,
        exists: exists.map(|needs| Seqno(needs.seqno)),
        name,
    };
    Ok((ask, needs))
}

fn needs(json: &SnapshotJson) -> Result<RequiredSeqno, InvalidScan> {
    let uuid = json.vb_uuid.parse();
    Ok(RequiredSeqno {
        uuid: VbUuid(uuid.map_err(|_| "vb_uuid is not a decimal number")?),
        seqno: Seqno(json.seqno),
        wait: json
            .timeout_ms
            .map_or(PERSISTED_WAIT, Duration::from_millis),
    })
}

fn collection(digits: &str) -> Result<CollectionId, InvalidScan> {
    let number = u32::from_str_radix(digits, 16);
    let plain = !digits.starts_with('+');
    number
        .ok()
        .filter(|_| plain)
        .map(CollectionId)
        .ok_or("collection is not a hexadecimal number")
}

/// Reads one end of a range: inclusive or exclusive, not both.
fn bound(included: Option<String>, excluded: Option<String>) -> Option<Bound<Vec<u8>>> {
    let key = |text: String| {
        let key = STANDARD.decode(text).ok();
        key.filter(|key| key.len() <= KEY_BYTES_MAX)
    };
    match (included, excluded) {
        (Some(text), None) => key(text).map(Bound::Included),
        (None, Some(text)) => key(text).map(Bound::Excluded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> InvalidScan {
        read(VbId(0), text.as_bytes()).unwrap_err()
    }

    #[test]
    fn all_fields_are_parsed() {
        let text = r#"{"collection":"1f","key_only":true,"include_xattrs":true,"name":"mine",
            "range":{"start":"YQ==","excl_end":"eg=="},
            "snapshot_requirements":{"vb_uuid":"18446744073709551615","seqno":7,
            "seqno_exists":true,"timeout_ms":18446744073709551615},"unknown":[]}"#;
        let (ask, needs) = read(VbId(3), text.as_bytes()).unwrap();
        assert_eq!((ask.vb, ask.collection), (VbId(3), CollectionId(31)));
        assert_eq!(ask.from, Bound::Included(b"a".to_vec()));
        assert_eq!(ask.to, Bound::Excluded(b"z".to_vec()));
        assert!(ask.keys_only && ask.attributes && ask.sampling.is_none());
        assert_eq!((ask.exists, ask.name.as_str()), (Some(Seqno(7)), "mine"));
        let needs = needs.unwrap();
        assert_eq!((needs.uuid, needs.seqno), (VbUuid(u64::MAX), Seqno(7)));
        assert_eq!(needs.wait, Duration::from_millis(u64::MAX));
    }

    #[test]
    fn omitted_fields_get_defaults() {
        let text = br#"{"sampling":{"samples":5}}"#;
        let (ask, needs) = read(VbId(0), text).unwrap();
        assert_eq!(ask.collection, CollectionId::DEFAULT);
        let sampling = Sampling {
            samples: 5,
            seed: 0,
        };
        assert_eq!(ask.sampling, Some(sampling));
        assert!(needs.is_none() && ask.exists.is_none() && !ask.keys_only && !ask.attributes);
    }

    #[test]
    fn invalid_requests_are_refused() {
        let range = r#""range":{"start":"YQ==","end":"YQ=="}"#;
        for text in ["", "7", "{\"key_only\":1}", "{\"range\":[]}", "{\"range\""] {
            assert_eq!(wrong(text), "the value is not the JSON of a range scan");
        }
        assert_eq!(wrong("{}"), "either range or sampling is needed");
        assert_eq!(
            wrong(&format!("{{{range},\"sampling\":{{\"samples\":1}}}}")),
            "either range or sampling is needed"
        );
        for ends in [
            "",
            r#""start":"YQ==","excl_start":"YQ==","#,
            r#""start":"?","#,
        ] {
            let text = format!(r#"{{"range":{{{ends}"end":"YQ=="}}}}"#);
            assert!(wrong(&text).contains("excl_start"), "{text}");
        }
        let long = STANDARD.encode([b'k'; 251]);
        let text = format!(r#"{{"range":{{"start":"YQ==","end":"{long}"}}}}"#);
        assert!(wrong(&text).contains("excl_end"));
        assert!(wrong(r#"{"sampling":{"samples":0}}"#).contains("one document"));
        for digits in ["g", "", "100000000", "+1", "-1"] {
            let text = format!("{{\"collection\":\"{digits}\",{range}}}");
            assert!(wrong(&text).contains("hexadecimal"), "{text}");
        }
        let name = "n".repeat(51);
        assert!(wrong(&format!("{{\"name\":\"{name}\",{range}}}")).contains("name"));
        let needs = r#""snapshot_requirements":{"vb_uuid":"0x7","seqno":1}"#;
        assert!(wrong(&format!("{{{needs},{range}}}")).contains("vb_uuid"));
    }
}
