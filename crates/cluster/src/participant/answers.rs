//! Handlers of etcd's answers and of watched changes.

use std::collections::BTreeSet;

use super::lease::NodeLease;
use super::machine::{Copies, Exclusion, Identity, Participant, Purpose};
use crate::agreed::{Key, NodeState, Seen, View};
use crate::coord::{Answer, KeyChange, LeaseId, Range, Request, RequestId};
use crate::map::{BucketId, Vb, Version};

impl Participant {
    pub(super) fn take_answer(
        &mut self,
        id: RequestId,
        answer: &Answer,
        now_ms: u64,
        copies: &impl Copies,
    ) {
        let Some((purpose, sent_ms)) = self.requests.get(&id).copied() else {
            return;
        };
        if purpose != Purpose::Watch {
            self.requests.remove(&id);
        }
        match (purpose, answer) {
            (Purpose::Watch, Answer::Changes { revision, changes }) => {
                if self.are_of_another_history(changes) {
                    self.note_went_back(now_ms);
                } else {
                    self.take_changes(*revision, changes, copies);
                    self.check_removal(now_ms);
                }
            }
            (Purpose::Watch, end) => {
                self.requests.remove(&id);
                self.watch = None;
                // After an interruption, etcd may be another one.
                self.doubt(self.newest, now_ms);
                if *end == Answer::Compacted {
                    // Read everything again, as when a lease is taken.
                    self.lease = NodeLease::None;
                    self.watching_since_ms = None;
                }
            }
            (Purpose::Grant, Answer::Granted(lease)) => {
                let lease = *lease;
                self.lease = NodeLease::Granted { lease, sent_ms };
                self.read(lease, now_ms);
            }
            (Purpose::Read(lease), Answer::Got { revision, found }) => {
                let mut read = View::default();
                read.load(self.identity.cluster, *revision, found);
                self.take_read(lease, read, now_ms, copies);
            }
            (Purpose::ClearMark(lease), Answer::Committed(_)) => {
                if let NodeLease::Joining { lease: is, sent_ms } = self.lease
                    && is == lease
                {
                    self.lease = NodeLease::Granted { lease, sent_ms };
                    self.read(lease, now_ms);
                }
            }
            (Purpose::Grant | Purpose::Read(_) | Purpose::ClearMark(_), _) => {
                self.lease = NodeLease::None;
            }
            (Purpose::Join, answer) => self.take_joined(answer),
            (Purpose::KeepAlive(lease, seen), answer) => {
                self.kept_alive(lease, sent_ms, answer);
                self.check_watch(answer, now_ms);
                self.check_revision(answer, seen, now_ms);
            }
            (Purpose::Check(seen), Answer::Got { revision, found }) => {
                let mut read = View::default();
                read.load(self.identity.cluster, *revision, found);
                // Copies may have been adopted since the request.
                let given_up = self.view.has_adopted_since(&seen);
                if !given_up && !read.has(&seen) && self.went_back_ms.is_none() {
                    self.note_went_back(now_ms);
                }
            }
            // Ask again until etcd answers.
            (Purpose::Check(seen), Answer::Unavailable) => self.check(seen, now_ms),
            (Purpose::Adopt(number), answer) => self.adoption_answered(number, answer, now_ms),
            (Purpose::Control(term), answer) => self.coordinator.answered(term, answer),
            (Purpose::Revoke(node, lease), Answer::Revoked | Answer::NoLease) => {
                self.coordinator.revoked(node, lease, now_ms);
            }
            (Purpose::Revoke(..) | Purpose::OfItself | Purpose::Elect | Purpose::Check(_), _) => {}
        }
    }

    fn take_read(&mut self, lease: LeaseId, read: View, now_ms: u64, copies: &impl Copies) {
        let NodeLease::Granted { lease: is, sent_ms } = self.lease else {
            return;
        };
        if is != lease || !self.follows(&read) {
            self.lease = NodeLease::None;
            // Changes that the watch delivered after this read began may be missing in it.
            if !read.has(&self.newest_when_asked) {
                self.note_went_back(now_ms);
            }
            if self.went_back_ms.is_some() && self.view.revision == 0 {
                // The addresses of other nodes are still valid.
                self.view.nodes = read.nodes;
            }
            return;
        }
        let mine = read.nodes.get(&self.identity.node);
        let mine = mine.map_or(0, |entry| entry.mod_revision);
        let alive = read.alive.get(&self.identity.node);
        let seen = (mine, alive.map_or(0, |entry| entry.mod_revision));
        self.lease = NodeLease::Read {
            lease,
            sent_ms,
            seen,
        };
        self.load(read, now_ms, copies);
    }

