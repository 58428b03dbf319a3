//! Transient memory: what a request needs only while it runs. Examples: the old value next to the new
//! one, the plain form of a compressed one.

use std::sync::Arc;

use registry::{SMALL_BYTES, ServedBucket};

use super::Refusal;
use crate::context::Context;

/// Bytes that count as held by connections until this is dropped.
pub(crate) struct TransientBytes(Option<(Arc<ServedBucket>, usize)>);

impl Drop for TransientBytes {
    fn drop(&mut self) {
        if let Some((served, bytes)) = self.0.take() {
            served.bucket.change_transit(bytes, 0);
        }
    }
}

impl Context<'_> {
    /// [`Context::admit`] for a write of `stored` bytes that needs `bytes` more while it runs. Those
    /// count from now on, if they are many, so that concurrent requests do not get the same quota.
    pub(crate) fn reserve_transient(
        &mut self,
        served: &Arc<ServedBucket>,
        stored: usize,
        bytes: usize,
    ) -> Result<TransientBytes, Refusal> {
        self.admit(served, stored + bytes)?;
        if bytes <= SMALL_BYTES {
            return Ok(TransientBytes(None));
        }
        served.bucket.change_transit(0, bytes);
        Ok(TransientBytes(Some((Arc::clone(served), bytes))))
    }
}
