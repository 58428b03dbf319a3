//! Writes of documents with metadata from another node.

use model::Cas;

use crate::bytes::{Field, Reader, debug_without_value, wrappers};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

/// Kind of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaAction {
    /// Store the document.
    Set,
    /// Store the document if it does not exist.
    Add,
    /// Replace the document by a tombstone.
    Delete,
}

impl Field<'_> for MetaAction {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.field::<u32>()? {
            1 => Ok(Self::Set),
            2 => Ok(Self::Add),
            3 => Ok(Self::Delete),
            _ => Err(Malformed::new("a change must be 1, 2 or 3")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let number: u32 = match self {
            Self::Set => 1,
            Self::Add => 2,
            Self::Delete => 3,
        };
        number.write(out);
    }
}

/// `RETURN_META`: a write whose answer has the new metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReturnMeta<'a> {
    /// Kind of the write.
    pub action: MetaAction,
    /// Flags to store.
    pub flags: u32,
    /// Expiry, as sent.
    pub expiry: u32,
    /// Key of the document.
    pub key: &'a [u8],
    /// Its new value.
    pub value: &'a [u8],
}

debug_without_value! { ReturnMeta { action, flags, expiry } text key, length value }

message! {
    ReturnMeta<'a> = RETURN_META;
    extras: action, flags, expiry;
    key: key;
    value: value;
}

/// `MUTATE_WITH_META`: the metadata is JSON after the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MutateWithMeta<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The metadata as JSON.
    pub json: &'a [u8],
}

debug_without_value! { MutateWithMeta { json } text key, length value }

