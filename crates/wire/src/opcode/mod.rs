//! Operation numbers and the rules that a frame of each must keep.

mod info;
mod table;

use std::fmt;

use model::{Cas, Datatype, VbId};

use crate::{Frame, Malformed};
pub use info::{CasRule, Family, Opcode, OpcodeInfo, Presence, Standing};

impl Opcode {
    /// What the protocol says of this number; `None` for a number that means nothing.
    ///
    /// Cost: one lookup in a table of 256 bytes.
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        let row = table::ROW_OF.get(usize::from(self.0))?;
        table::ROWS.get(usize::from(*row))
    }

    /// The name in capitals, `"UNKNOWN"` for a number that means nothing.
    pub fn name(self) -> &'static str {
        self.info().map_or("UNKNOWN", |info| info.name)
    }

    /// Every number that means something, ascending.
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
    /// Every row, ascending by number.
    pub fn all() -> &'static [Self] {
        &table::ROWS
    }

    /// Whether a durability level makes it a durable write. The protocol lets some others name a level,
    /// which then are refused.
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
    /// value, CAS, datatype of this opcode, vBucket. Frame infos are checked by
    /// [`crate::RequestInfos::check`].
    ///
    /// # Errors
    /// The first rule that is broken; a removed opcode has none.
    ///
    /// Source: protocol section 2. Test: `rules::every_opcode_at_its_boundaries`.
    #[inline]
    pub fn check(&self, frame: &Frame<'_>) -> Result<(), Malformed> {
        if self.standing == Standing::Removed {
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

/// Number of an operation that a server asks of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerOpcode(pub u8);

impl ServerOpcode {
    /// The cluster map of a bucket changed.
    pub const CLUSTERMAP_CHANGE_NOTIFICATION: Self = Self(0x01);
    /// Authenticate a user; sent to an authentication provider only.
    pub const AUTHENTICATE: Self = Self(0x02);
    /// The users that the provider logged in; sent to an authentication provider only.
    pub const ACTIVE_EXTERNAL_USERS: Self = Self(0x03);
    /// What a user may do; sent to an authentication provider only.
    pub const GET_AUTHORIZATION: Self = Self(0x04);

    /// The name in capitals; `None` for a number that means nothing.
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
