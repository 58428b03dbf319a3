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
            let around = bucket.around(&node.random, &node.numbers);
            bucket.steps(node.id, &node.failed, &around).begin(step)
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
                let around = bucket.around(&node.random, &node.numbers);
                let steps = bucket.steps(node.id, &node.failed, &around);
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
