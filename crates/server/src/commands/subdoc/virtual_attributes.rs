//! Attributes that are made when they are asked for: `$document`, `$vbucket`, `$XTOC`.

use engine::Got;
use model::{Datatype, Now, VbUuid};
use serde_json::json;
use wire::Status;

use crate::subdoc::{Component, Path, find};

/// Bytes of an attribute's name at most.
const NAME_BYTES_MAX: usize = 15;
const NS_PER_S: u64 = 1_000_000_000;

/// A document as virtual attributes show it.
pub(super) struct Shown<'a> {
    pub(super) got: &'a Got,
    /// Its plain value.
    pub(super) body: &'a [u8],
    pub(super) vb_uuid: VbUuid,
    pub(super) now: Now,
}

/// The text of the attribute that a path begins with, and the rest of the path.
///
/// # Errors
/// `SUBDOC_PATH_ENOENT` for every attribute that is not a virtual one: documents have none.
fn attribute<'p>(shown: &Shown<'_>, path: Path<'p>) -> Result<(String, Path<'p>), Status> {
    let mut components = path.components;
    if components.is_empty() {
        return Err(Status::XATTR_EINVAL);
    }
    let Component::Key(name) = components.remove(0) else {
        return Err(Status::XATTR_EINVAL);
    };
    let text = match &*name {
        b"$document" => document(shown),
        b"$vbucket" => {
            // Whole seconds: SDKs' transactions take it for them, as they do expiries.
            let now = (shown.now.unix_ns / NS_PER_S).to_string();
            json!({ "HLC": { "now": now, "mode": "real" } }).to_string()
        }
        b"$XTOC" => "[]".to_owned(),
        name if name.len() > NAME_BYTES_MAX => return Err(Status::XATTR_EINVAL),
        [b'$', _, ..] => return Err(Status::SUBDOC_XATTR_UNKNOWN_VATTR),
        [b'$' | b'_'] => return Err(Status::XATTR_EINVAL),
        [first, ..] if *first != b'_' && first.is_ascii_punctuation() => {
            return Err(Status::XATTR_EINVAL);
        }
        _ => return Err(Status::SUBDOC_PATH_ENOENT),
    };
    Ok((text, Path { components }))
}

/// The part of an attribute that a path leads to, and the text in which it is.
pub(super) fn find_in_attribute(
    shown: &Shown<'_>,
    path: Path<'_>,
) -> Result<(String, crate::subdoc::Span), Status> {
    let (text, rest) = attribute(shown, path)?;
    let span = find(text.as_bytes(), &rest)?;
    Ok((text, span))
}

fn document(shown: &Shown<'_>) -> String {
    let document = &shown.got.document;
    let meta = document.meta();
    let mut names: Vec<&str> = Vec::new();
    for (bit, name) in [
        (Datatype::JSON, "json"),
        (Datatype::SNAPPY, "snappy"),
        (Datatype::XATTR, "xattr"),
    ] {
        if meta.datatype.contains(bit) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names.push("raw");
    }
    json!({
        "CAS": format!("{:#018x}", meta.cas.0),
        "vbucket_uuid": format!("{:#018x}", shown.vb_uuid.0),
        "seqno": format!("{:#018x}", meta.seqno.0),
        "revid": meta.rev.to_string(),
        "exptime": meta.expiry,
        "flags": meta.flags,
        "value_bytes": shown.body.len(),
        "datatype": names,
        "deleted": false,
        "last_modified": (meta.cas.0 / NS_PER_S).to_string(),
        "value_crc32c": format!("{:#010x}", crc32c::crc32c(shown.body)),
    })
    .to_string()
}