impl<'a> Message<'a> for MutateWithMeta<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::MUTATE_WITH_META
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        const WRONG: Malformed = Malformed::new("the metadata is longer than the value");
        if frame.header.opcode != Opcode::MUTATE_WITH_META {
            return Err(OTHER_COMMAND);
        }
        let length: u32 = Reader::new(frame.extras).field()?;
        let length = usize::try_from(length).map_err(|_| WRONG)?;
        let at = frame.value.len().checked_sub(length).ok_or(WRONG)?;
        let (value, json) = frame.value.split_at_checked(at).ok_or(WRONG)?;
        Ok(Self {
            key: frame.key,
            value,
            json,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        u32::try_from(self.json.len())
            .unwrap_or(u32::MAX)
            .write(out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        self.value.write(out);
        self.json.write(out);
    }
}

/// Options of a write with metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaOptions(pub u32);

impl MetaOptions {
    /// An older name of [`MetaOptions::SKIP_CONFLICT_RESOLUTION`].
    pub const FORCE: Self = Self(0x01);
    /// The peer knows that the bucket uses last-write-wins.
    pub const FORCE_ACCEPT: Self = Self(0x02);
    /// The document gets a new CAS of this node.
    pub const REGENERATE_CAS: Self = Self(0x04);
    /// Store the document without conflict resolution.
    pub const SKIP_CONFLICT_RESOLUTION: Self = Self(0x08);
    /// The deletion is the expiration of a document.
    pub const IS_EXPIRATION: Self = Self(0x10);
    const ALL: Self = Self(0x1f);

    /// Whether all of `these` are set.
    pub fn contains(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// Whether conflict resolution is skipped.
    pub fn skips_conflict_resolution(self) -> bool {
        self.contains(Self::FORCE) || self.contains(Self::SKIP_CONFLICT_RESOLUTION)
    }

    /// Checks that the options are consistent, also with the kind of write.
    ///
    /// # Errors
    /// They are not, or one is unknown.
    pub fn check(self, action: MetaAction) -> Result<(), Malformed> {
        if !Self::ALL.contains(self) {
            return Err(Malformed::new("unknown options of a write with metadata"));
        }
        if self.contains(Self::REGENERATE_CAS) && !self.skips_conflict_resolution() {
            return Err(Malformed::new(
                "a CAS is made anew only where conflicts are not resolved",
            ));
        }
        if self.contains(Self::IS_EXPIRATION) && action != MetaAction::Delete {
            return Err(Malformed::new("only a deletion is that of an expiry"));
        }
        Ok(())
    }
}

wrappers! { MetaOptions }

/// `SET_WITH_META`, `ADD_WITH_META`, `DEL_WITH_META` and their quiet forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WithMeta<'a> {
    /// Kind of the write.
    pub action: MetaAction,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Value of the document; for a deletion, its attributes.
    pub value: &'a [u8],
    /// Flags to store.
    pub flags: u32,
    /// Absolute expiry; for a deletion, its time.
    pub expiry: u32,
    /// Revision of the document.
    pub rev: u64,
    /// CAS of the document.
    pub cas: Cas,
    /// Options, if sent.
    pub options: Option<MetaOptions>,
    /// Extended metadata, which is ignored.
    pub extended: Option<&'a [u8]>,
}

debug_without_value! {
    WithMeta { action, quiet, flags, expiry, rev, cas, options, extended } text key, length value
}

impl<'a> Message<'a> for WithMeta<'a> {
    fn opcode(&self) -> Opcode {
        match (self.action, self.quiet) {
            (MetaAction::Set, false) => Opcode::SET_WITH_META,
            (MetaAction::Set, true) => Opcode::SETQ_WITH_META,
            (MetaAction::Add, false) => Opcode::ADD_WITH_META,
            (MetaAction::Add, true) => Opcode::ADDQ_WITH_META,
            (MetaAction::Delete, false) => Opcode::DEL_WITH_META,
            (MetaAction::Delete, true) => Opcode::DELQ_WITH_META,
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let (action, quiet) = match frame.header.opcode {
            Opcode::SET_WITH_META => (MetaAction::Set, false),
            Opcode::SETQ_WITH_META => (MetaAction::Set, true),
            Opcode::ADD_WITH_META => (MetaAction::Add, false),
            Opcode::ADDQ_WITH_META => (MetaAction::Add, true),
            Opcode::DEL_WITH_META => (MetaAction::Delete, false),
            Opcode::DELQ_WITH_META => (MetaAction::Delete, true),
            _ => return Err(OTHER_COMMAND),
        };
        let extras = &mut Reader::new(frame.extras);
        let (flags, expiry) = (extras.field()?, extras.field()?);
        let (rev, cas) = (extras.field()?, extras.field()?);
        let options: Option<MetaOptions> = extras.field()?;
        options.unwrap_or_default().check(action)?;
        let extended_len: Option<u16> = extras.field()?;
        let (value, extended) = match extended_len {
            None => (frame.value, None),
            Some(length) => {
                let (value, extended) = split_extended(frame.value, length)?;
                (value, Some(extended))
            }
        };
        Ok(Self {
            action,
            quiet,
            key: frame.key,
            value,
            flags,
            expiry,
            rev,
            cas,
            options,
            extended,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        self.flags.write(out);
        self.expiry.write(out);
        self.rev.write(out);
        self.cas.write(out);
        self.options.write(out);
        let length = self
            .extended
            .map(|extended| u16::try_from(extended.len()).unwrap_or(u16::MAX));
        length.write(out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        self.value.write(out);
        self.extended.write(out);
    }
}

/// Splits a value into the document's value and the extended metadata of this length after it.
fn split_extended(value: &[u8], length: u16) -> Result<(&[u8], &[u8]), Malformed> {
    const WRONG: Malformed = Malformed::new("the extended metadata is not valid");
    const VERSION: u8 = 1;
    let at = value.len().checked_sub(usize::from(length)).ok_or(WRONG)?;
    let (value, extended) = value.split_at_checked(at).ok_or(WRONG)?;
    let mut reader = Reader::new(extended);
    if !reader.is_empty() && reader.field::<u8>()? != VERSION {
        return Err(WRONG);
    }
    while !reader.is_empty() {
        let _id: u8 = reader.field().map_err(|_| WRONG)?;
        let length: u16 = reader.field().map_err(|_| WRONG)?;
        reader.bytes(length.into()).map_err(|_| WRONG)?;
    }
    Ok((value, extended))
}
