//! Changes of parts of documents: SUBDOC_DICT_ADD and similar commands, SUBDOC_MULTI_MUTATION.
//!
//! The document is read, changed outside any lock, and stored if it is still the one that was read. Otherwise
//! the change starts again.

use std::sync::Arc;

use bucket::Purpose;
use engine::{Exchange, GetResult, HistoryPoint, Mutated, OpError, Outcome};
use identity::Privilege;
use model::{Attributes, Cas, Datatype, Draft, Kind, Meta, Now};
use registry::Env;
use value::is_json;
use value::subdoc::Path;
use wire::request::{DocFlags, Subdoc, SubdocExtras, SubdocMulti};
use wire::{Frame, Message, Status};

use super::super::documents::absolute_expiry;
use super::super::durable::Written;
use super::super::write::held_bytes;
use super::changed::{Changed, Failed, RequestedChanges, changed, root_of, split};
use super::lookup::{of_deleted, parts_of, plain};
use super::spec::{
    A, AD, CD, MD, RV, Spec, What, check, check_all, check_attributes, check_doc_flags,
    check_writes, rules,
};
use super::virtual_attributes::Shown;
use crate::context::{Context, Location};
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

/// Attempts at a change while others change the same document.
const TRIES: usize = 100;
/// Bytes that a change needs beyond the document.
const ROOM_BYTES: usize = 256;

/// Changes a single path.
pub(in crate::commands) fn mutate(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Subdoc::read(frame)?;
    let rules = rules(frame.header.opcode).ok_or(Status::EINVAL)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, rules.doc_flags)?;
    let spec = check(&request.spec, &rules)?;
    if doc_flags.contains(DocFlags::CREATE_AS_DELETED) && !spec.is_of_attribute() {
        let context = "a document that is created as deleted has attributes only";
        return Err(Refusal::invalid(context));
    }
    Path::parse(spec.path)?;
    let asked = MutateRequest {
        key: request.key,
        specs: std::slice::from_ref(&spec),
        extras: request.extras,
        multi: false,
    };
    run(context, frame, asked)
}

/// Changes several paths: all of them or none.
pub(in crate::commands) fn multi_mutation(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> CommandResult {
    let request = SubdocMulti::read(frame)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, MD | A | AD | CD | RV)?;
    let specs = check_all(request.specs)?;
    let asked = MutateRequest {
        key: request.key,
        specs: &specs,
        extras: request.extras,
        multi: true,
    };
    run(context, frame, asked)
}

/// A request as it was sent, with checked paths.
#[derive(Clone, Copy)]
struct MutateRequest<'a> {
    key: &'a [u8],
    specs: &'a [Spec<'a>],
    extras: SubdocExtras,
    /// Whether the command is a multi-path one.
    multi: bool,
}

/// A change whose flags were checked.
struct WantedEdit<'a> {
    wanted: RequestedChanges<'a>,
    flags: DocFlags,
    cas: Cas,
    expiry: u32,
    item_flags: Option<u32>,
    now: Now,
}

fn judge<'a>(
    frame: &Frame<'_>,
    asked: MutateRequest<'a>,
    now: Now,
    env: &'a dyn Env,
) -> Result<WantedEdit<'a>, Refusal> {
    let (specs, extras) = (asked.specs, asked.extras);
    let flags = extras.doc_flags.unwrap_or_default();
    let has = |flag| flags.contains(flag);
    let adds = has(DocFlags::ADD);
    let makes = adds || has(DocFlags::MKDOC);
    let revives = has(DocFlags::REVIVE);
    let wrong = if adds && has(DocFlags::MKDOC) {
        "a document cannot be both added and made if needed"
    } else if adds && frame.header.cas != Cas::ANY {
        "a document that is added has no CAS"
    } else if has(DocFlags::CREATE_AS_DELETED) && !makes && !has(DocFlags::ACCESS_DELETED) {
        // SDKs' transactions send this combination for a tombstone that they name by its CAS.
        "only what is made, or deleted already, can be created as deleted"
    } else if revives && !has(DocFlags::ACCESS_DELETED) {
        "who revives must take deleted documents"
    } else if revives && has(DocFlags::CREATE_AS_DELETED) {
        "a document cannot be both revived and created as deleted"
    } else {
        check_writes(specs)?;
        return Ok(WantedEdit {
            wanted: RequestedChanges {
                specs,
                makes,
                multi: asked.multi,
                env,
            },
            flags,
            cas: frame.header.cas,
            expiry: absolute_expiry(extras.expiry.unwrap_or(0), now)?,
            item_flags: extras.item_flags,
            now,
        });
    };
    Err(Refusal::invalid(wrong))
}

