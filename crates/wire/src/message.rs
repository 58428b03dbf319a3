//! Requests: the message, and its envelope.

use model::{Cas, Datatype, VbId};

use crate::frame::{Header, Magic};
use crate::{
    Frame, HEADER_BYTES, InfoError, Malformed, Opaque, Opcode, OpcodeInfo, OpcodeSupport, RawParts,
    RequestInfos, TooLong,
};

/// The frame is valid, but of another command than the requested message type.
pub(crate) const OTHER_COMMAND: Malformed = Malformed::new("frame is of another command");

/// The common fields of every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// vBucket of the key; 0 without a key.
    pub vbucket: VbId,
    /// Returned with the answer.
    pub opaque: Opaque,
    /// CAS that the document must have, or zero.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Optional arguments; any of them makes the frame flexible.
    pub infos: RequestInfos<'a>,
}

impl<'a> Envelope<'a> {
    /// Parses the envelope of a frame; checks its frame infos against the opcode.
    ///
    /// # Errors
    /// The frame infos are invalid, or the opcode does not accept them.
    #[inline]
    pub fn parse(frame: &Frame<'a>) -> Result<Self, InfoError> {
        let infos = if frame.frame_infos.is_empty() {
            RequestInfos::default()
        } else {
            let infos = RequestInfos::parse(frame.frame_infos)?;
            if let Some(info) = frame.header.opcode.info() {
                infos.check(info)?;
            }
            infos
        };
        Ok(Self {
            vbucket: frame.vbucket(),
            opaque: frame.header.opaque,
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            infos,
        })
    }

    /// Returns the envelope of a message of one change stream, without a document. `stream_id` is
    /// used on connections that negotiated stream ids, and makes the frame flexible.
    #[inline]
    pub fn of_stream(vbucket: VbId, opaque: Opaque, stream_id: Option<u16>) -> Self {
        Self {
            vbucket,
            opaque,
            infos: RequestInfos {
                stream_id,
                ..RequestInfos::default()
            },
            ..Self::default()
        }
    }
}

/// A message of a client.
///
/// The envelope is not part of it: CAS, datatype and vBucket stay in the frame, or come from an
/// [`Envelope`] when the message is sent.
pub trait Message<'a>: Sized {
    /// Returns the opcode, which includes all fields that are not in the body.
    fn opcode(&self) -> Opcode;

    /// Reads a frame that [`OpcodeInfo::check`] has accepted.
    ///
    /// # Errors
    /// The frame is of another command, or breaks a rule beyond lengths.
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed>;

    /// Appends the extras.
    fn write_extras(&self, _out: &mut Vec<u8>) {}

    /// Returns the key.
    fn key(&self) -> &[u8] {
        &[]
    }

    /// Appends the value.
    fn write_value(&self, _out: &mut Vec<u8>) {}

    /// Checks and reads a frame. No allocation.
    ///
    /// # Errors
    /// The frame breaks a rule of its opcode, or is not such a message.
    fn parse(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match checked(frame)? {
            Some(_) => Self::read(frame),
            None => Err(OTHER_COMMAND),
        }
    }

    /// Appends the frame.
    ///
    /// # Errors
    /// A part is longer than a frame can carry; `out` is unchanged.
    fn encode(&self, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let frame = Outgoing {
            opcode: self.opcode(),
            envelope,
            key: self.key(),
        };
        frame.append(
            out,
            |out| self.write_extras(out),
            |out| self.write_value(out),
        )
    }
}

/// Appends a frame with any parts, also with parts that no message allows.
///
/// # Errors
/// A part is longer than a frame can carry; `out` is unchanged.
pub fn encode_raw(
    opcode: Opcode,
    envelope: &Envelope<'_>,
    parts: RawParts<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let frame = Outgoing {
        opcode,
        envelope,
        key: parts.key,
    };
    frame.append(
        out,
        |out| out.extend_from_slice(parts.extras),
        |out| out.extend_from_slice(parts.value),
    )
}

struct Outgoing<'e> {
    opcode: Opcode,
    envelope: &'e Envelope<'e>,
    key: &'e [u8],
}

