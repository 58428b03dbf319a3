//! Opcodes, and the rules that their frames must obey.

mod info;
mod table;

use std::fmt;

use model::{Cas, Datatype, VbId};

use crate::{Frame, Malformed};
pub use info::{CasRule, Family, Opcode, OpcodeInfo, OpcodeSupport, Presence};

impl Opcode {
    /// Returns the row of this number; `None` if it is undefined.
    ///
    /// Cost: one lookup in a table of 256 bytes.
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        let row = table::ROW_OF.get(usize::from(self.0))?;
        table::ROWS.get(usize::from(*row))
    }

    /// Name in capitals; `"UNKNOWN"` if it is undefined.
    pub fn name(self) -> &'static str {
        self.info().map_or("UNKNOWN", |info| info.name)
    }

    /// All defined numbers, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        OpcodeInfo::all().iter().map(|info| info.opcode)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(0x{:02x})", self.name(), self.0)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "0x{:02x}", self.0),
        }
    }
}

impl OpcodeInfo {
    /// All rows, ascending by number.
    pub fn all() -> &'static [Self] {
        &table::ROWS
    }

    /// Whether a durability level makes it a durable write. The protocol allows a level on some
    /// other opcodes, which are then refused.
    pub fn writes_durably(&self) -> bool {
        self.durability
            && matches!(
                self.family,
                Family::Set
                    | Family::Delete
                    | Family::Increment
                    | Family::Decrement
                    | Family::SubdocMutation
            )
    }

    fn takes_extras(&self, len: u8) -> bool {
        1_u64
            .checked_shl(u32::from(len))
            .is_some_and(|bit| self.extras_mask & bit != 0)
    }

    /// Checks a request against this row, in the order of the protocol: datatype, extras, key,
    /// value, CAS, datatype of this opcode, vBucket. [`crate::RequestInfos::check`] checks the
    /// frame infos.
    ///
    /// # Errors
    /// The first broken rule; a removed opcode has no rules.
    ///
    /// Source: protocol section 2. Test: `rules::every_opcode_at_its_boundaries`.
    #[inline]
    pub fn check(&self, frame: &Frame<'_>) -> Result<(), Malformed> {
        if self.standing == OpcodeSupport::Removed {
            return Ok(());
        }
        let datatype = frame.header.datatype;
        if !Datatype::ALL.contains(datatype) {
            return Err(Malformed::new("datatype invalid"));
        }
        if !self.takes_extras(frame.header.extras_len) {
            return Err(Malformed::new("extras have a wrong length"));
        }
        if !self.key.admits(frame.key) {
            return Err(Malformed::new(match self.key {
                Presence::Required => "key is required",
                _ => "key must be empty",
            }));
        }
        if !self.value.admits(frame.value) {
            return Err(Malformed::new(match self.value {
                Presence::Required => "value is required",
                _ => "value must be empty",
            }));
        }
        match (self.cas, frame.header.cas) {
            (CasRule::Zero, cas) if cas != Cas::ANY => Err(Malformed::new("CAS must be zero")),
            (CasRule::NonZero, Cas::ANY) => Err(Malformed::new("CAS must be set")),
            _ if !self.datatypes.contains(datatype) => {
                Err(Malformed::new("datatype not accepted by this command"))
            }
            _ if self.vbucket_zero && frame.vbucket() != VbId(0) => {
                Err(Malformed::new("vBucket must be 0"))
            }
            _ => Ok(()),
        }
    }
}

/// Number of an operation that a server requests from its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerOpcode(pub u8);

impl ServerOpcode {
    /// The cluster map of a bucket changed.
    pub const CLUSTERMAP_CHANGE_NOTIFICATION: Self = Self(0x01);
    /// Authenticate a user; sent to an authentication provider only.
    pub const AUTHENTICATE: Self = Self(0x02);
    /// The users that the provider authenticated; sent to an authentication provider only.
    pub const ACTIVE_EXTERNAL_USERS: Self = Self(0x03);
    /// Request for a user's privileges; sent to an authentication provider only.
    pub const GET_AUTHORIZATION: Self = Self(0x04);

    /// Name in capitals; `None` if it is undefined.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::CLUSTERMAP_CHANGE_NOTIFICATION => Some("CLUSTERMAP_CHANGE_NOTIFICATION"),
            Self::AUTHENTICATE => Some("AUTHENTICATE"),
            Self::ACTIVE_EXTERNAL_USERS => Some("ACTIVE_EXTERNAL_USERS"),
            Self::GET_AUTHORIZATION => Some("GET_AUTHORIZATION"),
            _ => None,
        }
    }
}
