//! Location of each vBucket's writes: on the connection to a node, or in a queue. No I/O of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use client::{Address, Nodes};
use model::VbId;

use super::batch::{QueuedWrite, QueuedWrites};
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;
use crate::stream::MOVE_PATIENCE;

/// Pauses before retries of temporarily refused writes: exponential back-off.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Delay of the message that changes wait.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Location of a vBucket's writes.
#[derive(Clone, Copy, Debug)]
struct WritePlace {
    /// Node of the unanswered writes, and number of their batches.
    node: usize,
    batches: usize,
    /// Time of the next retry, and the pause after it.
    again_at: Instant,
    pause: Duration,
}

/// Locations of all writes, by vBucket.
#[derive(Debug)]
pub(super) struct WriteQueues {
    by_vbucket: Vec<WritePlace>,
    /// Queued writes.
    waiting: BTreeMap<VbId, QueuedWrites>,
    waiting_bytes: usize,
    /// vBuckets with unanswered writes at a node to which the map does not give them, and since when.
    moved: BTreeMap<VbId, Instant>,
    /// vBuckets that no reachable node serves, and since when.
    unserved: BTreeMap<VbId, Instant>,
    /// Whether the message that changes wait was printed.
    was_told: bool,
    /// Reason why the last connection was lost.
    trouble: Option<Failure>,
    /// Address of the target, for messages.
    address: Address,
}

impl WriteQueues {
    /// Creates the locations without writes.
    pub(super) fn new(vbuckets: u16, address: Address) -> Self {
        let place = WritePlace {
            node: 0,
            batches: 0,
            again_at: Instant::now(),
            pause: PAUSE_MIN,
        };
        Self {
            by_vbucket: vec![place; usize::from(vbuckets)],
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            moved: BTreeMap::new(),
            unserved: BTreeMap::new(),
            was_told: false,
            trouble: None,
            address,
        }
    }

    /// Returns whether no write is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the bytes of queued writes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns whether no write before this mark is queued.
    pub(super) fn is_done_before(&self, mark: u64) -> bool {
        let mut waiting = self.waiting.values().flat_map(BTreeMap::values);
        waiting.all(|held| held.mark >= mark)
    }

    /// Returns the node for a new write: the owner of its vBucket; `None` if the write must be queued.
    pub(super) fn route(&self, vbucket: VbId, owner: Option<usize>) -> Option<usize> {
        let place = self.at(vbucket);
        let is_free = |owner: &usize| place.batches == 0 || place.node == *owner;
        owner.filter(|owner| is_free(owner) && !self.waiting.contains_key(&vbucket))
    }

    /// Returns the vBuckets whose queued writes are due: none of their writes is unanswered.
    pub(super) fn due(&self) -> Vec<VbId> {
        let now = Instant::now();
        let is_due = |vbucket: &VbId| {
            let place = self.at(*vbucket);
            place.batches == 0 && place.again_at <= now
        };
        self.waiting.keys().copied().filter(is_due).collect()
    }

    /// Takes the queued writes of a vBucket, in their order.
    pub(super) fn take_waiting(&mut self, vbucket: VbId) -> QueuedWrites {
        let waited = self.waiting.remove(&vbucket).unwrap_or_default();
        let bytes = waited.values().map(|held| held.bytes.len());
        self.waiting_bytes -= bytes.sum::<usize>();
        waited
    }

    /// Queues a write.
    pub(super) fn hold(&mut self, vbucket: VbId, held: QueuedWrite) {
        self.waiting_bytes += held.bytes.len();
        let waiting = self.waiting.entry(vbucket).or_default();
        waiting.insert(held.opaque.0, held);
    }

