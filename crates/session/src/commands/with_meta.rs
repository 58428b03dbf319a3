//! Commands that write documents with metadata from another node.

use bucket::Purpose;
use engine::OpError;
use model::{Attributes, Cas, ConflictResolution, Datatype, Draft, Kind, Meta, Now, body_at};
use registry::ServedBucket;
use serde::Deserialize;
use value::subdoc::are_valid;
use value::{
    SYSTEM_BYTES_MAX, Stored, VALUE_BYTES_MAX, inflate_stored, inflated_bytes, is_json, to_store,
};
use wire::request::{MetaAction, MetaOptions, MutateWithMeta, WithMeta};
use wire::{Frame, Message, Status};

use super::subdoc::Stamps;
use crate::context::{Context, Location};
use crate::outcome::{CommandResult, Refusal, value_refusal};

/// Bytes that a write needs beyond its value.
const ROOM_BYTES: usize = 128;

/// A write that is requested.
struct MetaWrite<'a> {
    key: &'a [u8],
    value: &'a [u8],
    action: MetaAction,
    options: MetaOptions,
    flags: u32,
    expiry: u32,
    rev: u64,
    cas: Cas,
    /// Offsets in the value at which to write the CAS and the seqno of the change.
    stamped: [Vec<usize>; 2],
}

/// `SET_WITH_META`, `ADD_WITH_META`, `DEL_WITH_META` and their quiet forms.
pub(super) fn write(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = WithMeta::read(frame)?;
    let asked = MetaWrite {
        key: request.key,
        value: request.value,
        action: request.action,
        options: request.options.unwrap_or_default(),
        flags: request.flags,
        expiry: request.expiry,
        rev: request.rev,
        cas: request.cas,
        stamped: [Vec::new(), Vec::new()],
    };
    run(context, frame, asked)
}

/// `MUTATE_WITH_META`.
pub(super) fn write_json(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = MutateWithMeta::read(frame)?;
    let json: MetaJson = serde_json::from_slice(request.json)
        .map_err(|_| Refusal::invalid("the metadata is not the JSON of a change"))?;
    let action = match json.command.as_str() {
        "set" => MetaAction::Set,
        "add" => MetaAction::Add,
        "delete" => MetaAction::Delete,
        _ => return Err(Refusal::invalid("command must be set, add or delete")),
    };
    let options = json.options()?;
    options.check(action)?;
    let word = |number: Number| {
        u32::try_from(number.0).map_err(|_| Refusal::invalid("a number is beyond 32 bits"))
    };
    let asked = MetaWrite {
        key: request.key,
        value: request.value,
        action,
        options,
        flags: word(json.flags)?,
        expiry: word(json.expiration)?,
        rev: json.rev_seqno.0,
        cas: Cas(json.cas.0),
        stamped: [json.cas_offsets, json.seqno_offsets],
    };
    run(context, frame, asked)
}

/// The metadata of `MUTATE_WITH_META`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaJson {
    command: String,
    #[serde(default)]
    cas: Number,
    rev_seqno: Number,
    #[serde(default)]
    expiration: Number,
    #[serde(default)]
    flags: Number,
    #[serde(default)]
    options: Number,
    #[serde(default)]
    cas_offsets: Vec<usize>,
    #[serde(default)]
    seqno_offsets: Vec<usize>,
}

impl MetaJson {
    /// Converts the options: some of their bits differ from those in extras.
    fn options(&self) -> Result<MetaOptions, Refusal> {
        const SAME: u64 = 0x1c;
        const FORCE_ACCEPT: u64 = 0x20;
        let asked = self.options.0;
        if asked & !(SAME | FORCE_ACCEPT) != 0 {
            return Err(Refusal::invalid("unknown options"));
        }
        let mut options = (asked & SAME) as u32;
        if asked & FORCE_ACCEPT != 0 {
            options |= MetaOptions::FORCE_ACCEPT.0;
        }
        Ok(MetaOptions(options))
    }
}

