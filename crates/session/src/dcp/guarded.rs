//! A producer, shared by its connection and by readers of statistics.

use std::sync::Arc;

use model::Now;
use parking_lot::{Mutex, MutexGuard};
use registry::dcp::{ProducerFigures, SharedProducer};

use super::producer::{PREFIX, Producer};

/// A producer behind a lock.
pub struct GuardedProducer(Mutex<Producer>);

impl GuardedProducer {
    /// Puts a producer behind a lock.
    pub fn new(producer: Producer) -> Self {
        Self(Mutex::new(producer))
    }

    /// Locks the producer for this thread.
    pub fn lock(&self) -> MutexGuard<'_, Producer> {
        self.0.lock()
    }

    /// Closes the producer at the end of its connection.
    pub fn leave(self: &Arc<Self>) {
        let mut producer = self.lock();
        producer.close();
        let name = producer.name.strip_prefix(PREFIX).unwrap_or_default();
        let shared = Arc::clone(self) as SharedProducer;
        producer.served.dcp.leave(name, &shared);
    }
}

impl registry::dcp::Producer for GuardedProducer {
    fn close(&self) {
        self.lock().close();
    }

    fn figures(&self, now: Now) -> ProducerFigures {
        self.lock().figures(now)
    }
}
