//! The worker thread, which may wait for the disk: it makes steps of copies, and makes, changes and removes buckets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use bucket::WarmupStage;
use cluster::agent::Step;
use cluster::agreed::{BucketSpec, NodeState, Seen, View};
use cluster::{BucketId, NodeId};
use copies::{Steps, Unfinished, node_name, vb_of};
use identity::Password;
use registry::cluster::CLUSTER_USER;
use registry::{Store, agreed_settings, collections};
use replication::PeerOptions;

use crate::events::{DriverEvent, Work};
use crate::host::{BucketNotMade, MemberRecord};
use crate::hosted::Hosted;
use crate::join::USERS_NOT_TAKEN;
use crate::node_services::MemberServices;
use crate::retry::{RETRY, RefusedChanges, Unapplied};
use crate::shared::{Shared, reach};

/// Interval between checks of steps that wait for the disk.
const LOOK: Duration = Duration::from_millis(1);
const NOT_MADE: &str = "a bucket of the cluster cannot be made";

/// Queued steps. Removals of copies are separate: each needs a sync of the store, and as many come together
/// as takeovers end together.
#[derive(Default)]
struct Queue {
    steps: Vec<Step>,
    removals: VecDeque<Step>,
}

impl Queue {
    fn add(&mut self, step: Step) {
        match step {
            Step::Remove { .. } => self.removals.push_back(step),
            _ => self.steps.push(step),
        }
    }

    /// Returns the steps to begin before the next check for new ones: no seal waits for more than one removal.
    fn next(&mut self) -> Vec<Step> {
        let mut next = std::mem::take(&mut self.steps);
        next.extend(self.removals.pop_front());
        next
    }

    fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.removals.is_empty()
    }
}

/// Marks of the agreed state that differ after a change for which a client waits.
#[derive(Default, PartialEq, Eq)]
struct AppliedMarks {
    /// Newest revision of settings, collections and users.
    revision: u64,
    buckets: usize,
    electing: usize,
}

