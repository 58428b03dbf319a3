//! Virtual attributes, computed on request: `$document`, `$vbucket`, `$XTOC`.

use model::{Attributes, Datatype, Document, Meta, Now, VbUuid};
use serde_json::json;
use wire::Status;

const NS_PER_S: u64 = 1_000_000_000;

/// A document as the source of virtual attributes.
pub(super) struct Shown<'a> {
    /// The document or tombstone; `None` for one that is being created.
    pub(super) document: Option<&'a Document>,
    pub(super) attributes: Attributes<'a>,
    /// Plain body.
    pub(super) body: &'a [u8],
    pub(super) vb_uuid: VbUuid,
    pub(super) now: Now,
    /// Whether the peer may see system attributes.
    pub(super) system: bool,
}

/// Whether a name is that of a virtual attribute, known or unknown.
pub(super) fn is_virtual(name: &[u8]) -> bool {
    name.first() == Some(&b'$')
}

impl Shown<'_> {
    /// Returns the text of a virtual attribute.
    ///
    /// # Errors
    /// `SUBDOC_XATTR_UNKNOWN_VATTR` if there is none of that name.
    pub(super) fn text(&self, name: &[u8]) -> Result<String, Status> {
        Ok(match name {
            b"$document" => self.metadata(),
            b"$vbucket" => {
                // Whole seconds: SDKs' transactions read this value and expiries as seconds.
                let now = (self.now.unix_ns / NS_PER_S).to_string();
                json!({ "HLC": { "now": now, "mode": "real" } }).to_string()
            }
            b"$XTOC" => {
                let shown = |(name, _): &(&[u8], _)| self.system || name.first() != Some(&b'_');
                let names = self.attributes.iter().filter(shown);
                let names = names.map(|(name, _)| String::from_utf8_lossy(name));
                json!(names.collect::<Vec<_>>()).to_string()
            }
            _ => return Err(Status::SUBDOC_XATTR_UNKNOWN_VATTR),
        })
    }

    fn metadata(&self) -> String {
        let meta = self.document.map_or(Meta::default(), Document::meta);
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
            "vbucket_uuid": format!("{:#018x}", self.vb_uuid.0),
            "seqno": format!("{:#018x}", meta.seqno.0),
            "revid": meta.rev.to_string(),
            "exptime": meta.expiry,
            "flags": meta.flags,
            "value_bytes": self.body.len(),
            "datatype": names,
            "deleted": meta.kind.is_tombstone(),
            "last_modified": (meta.cas.0 / NS_PER_S).to_string(),
            "value_crc32c": format!("{:#010x}", crc32c::crc32c(self.body)),
        })
        .to_string()
    }
}
