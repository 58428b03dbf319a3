//! Requests of a client before its first document.

use crate::bytes::{Field, debug_without_value};
use crate::feature::FeatureList;
use crate::message::{OTHER_COMMAND, message};
use crate::push::ConfigRev;
use crate::{Frame, Malformed, Message, Opcode};

/// HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Name of the client, as text or as JSON; may be empty or any bytes.
    pub agent: &'a [u8],
    /// Requested features.
    pub features: FeatureList<'a>,
}

message! { Hello<'a> = HELLO; key: agent; value: features; }

/// `SASL_AUTH`, `SASL_STEP`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sasl<'a> {
    /// Whether it continues an authentication.
    pub step: bool,
    /// Name of the mechanism, case-insensitive.
    pub mechanism: &'a [u8],
    /// Message of the mechanism; a secret.
    pub payload: &'a [u8],
}

debug_without_value! { Sasl { step } text mechanism, length payload }

message! {
    Sasl<'a> by (step,) { SASL_AUTH: (false,), SASL_STEP: (true,), }
    key: mechanism;
    value: payload;
}

/// `SELECT_BUCKET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectBucket<'a> {
    /// Name of the bucket; `@no bucket@` for none.
    pub name: &'a [u8],
}

message! { SelectBucket<'a> = SELECT_BUCKET; key: name; }

/// `DROP_PRIVILEGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropPrivilege<'a> {
    /// Name of the privilege.
    pub name: &'a [u8],
}

message! { DropPrivilege<'a> = DROP_PRIVILEGE; key: name; }

/// `GET_ERROR_MAP`; the vBucket must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetErrorMap {
    /// Highest version that the client understands.
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
        let version = Field::whole(frame.value, Malformed::new("value is not 2 bytes"))?;
        Ok(Self { version })
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        self.version.write(out);
    }
}

/// `GET_CLUSTER_CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetClusterConfig {
    /// Revision of the client's map; it wants only a newer one.
    pub known: Option<ConfigRev>,
}

message! { GetClusterConfig = GET_CLUSTER_CONFIG; extras: known; }