impl AppliedMarks {
    fn of(view: &View, electing: usize) -> Self {
        let specs = view.specs.values().map(|spec| spec.mod_revision);
        let manifests = view.manifests.values().map(|entry| entry.mod_revision);
        let users = view.users.iter().map(|entry| entry.mod_revision);
        let newest = specs.chain(manifests).chain(users).max();
        Self {
            revision: newest.unwrap_or_default(),
            buckets: view.specs.len(),
            electing,
        }
    }
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    work: Receiver<Work>,
    done: Sender<DriverEvent>,
    /// Epoch of these revisions.
    epoch: u64,
    /// Revisions of each bucket's applied settings and manifest; a restored etcd may have lower ones.
    taken: BTreeMap<BucketId, (u64, u64)>,
    /// Buckets made here of which a vBucket had no active copy yet.
    electing: BTreeSet<BucketId>,
    /// Newest change that clients asked for, of those applied here.
    applied: AppliedMarks,
    /// Buckets that the cluster dropped, and that are not removed here yet.
    dropped: Vec<Arc<Hosted>>,
    /// Changes that cannot be made yet.
    refused: RefusedChanges,
    /// Failed nodes.
    failed: BTreeSet<NodeId>,
    queue: Queue,
    /// Steps that wait.
    open: Vec<Unfinished>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        work: Receiver<Work>,
        done: Sender<DriverEvent>,
    ) -> Self {
        Self {
            shared,
            work,
            done,
            epoch: 0,
            taken: BTreeMap::new(),
            electing: BTreeSet::new(),
            applied: AppliedMarks::default(),
            dropped: Vec::new(),
            refused: RefusedChanges::default(),
            failed: BTreeSet::new(),
            queue: Queue::default(),
            open: Vec::new(),
        }
    }

    /// Works until the driver has ended. It retries changes that could not be made: a bucket may be loading, or a disk
    /// full.
    pub(crate) fn run(mut self) {
        let (mut view, mut seen) = (Unapplied::default(), Unapplied::default());
        loop {
            let pause = if !self.queue.is_empty() {
                Duration::ZERO
            } else if !self.open.is_empty() {
                LOOK
            } else if !view.is_empty() || !seen.is_empty() {
                RETRY
            } else {
                Duration::MAX
            };
            let first = match self.work.recv_timeout(pause) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let rest = std::iter::from_fn(|| self.work.try_recv().ok());
            for work in first.into_iter().chain(rest) {
                match work {
                    Work::Step(step) => self.queue.add(step),
                    Work::Keep(newest) => seen.set(newest),
                    Work::Buckets(newer) => view.set(newer),
                }
            }
            seen.attempt(|seen| self.keep(*seen));
            let steps = self.queue.next();
            self.make(steps);
            view.attempt(|view| self.apply(view));
        }
    }

    /// Applies the agreed state; returns whether all of it is applied.
    fn apply(&mut self, view: &Arc<View>) -> bool {
        let applied = self.reconcile(view);
        if applied {
            self.shared.note_taken(self.shared.me, view.revision);
            self.report(view);
        }
        applied
    }

    /// Reports an applied change to other nodes at once if a client of theirs may wait for it.
    fn report(&mut self, view: &View) {
        self.electing
            .retain(|id| view.specs.contains_key(id) && !view.is_served(*id));
        let applied = AppliedMarks::of(view, self.electing.len());
        if self.applied != applied {
            self.applied = applied;
            // The driver may have ended.
            drop(self.done.send(DriverEvent::Applied));
        }
    }

    /// Stores the seen state of etcd; returns whether it is on disk.
    fn keep(&mut self, seen: Seen) -> bool {
        let cluster = self.shared.cluster.uuid();
        let record = MemberRecord {
            seen,
            stop: None,
            starts: self.shared.described.starts,
        };
        let kept = self.shared.host.keep_record(&cluster, record);
        let what = "what was seen of the cluster is not on disk";
        self.refused.note(None, what, kept)
    }

    /// Begins steps, and continues those that wait.
    fn make(&mut self, steps: Vec<Step>) {
        let mut open = std::mem::take(&mut self.open);
        let mut made = Vec::new();
        for step in steps {
            let vb = vb_of(&step);
            let hosted = self.shared.table.get(vb.bucket);
            let begin = |hosted: &Hosted| self.with_steps(hosted, |maker| maker.begin(step));
            match hosted.and_then(|hosted| begin(&hosted)) {
                Some(unfinished) => open.push(unfinished),
                None => made.push(vb),
            }
        }
        open.retain_mut(|unfinished| {
            let vb = unfinished.vb();
            let hosted = self.shared.table.get(vb.bucket);
            let mut go_on =
                |hosted: &Hosted| self.with_steps(hosted, |maker| maker.go_on(unfinished));
            let over = hosted.is_none_or(|hosted| go_on(&hosted));
            if over {
                made.push(vb);
            }
            !over
        });
        open.shrink_to_fit();
        self.open = open;
        if made.is_empty() {
            return;
        }
        let buckets: BTreeSet<BucketId> = made.iter().map(|vb| vb.bucket).collect();
        for hosted in buckets
            .into_iter()
            .filter_map(|id| self.shared.table.get(id))
        {
            hosted.drop_links();
        }
        // The driver may have ended.
        drop(self.done.send(DriverEvent::Stepped(made)));
    }

    fn with_steps<T>(&self, hosted: &Hosted, make: impl FnOnce(&Steps<'_, Store>) -> T) -> T {
        let link = |node| self.peer_options(node);
        let node = &self.shared.node;
        make(&Steps {
            copies: &hosted.copies,
            me: self.shared.me,
            failed: &self.failed,
            services: &MemberServices {
                node,
                hosted,
                link: &link,
            },
        })
    }

    fn peer_options(&self, node: NodeId) -> Option<PeerOptions> {
        let view = self.shared.view();
        let other = &view.nodes.get(&node)?.value;
        let tls = self.shared.tls.clone();
        Some(PeerOptions {
            me: node_name(self.shared.me),
            peer: node.0,
            name: other.name.clone(),
            at: reach(other, tls.is_some())?,
            tls,
            username: CLUSTER_USER.to_owned(),
            password: Password::from(self.shared.secret.as_str()),
            problems: Arc::clone(&self.shared.problems),
            threads: Arc::clone(&self.shared.peer_threads),
        })
    }

    /// Applies the agreed state to the node's buckets; returns whether all of it is applied.
    fn reconcile(&mut self, view: &Arc<View>) -> bool {
        if self.epoch != view.epoch() {
            // After a restore of etcd, revisions begin again.
            self.epoch = view.epoch();
            self.shared.users.store(0, Ordering::Relaxed);
            self.taken.clear();
        }
        let (mut done, mut no_space, mut unmade) = (true, false, BTreeSet::new());
        // Before buckets, which may wait for the disk: a removed user must not be let in meanwhile.
        if let Some(users) = &view.users
            && users.mod_revision != self.shared.users.load(Ordering::Relaxed)
        {
            let taken = registry::take_users(&self.shared.node, users.value.as_bytes());
            if self.refused.note(None, USERS_NOT_TAKEN, taken) {
                let taken = &self.shared.users;
                taken.store(users.mod_revision, Ordering::Release);
            } else {
                done = false;
            }
        }
        done &= self.drop_buckets(view);
        for (id, entry) in &view.specs {
            let hosted = match self.shared.table.get(*id) {
                Some(hosted) => hosted,
                // Clients of a bucket without a map would wait for nodes, and some for ever.
                None if !view.has_map(*id) => continue,
                None => match self.make_bucket(*id, &entry.value, view) {
                    Ok(hosted) => hosted,
                    Err(not_made) => {
                        let (bucket, reason) = (&entry.value.name, not_made.reason);
                        self.refused.note(Some(bucket), NOT_MADE, Err(reason));
                        (done, no_space) = (false, no_space | not_made.no_space);
                        unmade.insert(*id);
                        continue;
                    }
                },
            };
            done &= self.adjust(&hosted, view);
        }
        self.shared.no_space.store(no_space, Ordering::Relaxed);
        *self.shared.unmade.lock() = unmade;
        let failed = view.nodes.iter();
        let failed = failed.filter(|(_, entry)| entry.value.state == NodeState::Failed);
        let failed = failed.map(|(node, _)| *node).collect();
        if self.failed != failed {
            self.failed = failed;
            for hosted in self.shared.table.all() {
                let refresh = |steps: &Steps<'_, Store>| steps.refresh_chains();
                self.with_steps(&hosted, refresh);
            }
        }
        if done {
            self.refused.forget_buckets();
        }
        done
    }

    /// Drops buckets that the cluster dropped; returns whether all are gone. One that another one replaces stays until
    /// that one has a map.
    fn drop_buckets(&mut self, view: &View) -> bool {
        let unmapped = view.specs.iter().filter(|(id, _)| !view.has_map(**id));
        let awaited: BTreeSet<&str> = unmapped.map(|(_, spec)| &*spec.value.name).collect();
        for hosted in self.shared.table.all() {
            let unknown = view.history.value.unknown.contains(&hosted.id);
            let stays = awaited.contains(hosted.served.name());
            if !view.specs.contains_key(&hosted.id) && !unknown && !stays {
                self.leave(&hosted);
                self.dropped.push(hosted);
            }
        }
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.retain(|hosted| !self.remove_bucket(hosted));
        self.dropped = dropped;
        self.dropped.is_empty()
    }

    fn make_bucket(
        &mut self,
        id: BucketId,
        spec: &BucketSpec,
        view: &View,
    ) -> Result<Arc<Hosted>, BucketNotMade> {
        let settings = agreed_settings(spec)?;
        let manifest = view.manifests.get(&id).map(|manifest| &*manifest.value);
        let host = &self.shared.host;
        host.make_bucket(&id.to_string(), settings, manifest)?;
        let served = self.shared.node.bucket(&spec.name);
        let served = served.filter(|served| served.uuid == id.to_string());
        let served = served.ok_or_else(|| "another bucket has its name".to_owned())?;
        let hosted = Arc::new(Hosted::new(id, served));
        self.shared.table.insert(Arc::clone(&hosted));
        self.electing.insert(id);
        self.refused.note(Some(&spec.name), NOT_MADE, Ok(()));
        registry::publish_cluster(&self.shared.node, &hosted.served);
        // The driver may have ended.
        drop(self.done.send(DriverEvent::Made(id)));
        Ok(hosted)
    }

    /// Ends the part of this node in a bucket.
    fn leave(&mut self, hosted: &Hosted) {
        self.shared.table.remove(hosted.id);
        self.taken.remove(&hosted.id);
        for vb in hosted.copies.vbuckets() {
            hosted.copies.gate.close(model::VbId(vb.number));
        }
        hosted.links.lock().clear();
    }

    /// Removes a dropped bucket from the node; returns whether it is gone. Another one may have its name by now.
    fn remove_bucket(&mut self, hosted: &Hosted) -> bool {
        let (name, uuid) = (hosted.served.name(), hosted.id.to_string());
        let served = self.shared.node.bucket(name);
        if served.is_none_or(|served| served.uuid != uuid) {
            return true;
        }
        let dropped = self.shared.host.drop_bucket(name);
        let what = "a bucket that the cluster dropped is not gone";
        self.refused.note(Some(name), what, dropped)
    }

    /// Applies the settings and collections of a bucket; returns whether all are applied.
    fn adjust(&mut self, hosted: &Hosted, view: &View) -> bool {
        let (id, bucket) = (hosted.id, hosted.served.name());
        let mut taken = self.taken.get(&id).copied().unwrap_or_default();
        let mut done = true;
        if let Some(spec) = view.specs.get(&id)
            && spec.mod_revision != taken.0
        {
            let adjusted = self.adjust_settings(hosted, &spec.value);
            let what = "settings of the cluster are not obeyed";
            if self.refused.note(Some(bucket), what, adjusted) {
                taken.0 = spec.mod_revision;
            } else {
                done = false;
            }
        }
        if let Some(manifest) = view.manifests.get(&id)
            && manifest.mod_revision != taken.1
        {
            let what = "collections are not taken over yet";
            // A bucket that is loading takes none, which is no failure.
            let loading = hosted.served.bucket.warmup().stage() == WarmupStage::Loading;
            let mut adjust = || {
                let adjusted = self.adjust_manifest(hosted, &manifest.value);
                self.refused.note(Some(bucket), what, adjusted)
            };
            if !loading && adjust() {
                taken.1 = manifest.mod_revision;
            } else {
                done = false;
            }
        }
        self.taken.insert(id, taken);
        done
    }

    fn adjust_settings(&self, hosted: &Hosted, spec: &BucketSpec) -> Result<(), String> {
        let settings = agreed_settings(spec)?;
        if hosted.served.settings() == settings {
            return Ok(());
        }
        self.shared.host.adjust_bucket(settings)
    }

    fn adjust_manifest(&self, hosted: &Hosted, manifest: &str) -> Result<(), String> {
        let manifest = collections::of_json(manifest.as_bytes());
        let manifest = manifest.map_err(|error| error.to_string())?;
        let bucket = &hosted.served.bucket;
        if manifest.uid() < bucket.manifest_uid() {
            // The participant writes the newer one to etcd, which was restored from a backup.
            return Ok(());
        }
        let changed = bucket.change_manifest(|_| Ok(manifest.clone()), collections::to_bytes);
        changed.map_err(|error| error.to_string())?;
        registry::publish_cluster(&self.shared.node, &hosted.served);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cluster::Vb;

    use super::*;

    #[test]
    fn copies_are_removed_one_at_a_time_after_other_steps() {
        let vb = |number| Vb {
            bucket: BucketId(1),
            number,
        };
        let removal = |number| Step::Remove { vb: vb(number) };
        let seal = |number| Step::Seal {
            vb: vb(number),
            term: 2,
        };
        let mut queue = Queue::default();
        for step in [removal(1), removal(2), seal(3), seal(4)] {
            queue.add(step);
        }
        assert_eq!(queue.next(), [seal(3), seal(4), removal(1)]);
        queue.add(seal(5));
        assert_eq!(queue.next(), [seal(5), removal(2)]);
        assert!(queue.is_empty());
    }
}
