//! The 24-byte header, and the parts of the body after it.

use std::fmt;

use model::{Cas, Datatype, VbId};

use crate::bytes::debug_without_value;
use crate::{Opcode, Status};

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 24;

/// First byte of a frame: the sender's side, and one of two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Magic {
    /// Request of a client.
    ClientRequest = 0x80,
    /// Request of a client with frame infos; its key length is one byte.
    AltClientRequest = 0x08,
    /// Answer to a client.
    ClientResponse = 0x81,
    /// Answer to a client with frame infos; its key length is one byte.
    AltClientResponse = 0x18,
    /// Request that a server pushes to its client; the opcode is a [`crate::ServerOpcode`].
    ServerRequest = 0x82,
    /// A client's answer to a push.
    ServerResponse = 0x83,
}

impl Magic {
    /// Returns the magic of a byte; `None` if it starts no frame.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x80 => Some(Self::ClientRequest),
            0x08 => Some(Self::AltClientRequest),
            0x81 => Some(Self::ClientResponse),
            0x18 => Some(Self::AltClientResponse),
            0x82 => Some(Self::ServerRequest),
            0x83 => Some(Self::ServerResponse),
            _ => None,
        }
    }

    /// Whether bytes 2 and 3 are the lengths of frame infos and key, instead of one key length.
    pub fn is_flexible(self) -> bool {
        matches!(self, Self::AltClientRequest | Self::AltClientResponse)
    }

    /// Whether it is a client's request.
    pub fn is_client_request(self) -> bool {
        matches!(self, Self::ClientRequest | Self::AltClientRequest)
    }

    /// Whether it is a server's answer.
    pub fn is_client_response(self) -> bool {
        matches!(self, Self::ClientResponse | Self::AltClientResponse)
    }
}

/// Four bytes that an answer repeats unchanged; not a number, so there is no byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opaque(pub [u8; 4]);

/// The fields of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Direction and layout.
    pub magic: Magic,
    /// Opcode of the request or of the answered request; may be unknown.
    pub opcode: Opcode,
    /// Size of the frame infos in bytes; 0 unless the magic is flexible.
    pub framing_len: u8,
    /// Size of the key in bytes; at most 255 if the magic is flexible.
    pub key_len: u16,
    /// Size of the extras in bytes.
    pub extras_len: u8,
    /// Datatype of the value, as sent.
    pub datatype: Datatype,
    /// vBucket of a request, status of a response.
    pub vbucket_or_status: u16,
    /// Size of the body in bytes: frame infos, extras, key and value.
    pub body_len: u32,
    /// Repeated in the answer.
    pub opaque: Opaque,
    /// CAS of a revision, or zero.
    pub cas: Cas,
}

impl Header {
    #[inline]
    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let [
            magic,
            opcode,
            len_a,
            len_b,
            extras_len,
            datatype,
            vb_a,
            vb_b,
            tail @ ..,
        ] = *bytes;
        let [b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = tail;
        let magic = Magic::from_byte(magic).ok_or(FrameError::Magic(magic))?;
        let (framing_len, key_len) = if magic.is_flexible() {
            (len_a, u16::from(len_b))
        } else {
            (0, u16::from_be_bytes([len_a, len_b]))
        };
        Ok(Self {
            magic,
            opcode: Opcode(opcode),
            framing_len,
            key_len,
            extras_len,
            datatype: Datatype(datatype),
            vbucket_or_status: u16::from_be_bytes([vb_a, vb_b]),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: Opaque([o0, o1, o2, o3]),
            cas: Cas(u64::from_be_bytes(cas)),
        })
    }

