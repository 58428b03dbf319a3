//! Changes of parts of documents: SUBDOC_DICT_ADD and its likes, SUBDOC_MULTI_MUTATION.
//!
//! The document is read, changed outside of any lock, and written if it is still the one that was
//! read; if not, all of it is done again.

use std::sync::Arc;

use engine::{Exchange, Got, Mutated, OpError, Outcome};
use model::{Attributes, Cas, Datatype, Draft, Kind, Meta, Now, VbId};
use registry::{Env, ServedBucket};
use value::is_json;
use value::subdoc::Path;
use wire::request::{DocFlags, Message, Subdoc, SubdocExtras, SubdocMulti};
use wire::{Frame, Status};

use super::super::documents::{Settled, absolute_expiry};
use super::super::durable::Written;
use super::changed::{Changed, Failed, Wanted, changed, root_of, split};
use super::lookup::{of_deleted, parts_of, plain, vb_uuid};
use super::virtual_attributes::Shown;
use super::{
    A, AD, CD, MD, RV, Spec, What, check, check_all, check_doc_flags, check_negotiated,
    check_writes, rules,
};
use crate::context::Context;
use crate::key::StoredKey;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;

/// How often a document that others change meanwhile is tried.
const TRIES: usize = 100;
/// Room that a change takes beyond the document.
const ROOM_BYTES: usize = 256;

/// A single path.
pub(in crate::commands) fn mutate(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = Subdoc::read(frame)?;
    let rules = rules(frame.header.opcode).ok_or(Status::EINVAL)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, rules.doc_flags)?;
    let spec = check(&request.spec, &rules)?;
    if doc_flags.contains(DocFlags::CREATE_AS_DELETED) && !spec.is_of_attribute() {
        let context = "a document that is created as deleted has attributes only";
        return Err(Refusal::because(Status::EINVAL, context));
    }
    Path::parse(spec.path)?;
    let target = (request.key, std::slice::from_ref(&spec));
    run(context, frame, target, request.extras, false)
}

/// Several paths: all of them are changed or none.
pub(in crate::commands) fn multi_mutation(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = SubdocMulti::read(frame)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, MD | A | AD | CD | RV)?;
    let specs = check_all(request.specs)?;
    run(context, frame, (request.key, &specs), request.extras, true)
}

/// What is asked of the document, judged.
struct MutateRequest<'a> {
    wanted: Wanted<'a>,
    flags: DocFlags,
    cas: Cas,
    expiry: u32,
    item_flags: Option<u32>,
}

/// What a request is judged with.
#[derive(Clone, Copy)]
struct Asking<'a> {
    multi: bool,
    now: Now,
    env: &'a dyn Env,
}

fn judge<'a>(
    frame: &Frame<'_>,
    specs: &'a [Spec<'a>],
    extras: SubdocExtras,
    asking: Asking<'a>,
) -> Result<MutateRequest<'a>, Refusal> {
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
        // SDKs' transactions say so of a tombstone that they name by its CAS.
        "only what is made, or deleted already, can be created as deleted"
    } else if revives && !has(DocFlags::ACCESS_DELETED) {
        "who revives must take deleted documents"
    } else if revives && has(DocFlags::CREATE_AS_DELETED) {
        "a document cannot be both revived and created as deleted"
    } else {
        check_writes(specs)?;
        return Ok(MutateRequest {
            wanted: Wanted {
                specs,
                makes,
                multi: asking.multi,
                env: asking.env,
            },
            flags,
            cas: frame.header.cas,
            expiry: absolute_expiry(extras.expiry.unwrap_or(0), asking.now)?,
            item_flags: extras.item_flags,
        });
    };
    Err(Refusal::because(Status::EINVAL, wrong))
}

impl MutateRequest<'_> {
    fn has(&self, flag: DocFlags) -> bool {
        self.flags.contains(flag)
    }

    fn deletes(&self) -> bool {
        let mut specs = self.wanted.specs.iter();
        specs.any(|spec| spec.what == What::DeleteWhole)
    }

    /// Whether nothing but the deletion is asked for.
    fn only_deletes(&self) -> bool {
        self.wanted.specs.len() == 1 && self.deletes()
    }

    /// The part of what is there that counts as the document.
    ///
    /// # Errors
    /// If the change may not be made of it.
    fn target<'g>(&self, there: Option<&'g Got>) -> Result<Option<&'g Got>, Refusal> {
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
        let revives = self.has(DocFlags::REVIVE);
        // The CAS of another live document is compared when it is written: it may be locked.
        let judged_here = !live || revives;
        if judged_here && self.cas != Cas::ANY && self.cas != got.document.cas() {
            return Err(OpError::KeyExists.into());
        }
        if live && revives {
            return Err(Status::SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS.into());
        }
        Ok(Some(got))
    }

    /// Whether the document is a tombstone after the change.
    fn leaves_tombstone(&self, target: Option<&Got>) -> bool {
        match target {
            Some(got) if !is_live(got) => !self.has(DocFlags::REVIVE),
            Some(_) => self.deletes(),
            None => self.has(DocFlags::CREATE_AS_DELETED),
        }
    }
}