    /// Delays the queued writes of a vBucket after a temporary refusal of its node, unless the map has another owner.
    pub(super) fn pause(&mut self, vbucket: VbId, owner: Option<usize>) {
        let now = Instant::now();
        let place = self.at_mut(vbucket);
        if owner == Some(place.node) && place.again_at <= now {
            place.again_at = now + place.pause;
            place.pause = (place.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns whether the back-off of a vBucket has reached its maximum.
    pub(super) fn is_refused_for_long(&self, vbucket: VbId) -> bool {
        self.at(vbucket).pause == PAUSE_MAX
    }

    /// Counts a batch for a node that holds writes of a vBucket.
    pub(super) fn begin(&mut self, vbucket: VbId, node: usize) {
        let place = self.at_mut(vbucket);
        place.node = node;
        place.batches += 1;
    }

    /// Counts the end of a batch with writes of a vBucket.
    pub(super) fn end(&mut self, vbucket: VbId) {
        let place = self.at_mut(vbucket);
        place.batches -= 1;
        if place.batches == 0 {
            self.moved.remove(&vbucket);
        }
    }

    /// Notes that the node of a vBucket carried out writes.
    pub(super) fn is_served(&mut self, vbucket: VbId) {
        if !self.waiting.contains_key(&vbucket) {
            self.at_mut(vbucket).pause = PAUSE_MIN;
        }
        self.unserved.remove(&vbucket);
        self.was_told &= !self.unserved.is_empty();
    }

    /// Notes that the node of a vBucket can be reached. The vBucket counts as served, unless writes are pending to show
    /// it.
    pub(super) fn is_reached(&mut self, vbucket: VbId) {
        if self.at(vbucket).batches == 0 && !self.waiting.contains_key(&vbucket) {
            self.is_served(vbucket);
        }
    }

    /// Notes that no reachable node serves a vBucket.
    pub(super) fn is_unserved(&mut self, vbucket: VbId) {
        self.unserved.entry(vbucket).or_insert_with(Instant::now);
    }

    /// Notes the reason why a connection was lost, or could not be made.
    pub(super) fn note(&mut self, trouble: Failure) {
        self.trouble = Some(trouble);
    }

    /// Applies a newer map; returns whether it has the same number of vBuckets.
    #[must_use]
    pub(super) fn follow(&mut self, nodes: &Nodes) -> bool {
        let now = Instant::now();
        for (vbucket, place) in (0..).map(VbId).zip(&mut self.by_vbucket) {
            place.again_at = now;
            let owner = nodes.owner(vbucket);
            if place.batches > 0 && owner.is_some_and(|owner| owner != place.node) {
                self.moved.entry(vbucket).or_insert(now);
            } else {
                self.moved.remove(&vbucket);
            }
        }
        usize::from(nodes.vbuckets()) == self.by_vbucket.len()
    }

    /// Returns the nodes that have not answered writes within [`MOVE_PATIENCE`] after the map gave their vBuckets to
    /// other nodes.
    pub(super) fn cut_off(&self) -> BTreeSet<usize> {
        let overdue = self
            .moved
            .iter()
            .filter(|(_, since)| since.elapsed() >= MOVE_PATIENCE);
        overdue.map(|(vbucket, _)| self.at(*vbucket).node).collect()
    }

    /// Prints a message if no node serves some vBuckets for a while.
    ///
    /// # Errors
    /// A vBucket was not served for `patience`.
    pub(super) fn look(&mut self, patience: Duration) -> Result<(), Failure> {
        let Some((vbucket, since)) = self.unserved.iter().min_by_key(|(_, since)| **since) else {
            return Ok(());
        };
        let (waited, count, address) = (since.elapsed(), self.unserved.len(), &self.address);
        let reason = self.trouble.as_ref().map(|trouble| format!(" ({trouble})"));
        let reason = format!(
            "vBucket {} of {address} is served by no node that can be reached{}",
            vbucket.0,
            reason.unwrap_or_default()
        );
        if waited >= patience {
            let advice = "see `settee cluster status`, and start the command again, which goes on from its state file";
            return Err(Failure::new(
                Sysexit::Unavailable,
                format!("{reason}; {advice}"),
            ));
        }
        if waited >= TELL_AFTER && !self.was_told {
            self.was_told = true;
            note(format_args!(
                "{reason} for {} s; changes of {count} vBuckets wait",
                waited.as_secs()
            ));
        }
        Ok(())
    }

    fn at(&self, VbId(vbucket): VbId) -> &WritePlace {
        &self.by_vbucket[usize::from(vbucket)]
    }

    fn at_mut(&mut self, VbId(vbucket): VbId) -> &mut WritePlace {
        &mut self.by_vbucket[usize::from(vbucket)]
    }
}

#[cfg(test)]
mod tests {
    use client::testing::{FakeServer, Fault};
    use wire::Opaque;

    use super::*;

    const VB: VbId = VbId(1);

    fn nodes() -> Nodes {
        let server = FakeServer::start(true, Fault::None);
        Nodes::connect(&server.options()).unwrap().0
    }

    fn queues(nodes: &Nodes) -> WriteQueues {
        WriteQueues::new(nodes.vbuckets(), nodes.address(0))
    }

    /// Returns a map that gives all vBuckets to another node.
    fn moved() -> String {
        let rows = vec!["[1]"; 64].join(",");
        format!(
            r#"{{"rev":9,"nodesExt":[{{"services":{{}},"thisNode":true}},{{"services":{{"kv":9}}}}],
                "vBucketServerMap":{{"vBucketMap":[{rows}]}}}}"#,
        )
    }

    fn held(opaque: u32, mark: u64) -> QueuedWrite {
        QueuedWrite {
            mark,
            opaque: Opaque(opaque.to_be_bytes()),
            bytes: vec![0; 10],
        }
    }

    #[test]
    fn queued_writes_go_in_order_before_new_writes() {
        let mut queues = queues(&nodes());
        assert_eq!(queues.route(VB, Some(0)), Some(0));
        assert_eq!(queues.route(VB, None), None);
        queues.hold(VB, held(300, 5));
        queues.hold(VB, held(2, 4));
        assert_eq!(queues.route(VB, Some(0)), None);
        assert_eq!(queues.route(VbId(2), Some(0)), Some(0), "others go on");
        assert!(queues.is_done_before(4) && !queues.is_done_before(5));
        assert_eq!((queues.waiting_bytes(), queues.due()), (20, vec![VB]));
        let waited = queues.take_waiting(VB).into_values();
        let opaques: Vec<_> = waited.map(|held| held.opaque.0).collect();
        assert_eq!(opaques, [2, 300].map(u32::to_be_bytes));
        assert!(queues.is_idle() && queues.waiting_bytes() == 0);
        assert_eq!(queues.route(VB, Some(0)), Some(0));
    }

    #[test]
    fn writes_of_a_vbucket_are_at_one_node_at_a_time() {
        let mut nodes = nodes();
        let mut queues = queues(&nodes);
        queues.begin(VB, 0);
        queues.begin(VB, 0);
        assert!(nodes.learn(moved().as_bytes(), 0));
        assert!(queues.follow(&nodes));
        assert_eq!(queues.route(VB, nodes.owner(VB)), None);
        queues.hold(VB, held(1, 0));
        queues.end(VB);
        assert!(queues.due().is_empty());
        queues.end(VB);
        assert_eq!(queues.due(), [VB]);
    }

    #[test]
    fn node_that_does_not_answer_for_moved_vbuckets_is_cut_off() {
        let mut nodes = nodes();
        let mut queues = queues(&nodes);
        queues.begin(VB, 0);
        assert!(nodes.learn(moved().as_bytes(), 0));
        assert!(queues.follow(&nodes));
        assert!(queues.cut_off().is_empty(), "it may be about to answer");
        let long_ago = Instant::now().checked_sub(MOVE_PATIENCE).unwrap();
        *queues.moved.get_mut(&VB).unwrap() = long_ago;
        assert_eq!(queues.cut_off(), BTreeSet::from([0]));
        queues.end(VB);
        assert!(queues.cut_off().is_empty());
    }

    #[test]
    fn refused_writes_back_off_unless_their_vbucket_moves() {
        let mut nodes = nodes();
        let mut queues = queues(&nodes);
        for _ in 0..8 {
            assert!(!queues.is_refused_for_long(VB));
            queues.pause(VB, Some(0));
            queues.hold(VB, held(1, 0));
            assert!(queues.due().is_empty());
            queues.is_served(VB);
            queues.at_mut(VB).again_at = Instant::now();
            assert_eq!(queues.due(), [VB]);
        }
        assert!(queues.is_refused_for_long(VB));
        queues.pause(VB, Some(0));
        assert!(queues.due().is_empty());
        assert!(nodes.learn(moved().as_bytes(), 0));
        assert!(queues.follow(&nodes));
        assert_eq!(queues.due(), [VB], "its new node is tried at once");
        queues.take_waiting(VB);
        queues.is_served(VB);
        assert!(!queues.is_refused_for_long(VB));
    }

    #[test]
    fn vbucket_without_a_node_is_an_error_after_the_time_limit() {
        let mut queues = queues(&nodes());
        assert!(queues.look(Duration::ZERO).is_ok());
        queues.is_unserved(VB);
        queues.hold(VB, held(1, 0));
        queues.is_reached(VB);
        assert!(queues.look(Duration::from_mins(1)).is_ok());
        queues.note(Failure::new(Sysexit::Unavailable, "lost"));
        let ended = queues.look(Duration::ZERO).unwrap_err().to_string();
        assert!(ended.contains("vBucket 1 of ") && ended.contains("(lost)"));
        queues.take_waiting(VB);
        queues.is_reached(VB);
        assert!(queues.look(Duration::ZERO).is_ok());
    }
}