    /// Encodes the header.
    ///
    /// A flexible header has only the low byte of `key_len`, any other header no `framing_len`: a
    /// header that [`decode`] returned loses nothing by that.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let [key_high, key_low] = self.key_len.to_be_bytes();
        let first_len = if self.magic.is_flexible() {
            self.framing_len
        } else {
            key_high
        };
        let [vb_a, vb_b] = self.vbucket_or_status.to_be_bytes();
        let [b0, b1, b2, b3] = self.body_len.to_be_bytes();
        let [o0, o1, o2, o3] = self.opaque.0;
        let [c0, c1, c2, c3, c4, c5, c6, c7] = self.cas.0.to_be_bytes();
        [
            self.magic as u8,
            self.opcode.0,
            first_len,
            key_low,
            self.extras_len,
            self.datatype.0,
            vb_a,
            vb_b,
            b0,
            b1,
            b2,
            b3,
            o0,
            o1,
            o2,
            o3,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
        ]
    }
}

/// One message on the wire; every part borrows from the read buffer.
///
/// Shape: frame infos, extras, key, value, in this order without gaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// Frame infos, not split yet; empty unless the magic is flexible.
    pub frame_infos: &'a [u8],
    /// Fixed-size arguments.
    pub extras: &'a [u8],
    /// The key, with its collection prefix if the connection negotiated collections.
    pub key: &'a [u8],
    /// The rest of the body.
    pub value: &'a [u8],
    key_and_value: &'a [u8],
}

debug_without_value! { Frame { header, frame_infos, extras } text key, length value }

impl<'a> Frame<'a> {
    /// The vBucket of a request.
    pub fn vbucket(&self) -> VbId {
        VbId(self.header.vbucket_or_status)
    }

    /// The status of a response.
    pub fn status(&self) -> Status {
        Status(self.header.vbucket_or_status)
    }

    /// Key and value as one slice, so that one copy makes a document of both.
    pub fn key_and_value(&self) -> &'a [u8] {
        self.key_and_value
    }

    /// Size of the whole frame in bytes, header included.
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.header.body_len as usize)
    }
}

/// Maximum length of a body; above it the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a body in bytes.
    pub body_bytes_max: u32,
}

impl Limits {
    /// Limits before authentication: frames of 16 KiB, header included.
    pub const UNAUTHENTICATED: Self = Self {
        body_bytes_max: 16 * 1024 - 24,
    };
    /// Limits after authentication: frames of 30 MiB, header included.
    pub const AUTHENTICATED: Self = Self {
        body_bytes_max: 30 * 1024 * 1024 - 24,
    };
}

/// Result of [`decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole frame.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Size of the frame in the buffer; the next frame starts there.
        consumed: usize,
    },
    /// At least `more` further bytes are needed: the rest of the header while that is incomplete,
    /// else the rest of the frame. Never 0.
    Incomplete {
        /// Number of bytes to wait for.
        more: usize,
    },
}