fn run(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    (key, specs): (&[u8], &[Spec<'_>]),
    extras: SubdocExtras,
    multi: bool,
) -> Result<CommandOutcome, Refusal> {
    check_negotiated(context, specs)?;
    let env = Arc::clone(&context.session.node.env);
    let asking = Asking {
        multi,
        now: context.now,
        env: &*env,
    };
    let asked = judge(frame, specs, extras, asking)?;
    let bucket = context.bucket()?;
    let key = context.key(key)?;
    let vb = context.vbucket(frame, &key);
    for _ in 0..TRIES {
        let there = match read(context, &bucket, vb, &key)? {
            Settled::Ready(there) => there,
            Settled::Parked(done) => return Ok(done),
        };
        let target = asked.target(there.as_ref())?;
        if asked.only_deletes() && target.is_some_and(is_live) {
            return delete(context, frame, (&bucket, vb), &key);
        }
        let tombstone = asked.leaves_tombstone(target);
        let writes_body = |spec: &Spec<'_>| spec.writes_body();
        if tombstone && specs.iter().any(writes_body) {
            return Err(Status::SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE.into());
        }
        let vb_uuid = vb_uuid(&bucket, vb);
        let changed = match make(target, &asked, tombstone, (vb_uuid, context.now))? {
            Ok(changed) => changed,
            Err(failed) => return refuse(context, frame, (target, multi), failed),
        };
        let change = DocumentEdit {
            key: &key,
            there: there.as_ref(),
            changed: &changed,
            meta: meta(target, &asked, &changed, (tombstone, context.now)),
        };
        let mut raced = false;
        let done = store(context, frame, (&bucket, vb), &change, &mut raced);
        if !raced {
            return done;
        }
    }
    Err(Refusal::because(
        Status::ETMPFAIL,
        "others change this document all the time",
    ))
}

fn delete(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    (bucket, vb): (&ServedBucket, VbId),
    key: &StoredKey<'_>,
) -> Result<CommandOutcome, Refusal> {
    context.admit_removal(bucket)?;
    let (cas, now) = (frame.header.cas, context.now);
    let durability = context.requirement(bucket);
    context.write(frame, bucket, vb, |vbucket| {
        vbucket.delete_durably(key.bytes(), cas, durability, now)
    })
}

/// What is there: a document or its tombstone.
fn read(
    context: &mut Context<'_>,
    bucket: &ServedBucket,
    vb: VbId,
    key: &StoredKey<'_>,
) -> Result<Settled<Option<Got>>, Refusal> {
    let now = context.now;
    let outcome = bucket
        .bucket
        .run(vb, |vbucket| vbucket.get_or_tombstone(key.bytes(), now));
    let outcome = match outcome {
        Err(OpError::KeyNotFound) => return Ok(Settled::Ready(None)),
        outcome => outcome?,
    };
    Ok(match context.settle_write(bucket, vb, outcome)? {
        Settled::Ready(got) => Settled::Ready(Some(got)),
        Settled::Parked(done) => Settled::Parked(done),
    })
}

/// Makes the changes of what is there, or of an empty document.
fn make(
    target: Option<&Got>,
    asked: &MutateRequest<'_>,
    tombstone: bool,
    (vb_uuid, now): (model::VbUuid, Now),
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
        now,
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
    (target, multi): (Option<&Got>, bool),
    failed: Failed,
) -> Result<CommandOutcome, Refusal> {
    if !multi {
        return Err(failed.status.into());
    }
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
    target: Option<&Got>,
    asked: &MutateRequest<'_>,
    changed: &Changed,
    (tombstone, now): (bool, Now),
) -> Meta {
    let attributes = if changed.body_at > 0 {
        Datatype::XATTR
    } else {
        Datatype::RAW
    };
    if tombstone {
        return Meta {
            kind: Kind::Deletion,
            expiry: now.unix_s(),
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
    key: &'a StoredKey<'a>,
    /// What was read.
    there: Option<&'a Got>,
    changed: &'a Changed,
    meta: Meta,
}

/// Writes the changed document; `raced` says that another one is there by now.
fn store(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    (bucket, vb): (&Arc<ServedBucket>, VbId),
    change: &DocumentEdit<'_>,
    raced: &mut bool,
) -> Result<CommandOutcome, Refusal> {
    let changed = change.changed;
    let _transient = context.reserve_transient(bucket, ROOM_BYTES, changed.value.len())?;
    let now = context.now;
    let mut exchange = Exchange {
        draft: Some(Draft::new(change.key.bytes(), &changed.value, &change.meta)),
        seen: change.there.map(|got| got.document.seqno()),
        cas: frame.header.cas,
        preserve_expiry: context.infos.preserve_ttl,
        durability: context.requirement(bucket),
        raced: false,
    };
    let told = changed.told.as_slice();
    let was_live = change.there.is_some_and(is_live);
    let status = if change.meta.kind.is_tombstone() && !was_live {
        Status::SUBDOC_SUCCESS_DELETED
    } else {
        Status::SUCCESS
    };
    let done = context.write(frame, bucket, vb, |vbucket| {
        let stamp = |value: &mut [u8], cas, seqno| changed.stamps.write(value, cas, seqno);
        let edited = |mutated| Edited {
            mutated,
            told,
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

fn is_live(got: &Got) -> bool {
    !got.document.kind().is_tombstone()
}

/// What a changed document answers.
#[derive(Clone, Copy)]
struct Edited<'a> {
    mutated: Mutated,
    told: &'a [u8],
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
        out.extend_from_slice(self.told);
    }
}
