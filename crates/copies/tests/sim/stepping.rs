//! Steps of copies, with their waits for the disk.

use cluster::agent::{Copy, Step};
use cluster::{Copies as _, Vb};
use copies::vb_of;

use crate::world::{Event, World};

impl World {
    /// Begins a step of a copy on a node.
    pub(crate) fn begin(&mut self, index: usize, step: Step) {
        let vb = vb_of(&step);
        if !self.nodes[index].busy.insert(vb) {
            return;
        }
        self.tell(|| format!("n{index} {step:?}"));
        self.check_step(index);
        let node = &mut self.nodes[index];
        node.kept = node.participant.newest();
        let before = node.vbs.copy(vb);
        let open = node.vbs.buckets.get(&vb.bucket).and_then(|bucket| {
            let services = bucket.services(&node.random, &node.numbers);
            bucket.steps(node.id, &node.failed, &services).begin(step)
        });
        match open {
            Some(unfinished) => {
                let boot = node.boot;
                node.open.push((unfinished, step, before));
                let at_ms = self.now_ms + self.rng.range(1, 6);
                self.at(at_ms, Event::Steps(index, boot));
            }
            None => self.made(index, &step, before.as_ref()),
        }
    }

    /// Continues the waiting steps of a node.
    pub(crate) fn go_on(&mut self, index: usize, boot: u64) {
        let node = &mut self.nodes[index];
        if !node.up || node.boot != boot || node.open.is_empty() {
            return;
        }
        if node.paused_until_ms > self.now_ms {
            let at_ms = node.paused_until_ms;
            return self.put_off(at_ms, Event::Steps(index, boot));
        }
        let mut made = Vec::new();
        for (mut unfinished, step, before) in std::mem::take(&mut node.open) {
            let bucket = node.vbs.buckets.get(&unfinished.vb().bucket);
            let over = bucket.is_none_or(|bucket| {
                let services = bucket.services(&node.random, &node.numbers);
                let steps = bucket.steps(node.id, &node.failed, &services);
                steps.go_on(&mut unfinished) || {
                    bucket.flush();
                    steps.go_on(&mut unfinished)
                }
            });
            if over {
                made.push((step, before));
            } else {
                node.open.push((unfinished, step, before));
            }
        }
        if !node.open.is_empty() {
            let at_ms = self.now_ms + self.rng.range(5, 20);
            self.at(at_ms, Event::Steps(index, boot));
        }
        for (step, before) in made {
            self.made(index, &step, before.as_ref());
        }
        self.pump(index);
    }

    /// Handles a step of a copy that a node made.
    fn made(&mut self, index: usize, step: &Step, before: Option<&Copy>) {
        let vb = vb_of(step);
        let node = &mut self.nodes[index];
        node.busy.remove(&vb);
        node.vbs.spoil_step(step, before);
        let copy = node
            .vbs
            .copy(vb)
            .map(|copy| (copy.position, copy.condition));
        self.tell(|| format!("n{index} made a step of {vb:?}: {copy:?}"));
        let node = &mut self.nodes[index];
        if let Some(bucket) = node.vbs.buckets.get(&vb.bucket) {
            bucket.drop_links();
        }
        node.renew();
        if let Step::Activate { term, .. } = *step {
            self.checks.activated(vb, term);
        }
        self.note(u64::from(vb.number) + 77);
        if !self.is_astray(index) {
            self.checks.history(&self.nodes[index], vb);
        }
        self.stepped(vb, index, step);
        if matches!(step, Step::Create { .. }) && copy.is_none() {
            // It is repeated, and may fail for as long as the disk does.
            let boot = self.nodes[index].boot;
            return self.at(self.now_ms + 5, Event::Failed(index, boot, vb));
        }
        self.told(index, vb);
    }

    /// Reports to the participant of a node that a step of a copy is over.
    pub(crate) fn told(&mut self, index: usize, vb: Vb) {
        let node = &mut self.nodes[index];
        let outputs = node.participant.stepped(vb, &node.vbs);
        self.carry(index, outputs);
    }
}

mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use cluster::agent::Topology;
    use cluster::{BucketId, Chain, NodeId};
    use copies::{NodeServices, Steps};
    use model::VbId;

    use super::*;
    use crate::buckets::SimBucket;
    use crate::disk::Disk;
    use crate::node::SimClock;
    use crate::rng::Rng;

    /// A node that may have no connection for streams.
    #[derive(Default)]
    struct Connections {
        possible: Cell<bool>,
    }

    impl NodeServices for Connections {
        fn random_u64(&self) -> u64 {
            1
        }

        fn changed(&self) {}

        fn connect(&self, _node: NodeId) -> bool {
            self.possible.get()
        }

        fn turn(&self, _node: NodeId, _vb: VbId) {}
    }

    const ME: NodeId = NodeId(1);
    const VB: Vb = Vb {
        bucket: BucketId(1),
        number: 0,
    };

    fn bucket() -> SimBucket {
        let clock = Arc::new(SimClock::new(Arc::default(), (0, 0)));
        let random = RefCell::new(Rng::new(1));
        SimBucket::open(VB.bucket, Disk::new(), clock, (&random, None))
    }

    /// Makes a step, if it is possible.
    fn make(bucket: &SimBucket, services: &Connections, step: Step) {
        let steps = Steps {
            copies: &bucket.copies,
            me: ME,
            failed: &BTreeSet::new(),
            services,
        };
        let Some(mut open) = steps.begin(step) else {
            return;
        };
        steps.go_on(&mut open);
        bucket.flush();
        steps.go_on(&mut open);
    }

    #[test]
    fn a_copy_without_a_connection_follows_no_node() {
        let (bucket, from) = (bucket(), NodeId(2));
        let possible = Cell::new(true);
        let services = Connections { possible };
        let made = |step| {
            make(&bucket, &services, step);
            let copy = bucket.copies.copy(ME, VbId(VB.number)).expect("a copy");
            (copy.term, copy.follows)
        };
        let follow = |term| Step::Follow { vb: VB, term, from };
        assert_eq!(made(Step::Create { vb: VB, term: 1 }), (1, None));
        assert_eq!(made(follow(1)), (1, Some(from)));
        services.possible.set(false);
        assert_eq!(made(follow(2)), (2, None));
        services.possible.set(true);
        assert_eq!(made(follow(2)), (2, Some(from)));
    }

    #[test]
    fn a_copy_is_not_made_again_while_it_is_rolled_back() {
        let (bucket, services) = (bucket(), Connections::default());
        let create = Step::Create { vb: VB, term: 1 };
        make(&bucket, &services, create);
        let vb = VbId(VB.number);
        // It is not found any more, as during a rollback.
        assert!(bucket.copies.bucket.delete_vbucket(vb).unwrap());
        make(&bucket, &services, create);
        assert_eq!(bucket.copies.bucket.with_vbucket(vb, |_| ()), None);
    }

    /// The copy that takes over has what this one had when it was sealed.
    #[test]
    fn a_sealed_copy_notes_no_collections_until_it_is_active_again() {
        let (bucket, services) = (bucket(), Connections::default());
        let topology = Topology {
            chain: Chain::new(&[ME]).expect("a chain of one"),
            change: None,
        };
        let (vb, term) = (VB, 2);
        make(&bucket, &services, Step::Create { vb, term: 1 });
        let activate = Step::Activate { vb, term, topology };
        make(&bucket, &services, activate);
        let at = VbId(VB.number);
        let high = || {
            bucket
                .copies
                .bucket
                .with_vbucket(at, |vb| vb.high_seqno().0)
        };
        let before = high().expect("a vBucket");
        make(&bucket, &services, Step::Seal { vb, term: 3 });
        let text = r#"{"uid":"1","scopes":[{"name":"_default","uid":"0","collections":[{"name":"c","uid":"8"}]}]}"#;
        assert!(bucket.take_manifest(text));
        assert_eq!(high(), Some(before));
        let term = 3;
        make(&bucket, &services, Step::Activate { vb, term, topology });
        assert!(high() > Some(before));
    }
}