/// A number, in JSON as a number or as a string, there with 0x in base 16.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(try_from = "NumberForm")]
struct Number(u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberForm {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberForm> for Number {
    type Error = std::num::ParseIntError;

    fn try_from(form: NumberForm) -> Result<Self, Self::Error> {
        match form {
            NumberForm::Number(number) => Ok(Self(number)),
            NumberForm::Text(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).map(Self),
                None => text.parse().map(Self),
            },
        }
    }
}

fn run(context: &mut Context<'_>, frame: &Frame<'_>, asked: MetaWrite<'_>) -> CommandResult {
    let Location { bucket, key, vb } = context.locate(frame, asked.key)?;
    check_accepts(&bucket, asked.options)?;
    let now = context.now;
    let meta = meta_of(&asked, frame.header.datatype, now);
    let _transient = if asked.value.is_empty() && meta.kind.is_tombstone() {
        context.admit(Purpose::Removal, 0)?;
        None
    } else {
        let plain = plain_bytes(asked.value, meta.datatype);
        let stored = asked.value.len() + ROOM_BYTES;
        Some(context.admit_with_transient(&bucket, stored, plain)?)
    };
    let keeps_compressed = bucket.bucket.keeps_compressed();
    let draft = draft(key.bytes(), asked.value, meta, keeps_compressed)?;
    let [cas, seqno] = asked.stamped;
    let (value, datatype) = (draft.document().value(), draft.document().datatype());
    let stamps = Stamps::at(cas, seqno, body_at(value, datatype))
        .ok_or_else(|| Refusal::invalid("an offset is outside of the attributes"))?;
    let mut write = engine::WithMeta {
        draft: Some(draft),
        adds: asked.action == MetaAction::Add,
        cas: frame.header.cas,
        resolves: !asked.options.skips_conflict_resolution(),
        regenerates_cas: asked.options.contains(MetaOptions::REGENERATE_CAS),
    };
    let stamp = |value: &mut [u8], cas, seqno| stamps.write(value, cas, seqno);
    context.write(frame, &bucket, vb, |vbucket| {
        vbucket.write_with_meta(&mut write, &stamp, now)
    })
}

fn meta_of(asked: &MetaWrite<'_>, datatype: Datatype, now: Now) -> Meta {
    let kind = match asked.action {
        MetaAction::Set | MetaAction::Add => Kind::Mutation,
        MetaAction::Delete if asked.options.contains(MetaOptions::IS_EXPIRATION) => {
            Kind::Expiration
        }
        MetaAction::Delete => Kind::Deletion,
    };
    Meta {
        cas: asked.cas,
        rev: asked.rev,
        flags: asked.flags,
        // A tombstone is kept for a time that begins at its deletion.
        expiry: if kind.is_tombstone() && asked.expiry == 0 {
            now.unix_s()
        } else {
            asked.expiry
        },
        datatype,
        kind,
        ..Meta::default()
    }
}

/// Checks that the peer knows whether the last write wins in this bucket.
fn check_accepts(bucket: &ServedBucket, options: MetaOptions) -> Result<(), Refusal> {
    let by_time = bucket.bucket.options().vb.conflicts == ConflictResolution::LastWrite;
    match (by_time, options.contains(MetaOptions::FORCE_ACCEPT)) {
        (true, false) => Err(Refusal::invalid(
            "the last write wins in this bucket: FORCE_ACCEPT_WITH_META_OPS is needed",
        )),
        (false, true) => Err(Refusal::invalid(
            "the last write does not win in this bucket: FORCE_ACCEPT_WITH_META_OPS is of no use",
        )),
        _ => Ok(()),
    }
}

/// Bytes of the plain form of a compressed value; 0 if it is not compressed.
fn plain_bytes(value: &[u8], datatype: Datatype) -> usize {
    if datatype.contains(Datatype::SNAPPY) {
        inflated_bytes(value).min(VALUE_BYTES_MAX + SYSTEM_BYTES_MAX)
    } else {
        0
    }
}

/// Makes the document or tombstone; a tombstone keeps only the attributes of the value.
fn draft(
    key: &[u8],
    value: &[u8],
    mut meta: Meta,
    keeps_compressed: bool,
) -> Result<Draft, Refusal> {
    if meta.datatype.contains(Datatype::XATTR) {
        return attributed(key, value, meta);
    }
    let stored = to_store(value, meta.datatype, keeps_compressed);
    if let Stored::Refused(error) = stored {
        return Err(value_refusal(error));
    }
    if meta.kind.is_tombstone() {
        meta.datatype = Datatype::RAW;
        return Ok(Draft::new(key, &[], &meta));
    }
    let (value, datatype) = match &stored {
        Stored::Inflated(plain, datatype) => (plain.as_slice(), *datatype),
        Stored::AsSent(datatype) => (value, *datatype),
        Stored::Refused(_) => return Err(Refusal::invalid("the value cannot be read")),
    };
    if value.len() > VALUE_BYTES_MAX {
        return Err(OpError::TooBig.into());
    }
    meta.datatype = datatype;
    Ok(Draft::new(key, value, &meta))
}

/// Makes a document or tombstone with attributes, which is stored uncompressed.
fn attributed(key: &[u8], value: &[u8], mut meta: Meta) -> Result<Draft, Refusal> {
    let inflated = if meta.datatype.contains(Datatype::SNAPPY) {
        Some(inflate_stored(value).map_err(value_refusal)?)
    } else {
        None
    };
    let plain = inflated.as_deref().unwrap_or(value);
    let split = Attributes::split(plain).filter(|(attributes, _)| are_valid(*attributes));
    let (attributes, body) = split.ok_or_else(|| {
        Refusal::because(
            Status::XATTR_EINVAL,
            "the extended attributes are not valid",
        )
    })?;
    let section = &plain[..plain.len() - body.len()];
    let body = if meta.kind.is_tombstone() { &[] } else { body };
    let bytes = attributes.bytes();
    if body.len().saturating_add(bytes.user) > VALUE_BYTES_MAX || bytes.system > SYSTEM_BYTES_MAX {
        return Err(OpError::TooBig.into());
    }
    meta.datatype = if is_json(body) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    if attributes.is_empty() {
        return Ok(Draft::new(key, body, &meta));
    }
    meta.datatype = meta.datatype.with(Datatype::XATTR);
    Ok(Draft::of_parts(key, &[section, body], &meta))
}