    fn take_joined(&mut self, answer: &Answer) {
        let joining = self.lease;
        self.lease = NodeLease::None;
        if let (NodeLease::Joining { lease, sent_ms }, Answer::Committed(revision)) =
            (joining, answer)
        {
            self.joined = *revision;
            self.lease = NodeLease::held(&self.settings, lease, sent_ms);
        }
    }

    fn read(&mut self, lease: LeaseId, now_ms: u64) {
        let prefix = self.identity.cluster.prefix();
        let request = Request::Get(Range::Prefix(prefix));
        self.newest_when_asked = self.newest;
        self.request(Purpose::Read(lease), request, now_ms);
    }

    pub(super) fn kept_alive(&mut self, kept: LeaseId, sent_ms: u64, answer: &Answer) {
        let NodeLease::Held {
            lease, until_ms, ..
        } = self.lease
        else {
            return;
        };
        if lease != kept {
            return;
        }
        if matches!(answer, Answer::KeptAlive(_)) {
            let renewed = NodeLease::held(&self.settings, lease, sent_ms);
            if renewed.until_ms() > until_ms {
                self.lease = renewed;
            }
        } else if *answer == Answer::NoLease {
            self.lease = NodeLease::None;
        }
    }

    /// Opens the watch again if it lags behind etcd: the watch request may have been lost.
    pub(super) fn check_watch(&mut self, answer: &Answer, now_ms: u64) {
        let behind = matches!(answer, Answer::KeptAlive(at) if *at > self.view.revision);
        if !behind {
            self.behind_since_ms = None;
            return;
        }
        let since_ms = *self.behind_since_ms.get_or_insert(now_ms);
        if now_ms >= since_ms + self.settings.request_ms {
            self.behind_since_ms = None;
            if let Some(watch) = self.watch.take() {
                self.requests.remove(&watch);
            }
            self.doubt(self.newest, now_ms);
            self.keep_watch(now_ms);
        }
    }

    /// Checks whether etcd went back, if an answer has a lower revision than the node had seen. The answer
    /// alone does not prove it: a renewal carries the revision of the member that forwarded it, which may
    /// lag.
    pub(super) fn check_revision(&mut self, answer: &Answer, seen: u64, now_ms: u64) {
        let lower = matches!(answer, Answer::KeptAlive(at) if *at < seen);
        if lower {
            self.doubt(self.newest, now_ms);
        }
    }

    /// Checks whether etcd has the state that a node had seen, unless this is known.
    pub(super) fn doubt(&mut self, seen: Seen, now_ms: u64) {
        if seen == self.newest || !self.view.has(&seen) {
            self.check(seen, now_ms);
        }
    }

    fn check(&mut self, seen: Seen, now_ms: u64) {
        let known = self.went_back_ms.is_some();
        if !known && !self.is_under_way(|p| matches!(p, Purpose::Check(_))) {
            let history = Request::Get(Range::Key(self.key(Key::History)));
            self.request(Purpose::Check(seen), history, now_ms);
        }
    }

    /// Whether a read contains everything that this node has seen. An etcd that was restored from a backup is
    /// followed once copies were adopted.
    fn follows(&self, read: &View) -> bool {
        let went_back = self.went_back_ms.is_some();
        read.has(&self.newest) && (!went_back || read.has_adopted_since(&self.newest))
    }

    /// Whether a controller made one of the changes in a history without a transaction that this node had seen.
    fn are_of_another_history(&self, changes: &[KeyChange]) -> bool {
        let cluster = self.identity.cluster;
        let is = |change: &KeyChange| match change {
            KeyChange::Put(kv) if Key::parse(cluster, &kv.key) == Some(Key::History) => {
                let mut read = View::default();
                read.load(cluster, kv.mod_revision, std::slice::from_ref(kv));
                kv.mod_revision > self.view.revision && !read.has(&self.newest)
            }
            _ => false,
        };
        changes.iter().any(is)
    }

    /// Records that etcd lacks a state which this node had seen when it asked: the node does not follow it.
    pub(super) fn note_went_back(&mut self, now_ms: u64) {
        self.went_back_ms.get_or_insert(now_ms);
        self.lease = NodeLease::None;
        self.watching_since_ms = None;
        if let Some(watch) = self.watch.take() {
            self.requests.remove(&watch);
        }
    }

    pub(super) fn see(&mut self) {
        self.newest = self.view.seen();
    }

    /// Replaces the view by a read of etcd, and watches from there on. A watch that reported all of it goes on.
    pub(super) fn load(&mut self, read: View, now_ms: u64, copies: &impl Copies) {
        if self.view.revision < read.revision
            && let Some(watch) = self.watch.take()
        {
            self.requests.remove(&watch);
        }
        self.view = read;
        self.went_back_ms = None;
        (self.sealed_for, self.adoption) = (None, None);
        self.watching_since_ms.get_or_insert(now_ms);
        self.see();
        self.keep_watch(now_ms);
        self.agent.keep_buckets(&self.view);
        let changed = self.take_all_chunks();
        self.look_at(changed, copies);
        self.uncompared = self.view.specs.keys().copied().collect();
        self.keep_manifests(now_ms, copies);
        self.check_removal(now_ms);
    }

