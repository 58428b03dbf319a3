//! A node: its clock, its participant, its copies.

use std::collections::BTreeMap;

use cluster::agent::{Copy, Step, may_serve};
use cluster::agreed::{ClusterId, Node as NodeValue, Seen};
use cluster::{Copies, Identity, NodeId, Participant, Settings, Vb};

use crate::bugs::Bug;
use crate::copy::SimCopy;

pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);

/// The copies of a node, as its participant sees them.
#[derive(Default)]
pub(crate) struct Vbs {
    pub(crate) copies: BTreeMap<Vb, SimCopy>,
    pub(crate) bug: Option<Bug>,
}

impl Copies for Vbs {
    fn copy(&self, vb: Vb) -> Option<Copy> {
        self.copies.get(&vb).map(|copy| copy.to_agent(self.bug))
    }

    fn vbuckets(&self) -> Vec<Vb> {
        self.copies.keys().copied().collect()
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) boot: u64,
    pub(crate) up: bool,
    /// It is not to be started.
    pub(crate) held: bool,
    pub(crate) paused_until_ms: u64,
    /// Its disk is full: it works in memory, and no new term gets on disk.
    pub(crate) full: bool,
    offset_ms: u64,
    /// Parts in a million that its clock is fast; less than 0 is slow.
    drift_ppm: i64,
    lost_ms: u64,
    pub(crate) participant: Participant,
    pub(crate) vbs: Vbs,
    /// What the node had seen when it made its last step; on disk before that.
    pub(crate) kept: Seen,
}

impl Node {
    pub(crate) fn new(index: usize, zone: u16, clock: (u64, i64), bug: Option<Bug>) -> Self {
        let id = NodeId(index as u16);
        let copies = BTreeMap::new();
        Self {
            id,
            boot: 1,
            up: true,
            held: false,
            paused_until_ms: 0,
            full: false,
            offset_ms: clock.0,
            drift_ppm: clock.1,
            lost_ms: 0,
            participant: participant(id, zone, 1, Seen::default()),
            vbs: Vbs { copies, bug },
            kept: Seen::default(),
        }
    }

    pub(crate) fn clock_ms(&self, now_ms: u64) -> u64 {
        let drift = now_ms.cast_signed() * self.drift_ppm / 1_000_000;
        (self.offset_ms + now_ms.saturating_add_signed(drift)).saturating_sub(self.lost_ms)
    }

    /// Its clock stood still for so long.
    pub(crate) fn lose_time(&mut self, ms: u64) {
        self.lost_ms += ms;
    }

    pub(crate) fn runs(&self, now_ms: u64) -> bool {
        self.up && now_ms >= self.paused_until_ms
    }

    /// Starts again after a crash: what is not on disk is gone.
    pub(crate) fn restart(&mut self, zone: u16) {
        self.boot += 1;
        self.up = true;
        self.paused_until_ms = 0;
        let bug = self.vbs.bug;
        let mut kept = self.kept;
        if bug == Some(Bug::MarkForgotten) {
            kept.mark = None;
        }
        self.participant = participant(self.id, zone, self.boot, kept);
        self.set_full(self.full);
        self.vbs
            .copies
            .values_mut()
            .for_each(|copy| copy.restart(bug));
    }

    /// Whether its disk is full.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.full = full;
        self.participant.set_disk_full(full);
    }

    /// Whether a step waits for a term that a full disk does not take. What the step forbids is ended.
    pub(crate) fn waits_for_space(&mut self, step: &Step) -> bool {
        let (vb, term) = match *step {
            Step::Create { .. } => return self.full,
            Step::Seal { vb, term } | Step::Follow { vb, term, .. } => (vb, term),
            _ => return false,
        };
        let copy = self.vbs.copies.get_mut(&vb);
        let Some(copy) = copy.filter(|copy| self.full && term > copy.term) else {
            return false;
        };
        copy.stop();
        true
    }

    /// What the node has seen is on disk, if there is another mark.
    pub(crate) fn keep_mark(&mut self) {
        let newest = self.participant.newest();
        if newest.mark.is_some() && newest.mark != self.kept.mark {
            self.kept = newest;
        }
    }

    /// Makes a step.
    pub(crate) fn step(&mut self, step: &Step) -> Vb {
        self.kept = self.participant.newest();
        let copies = &mut self.vbs.copies;
        let (vb, is_seal) = match *step {
            Step::Create { vb, term } => {
                copies.entry(vb).or_insert_with(|| SimCopy::new(term));
                return vb;
            }
            Step::Remove { vb } => {
                copies.remove(&vb);
                return vb;
            }
            Step::Seal { vb, .. } => (vb, true),
            Step::Activate { vb, .. }
            | Step::SetTopology { vb, .. }
            | Step::StepDown { vb }
            | Step::Follow { vb, .. } => (vb, false),
        };
        let Some(copy) = copies.get_mut(&vb) else {
            return vb;
        };
        match *step {
            Step::Seal { term, .. } => copy.seal(term),
            Step::Activate { topology, .. } => copy.activate(self.id, topology),
            Step::SetTopology { topology, .. } => copy.set_topology(topology),
            Step::StepDown { .. } => copy.step_down(),
            Step::Follow { term, from, .. } => copy.follow(term, from),
            Step::Create { .. } | Step::Remove { .. } => {}
        }
        if !(is_seal && self.vbs.bug == Some(Bug::SealForgotten)) {
            copy.stored_term = copy.term;
        }
        vb
    }

    /// Whether the node serves a vBucket at this moment.
    pub(crate) fn serves(&self, vb: Vb, now_ms: u64) -> bool {
        let runs = self.runs(now_ms) && !self.participant.is_disk_dead();
        let active = |copy: &&SimCopy| copy.is_active() && runs;
        let Some(copy) = self.vbs.copies.get(&vb).filter(active) else {
            return false;
        };
        let mut settings = settings();
        let mut until_ms = self.participant.lease_until_ms();
        match self.vbs.bug {
            Some(Bug::LeaseTrustedTooLong) if until_ms > 0 => until_ms += 2 * settings.lease_ms,
            Some(Bug::ConfirmationTrustedTooLong) => settings.confirmed_ms *= 8,
            _ => {}
        }
        let chain = copy.topology.expect("an active copy has one").chain;
        let confirmed = |node| copy.confirmed.get(&node).copied();
        may_serve(
            &settings,
            self.clock_ms(now_ms),
            until_ms,
            &chain,
            confirmed,
        )
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        lease_ms: 2_000,
        margin_ms: 200,
        confirmed_ms: 500,
        repeat_ms: 200,
        request_ms: 1_000,
        unheard_ms: 1_000,
        settle_ms: 3_000,
        failovers_max: 1_000,
        takeover_ms: 3_000,
        moves_per_node: 2,
        takeovers_per_node: 2,
        together_ms: 500,
        moving_ms: 50,
    }
}

fn participant(node: NodeId, zone: u16, boot: u64, newest: Seen) -> Participant {
    let new = NodeValue {
        name: format!("n{}", node.0),
        zone,
        ..NodeValue::default()
    };
    let identity = Identity {
        cluster: CLUSTER,
        node,
        boot,
        new,
    };
    Participant::new(identity, settings(), newest)
}
