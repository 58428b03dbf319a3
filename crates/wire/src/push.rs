//! Requests from a server to its client.

use model::{Cas, Datatype};

use crate::bytes::{EXTRAS, Field, layout};
use crate::frame::{Header, Magic, Opaque};
use crate::{Frame, HEADER_BYTES, Malformed, Opcode, ServerOpcode};

/// Revision of a cluster map: newer means a higher epoch, then a higher revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigRev {
    /// Increased when the revisions restart; -1 or at least 1.
    pub epoch: i64,
    /// Number of the revision.
    pub rev: i64,
}

layout! { ConfigRev { epoch, rev } }

const REVISION_BYTES: u8 = 16;

/// The cluster map of a bucket changed.
///
/// Shape: the brief form has no map, the full form has it as the value. No answer is expected.
///
/// Source: protocol section 1.4, section 9. Test: `push::tests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterMapNotification<'a> {
    /// Revision of the map.
    pub revision: ConfigRev,
    /// Name of the bucket, at most 65,535 bytes; empty for the map without a bucket.
    pub bucket: &'a [u8],
    /// The map as JSON, `None` in the brief form.
    pub map: Option<&'a [u8]>,
    /// Datatype of the map; raw in the brief form.
    pub datatype: Datatype,
}

impl<'a> ClusterMapNotification<'a> {
    /// Appends the frame. Panics if a part is too long for its length field.
    pub fn encode(&self, opaque: Opaque, out: &mut Vec<u8>) {
        let map = self.map.unwrap_or_default();
        let body_bytes = usize::from(REVISION_BYTES)
            .saturating_add(self.bucket.len())
            .saturating_add(map.len());
        let header = Header {
            magic: Magic::ServerRequest,
            opcode: Opcode(ServerOpcode::CLUSTERMAP_CHANGE_NOTIFICATION.0),
            framing_len: 0,
            key_len: u16::try_from(self.bucket.len()).expect("a name has at most 65535 bytes"),
            extras_len: REVISION_BYTES,
            datatype: self.datatype,
            vbucket_or_status: 0,
            body_len: u32::try_from(body_bytes).expect("a body has less than 4 GiB"),
            opaque,
            cas: Cas::ANY,
        };
        out.reserve(HEADER_BYTES.saturating_add(body_bytes));
        out.extend_from_slice(&header.to_bytes());
        self.revision.write(out);
        out.extend_from_slice(self.bucket);
        out.extend_from_slice(map);
    }

    /// Parses a pushed frame.
    ///
    /// # Errors
    /// The frame is not a push, is another push, or its extras do not have 16 bytes.
    pub fn parse(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let opcode = ServerOpcode(frame.header.opcode.0);
        if frame.header.magic != Magic::ServerRequest
            || opcode != ServerOpcode::CLUSTERMAP_CHANGE_NOTIFICATION
        {
            return Err(Malformed::new("not a cluster map notification"));
        }
        Ok(Self {
            revision: Field::whole(frame.extras, EXTRAS)?,
            bucket: frame.key,
            map: Some(frame.value).filter(|map| !map.is_empty()),
            datatype: frame.header.datatype,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, Limits, decode};

    #[test]
    fn the_brief_form_byte_by_byte() {
        let brief = ClusterMapNotification {
            revision: ConfigRev { epoch: 1, rev: 7 },
            bucket: b"b",
            map: None,
            datatype: Datatype::RAW,
        };
        let mut out = Vec::new();
        brief.encode(Opaque([1, 2, 3, 4]), &mut out);
        let mut expected = vec![0x82, 1, 0, 1, 16, 0, 0, 0, 0, 0, 0, 17, 1, 2, 3, 4];
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        expected.push(b'b');
        assert_eq!(out, expected);
    }

    #[test]
    fn another_push_is_refused() {
        let full = ClusterMapNotification {
            revision: ConfigRev { epoch: -1, rev: 7 },
            bucket: b"",
            map: Some(b"{}"),
            datatype: Datatype::JSON,
        };
        let mut out = Vec::new();
        full.encode(Opaque::default(), &mut out);
        let parse = |bytes: &[u8]| match decode(bytes, Limits::AUTHENTICATED) {
            Ok(Decoded::Frame { frame, .. }) => {
                ClusterMapNotification::parse(&frame).map(|one| one.revision)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(&out), Ok(full.revision));
        out[1] = 2;
        assert!(parse(&out).is_err());
        out[1] = 1;
        out[0] = 0x80;
        assert!(parse(&out).is_err());
    }
}
