//! Bytes that one connection holds for its peer.

use std::sync::Arc;

use bucket::{Buffers, SMALL_BYTES};

use crate::admission_queue::QueuePosition;
use crate::connections::ConnectionInfo;
use crate::served::ServedBucket;

/// The bytes that one connection holds, until this value is dropped. They count against the quota of its bucket.
pub struct ConnectionBytes {
    buffers: Arc<Buffers>,
    info: Arc<ConnectionInfo>,
    bytes: usize,
    bucket: Option<Arc<ServedBucket>>,
    /// Position in the bucket's admission queue.
    position: Option<QueuePosition>,
}

impl ConnectionBytes {
    /// Creates the count of a connection that holds nothing.
    pub fn nothing(buffers: &Arc<Buffers>, info: &Arc<ConnectionInfo>) -> Self {
        Self {
            buffers: Arc::clone(buffers),
            info: Arc::clone(info),
            bytes: 0,
            bucket: None,
            position: None,
        }
    }

    /// Joins the admission queue of `bucket`. Returns whether the connection is first.
    pub fn is_first_in_queue(&mut self, bucket: &ServedBucket) -> bool {
        let join = || bucket.admission_queue.join();
        self.position.get_or_insert_with(join).is_first()
    }

    /// Leaves the admission queue.
    pub fn leave_queue(&mut self) {
        self.position = None;
    }

    /// Notes that the connection holds this many bytes for work in `bucket`.
    pub fn note(&mut self, bytes: usize, bucket: Option<&Arc<ServedBucket>>) {
        let bytes = if bytes <= SMALL_BYTES { 0 } else { bytes };
        if bytes == self.bytes {
            return;
        }
        self.buffers.change(self.bytes, bytes);
        self.info.note_held(bytes);
        let before = std::mem::replace(&mut self.bytes, bytes);
        match (&self.bucket, bucket) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {
                old.bucket.change_transit(before, bytes);
            }
            (old, new) => {
                if let Some(old) = old {
                    old.bucket.change_transit(before, 0);
                }
                if let Some(new) = new {
                    new.bucket.change_transit(0, bytes);
                }
                self.bucket = new.cloned();
            }
        }
        if bytes == 0 {
            // Release the bucket: an idle connection must not keep a dropped bucket in memory.
            self.bucket = None;
        }
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        self.note(0, None);
    }
}