    /// Checks whether this node was removed, or another process has its number: it does not come back by itself.
    fn check_removal(&mut self, now_ms: u64) {
        let (me, joined) = (self.identity.node, self.joined);
        let known = joined > 0 && self.view.revision >= joined;
        let is_gone = known && !self.view.nodes.contains_key(&me);
        let exclusion = match (self.has_successor(), is_gone) {
            (true, _) => Exclusion::Replaced,
            (false, true) => Exclusion::Removed,
            (false, false) => return,
        };
        if self.excluded.is_some() {
            return;
        }
        if let NodeLease::Held { lease, .. } = self.lease {
            self.request(Purpose::Revoke(me, lease), Request::Revoke(lease), now_ms);
        }
        (self.lease, self.excluded) = (NodeLease::None, Some(exclusion));
    }

    /// Whether another process has this node's number. Either another node has it: an adoption wrote it, which the backup
    /// of etcd lacked when this node joined. Or a copy of this node's data directory was started after this process.
    fn has_successor(&self) -> bool {
        let Identity {
            node, boot, new, ..
        } = &self.identity;
        let entry = self.view.nodes.get(node);
        let is_other_node = entry.is_some_and(|entry| entry.value.uuid != new.uuid);
        let alive = self.view.alive.get(node).filter(|_| self.joined > 0);
        let is_later_start = alive
            .is_some_and(|entry| entry.mod_revision > self.joined && entry.value.boot != *boot);
        is_other_node || is_later_start
    }

    fn take_all_chunks(&mut self) -> BTreeSet<Vb> {
        let chunks: Vec<_> = self.view.maps.keys().copied().collect();
        let changed = chunks.into_iter().flat_map(|chunk| self.take_chunk(chunk));
        changed.collect()
    }

    fn take_chunk(&mut self, chunk: (BucketId, u16)) -> Vec<Vb> {
        let epoch = self.view.epoch();
        let changed = self.view.maps.get(&chunk).map(|entry| {
            let revision = entry.mod_revision;
            self.agent
                .apply(chunk, Version { epoch, revision }, &entry.value)
        });
        changed.unwrap_or_default()
    }

    pub(super) fn take_changes(
        &mut self,
        revision: u64,
        changes: &[KeyChange],
        copies: &impl Copies,
    ) {
        let cluster = self.identity.cluster;
        let (mut all, mut vbs) = (false, BTreeSet::new());
        let seen = self.view.revision;
        for change in changes.iter().filter(|change| change.revision() > seen) {
            self.view.apply(cluster, change);
            match (Key::parse(cluster, change.key()), change) {
                (Some(Key::Map(bucket, chunk)), KeyChange::Put(_)) => {
                    vbs.extend(self.take_chunk((bucket, chunk)));
                }
                (Some(Key::Map(bucket, chunk)), KeyChange::Delete { .. }) => {
                    vbs.extend(self.agent.forget((bucket, chunk)));
                }
                (Some(Key::Meta), _) => all = true,
                _ => {}
            }
        }
        self.view.revision = self.view.revision.max(revision);
        self.see();
        if all {
            vbs.extend(self.take_all_chunks());
        }
        self.look_at(vbs, copies);
        self.check_lease();
    }

    /// Puts out one step of each copy, for its newest row: a step for an older row would be outdated when it is made.
    fn look_at(&mut self, changed: BTreeSet<Vb>, copies: &impl Copies) {
        for vb in changed {
            self.open.insert(vb);
            self.look(vb, copies.copy(vb));
        }
    }

    /// Drops a lease that etcd does not have, or that is void since the node is marked as failed.
    pub(super) fn check_lease(&mut self) {
        let NodeLease::Held { lease, .. } = self.lease else {
            return;
        };
        let me = self.identity.node;
        let state = self.view.nodes.get(&me).map(|entry| entry.value.state);
        let known = self.view.revision >= self.joined;
        if known && state == Some(NodeState::Failed) && !self.is_alive_by(lease) {
            self.lease = NodeLease::None;
        }
    }

    pub(super) fn is_alive_by(&self, lease: LeaseId) -> bool {
        let alive = self.view.alive.get(&self.identity.node);
        alive.is_some_and(|entry| entry.lease == lease)
    }

    pub(super) fn keep_watch(&mut self, now_ms: u64) {
        if self.watch.is_none() && self.watching_since_ms.is_some() {
            let prefix = self.identity.cluster.prefix();
            let from = self.view.revision + 1;
            self.watch =
                Some(self.request(Purpose::Watch, Request::Watch { prefix, from }, now_ms));
        }
    }
}
