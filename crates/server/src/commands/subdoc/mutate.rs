//! Changes of parts of documents: SUBDOC_DICT_ADD and its likes, SUBDOC_MULTI_MUTATION.
//!
//! The document is read, changed outside of any lock, and written if it is still the one that was
//! read; if not, all of it is done again.

use std::borrow::Cow;

use engine::{Got, Mutated, OpError, Outcome, StoreMode, VBucket, Write};
use model::{Cas, Datatype, Draft, Meta, Now, VbId};
use wire::request::{DocFlags, Message, PathFlags, Subdoc, SubdocExtras, SubdocMulti};
use wire::{Frame, Status};

use super::super::documents::{Settled, absolute_expiry};
use super::super::durable::Written;
use super::lookup::{parts_of, plain};
use super::{A, AD, CD, MD, RV, Spec, What, check, check_all, check_doc_flags, rules};
use crate::served::ServedBucket;
use crate::session::{Context, Done, Refusal, Reply, StoredKey};
use crate::subdoc::{Component, Edit, Path, apply};
use crate::value::{VALUE_BYTES_MAX, is_json};

/// How often a document that others change meanwhile is tried.
const TRIES: usize = 100;
/// Room that a change takes beyond the document.
const ROOM_BYTES: usize = 256;

/// A single path.
pub(in crate::commands) fn mutate(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<Done, Refusal> {
    let request = Subdoc::read(frame)?;
    let rules = rules(frame.header.opcode).ok_or(Status::EINVAL)?;
    check_doc_flags(
        request.extras.doc_flags.unwrap_or_default(),
        rules.doc_flags,
    )?;
    let spec = check(&request.spec, &rules)?;
    Path::parse(spec.path)?;
    run(
        context,
        frame,
        (request.key, &[spec]),
        request.extras,
        false,
    )
}

/// Several paths: all of them are changed or none.
pub(in crate::commands) fn multi_mutation(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<Done, Refusal> {
    let request = SubdocMulti::read(frame)?;
    let doc_flags = request.extras.doc_flags.unwrap_or_default();
    check_doc_flags(doc_flags, MD | A | AD | CD | RV)?;
    let specs = check_all(request.specs)?;
    run(context, frame, (request.key, &specs), request.extras, true)
}

/// What is asked of the document, judged.
struct Asked<'a> {
    specs: &'a [Spec<'a>],
    /// Whether it is made where it is not there.
    makes: bool,
    /// Whether it must not be there.
    adds: bool,
    expiry: u32,
    item_flags: Option<u32>,
    multi: bool,
}

fn run(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    (key, specs): (&[u8], &[Spec<'_>]),
    extras: SubdocExtras,
    multi: bool,
) -> Result<Done, Refusal> {
    let asked = judge(frame, specs, extras, (multi, context.now))?;
    let bucket = context.bucket()?;
    let key = context.key(key)?;
    let vb = context.vbucket(frame, &key);
    for _ in 0..TRIES {
        let existing = match read(context, &bucket, vb, &key)? {
            Settled::Ready(existing) => existing,
            Settled::Parked(done) => return Ok(done),
        };
        if existing.is_some() && asked.adds {
            return Err(OpError::KeyExists.into());
        }
        if existing.is_none() && !asked.makes {
            return Err(OpError::KeyNotFound.into());
        }
        let seen = existing.as_ref().map(|got| got.document.cas());
        let mut raced = false;
        let done = if specs.iter().any(|spec| spec.what == What::DeleteWhole) {
            context.admit_removal(&bucket)?;
            let (cas, now) = (frame.header.cas, context.now);
            let durability = context.requirement(&bucket);
            context.write(frame, &bucket, vb, |vbucket| {
                vbucket.delete_durably(key.bytes(), cas, durability, now)
            })
        } else {
            match changed(existing.as_ref(), &asked)? {
                Ok(changed) => {
                    let change = Change {
                        key: &key,
                        seen,
                        changed: &changed,
                        meta: meta(existing.as_ref(), &asked, &changed.text),
                    };
                    store(context, frame, (&bucket, vb), &change, &mut raced)
                }
                Err(failed) => return refuse(context, frame, multi, failed),
            }
        };
        if !raced {
            return done;
        }
    }
    Err(Refusal::because(
        Status::ETMPFAIL,
        "others change this document all the time",
    ))
}

fn judge<'a>(
    frame: &Frame<'_>,
    specs: &'a [Spec<'a>],
    extras: SubdocExtras,
    (multi, now): (bool, Now),
) -> Result<Asked<'a>, Refusal> {
    let flags = extras.doc_flags.unwrap_or_default();
    let adds = flags.contains(DocFlags::ADD);
    let wrong = |context| Err(Refusal::because(Status::EINVAL, context));
    if adds && flags.contains(DocFlags::MKDOC) {
        return wrong("a document cannot be both added and made if needed");
    }
    if adds && frame.header.cas != Cas::ANY {
        return wrong("a document that is added has no CAS");
    }
    for flag in [
        DocFlags::ACCESS_DELETED,
        DocFlags::CREATE_AS_DELETED,
        DocFlags::REVIVE,
    ] {
        if flags.contains(flag) {
            let context = "tombstones cannot be changed";
            return Err(Refusal::because(Status::NOT_SUPPORTED, context));
        }
    }
    if let Some(spec) = specs.iter().find(|spec| spec.is_of_attribute()) {
        if spec.path.starts_with(b"$") {
            return Err(Status::SUBDOC_XATTR_CANT_MODIFY_VATTR.into());
        }
        let context = "extended attributes are not stored";
        return Err(Refusal::because(Status::NOT_SUPPORTED, context));
    }
    Ok(Asked {
        specs,
        makes: adds || flags.contains(DocFlags::MKDOC),
        adds,
        expiry: absolute_expiry(extras.expiry.unwrap_or(0), now)?,
        item_flags: extras.item_flags,
        multi,
    })
}

