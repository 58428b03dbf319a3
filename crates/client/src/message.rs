//! A request that borrows its parts, and an answer that owns its parts.

use model::{Cas, Datatype, DurabilityLevel, VbId};
use wire::{Durability, Envelope, Frame, Opaque, Opcode, RequestInfos, Status, TooLong};

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation.
    pub opcode: Opcode,
    /// The vBucket of the key; 0 where there is none.
    pub vbucket: VbId,
    /// Expected CAS, or [`Cas::ANY`].
    pub cas: Cas,
    /// Fixed-size arguments.
    pub extras: &'a [u8],
    /// The key as it is sent, with its collection prefix.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Durability level of the write, if any.
    pub durability: Option<DurabilityLevel>,
}

impl<'a> Request<'a> {
    /// Creates a request with nothing but its opcode.
    pub fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            vbucket: VbId(0),
            cas: Cas::ANY,
            extras: &[],
            key: &[],
            value: &[],
            durability: None,
        }
    }

    /// Creates a request with a key and a value.
    pub fn with(opcode: Opcode, key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key,
            value,
            ..Self::new(opcode)
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// A part is too long for its length field in the header; `out` is unchanged.
    pub fn encode(&self, opaque: Opaque, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let envelope = Envelope {
            vbucket: self.vbucket,
            opaque,
            cas: self.cas,
            datatype: Datatype::RAW,
            infos: RequestInfos {
                durability: self.durability.map(|level| Durability {
                    level,
                    timeout_ms: None,
                }),
                ..RequestInfos::default()
            },
        };
        wire::encode_raw(
            self.opcode,
            &envelope,
            wire::RawParts {
                extras: self.extras,
                key: self.key,
                value: self.value,
            },
            out,
        )
    }
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status of the operation.
    pub status: Status,
    /// CAS of the document.
    pub cas: Cas,
    /// Encoding of the value: JSON, compressed, with extended attributes.
    pub datatype: Datatype,
    /// Fixed-size results.
    pub extras: Vec<u8>,
    /// The key, where the server sends it back.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Answer {
    /// Copies an answer out of the read buffer.
    pub fn of(frame: &Frame<'_>) -> Self {
        Self {
            status: frame.status(),
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            extras: frame.extras.to_vec(),
            key: frame.key.to_vec(),
            value: frame.value.to_vec(),
        }
    }

    /// Returns the text of an unsuccessful answer beyond its status.
    ///
    /// Shape: the text of a JSON error body, else short printable text, else nothing.
    pub fn context(&self) -> Option<String> {
        let json: Option<serde_json::Value> = serde_json::from_slice(&self.value).ok();
        if let Some(json) = json {
            let text = json.pointer("/error/context")?.as_str()?;
            return Some(text.to_owned());
        }
        let text = std::str::from_utf8(&self.value).ok()?;
        let short = !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control);
        short.then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GET and SET of the protocol specification, Appendix A.
    #[test]
    fn request_encodes_as_in_the_protocol_specification() {
        let opaque = Opaque([0xde, 0xad, 0xbe, 0xef]);
        let get = Request {
            vbucket: VbId(0x73),
            key: b"\0foo",
            ..Request::new(Opcode::GET)
        };
        let mut out = Vec::new();
        assert_eq!(get.encode(opaque, &mut out), Ok(()));
        let expected = b"\x80\0\0\x04\0\0\0\x73\0\0\0\x04\xde\xad\xbe\xef\0\0\0\0\0\0\0\0\0foo";
        assert_eq!(out, expected);
    }

    #[test]
    fn key_longer_than_its_length_field_is_refused() {
        let key = vec![b'k'; 65_536];
        let mut out = Vec::new();
        assert!(
            Request::with(Opcode::GET, &key, b"")
                .encode(Opaque([0; 4]), &mut out)
                .is_err()
        );
        assert!(out.is_empty());
    }

    #[test]
    fn context_is_json_text_or_short_printable_text() {
        let context = |value: &[u8]| {
            let answer = Answer {
                status: Status(4),
                cas: Cas(0),
                datatype: Datatype::RAW,
                extras: Vec::new(),
                key: Vec::new(),
                value: value.to_vec(),
            };
            answer.context()
        };
        assert_eq!(
            context(br#"{"error":{"context":"why"}}"#).as_deref(),
            Some("why")
        );
        assert_eq!(context(b"Not found").as_deref(), Some("Not found"));
        assert_eq!(context(b"{}"), None);
        assert_eq!(context(b""), None);
        assert_eq!(context(b"\x01"), None);
    }
}