impl WantedEdit<'_> {
    fn has(&self, flag: DocFlags) -> bool {
        self.flags.contains(flag)
    }

    fn deletes(&self) -> bool {
        let mut specs = self.wanted.specs.iter();
        specs.any(|spec| spec.what == What::DeleteWhole)
    }

    /// Whether the only spec is the deletion of the document.
    fn only_deletes(&self) -> bool {
        self.wanted.specs.len() == 1 && self.deletes()
    }

    /// Returns the document or tombstone to change; `None` to create one.
    ///
    /// # Errors
    /// The change is not allowed on this document.
    fn target<'g>(&self, there: Option<&'g GetResult>) -> Result<Option<&'g GetResult>, Refusal> {
        let takes_deleted = self.has(DocFlags::ACCESS_DELETED);
        let visible = there.filter(|got| takes_deleted || is_live(got));
        let live = there.is_some_and(is_live);
        if self.has(DocFlags::ADD) {
            let bars = live || self.has(DocFlags::CREATE_AS_DELETED) && there.is_some();
            return if bars {
                Err(OpError::KeyExists.into())
            } else {
                Ok(None)
            };
        }
        let Some(got) = visible else {
            return if self.wanted.makes && self.cas == Cas::ANY {
                Ok(None)
            } else {
                Err(OpError::KeyNotFound.into())
            };
        };
        // The CAS is compared before paths are looked at. `store` compares that of a locked document.
        let locked = got.cas == Cas::LOCKED;
        if !locked && self.cas != Cas::ANY && self.cas != got.document.cas() {
            return Err(OpError::KeyExists.into());
        }
        if live && self.has(DocFlags::REVIVE) {
            return Err(Status::SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS.into());
        }
        Ok(Some(got))
    }

    /// Whether the document is a tombstone after the change.
    fn leaves_tombstone(&self, target: Option<&GetResult>) -> bool {
        match target {
            Some(got) if !is_live(got) => !self.has(DocFlags::REVIVE),
            Some(_) => self.deletes(),
            None => self.has(DocFlags::CREATE_AS_DELETED),
        }
    }
}

fn run(context: &mut Context<'_>, frame: &Frame<'_>, request: MutateRequest<'_>) -> CommandResult {
    check_attributes(context, request.specs, Privilege::SystemXattrWrite)?;
    let env = Arc::clone(&context.session.node.env);
    let asked = judge(frame, request, context.now, &*env)?;
    let place = &context.locate(frame, request.key)?;
    for _ in 0..TRIES {
        let (there, as_of) = read(context, place)?;
        let target = asked.target(there.as_ref())?;
        if asked.only_deletes() && target.is_some_and(is_live) {
            return delete(context, frame, place);
        }
        let tombstone = asked.leaves_tombstone(target);
        if tombstone && request.specs.iter().any(Spec::writes_body) {
            return Err(Status::SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE.into());
        }
        if !tombstone && asked.deletes() {
            // A document that would be made or revived is not there to be deleted.
            return Err(OpError::KeyNotFound.into());
        }
        // The new value is made of the present one and the request.
        let bytes = frame.value.len() + target.map_or(0, |got| held_bytes(&got.document));
        let _transient = context.admit_with_transient(&place.bucket, ROOM_BYTES, bytes)?;
        let changed = match make(target, &asked, tombstone, as_of.vb_uuid)? {
            Ok(changed) => changed,
            Err(failed) if request.multi => return refuse(context, frame, target, failed),
            Err(failed) => return Err(failed.status.into()),
        };
        let change = DocumentEdit {
            there: there.as_ref(),
            as_of,
            changed: &changed,
            meta: meta(target, &asked, &changed, tombstone),
        };
        let mut raced = false;
        let done = store(context, frame, place, &change, &mut raced);
        if !raced {
            return done;
        }
    }
    Err(Refusal::not_now("others change this document all the time"))
}

fn delete(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    Location { bucket, vb, key }: &Location<'_>,
) -> CommandResult {
    context.admit(Purpose::Removal, 0)?;
    let (cas, now) = (frame.header.cas, context.now);
    let durability = context.requirement(bucket);
    context.write(frame, bucket, *vb, |vbucket| {
        vbucket.delete(key.bytes(), cas, durability, now)
    })
}

/// Reads a document or its tombstone, and the position of its vBucket.
fn read(
    context: &mut Context<'_>,
    Location { bucket, vb, key }: &Location<'_>,
) -> Result<(Option<GetResult>, HistoryPoint), Refusal> {
    let now = context.now;
    let outcome = context.run(bucket, *vb, |vbucket| {
        let found = match vbucket.get_or_tombstone(key.bytes(), now) {
            Err(OpError::KeyNotFound) => Outcome::Done(None),
            found => found?.map(Some),
        };
        let as_of = vbucket.position();
        Ok(found.map(|found| (found, as_of)))
    })?;
    context.settle_write(bucket, *vb, outcome)
}