fn read(
    context: &mut Context<'_>,
    bucket: &ServedBucket,
    vb: VbId,
    key: &StoredKey<'_>,
) -> Result<Settled<Option<Got>>, Refusal> {
    let now = context.now;
    let outcome = bucket
        .bucket
        .run(vb, |vbucket| vbucket.get(key.bytes(), now));
    let outcome = match outcome {
        Err(OpError::KeyNotFound) => return Ok(Settled::Ready(None)),
        outcome => outcome?,
    };
    Ok(match context.settle_write(bucket, vb, outcome)? {
        Settled::Ready(got) => Settled::Ready(Some(got)),
        Settled::Parked(done) => Settled::Parked(done),
    })
}

/// A document with its changes made, and what they tell.
struct Changed {
    text: Vec<u8>,
    told: Vec<u8>,
}

/// The first path that failed, and why.
#[derive(Clone, Copy)]
struct Failed {
    index: usize,
    status: Status,
}

fn changed(existing: Option<&Got>, asked: &Asked<'_>) -> Result<Result<Changed, Failed>, Refusal> {
    let unpacked = existing.map(plain).transpose()?.flatten();
    let (mut text, mut parts) = match existing {
        Some(got) => {
            let body = unpacked.as_deref().unwrap_or(got.document.value());
            (Cow::Borrowed(body), parts_of(got, body))
        }
        None => (Cow::Borrowed(root_of(asked.specs)), Ok(())),
    };
    let mut told = Vec::new();
    for (index, spec) in asked.specs.iter().enumerate() {
        let status = match one(&text, parts, spec, asked.makes) {
            Ok((next, number)) => {
                if spec.what == What::SetWhole {
                    let json = is_json(&next);
                    parts = json.then_some(()).ok_or(Status::SUBDOC_DOC_NOT_JSON);
                }
                text = Cow::Owned(next);
                if let Some(number) = number {
                    tell(asked.multi, index, number, &mut told);
                }
                continue;
            }
            Err(status) => status,
        };
        return Ok(Err(Failed { index, status }));
    }
    if text.len() > VALUE_BYTES_MAX {
        return Err(OpError::TooBig.into());
    }
    let text = text.into_owned();
    Ok(Ok(Changed { text, told }))
}

