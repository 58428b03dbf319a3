//! Changes of the cluster's agreed state, each by one transaction.

use std::time::{Duration, Instant};

use cluster::BucketId;
use cluster::agreed::{BucketSpec, CHUNK_VBUCKETS, Entry, Key, View};
use cluster::coord::{Answer, Compare, LeaseId, Op, Range, Request, Txn};
use etcd::ProblemKind;
use registry::cluster::{AgreedChange, ChangeError};
use registry::{BucketSettings, bucket_id, collections};

use crate::hosted::Hosted;
use crate::shared::{REPLACED, Shared};

/// Longest wait for an answer of etcd, and longest time in which a transaction is sent again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a transaction is sent again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Longest wait until this node has applied the change.
const FOLLOW_LIMIT: Duration = Duration::from_mins(1);
/// Longest wait until the other nodes have applied the change.
const OTHERS_LIMIT: Duration = Duration::from_secs(5);
const FOLLOW_LOOK: Duration = Duration::from_millis(10);
/// Refusal by a node that was removed.
const REMOVED: &str = "this node was removed from the cluster: ask another one (if it starts again, it joins as a new node)";

/// A draft of a transaction.
#[derive(Default)]
struct DraftTxn(Txn);

impl DraftTxn {
    /// Sets a key whose last write was at revision `seen`, 0 for a key that does not exist.
    fn put(&mut self, key: String, seen: u64, value: String) {
        self.expect(key.clone(), seen);
        self.set(key, value);
    }

    fn set(&mut self, key: String, value: String) {
        let lease = LeaseId(0);
        self.0.then.push(Op::Put { key, value, lease });
    }

    /// Requires that the last write of a key was at revision `seen`, 0 for a key that does not exist.
    fn expect(&mut self, key: String, seen: u64) {
        self.0.compare.push(Compare::ModRevision(key, seen));
    }

    fn delete(&mut self, key: String) {
        self.0.then.push(Op::Delete { key });
    }
}

fn spec_of(settings: &BucketSettings) -> BucketSpec {
    BucketSpec {
        name: settings.bucket.name.clone(),
        vbuckets: settings.bucket.vbuckets(),
        copies: usize::from(settings.replicas) + 1,
        settings: serde_json::to_value(settings).expect("settings are JSON"),
    }
}