/// The header is invalid. The following bytes cannot be parsed, so the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first byte is not a magic.
    Magic(u8),
    /// Frame infos, extras and key together are longer than the body.
    Lengths,
    /// The body is longer than the limit.
    TooLarge {
        /// Size according to the header.
        body_bytes: u32,
        /// Maximum size.
        body_bytes_max: u32,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The first byte of an alert.
            Self::Magic(0x15) => f.write_str("it speaks TLS, which needs couchbases://"),
            Self::Magic(byte) => write!(f, "invalid magic 0x{byte:02x}"),
            Self::Lengths => f.write_str("lengths of frame infos, extras and key exceed the body"),
            Self::TooLarge {
                body_bytes,
                body_bytes_max,
            } => {
                write!(
                    f,
                    "body of {body_bytes} bytes, allowed are {body_bytes_max}"
                )
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// Splits the first frame off `input`. Never allocates, never panics.
///
/// Checks the magic with the first byte and the lengths with the 24th, so an unacceptable body is
/// refused before any of it arrives.
///
/// # Errors
/// The header is invalid: unknown magic, inconsistent lengths, or a body above `limits`.
///
/// Source: protocol section 1.1, section 2. Test: `frame::truncated_one_byte_at_a_time`.
#[inline]
pub fn decode(input: &[u8], limits: Limits) -> Result<Decoded<'_>, FrameError> {
    let Some((head, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        if let Some(&first) = input.first() {
            Magic::from_byte(first).ok_or(FrameError::Magic(first))?;
        }
        return Ok(Decoded::Incomplete {
            more: HEADER_BYTES.saturating_sub(input.len()),
        });
    };
    let header = Header::read(head)?;
    if header.body_len > limits.body_bytes_max {
        return Err(FrameError::TooLarge {
            body_bytes: header.body_len,
            body_bytes_max: limits.body_bytes_max,
        });
    }
    let body_len = header.body_len as usize;
    let key_at = usize::from(header.framing_len).saturating_add(usize::from(header.extras_len));
    if key_at.saturating_add(usize::from(header.key_len)) > body_len {
        return Err(FrameError::Lengths);
    }
    let Some((body, _)) = rest.split_at_checked(body_len) else {
        return Ok(Decoded::Incomplete {
            more: body_len.saturating_sub(rest.len()),
        });
    };
    let frame = split(header, body).ok_or(FrameError::Lengths)?;
    Ok(Decoded::Frame {
        frame,
        consumed: HEADER_BYTES.saturating_add(body_len),
    })
}

/// Parts of a frame without a typed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawParts<'a> {
    /// Fixed-size arguments.
    pub extras: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Creates a request from separate parts; so [`Frame::key_and_value`] is empty.
    #[inline]
    pub fn request(opcode: Opcode, cas: Cas, parts: RawParts<'a>) -> Self {
        let body_len = parts
            .extras
            .len()
            .saturating_add(parts.key.len())
            .saturating_add(parts.value.len());
        Frame {
            header: Header {
                magic: Magic::ClientRequest,
                opcode,
                framing_len: 0,
                key_len: u16::try_from(parts.key.len()).unwrap_or(u16::MAX),
                extras_len: u8::try_from(parts.extras.len()).unwrap_or(u8::MAX),
                datatype: Datatype::RAW,
                vbucket_or_status: 0,
                body_len: u32::try_from(body_len).unwrap_or(u32::MAX),
                opaque: Opaque::default(),
                cas,
            },
            frame_infos: &[],
            extras: parts.extras,
            key: parts.key,
            value: parts.value,
            key_and_value: &[],
        }
    }
}

impl<'a> Frame<'a> {
    /// Returns the frame at the start of `input` with only its header, to refuse it before its body
    /// arrives. `None` without a whole header.
    pub fn of_header(input: &[u8]) -> Option<Self> {
        Header::read(input.first_chunk()?).ok().map(Self::bare)
    }

    /// Returns the frame at the start of `input` without its value, and the number of bytes before the
    /// value. `None` if not all of them are there.
    pub fn without_value(input: &'a [u8]) -> Option<(Self, usize)> {
        let (head, body) = input.split_first_chunk()?;
        let header = Header::read(head).ok()?;
        let parts = [
            usize::from(header.framing_len),
            usize::from(header.extras_len),
            usize::from(header.key_len),
        ];
        let before = parts.into_iter().fold(0, usize::saturating_add);
        let frame = split(header, body.get(..before)?)?;
        Some((frame, HEADER_BYTES.saturating_add(before)))
    }

    /// Returns a frame with only its header.
    pub fn bare(header: Header) -> Self {
        Frame {
            header,
            frame_infos: &[],
            extras: &[],
            key: &[],
            value: &[],
            key_and_value: &[],
        }
    }
}

#[inline]
fn split(header: Header, body: &[u8]) -> Option<Frame<'_>> {
    let (frame_infos, rest) = body.split_at_checked(usize::from(header.framing_len))?;
    let (extras, key_and_value) = rest.split_at_checked(usize::from(header.extras_len))?;
    let (key, value) = key_and_value.split_at_checked(usize::from(header.key_len))?;
    Some(Frame {
        header,
        frame_infos,
        extras,
        key,
        value,
        key_and_value,
    })
}