/// Makes the changes on a document, or on an empty one.
fn make(
    target: Option<&GetResult>,
    asked: &WantedEdit<'_>,
    tombstone: bool,
    vb_uuid: model::VbUuid,
) -> Result<Result<Changed, Failed>, Refusal> {
    let unpacked = target.map(plain).transpose()?.flatten();
    let mut parts = Ok(());
    let (attributes, mut body) = match target {
        Some(got) => {
            let stored = got.document.value();
            split(unpacked.as_deref().unwrap_or(stored), &got.document)
        }
        None => (Attributes::default(), &[][..]),
    };
    let live = target.filter(|got| is_live(got));
    if let Some(got) = live {
        parts = parts_of(got, body);
    }
    let shown = |body| Shown {
        document: target.map(|got| &got.document),
        attributes,
        body,
        vb_uuid,
        now: asked.now,
        system: true,
    };
    let begins = match (live, target) {
        (Some(_), _) => false,
        (None, Some(_)) => asked.wanted.specs.iter().any(Spec::writes_body),
        (None, None) => true,
    };
    if begins && !tombstone {
        body = root_of(asked.wanted.specs);
    }
    Ok(changed(&shown(body), parts, asked.wanted)?)
}

fn refuse(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    target: Option<&GetResult>,
    failed: Failed,
) -> CommandResult {
    let gone = target.is_some_and(|got| !is_live(got));
    let status = Status::SUBDOC_MULTI_PATH_FAILURE;
    let [high, low] = failed.status.0.to_be_bytes();
    let reply = Reply {
        status: if gone { of_deleted(status) } else { status },
        value: &[failed.index as u8, high, low],
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

fn meta(
    target: Option<&GetResult>,
    asked: &WantedEdit<'_>,
    changed: &Changed,
    tombstone: bool,
) -> Meta {
    let attributes = if changed.body_at > 0 {
        Datatype::XATTR
    } else {
        Datatype::RAW
    };
    if tombstone {
        return Meta {
            kind: Kind::Deletion,
            expiry: asked.now.unix_s(),
            datatype: attributes,
            ..Meta::default()
        };
    }
    let kept = target.map_or(0, |got| got.document.flags());
    let body = if is_json(changed.body()) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    Meta {
        flags: asked.item_flags.unwrap_or(kept),
        expiry: asked.expiry,
        datatype: body.with(attributes),
        ..Meta::default()
    }
}

struct DocumentEdit<'a> {
    /// Document or tombstone that was read.
    there: Option<&'a GetResult>,
    /// History and high seqno of the vBucket at that time.
    as_of: HistoryPoint,
    changed: &'a Changed,
    meta: Meta,
}

/// Stores the changed document; `raced` is the outcome if another change came first.
fn store(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    Location { bucket, vb, key }: &Location<'_>,
    change: &DocumentEdit<'_>,
    raced: &mut bool,
) -> CommandResult {
    let changed = change.changed;
    let now = context.now;
    let mut exchange = Exchange {
        draft: Some(Draft::new(key.bytes(), &changed.value, &change.meta)),
        seen: change.there.map(|got| got.document.clone()),
        as_of: change.as_of,
        cas: frame.header.cas,
        preserve_expiry: context.infos.preserve_ttl,
        durability: context.requirement(bucket),
        raced: false,
    };
    let results = changed.results.as_slice();
    let was_live = change.there.is_some_and(is_live);
    let status = if change.meta.kind.is_tombstone() && !was_live {
        Status::SUBDOC_SUCCESS_DELETED
    } else {
        Status::SUCCESS
    };
    let done = context.write(frame, bucket, *vb, |vbucket| {
        let stamp = |value: &mut [u8], cas, seqno| changed.stamps.write(value, cas, seqno);
        let edited = |mutated| Edited {
            mutated,
            results,
            status,
        };
        Ok(match vbucket.exchange(&mut exchange, &stamp, now)? {
            Outcome::Done(mutated) => Outcome::Done(edited(mutated)),
            Outcome::Prepared(mutated) => Outcome::Prepared(edited(mutated)),
            Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
        })
    });
    *raced = exchange.raced;
    done
}

fn is_live(got: &GetResult) -> bool {
    !got.document.kind().is_tombstone()
}

/// Answer to a changed document.
#[derive(Clone, Copy)]
struct Edited<'a> {
    mutated: Mutated,
    results: &'a [u8],
    status: Status,
}

impl Written for Edited<'_> {
    fn mutated(&self) -> Mutated {
        self.mutated
    }

    fn status(&self) -> Status {
        self.status
    }

    fn append_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.results);
    }
}
