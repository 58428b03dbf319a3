//! SUBDOC_GET, SUBDOC_EXISTS, SUBDOC_GET_COUNT, SUBDOC_MULTI_LOOKUP.

use std::borrow::Cow;

use engine::{Got, OpError};
use model::{Datatype, VbId};
use wire::request::{DocFlags, Message, Subdoc, SubdocMulti};
use wire::{Feature, Frame, Status};

use super::super::documents::Settled;
use super::virtual_attributes::{Shown, find_in_attribute};
use super::{AD, RR, RV, Spec, What, check, check_all, check_doc_flags, rules};
use crate::served::ServedBucket;
use crate::session::{Context, Done, Refusal, Reply};
use crate::subdoc::{Path, count, find, is_within_depth};
use crate::value;

/// Bytes of an answer to several paths at most: twice the longest value.
const ANSWER_BYTES_MAX: usize = 2 * value::VALUE_BYTES_MAX;

/// A single path.
pub(in crate::commands) fn lookup(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<Done, Refusal> {
    let request = Subdoc::read(frame)?;
    let rules = rules(frame.header.opcode).ok_or(Status::EINVAL)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, rules.doc_flags)?;
    let spec = check(&request.spec, &rules)?;
    // A path that is none is refused whatever the document is.
    Path::parse(spec.path)?;
    let looked = match read(context, frame, request.key, doc_flags)? {
        Settled::Ready(looked) => looked,
        Settled::Parked(done) => return Ok(done),
    };
    let found = looked.look(&spec)?;
    let json = spec.what == What::Get && !spec.is_of_attribute();
    let datatype = if json && context.session.has(Feature::JSON) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    let reply = Reply {
        cas: looked.got.cas,
        datatype,
        value: &found,
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

/// Several paths: each has its own status and value.
pub(in crate::commands) fn multi_lookup(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<Done, Refusal> {
    let request = SubdocMulti::read(frame)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, AD | RV | RR)?;
    let specs = check_all(request.specs)?;
    let looked = match read(context, frame, request.key, doc_flags)? {
        Settled::Ready(looked) => looked,
        Settled::Parked(done) => return Ok(done),
    };
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
        status,
        cas: looked.got.cas,
        value: &value,
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

/// A document that paths are looked up in.
struct Looked {
    got: Got,
    /// Its plain value, where that is another than the stored one.
    plain: Option<Vec<u8>>,
    /// Whether parts of it can be found.
    parts: Result<(), Status>,
    vb_uuid: model::VbUuid,
    now: model::Now,
}

fn read(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    key: &[u8],
    flags: DocFlags,
) -> Result<Settled<Looked>, Refusal> {
    let bucket = context.bucket()?;
    let key = context.key(key)?;
    let vb = context.vbucket(frame, &key);
    let now = context.now;
    let outcome = bucket.bucket.run(vb, |vbucket| {
        if flags.contains(DocFlags::REPLICA_READ) {
            vbucket.get_replica(key.bytes(), now)
        } else {
            vbucket.get(key.bytes(), now)
        }
    })?;
    let got = match context.settle(&bucket, vb, outcome)? {
        Settled::Ready(got) => got,
        Settled::Parked(done) => return Ok(Settled::Parked(done)),
    };
    let plain = plain(&got)?;
    let body = plain.as_deref().unwrap_or(got.document.value());
    let parts = parts_of(&got, body);
    Ok(Settled::Ready(Looked {
        vb_uuid: vb_uuid(&bucket, vb),
        got,
        plain,
        parts,
        now,
    }))
}

/// The plain form of a compressed value.
pub(super) fn plain(got: &Got) -> Result<Option<Vec<u8>>, Refusal> {
    if !got.document.datatype().contains(Datatype::SNAPPY) {
        return Ok(None);
    }
    let plain = value::inflate(got.document.value()).map_err(|_| Status::EINTERNAL)?;
    Ok(Some(plain))
}

/// Whether paths lead anywhere in a value.
pub(super) fn parts_of(got: &Got, body: &[u8]) -> Result<(), Status> {
    if !got.document.datatype().contains(Datatype::JSON) {
        return Err(Status::SUBDOC_DOC_NOT_JSON);
    }
    if !is_within_depth(body) {
        return Err(Status::SUBDOC_DOC_E2DEEP);
    }
    Ok(())
}

fn vb_uuid(bucket: &ServedBucket, vb: VbId) -> model::VbUuid {
    let newest = bucket
        .bucket
        .with_vbucket(vb, |vbucket| vbucket.failover_log().newest().uuid);
    newest.unwrap_or(model::VbUuid(0))
}

impl Looked {
    fn body(&self) -> &[u8] {
        self.plain.as_deref().unwrap_or(self.got.document.value())
    }

    /// What one path gives.
    fn look(&self, spec: &Spec<'_>) -> Result<Cow<'_, [u8]>, Status> {
        if spec.what == What::GetWhole {
            return match self.body() {
                [] => Err(Status::SUBDOC_PATH_ENOENT),
                body => Ok(Cow::Borrowed(body)),
            };
        }
        let path = Path::parse(spec.path)?;
        if spec.is_of_attribute() {
            let shown = Shown {
                got: &self.got,
                body: self.body(),
                vb_uuid: self.vb_uuid,
                now: self.now,
            };
            let (text, span) = find_in_attribute(&shown, path)?;
            let found = answer(spec.what, text.as_bytes(), span)?;
            return Ok(Cow::Owned(found.into_owned()));
        }
        self.parts?;
        let span = find(self.body(), &path)?;
        answer(spec.what, self.body(), span)
    }
}

fn answer(what: What, text: &[u8], span: crate::subdoc::Span) -> Result<Cow<'_, [u8]>, Status> {
    match what {
        What::Exists => Ok(Cow::Borrowed(&[])),
        What::Count => {
            let count = count(text, span).ok_or(Status::SUBDOC_PATH_MISMATCH)?;
            Ok(Cow::Owned(count.to_string().into_bytes()))
        }
        _ => Ok(Cow::Borrowed(span.of(text))),
    }
}
