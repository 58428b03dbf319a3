//! A table by vBucket: every commit accesses several of them for each vBucket.

use model::VbId;

/// A map from vBuckets to values.
///
/// Layout: a slot for each number up to the highest one used. Cost: a lookup is one access.
#[derive(Clone, Debug)]
pub(crate) struct PerVb<T> {
    slots: Vec<Option<T>>,
}

impl<T> Default for PerVb<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> PerVb<T> {
    pub(crate) fn get(&self, vb: VbId) -> Option<&T> {
        self.slots.get(usize::from(vb.0))?.as_ref()
    }

    pub(crate) fn slot(&mut self, vb: VbId) -> &mut Option<T> {
        let at = usize::from(vb.0);
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        &mut self.slots[at]
    }

    pub(crate) fn insert(&mut self, vb: VbId, value: T) {
        *self.slot(vb) = Some(value);
    }

    pub(crate) fn remove(&mut self, vb: VbId) -> Option<T> {
        self.slots.get_mut(usize::from(vb.0))?.take()
    }

    /// Iterates over the entries, ascending by vBucket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VbId, &T)> {
        let slots = (0..=u16::MAX).map(VbId).zip(&self.slots);
        slots.filter_map(|(vb, slot)| Some((vb, slot.as_ref()?)))
    }

    /// Iterates over the vBuckets, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = VbId> {
        self.iter().map(|(vb, _)| vb)
    }
}

impl<T> FromIterator<(VbId, T)> for PerVb<T> {
    fn from_iter<I: IntoIterator<Item = (VbId, T)>>(all: I) -> Self {
        let mut table = Self::default();
        for (vb, value) in all {
            table.insert(vb, value);
        }
        table
    }
}
