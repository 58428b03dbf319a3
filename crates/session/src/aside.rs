//! Memory that a request needs while it runs, beyond what it came with: the old value next to the new
//! one, or the plain form of a compressed one.

use std::sync::Arc;

use registry::{SMALL_BYTES, ServedBucket};

use super::Refusal;
use crate::context::Context;

/// Bytes that count as held by connections until this is dropped.
pub(crate) struct SetAside(Option<(Arc<ServedBucket>, usize)>);

impl Drop for SetAside {
    fn drop(&mut self) {
        if let Some((served, bytes)) = self.0.take() {
            served.bucket.change_transit(bytes, 0);
        }
    }
}

impl Context<'_> {
    /// [`Context::admit`] for a write of `stored` bytes that needs `bytes` more while it runs. Those
    /// count from now on, if they are many, so that others who ask meanwhile do not get the same room.
    pub(crate) fn set_aside(
        &mut self,
        served: &Arc<ServedBucket>,
        stored: usize,
        bytes: usize,
    ) -> Result<SetAside, Refusal> {
        self.admit(served, stored + bytes)?;
        if bytes <= SMALL_BYTES {
            return Ok(SetAside(None));
        }
        served.bucket.change_transit(0, bytes);
        Ok(SetAside(Some((Arc::clone(served), bytes))))
    }
}
