//! A fake cluster member for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cluster::agreed::{
    Address, Alive, BucketSpec, CHUNK_VBUCKETS, Chunk, Entry, Meta, Node, NodeState, View,
};
use cluster::coord::LeaseId;
use cluster::{BucketId, Chain, NodeId, Order, Row};
use parking_lot::Mutex;

use crate::cluster::{AgreedChange, ChangeError, ClusterMember, MemberStatus};

/// Effect of a change.
pub type Apply = Box<dyn Fn(&AgreedChange) + Send>;

/// A cluster member whose state a test sets. It records orders and changes for the test.
pub struct FakeMember {
    me: NodeId,
    described: Node,
    /// State of etcd.
    pub view: Mutex<Arc<View>>,
    /// Number of reads of this state.
    pub reads: AtomicU64,
    /// Status of the node.
    pub status: Mutex<MemberStatus>,
    /// Received orders.
    pub orders: Mutex<Vec<Order>>,
    /// Received changes.
    pub changes: Mutex<Vec<AgreedChange>>,
    /// Effect of each accepted change.
    pub apply: Mutex<Option<Apply>>,
    /// Error for the next change.
    pub refuse: Mutex<Option<ChangeError>>,
    /// Whether the newest users are not known.
    pub users_are_old: AtomicBool,
    /// Number of questions whether they are.
    pub users_asks: AtomicU64,
}

/// Returns an entry that was written at a revision.
pub fn written<T>(revision: u64, value: T) -> Entry<T> {
    Entry {
        value,
        create_revision: revision,
        mod_revision: revision,
        lease: LeaseId(0),
    }
}

/// Returns a row of these nodes, the active one first.
pub fn row(nodes: &[u16]) -> Row {
    let nodes: Vec<_> = nodes.iter().copied().map(NodeId).collect();
    let chain = Chain::new(&nodes).expect("a chain has few nodes, each of them once");
    Row::new(chain, 1)
}

fn node(id: u16, state: NodeState) -> Node {
    Node {
        name: format!("n{id}"),
        uuid: format!("{id:032x}"),
        inside: Address {
            host: format!("10.0.0.{id}"),
            kv: 11210,
            http: 8091,
            ..Address::default()
        },
        version: "0.1.0".into(),
        state,
        ..Node::default()
    }
}

impl FakeMember {
    /// Creates node `me` of a cluster without nodes and buckets.
    pub fn new(me: u16) -> Arc<Self> {
        let view = View {
            revision: 1,
            meta: Some(written(
                1,
                Meta {
                    name: "ours".into(),
                    epoch: 1,
                    ..Meta::default()
                },
            )),
            ..View::default()
        };
        Arc::new(Self {
            me: NodeId(me),
            described: node(me, NodeState::New),
            view: Mutex::new(view.into()),
            reads: AtomicU64::new(0),
            status: Mutex::default(),
            orders: Mutex::default(),
            changes: Mutex::default(),
            apply: Mutex::default(),
            refuse: Mutex::default(),
            users_are_old: AtomicBool::default(),
            users_asks: AtomicU64::default(),
        })
    }

    /// Changes the state in etcd. The closure gets the revision of the change.
    pub fn edit(&self, edit: impl FnOnce(&mut View, u64)) {
        let mut view = self.view.lock();
        let view = Arc::make_mut(&mut view);
        view.revision += 1;
        let revision = view.revision;
        edit(view, revision);
    }

    /// Adds node `id`: `n<id>` at `10.0.0.<id>`.
    pub fn put_node(&self, id: u16, state: NodeState) {
        let node = node(id, state);
        self.edit(|view, revision| drop(view.nodes.insert(NodeId(id), written(revision, node))));
    }

    /// Adds leases of these nodes.
    pub fn put_alive(&self, ids: &[u16]) {
        self.edit(|view, revision| {
            for id in ids {
                let alive = written(revision, Alive::default());
                view.alive.insert(NodeId(*id), alive);
            }
        });
    }

    /// Adds a bucket; the given rows repeat over its vBuckets.
    pub fn put_bucket(&self, id: u128, name: &str, vbuckets: u16, rows: &[Row]) {
        let spec = BucketSpec {
            name: name.to_owned(),
            vbuckets,
            copies: 2,
            ..BucketSpec::default()
        };
        self.edit(|view, revision| {
            view.specs.insert(BucketId(id), written(revision, spec));
            let mut rows = rows.iter().copied().cycle();
            for chunk in 0..vbuckets.div_ceil(CHUNK_VBUCKETS) {
                let left = (vbuckets - chunk * CHUNK_VBUCKETS).min(CHUNK_VBUCKETS);
                let rows = rows.by_ref().take(left.into()).collect();
                let chunk_rows = written(revision, Chunk { rows });
                view.maps.insert((BucketId(id), chunk), chunk_rows);
            }
        });
    }
}

impl ClusterMember for FakeMember {
    fn me(&self) -> NodeId {
        self.me
    }

    fn described(&self) -> &Node {
        &self.described
    }

    fn view(&self) -> Arc<View> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.view.lock())
    }

    fn status(&self) -> MemberStatus {
        MemberStatus {
            view: self.view(),
            ..self.status.lock().clone()
        }
    }

    fn order(&self, order: Order) -> Result<(), String> {
        if self.status.lock().controller.is_none() {
            return Err("there is no controller now".into());
        }
        self.orders.lock().push(order);
        Ok(())
    }

    fn change(&self, change: AgreedChange) -> Result<(), ChangeError> {
        let refused = self.refuse.lock().take();
        if let (None, Some(apply)) = (&refused, &*self.apply.lock()) {
            apply(&change);
        }
        self.changes.lock().push(change);
        refused.map_or(Ok(()), Err)
    }

    fn has_newest_users(&self) -> bool {
        self.users_asks.fetch_add(1, Ordering::Relaxed);
        !self.users_are_old.load(Ordering::Relaxed)
    }

    fn message(&self, _bytes: &[u8]) {}
}
