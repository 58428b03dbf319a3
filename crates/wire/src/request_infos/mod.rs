//! Frame infos of a request: optional arguments before the extras.

use std::fmt;

use model::DurabilityLevel;

use crate::bytes::{Field, Reader};
use crate::{Malformed, OpcodeInfo, Status, TooLong};

const BARRIER: u16 = 0;
const DURABILITY: u16 = 1;
const STREAM_ID: u16 = 2;
const IMPERSONATE: u16 = 4;
const PRESERVE_TTL: u16 = 5;
const EXTRA_PRIVILEGE: u16 = 6;
const AUTH_TOKEN_ID: u16 = 7;

/// Durability of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The level.
    pub level: DurabilityLevel,
    /// Timeout in milliseconds, `1..=0xfffe`; `None` for the bucket's default.
    pub timeout_ms: Option<u16>,
}

/// Error in the frame infos of a request; the connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// The id is unknown.
    Unknown(u16),
    /// The section or one of its infos breaks a rule.
    Malformed(&'static str),
    /// The durability level or its timeout is invalid.
    DurabilityLevel,
    /// The opcode does not support one of the infos, which itself is valid.
    NotSupported(&'static str),
}

impl InfoError {
    /// Status of the answer.
    pub fn status(self) -> Status {
        match self {
            Self::Unknown(_) => Status::UNKNOWN_FRAME_INFO,
            Self::Malformed(_) => Status::EINVAL,
            Self::DurabilityLevel => Status::DURABILITY_INVALID_LEVEL,
            Self::NotSupported(_) => Status::NOT_SUPPORTED,
        }
    }

    /// Reason for the error context of the answer.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown frame info",
            Self::Malformed(reason) | Self::NotSupported(reason) => reason,
            Self::DurabilityLevel => "invalid durability level or timeout",
        }
    }
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "unknown frame info {id}"),
            _ => f.write_str(self.reason()),
        }
    }
}

impl std::error::Error for InfoError {}

/// The frame infos of one request.
///
/// If an info occurs twice, the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestInfos<'a> {
    /// Whether all earlier requests must finish first, and all later ones wait.
    pub barrier: bool,
    /// The durability of a write.
    pub durability: Option<Durability>,
    /// Id of the stream, if a vBucket has several.
    pub stream_id: Option<u16>,
    /// User on whose behalf the request runs, never empty; a leading `^` marks a user of the
    /// external domain, and is not part of the name.
    pub impersonate: Option<&'a [u8]>,
    /// Whether the document's expiry is kept.
    pub preserve_ttl: bool,
    /// Privileges in addition to those of the impersonated user.
    pub extra_privileges: ExtraPrivileges<'a>,
    /// Id of a registered token on whose behalf the request runs.
    pub auth_token_id: Option<u16>,
}

impl<'a> RequestInfos<'a> {
    /// Parses the frame-info section of a request. No allocation.
    ///
    /// # Errors
    /// The section ends within an info; an info has a wrong length or content, or is unknown.
    ///
    /// Source: protocol section 1.2. Test: `request_infos::tests`.
    pub fn parse(section: &'a [u8]) -> Result<Self, InfoError> {
        let mut infos = Self::default();
        let mut reader = Reader::new(section);
        while !reader.is_empty() {
            let (id, data) = next_info(&mut reader)
                .map_err(|_| InfoError::Malformed("frame infos end within an info"))?;
            infos.take(id, data, section)?;
        }
        Ok(infos)
    }

    fn take(&mut self, id: u16, data: &'a [u8], section: &'a [u8]) -> Result<(), InfoError> {
        let u16_of = |data, reason| {
            Field::whole(data, Malformed::new(reason))
                .map_err(|error| InfoError::Malformed(error.reason))
        };
        match id {
            BARRIER if data.is_empty() => self.barrier = true,
            BARRIER => return Err(InfoError::Malformed("barrier has data")),
            DURABILITY => self.durability = Some(durability(data)?),
            STREAM_ID => self.stream_id = Some(u16_of(data, "stream id is not 2 bytes")?),
            IMPERSONATE if data.is_empty() => {
                return Err(InfoError::Malformed("impersonated user has no name"));
            }
            IMPERSONATE => self.impersonate = Some(data),
            PRESERVE_TTL if data.is_empty() => self.preserve_ttl = true,
            PRESERVE_TTL => return Err(InfoError::Malformed("preserve TTL has data")),
            EXTRA_PRIVILEGE => self.extra_privileges = ExtraPrivileges { section },
            AUTH_TOKEN_ID => {
                self.auth_token_id = Some(u16_of(data, "auth token id is not 2 bytes")?);
            }
            _ => return Err(InfoError::Unknown(id)),
        }
        Ok(())
    }

