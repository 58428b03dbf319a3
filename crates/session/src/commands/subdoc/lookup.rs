//! SUBDOC_GET, SUBDOC_EXISTS, SUBDOC_GET_COUNT, SUBDOC_MULTI_LOOKUP.

use std::borrow::Cow;

use engine::{GetResult, OpError, Outcome, VBucket};
use identity::Privilege;
use model::{Attributes, Datatype, Now, VbId, VbUuid, body_at};
use registry::ServedBucket;
use value::subdoc::{Path, Span, count, decode_binary, find, find_in, is_within_depth, name_of};
use wire::request::{DocFlags, PathFlags, Subdoc, SubdocMulti};
use wire::{Feature, Frame, Message, Status};

use super::spec::{
    AD, RR, RV, Spec, What, check, check_all, check_attributes, check_doc_flags, rules,
};
use super::virtual_attributes::{Shown, is_virtual};
use crate::context::{Context, Location};
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

/// Bytes of an answer to several paths at most: twice the longest value.
const ANSWER_BYTES_MAX: usize = 2 * value::VALUE_BYTES_MAX;

/// Looks up a single path.
pub(in crate::commands) fn lookup(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Subdoc::read(frame)?;
    let rules = rules(frame.header.opcode).ok_or(Status::EINVAL)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, rules.doc_flags)?;
    let spec = check(&request.spec, &rules)?;
    check_attributes(
        context,
        std::slice::from_ref(&spec),
        Privilege::SystemXattrRead,
    )?;
    // An invalid path is refused whatever the document is.
    Path::parse(spec.path)?;
    let looked = read(context, frame, request.key, doc_flags)?;
    let found = looked.look(&spec)?;
    let json = spec.what == What::Get && !spec.is_of_attribute();
    let datatype = if json && context.session.has(Feature::JSON) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    let reply = Reply {
        status: looked.status(Status::SUCCESS),
        cas: looked.got.cas,
        datatype,
        value: &found,
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

/// Looks up several paths: each has its own status and value.
pub(in crate::commands) fn multi_lookup(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> CommandResult {
    let request = SubdocMulti::read(frame)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, AD | RV | RR)?;
    let specs = check_all(request.specs)?;
    check_attributes(context, &specs, Privilege::SystemXattrRead)?;
    let looked = read(context, frame, request.key, doc_flags)?;
    let mut value = Vec::new();
    let mut status = Status::SUCCESS;
    for spec in &specs {
        let (own, found) = match looked.look(spec) {
            Ok(found) => (Status::SUCCESS, found),
            Err(own) => {
                status = Status::SUBDOC_MULTI_PATH_FAILURE;
                (own, Cow::Borrowed(&[][..]))
            }
        };
        value.extend_from_slice(&own.0.to_be_bytes());
        value.extend_from_slice(&(found.len() as u32).to_be_bytes());
        value.extend_from_slice(&found);
        if value.len() > ANSWER_BYTES_MAX {
            return Err(OpError::TooBig.into());
        }
    }
    let reply = Reply {
        status: looked.status(status),
        cas: looked.got.cas,
        value: &value,
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

/// A document in which paths are looked up.
struct Looked {
    got: GetResult,
    /// Inflated value, if the stored value is compressed.
    plain: Option<Vec<u8>>,
    body_at: usize,
    /// Whether paths can be looked up in the body.
    parts: Result<(), Status>,
    vb_uuid: VbUuid,
    now: Now,
    /// Whether the peer may see system attributes.
    system: bool,
}

fn read(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    key: &[u8],
    flags: DocFlags,
) -> Result<Looked, Refusal> {
    let Location { bucket, key, vb } = context.locate(frame, key)?;
    let now = context.now;
    let outcome = context.run(&bucket, vb, |vbucket| {
        read_as(vbucket, key.bytes(), flags, now)
    })?;
    let got = context.settle(&bucket, vb, outcome)?;
    let plain = plain(&got)?;
    let value = plain.as_deref().unwrap_or(got.document.value());
    let body_at = body_at(value, got.document.datatype());
    let parts = parts_of(&got, &value[body_at..]);
    Ok(Looked {
        vb_uuid: vb_uuid(&bucket, vb),
        got,
        plain,
        body_at,
        parts,
        now,
        system: context.may(&key, Privilege::SystemXattrRead),
    })
}

fn read_as(
    vbucket: &mut VBucket,
    key: &[u8],
    flags: DocFlags,
    now: Now,
) -> Result<Outcome<GetResult>, OpError> {
    let replica = flags.contains(DocFlags::REPLICA_READ);
    match (replica, flags.contains(DocFlags::ACCESS_DELETED)) {
        (false, false) => vbucket.get(key, now),
        (false, true) => vbucket.get_or_tombstone(key, now),
        (true, tombstone) => vbucket.get_replica(key, tombstone, now),
    }
}

/// Returns the inflated form of a compressed value; `None` if the value is not compressed.
pub(super) fn plain(got: &GetResult) -> Result<Option<Vec<u8>>, Refusal> {
    if !got.document.datatype().contains(Datatype::SNAPPY) {
        return Ok(None);
    }
    let plain = value::inflate_stored(got.document.value()).map_err(|_| Status::EINTERNAL)?;
    Ok(Some(plain))
}

/// Checks whether paths can be looked up in a body.
pub(super) fn parts_of(got: &GetResult, body: &[u8]) -> Result<(), Status> {
    if !got.document.datatype().contains(Datatype::JSON) {
        return Err(Status::SUBDOC_DOC_NOT_JSON);
    }
    if !is_within_depth(body) {
        return Err(Status::SUBDOC_DOC_E2DEEP);
    }
    Ok(())
}

/// Returns the UUID of the vBucket's current history, in which its seqnos count.
fn vb_uuid(bucket: &ServedBucket, vb: VbId) -> VbUuid {
    let newest = bucket
        .bucket
        .with_vbucket(vb, |vbucket| vbucket.failover_log().newest().uuid);
    newest.unwrap_or(VbUuid(0))
}

/// Maps a status to its variant for tombstones.
pub(super) fn of_deleted(status: Status) -> Status {
    match status {
        Status::SUCCESS => Status::SUBDOC_SUCCESS_DELETED,
        Status::SUBDOC_MULTI_PATH_FAILURE => Status::SUBDOC_MULTI_PATH_FAILURE_DELETED,
        status => status,
    }
}

impl Looked {
    fn value(&self) -> &[u8] {
        self.plain.as_deref().unwrap_or(self.got.document.value())
    }

    fn body(&self) -> &[u8] {
        &self.value()[self.body_at..]
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes::of(self.value(), self.got.document.datatype())
    }

    fn status(&self, status: Status) -> Status {
        if self.got.document.kind().is_tombstone() {
            of_deleted(status)
        } else {
            status
        }
    }

    /// Looks up one path.
    fn look(&self, spec: &Spec<'_>) -> Result<Cow<'_, [u8]>, Status> {
        if spec.what == What::GetWhole {
            return match self.body() {
                [] => Err(Status::SUBDOC_PATH_ENOENT),
                body => Ok(Cow::Borrowed(body)),
            };
        }
        let path = Path::parse(spec.path)?;
        if !spec.is_of_attribute() {
            self.parts?;
            let span = find(self.body(), &path)?;
            return answer(spec, self.body(), span);
        }
        let name = name_of(spec.path)?;
        if is_virtual(name) {
            let shown = Shown {
                document: Some(&self.got.document),
                attributes: self.attributes(),
                body: self.body(),
                vb_uuid: self.vb_uuid,
                now: self.now,
                system: self.system,
            };
            let text = shown.text(name)?;
            let found = answer(spec, text.as_bytes(), find_in(text.as_bytes(), path)?)?;
            return Ok(Cow::Owned(found.into_owned()));
        }
        let text = self.attributes().get(name);
        let text = text.ok_or(Status::SUBDOC_PATH_ENOENT)?;
        answer(spec, text, find_in(text, path)?)
    }
}

fn answer<'t>(spec: &Spec<'_>, text: &'t [u8], span: Span) -> Result<Cow<'t, [u8]>, Status> {
    match spec.what {
        What::Exists => Ok(Cow::Borrowed(&[])),
        What::Count => {
            let count = count(text, span).ok_or(Status::SUBDOC_PATH_MISMATCH)?;
            Ok(Cow::Owned(count.to_string().into_bytes()))
        }
        _ if spec.flags.contains(PathFlags::BINARY) => decode_binary(span.of(text)).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(span.of(text))),
    }
}