impl Outgoing<'_> {
    fn append(
        &self,
        out: &mut Vec<u8>,
        extras: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLong> {
        let start = out.len();
        let result = self.try_append(out, extras, value);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn try_append(
        &self,
        out: &mut Vec<u8>,
        extras: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLong> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let infos_at = out.len();
        self.envelope.infos.encode(out)?;
        let extras_at = out.len();
        extras(out);
        let key_at = out.len();
        out.extend_from_slice(self.key);
        value(out);
        let framing = extras_at.saturating_sub(infos_at);
        let key_bytes_max = if framing > 0 { 0xff } else { 0xffff };
        let key_len = Some(self.key.len()).filter(|&len| len <= key_bytes_max);
        let header = Header {
            magic: if framing > 0 {
                Magic::AltClientRequest
            } else {
                Magic::ClientRequest
            },
            opcode: self.opcode,
            framing_len: u8::try_from(framing).map_err(|_| TooLong {
                part: "frame infos",
            })?,
            key_len: key_len.ok_or(TooLong { part: "key" })? as u16,
            extras_len: u8::try_from(key_at.saturating_sub(extras_at))
                .map_err(|_| TooLong { part: "extras" })?,
            datatype: self.envelope.datatype,
            vbucket_or_status: self.envelope.vbucket.0,
            body_len: u32::try_from(out.len().saturating_sub(infos_at))
                .map_err(|_| TooLong { part: "body" })?,
            opaque: self.envelope.opaque,
            cas: self.envelope.cas,
        };
        if let Some(place) = out.get_mut(start..infos_at) {
            place.copy_from_slice(&header.to_bytes());
        }
        Ok(())
    }
}

/// Checks a request by its opcode's row, and returns the row; `None` without a known opcode.
#[inline]
pub(crate) fn checked(frame: &Frame<'_>) -> Result<Option<&'static OpcodeInfo>, Malformed> {
    if !frame.header.magic.is_client_request() {
        return Err(Malformed::new("not a request of a client"));
    }
    match frame.header.opcode.info() {
        Some(info) if info.standing == OpcodeSupport::Known => {
            info.check(frame)?;
            Ok(Some(info))
        }
        _ => Ok(None),
    }
}

/// Implements [`Message`] for a struct. Takes its opcode, or the fields given by the opcode (`by`)
/// with the opcode for each combination; then the fields in the extras in their order, and those in
/// the key and the value. A preceding attribute applies to the function `read`.
macro_rules! message {
    ($(#[$hot:meta])* $name:ident $(<$life:lifetime>)? = $opcode:ident; $($parts:tt)*) => {
        message! { $(#[$hot])* $name $(<$life>)? by () { $opcode: (), } $($parts)* }
    };
    (
        $(#[$hot:meta])* $name:ident $(<$life:lifetime>)? by ($($by:ident,)*) { $($opcode:ident: $form:tt,)+ }
        $(extras: $($extra:ident),+;)?
        $(key: $key:ident;)?
        $(value: $value:ident;)?
    ) => {
        impl<'a> $crate::Message<'a> for $name $(<$life>)? {
            fn opcode(&self) -> $crate::Opcode {
                match ($(self.$by,)*) {
                    $($form => $crate::Opcode::$opcode,)+
                }
            }

            $(#[$hot])*
            fn read(frame: &$crate::Frame<'a>) -> Result<Self, $crate::Malformed> {
                let ($($by,)*) = match frame.header.opcode {
                    $($crate::Opcode::$opcode => Ok($form),)+
                    _ => Err($crate::message::OTHER_COMMAND),
                }?;
                $(
                    let extras = &mut $crate::bytes::Reader::new(frame.extras);
                    $(let $extra = extras.field()?;)+
                )?
                Ok(Self {
                    $($by,)*
                    $($($extra,)+)?
                    $($key: frame.key,)?
                    $($value: $crate::bytes::Reader::new(frame.value).field()?,)?
                })
            }

            $(
                fn write_extras(&self, out: &mut Vec<u8>) {
                    $($crate::bytes::Field::write(&self.$extra, out);)+
                }
            )?

            $(
                fn key(&self) -> &[u8] {
                    self.$key
                }
            )?

            $(
                fn write_value(&self, out: &mut Vec<u8>) {
                    $crate::bytes::Field::write(&self.$value, out);
                }
            )?
        }
    };
}
pub(crate) use message;