/// What a document that is made starts as.
fn root_of(specs: &[Spec<'_>]) -> &'static [u8] {
    for spec in specs {
        if let What::Edit(kind) = spec.what {
            let first = Path::parse(spec.path).map(|path| path.components.into_iter().next());
            let array = match first {
                Ok(None) => kind.is_of_elements(),
                Ok(Some(first)) => !matches!(first, Component::Key(_)),
                Err(_) => false,
            };
            return if array { b"[]" } else { b"{}" };
        }
    }
    b""
}

fn one(
    text: &[u8],
    parts: Result<(), Status>,
    spec: &Spec<'_>,
    makes: bool,
) -> Result<(Vec<u8>, Option<i64>), Status> {
    match spec.what {
        What::SetWhole => Ok((spec.value.to_vec(), None)),
        What::Edit(kind) => {
            parts?;
            let edit = Edit {
                kind,
                path: &Path::parse(spec.path)?,
                value: spec.value,
                make_path: makes || spec.flags.contains(PathFlags::MKDIR_P),
            };
            apply(text, &edit)
        }
        _ => Err(Status::EINVAL),
    }
}

/// Adds the number that a counter has come to.
fn tell(multi: bool, index: usize, number: i64, told: &mut Vec<u8>) {
    let number = number.to_string();
    if multi {
        told.push(index as u8);
        told.extend_from_slice(&Status::SUCCESS.0.to_be_bytes());
        told.extend_from_slice(&(number.len() as u32).to_be_bytes());
    }
    told.extend_from_slice(number.as_bytes());
}

fn refuse(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    multi: bool,
    failed: Failed,
) -> Result<Done, Refusal> {
    if !multi {
        return Err(failed.status.into());
    }
    let [high, low] = failed.status.0.to_be_bytes();
    let reply = Reply {
        status: Status::SUBDOC_MULTI_PATH_FAILURE,
        value: &[failed.index as u8, high, low],
        ..Reply::EMPTY
    };
    Ok(context.reply(frame, &reply))
}

fn meta(existing: Option<&Got>, asked: &Asked<'_>, text: &[u8]) -> Meta {
    let kept = existing.map_or(0, |got| got.document.flags());
    Meta {
        flags: asked.item_flags.unwrap_or(kept),
        expiry: asked.expiry,
        datatype: if is_json(text) {
            Datatype::JSON
        } else {
            Datatype::RAW
        },
        ..Meta::default()
    }
}

struct Change<'a> {
    key: &'a StoredKey<'a>,
    /// The revision that was changed; `None` where there was no document.
    seen: Option<Cas>,
    changed: &'a Changed,
    meta: Meta,
}

/// Writes the changed document; `raced` says that another one is there by now.
fn store(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    (bucket, vb): (&ServedBucket, VbId),
    change: &Change<'_>,
    raced: &mut bool,
) -> Result<Done, Refusal> {
    let (text, told) = (&change.changed.text, change.changed.told.as_slice());
    context.admit(bucket, text.len() + ROOM_BYTES)?;
    let now = context.now;
    let key = change.key.bytes();
    let mut write = Write {
        mode: if change.seen.is_some() {
            StoreMode::Replace
        } else {
            StoreMode::Add
        },
        draft: Some(Draft::new(key, text, &change.meta)),
        cas: frame.header.cas,
        preserve_expiry: context.infos.preserve_ttl,
        durability: context.requirement(bucket),
    };
    context.write(frame, bucket, vb, |vbucket| {
        let there = match revision(vbucket, key, now)? {
            Outcome::Done(there) | Outcome::Prepared(there) => there,
            Outcome::NeedsFetch(fetch) => return Ok(Outcome::NeedsFetch(fetch)),
        };
        if there != change.seen {
            *raced = true;
            return Err(OpError::KeyExists);
        }
        let edited = |mutated| Edited { mutated, told };
        Ok(match vbucket.store(&mut write, now)? {
            Outcome::Done(mutated) => Outcome::Done(edited(mutated)),
            Outcome::Prepared(mutated) => Outcome::Prepared(edited(mutated)),
            Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
        })
    })
}

/// The revision of a document; `None` where there is none.
fn revision(vbucket: &mut VBucket, key: &[u8], now: Now) -> Result<Outcome<Option<Cas>>, OpError> {
    Ok(match vbucket.get_meta(key, now) {
        Err(OpError::KeyNotFound) => Outcome::Done(None),
        Err(error) => return Err(error),
        Ok(Outcome::NeedsFetch(fetch)) => Outcome::NeedsFetch(fetch),
        Ok(Outcome::Done(got) | Outcome::Prepared(got)) => {
            Outcome::Done((!got.deleted).then_some(got.meta.cas))
        }
    })
}

/// What a changed document answers.
#[derive(Clone, Copy)]
struct Edited<'a> {
    mutated: Mutated,
    told: &'a [u8],
}

impl Written for Edited<'_> {
    fn mutated(&self) -> Mutated {
        self.mutated
    }

    fn append_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.told);
    }
}