    /// Checks that the opcode accepts these infos.
    ///
    /// # Errors
    /// Durability or preserve TTL on an opcode without it.
    pub fn check(&self, info: &OpcodeInfo) -> Result<(), InfoError> {
        if self.durability.is_some() && !info.durability {
            return Err(InfoError::Malformed("command does not support durability"));
        }
        if self.preserve_ttl && !info.preserve_ttl {
            return Err(InfoError::NotSupported(
                "command does not support preserve TTL",
            ));
        }
        Ok(())
    }

    /// Appends the section, infos ascending by id, without a limit on its length.
    ///
    /// # Errors
    /// The name of a user or a privilege is longer than an info can carry (270 bytes).
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        if self.barrier {
            encode_info(BARRIER, &[], out)?;
        }
        if let Some(Durability { level, timeout_ms }) = self.durability {
            match timeout_ms {
                None => encode_info(DURABILITY, &[level as u8], out)?,
                Some(timeout_ms) => {
                    let [high, low] = timeout_ms.to_be_bytes();
                    encode_info(DURABILITY, &[level as u8, high, low], out)?;
                }
            }
        }
        if let Some(id) = self.stream_id {
            encode_info(STREAM_ID, &id.to_be_bytes(), out)?;
        }
        if let Some(user) = self.impersonate {
            encode_info(IMPERSONATE, user, out)?;
        }
        if self.preserve_ttl {
            encode_info(PRESERVE_TTL, &[], out)?;
        }
        for privilege in self.extra_privileges.iter() {
            encode_info(EXTRA_PRIVILEGE, privilege, out)?;
        }
        if let Some(id) = self.auth_token_id {
            encode_info(AUTH_TOKEN_ID, &id.to_be_bytes(), out)?;
        }
        Ok(())
    }
}

fn durability(data: &[u8]) -> Result<Durability, InfoError> {
    let (level, timeout_ms) = match *data {
        [level] => (level, None),
        [level, high, low] => (level, Some(u16::from_be_bytes([high, low]))),
        _ => return Err(InfoError::Malformed("durability is not 1 or 3 bytes")),
    };
    let level = DurabilityLevel::from_number(level).ok_or(InfoError::DurabilityLevel)?;
    if matches!(timeout_ms, Some(0 | 0xffff)) {
        return Err(InfoError::DurabilityLevel);
    }
    Ok(Durability { level, timeout_ms })
}

/// Reads one info, also in an escaped form.
pub(crate) fn next_info<'a>(reader: &mut Reader<'a>) -> Result<(u16, &'a [u8]), Malformed> {
    let first: u8 = reader.field()?;
    let mut id = u16::from(first >> 4);
    let mut len = u16::from(first & 0x0f);
    for number in [&mut id, &mut len] {
        if *number == 15 {
            *number = number.saturating_add(reader.field::<u8>()?.into());
        }
    }
    Ok((id, reader.bytes(len.into())?))
}

/// Appends one frame info in its shortest form.
///
/// Shape: one byte of id and length, 4 bits each; from 15 on, each has an escape byte.
///
/// # Errors
/// The id or the length is above 270; nothing is written.
pub fn encode_info(id: u16, data: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    let (id, id_escape) = nibble(usize::from(id))?;
    let (len, len_escape) = nibble(data.len())?;
    out.push(id << 4 | len);
    out.extend(id_escape);
    out.extend(len_escape);
    out.extend_from_slice(data);
    Ok(())
}

fn nibble(number: usize) -> Result<(u8, Option<u8>), TooLong> {
    match number.checked_sub(15) {
        None => Ok((number as u8, None)),
        Some(above) => {
            let above = u8::try_from(above).map_err(|_| TooLong {
                part: "frame infos",
            })?;
            Ok((15, Some(above)))
        }
    }
}

/// The privileges that a request's frame infos add; names as sent, in order.
#[derive(Clone, Copy, Default)]
pub struct ExtraPrivileges<'a> {
    section: &'a [u8],
}

impl<'a> ExtraPrivileges<'a> {
    /// Reads the privileges in an encoded section of frame infos; ignores other infos.
    pub fn in_section(section: &'a [u8]) -> Self {
        Self { section }
    }

    /// The names.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut reader = Reader::new(self.section);
        std::iter::from_fn(move || next_info(&mut reader).ok())
            .filter(|&(id, _)| id == EXTRA_PRIVILEGE)
            .map(|(_, name)| name)
    }
}

impl PartialEq for ExtraPrivileges<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ExtraPrivileges<'_> {}

impl fmt::Debug for ExtraPrivileges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(String::from_utf8_lossy))
            .finish()
    }
}

#[cfg(test)]
mod tests;
