//! What a client sends before its first document.

use std::fmt;

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::feature::FeatureList;
use crate::push::ConfigRev;
use crate::{Frame, Malformed, Opcode};

/// HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Name of the client, as text or as JSON; may be empty, may be anything.
    pub agent: &'a [u8],
    /// Features asked for.
    pub features: FeatureList<'a>,
}

impl<'a> Message<'a> for Hello<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::HELLO
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::HELLO {
            return Err(OTHER_COMMAND);
        }
        Ok(Self {
            agent: frame.key,
            features: FeatureList::parse(frame.value)?,
        })
    }

    fn key(&self) -> &[u8] {
        self.agent
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.features.as_bytes());
    }
}

/// SASL_AUTH, SASL_STEP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sasl<'a> {
    /// Whether an authentication goes on that was begun.
    pub step: bool,
    /// Name of the mechanism, in any case.
    pub mechanism: &'a [u8],
    /// The mechanism's own message; a secret.
    pub payload: &'a [u8],
}

impl fmt::Debug for Sasl<'_> {
    /// Everything but the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sasl")
            .field("step", &self.step)
            .field("mechanism", &String::from_utf8_lossy(self.mechanism))
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Message<'a> for Sasl<'a> {
    fn opcode(&self) -> Opcode {
        if self.step {
            Opcode::SASL_STEP
        } else {
            Opcode::SASL_AUTH
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let step = match frame.header.opcode {
            Opcode::SASL_AUTH => false,
            Opcode::SASL_STEP => true,
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            step,
            mechanism: frame.key,
            payload: frame.value,
        })
    }

    fn key(&self) -> &[u8] {
        self.mechanism
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.payload);
    }
}

/// SELECT_BUCKET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectBucket<'a> {
    /// Name of the bucket; `@no bucket@` for none.
    pub name: &'a [u8],
}

impl<'a> Message<'a> for SelectBucket<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::SELECT_BUCKET
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::SELECT_BUCKET => Ok(Self { name: frame.key }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn key(&self) -> &[u8] {
        self.name
    }
}

/// GET_ERROR_MAP; the vBucket must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetErrorMap {
    /// Newest version that the client understands.
    pub version: u16,
}

impl Message<'_> for GetErrorMap {
    fn opcode(&self) -> Opcode {
        Opcode::GET_ERROR_MAP
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_ERROR_MAP {
            return Err(OTHER_COMMAND);
        }
        let version = frame
            .value
            .try_into()
            .map_err(|_| Malformed::new("value is not 2 bytes"))?;
        Ok(Self {
            version: u16::from_be_bytes(version),
        })
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
    }
}

/// GET_CLUSTER_CONFIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetClusterConfig {
    /// The map that the client has; it wants a newer one only.
    pub known: Option<ConfigRev>,
}

impl Message<'_> for GetClusterConfig {
    fn opcode(&self) -> Opcode {
        Opcode::GET_CLUSTER_CONFIG
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_CLUSTER_CONFIG {
            return Err(OTHER_COMMAND);
        }
        if frame.extras.is_empty() {
            return Ok(Self { known: None });
        }
        let known = ConfigRev::read(&mut Reader::new(frame.extras)).ok_or(EXTRAS)?;
        Ok(Self { known: Some(known) })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend(self.known.into_iter().flat_map(ConfigRev::to_bytes));
    }
}