impl Shared {
    /// Returns the reason why this process changes nothing in its cluster any more.
    fn refusal(&self) -> Option<&'static str> {
        let status = self.status.read();
        let removed = status.removed.then_some(REMOVED);
        status.replaced.then_some(REPLACED).or(removed)
    }

    /// Makes a change, and waits until this node has applied it.
    pub(crate) fn change(&self, change: AgreedChange) -> Result<(), ChangeError> {
        if let Some(reason) = self.refusal() {
            return Err(ChangeError::Unavailable(reason.to_owned()));
        }
        let view = self.view();
        let mut draft = DraftTxn::default();
        match change {
            AgreedChange::MakeBucket(settings) => {
                let id = self.draft_bucket(&view, &settings, &mut draft)?;
                let revision = self.commit(&draft)?;
                return self.await_bucket(id, revision);
            }
            AgreedChange::AdjustBucket { settings, based_on } => {
                let (id, _) = known(&view, &settings.bucket.name)?;
                let spec = spec_of(&settings);
                let value = serde_json::to_string(&spec).expect("a specification is JSON");
                draft.put(self.key(Key::Spec(id)), based_on, value);
            }
            AgreedChange::DropBucket(name) => {
                self.draft_drop(&view, &name, &mut draft)?;
                draft.delete(self.name_key(&name));
            }
            AgreedChange::FlushBucket(name) => {
                let id = self.draft_flush(&view, &name, &mut draft)?;
                let revision = self.commit(&draft)?;
                return self.await_bucket(id, revision);
            }
            AgreedChange::Manifest {
                bucket,
                text,
                based_on,
            } => {
                let (id, spec) = known(&view, &bucket)?;
                self.check_follows(id, &text)?;
                draft.expect(self.key(Key::Spec(id)), spec.mod_revision);
                draft.put(self.key(Key::Manifest(id)), based_on, text);
            }
            AgreedChange::Users { text, based_on } => {
                draft.put(self.key(Key::Users), based_on, text);
            }
        }
        let revision = self.commit(&draft)?;
        let late = "the change is agreed on, and this node has not seen it yet";
        self.follow(late, &|| Ok(self.view().revision >= revision))?;
        self.await_others(revision);
        Ok(())
    }

    /// Waits until every node that runs has applied a change, so that clients find it everywhere. The wait is short.
    fn await_others(&self, revision: u64) {
        let begun = Instant::now();
        while !self.all_have(revision) && begun.elapsed() < OTHERS_LIMIT && !self.is_stopped() {
            std::thread::sleep(FOLLOW_LOOK);
        }
    }

    /// Waits until this node follows a change; not for long, and not while it stops.
    fn follow(
        &self,
        late: &str,
        follows: &dyn Fn() -> Result<bool, ChangeError>,
    ) -> Result<(), ChangeError> {
        let begun = Instant::now();
        while !follows()? {
            if self.is_stopped() {
                return Err(ChangeError::Unavailable("the node stops".to_owned()));
            }
            if begun.elapsed() > FOLLOW_LIMIT {
                return Err(ChangeError::Unavailable(late.to_owned()));
            }
            std::thread::sleep(FOLLOW_LOOK);
        }
        Ok(())
    }

    fn key(&self, key: Key) -> String {
        key.text(self.cluster)
    }

    /// Returns the key that makes bucket names unique.
    fn name_key(&self, name: &str) -> String {
        format!("{}bucket_names/{name}", self.cluster.prefix())
    }

    fn draft_bucket(
        &self,
        view: &View,
        settings: &BucketSettings,
        draft: &mut DraftTxn,
    ) -> Result<BucketId, ChangeError> {
        let name = &settings.bucket.name;
        if bucket_id(view, name).is_some() {
            return Err(ChangeError::Refused(
                "Bucket with given name already exists".into(),
            ));
        }
        let id = self.new_id();
        let value = serde_json::to_string(&spec_of(settings)).expect("a specification is JSON");
        draft.put(self.key(Key::Spec(id)), 0, value);
        draft.put(self.name_key(name), 0, id.to_string());
        Ok(id)
    }

    fn new_id(&self) -> BucketId {
        let (high, low) = (self.node.env.random_u64(), self.node.env.random_u64());
        BucketId(u128::from(high) << 64 | u128::from(low))
    }

    /// Removes a bucket, except its name.
    fn draft_drop<'v>(
        &self,
        view: &'v View,
        name: &str,
        draft: &mut DraftTxn,
    ) -> Result<(BucketId, &'v BucketSpec), ChangeError> {
        let (id, entry) = known(view, name)?;
        let key = self.key(Key::Spec(id));
        draft.expect(key.clone(), entry.mod_revision);
        draft.delete(key);
        draft.delete(self.key(Key::Manifest(id)));
        for chunk in 0..entry.value.vbuckets.div_ceil(CHUNK_VBUCKETS) {
            draft.delete(self.key(Key::Map(id, chunk)));
        }
        Ok((id, &entry.value))
    }

    /// Replaces a bucket by an empty one with the same settings and collections.
    fn draft_flush(
        &self,
        view: &View,
        name: &str,
        draft: &mut DraftTxn,
    ) -> Result<BucketId, ChangeError> {
        let (before, spec) = self.draft_drop(view, name, draft)?;
        let id = self.new_id();
        let value = serde_json::to_string(spec).expect("a specification is JSON");
        draft.put(self.key(Key::Spec(id)), 0, value);
        let manifest = view.manifests.get(&before);
        let seen = manifest.map_or(0, |manifest| manifest.mod_revision);
        draft.expect(self.key(Key::Manifest(before)), seen);
        if let Some(manifest) = manifest {
            draft.put(self.key(Key::Manifest(id)), 0, manifest.value.to_string());
        }
        draft.set(self.name_key(name), id.to_string());
        Ok(id)
    }

    /// Waits until all copies of a bucket made at a revision that shall be here are, each vBucket has an active copy, and
    /// every node that runs follows.
    fn await_bucket(&self, id: BucketId, made: u64) -> Result<(), ChangeError> {
        let late = "the bucket is agreed on, and not made everywhere yet";
        self.follow(late, &|| {
            let view = self.view();
            if !view.specs.contains_key(&id) {
                return if view.revision < made {
                    Ok(false)
                } else {
                    Err(ChangeError::Refused(
                        "the bucket was dropped or flushed meanwhile".into(),
                    ))
                };
            }
            Ok(self.table.get(id).is_some() && view.is_served(id))
        })?;
        let revision = self.view().revision;
        self.await_others(revision);
        Ok(())
    }

    /// Checks that a new manifest is newer than the one of this node, which writes its own to an etcd that lost it.
    fn check_follows(&self, id: BucketId, text: &str) -> Result<(), ChangeError> {
        let next = collections::of_json(text.as_bytes());
        let next = next.map_err(|error| ChangeError::Refused(error.to_string()))?;
        let is_older = |hosted: &Hosted| hosted.served.bucket.manifest_uid() >= next.uid();
        if self.table.get(id).is_some_and(|hosted| is_older(&hosted)) {
            let lost = "etcd lacks collections of the bucket, which this node writes there";
            return Err(ChangeError::Conflict(lost.to_owned()));
        }
        Ok(())
    }

    /// Commits a transaction. While etcd does not tell the result, it is sent again: its conditions allow one commit.
    fn commit(&self, draft: &DraftTxn) -> Result<u64, ChangeError> {
        let begun = Instant::now();
        let mut repeated = false;
        loop {
            let problem = match self.etcd.ask(Request::Txn(draft.0.clone()), PATIENCE) {
                Ok(Answer::Committed(revision)) => return Ok(revision),
                Ok(_) => {
                    let made = repeated.then(|| self.made_before(&draft.0)).flatten();
                    let other = "another change came first: look again";
                    return made.ok_or_else(|| ChangeError::Conflict(other.into()));
                }
                Err(problem) => problem,
            };
            self.note_problem(&problem);
            let kind = problem.kind();
            let silent = matches!(kind, ProblemKind::Unreachable | ProblemKind::NoQuorum);
            if !silent || begun.elapsed() > PATIENCE || self.is_stopped() {
                return Err(ChangeError::Unavailable(format!(
                    "etcd did not confirm the change: {problem}"
                )));
            }
            repeated = true;
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Returns the revision of etcd if its newest state has what a transaction writes first.
    fn made_before(&self, txn: &Txn) -> Option<u64> {
        let (key, written) = match txn.then.first()? {
            Op::Put { key, value, .. } => (key, Some(value)),
            Op::Delete { key } => (key, None),
        };
        let newest = Request::Get(Range::Key(key.clone()));
        let Ok(Answer::Got { revision, found }) = self.etcd.ask(newest, PATIENCE) else {
            return None;
        };
        let made = found.first().map(|now| &now.value) == written;
        made.then_some(revision)
    }
}

fn known<'v>(view: &'v View, name: &str) -> Result<(BucketId, &'v Entry<BucketSpec>), ChangeError> {
    let found = bucket_id(view, name).and_then(|id| Some((id, view.specs.get(&id)?)));
    found.ok_or_else(|| ChangeError::Conflict("the bucket is gone".into()))
}
