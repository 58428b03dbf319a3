//! The context in which a command runs.

use std::sync::Arc;

use identity::{Privilege, PrivilegeSet};
use model::{Cas, CollectionId, Now, VbId, split_key};
use registry::ServedBucket;
use wire::{Feature, Frame, RequestInfos, Status};

use crate::key::StoredKey;
use crate::outcome::{CommandOutcome, Refusal};
use crate::park::Park;
use crate::reply::Reply;
use crate::session::Session;

/// Context of a running command: session, envelope of the request, output.
pub(crate) struct Context<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) now: Now,
    pub(crate) infos: RequestInfos<'a>,
    /// Whether a successful answer is left out.
    pub(crate) quiet: bool,
    /// Privileges that the command needs.
    pub(crate) privileges: PrivilegeSet,
}

/// Bucket, stored key and vBucket of a document.
pub(crate) struct Location<'k> {
    pub(crate) bucket: Arc<ServedBucket>,
    pub(crate) key: StoredKey<'k>,
    pub(crate) vb: VbId,
}

impl Context<'_> {
    /// Returns the selected bucket. Commands whose scope is not the node always have one.
    pub(crate) fn bucket(&self) -> Result<Arc<ServedBucket>, Refusal> {
        self.session
            .bucket
            .clone()
            .ok_or_else(|| Status::NO_BUCKET.into())
    }

    /// Locates the document of a request.
    pub(crate) fn locate<'k>(
        &self,
        frame: &Frame<'_>,
        key: &'k [u8],
    ) -> Result<Location<'k>, Refusal> {
        let bucket = self.bucket()?;
        let key = self.key(key)?;
        let vb = self.vbucket(frame, &key);
        Ok(Location { bucket, key, vb })
    }

    /// Returns the stored form of a key, in a collection that exists and in which the peer has the command's
    /// privileges.
    pub(crate) fn key<'k>(&self, key: &'k [u8]) -> Result<StoredKey<'k>, Refusal> {
        let (collection, stored) = StoredKey::of(key, self.session.has(Feature::COLLECTIONS))?;
        let bucket = self.session.bucket.as_ref();
        if bucket.is_some_and(|served| !served.bucket.knows_collection(collection)) {
            return Err(Refusal::UnknownCollection);
        }
        self.session.check_collection(collection, self.privileges)?;
        Ok(stored)
    }

    /// Whether the peer has a privilege in the collection of a key.
    pub(crate) fn may(&self, key: &StoredKey<'_>, privilege: Privilege) -> bool {
        let collection = split_key(key.bytes()).map_or(CollectionId::DEFAULT, |(id, _)| id);
        self.session.access.collection(collection).has(privilege)
    }

    /// Returns the vBucket of a request: the one that it names, or the key's own for a peer that does not
    /// know vBuckets.
    pub(crate) fn vbucket(&self, frame: &Frame<'_>, key: &StoredKey<'_>) -> VbId {
        self.session.vbucket_of(frame, key)
    }

    /// Answers, unless the command is quiet.
    pub(crate) fn reply(&mut self, frame: &Frame<'_>, reply: &Reply<'_>) -> CommandOutcome {
        if !self.quiet {
            self.session.answer(frame, reply, self.now, self.output);
        }
        CommandOutcome::Next
    }

    /// Answers even if the command is quiet.
    pub(crate) fn reply_loudly(&mut self, frame: &Frame<'_>, reply: &Reply<'_>) -> CommandOutcome {
        self.session.answer(frame, reply, self.now, self.output);
        CommandOutcome::Next
    }

    /// Answers success with a CAS.
    pub(crate) fn reply_cas(&mut self, frame: &Frame<'_>, cas: Cas) -> CommandOutcome {
        self.reply(frame, &Reply::cas(cas))
    }

    /// Records that the request waits; returns since when, and how often it was run.
    pub(crate) fn park(&mut self) -> Park {
        self.session.note_park(self.now).clone()
    }
}
