//! The producers and consumers of a bucket by name: one connection per name.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Now;
use parking_lot::{Mutex, RwLock};

use super::figures::ProducerFigures;
use super::settings::DcpSettings;
use crate::connections::ConnectionInfo;
use crate::progress::Progress;

/// Smallest share of the windows, bytes: room for a large document.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

/// A producer, as seen outside of its own connection.
pub trait Producer: Send + Sync {
    /// Ends all streams without a message. The producer sends nothing after that.
    fn close(&self);

    /// Returns the figures; the remaining items of the streams are left at zero.
    fn figures(&self, now: Now) -> ProducerFigures;
}

/// A producer, shared by its connection and statistics.
pub type SharedProducer = Arc<dyn Producer>;

struct Registered {
    producer: SharedProducer,
    /// `None` for a producer without a KV connection.
    connection: Option<Arc<ConnectionInfo>>,
}

impl Registered {
    /// Ends the producer because another one takes its name.
    fn end(&self) {
        // Close first, before the new producer has a stream: cursors are known by name.
        self.producer.close();
        if let Some(connection) = &self.connection {
            connection.mailbox.shut_down();
        }
    }
}

/// A consumer as statistics see it.
#[derive(Clone)]
pub struct RegisteredConsumer {
    /// Connection of the consumer.
    pub connection: Arc<ConnectionInfo>,
    /// Progress of the consumer.
    pub progress: Arc<Progress>,
    /// Time when the connection was opened, seconds since 1970.
    pub created_s: u32,
}

/// All producers and consumers of one bucket.
#[derive(Default)]
pub struct DcpRegistry {
    producers: Mutex<BTreeMap<String, Registered>>,
    consumers: Mutex<BTreeMap<String, RegisteredConsumer>>,
    /// Settings that can be changed while the node runs.
    pub settings: RwLock<DcpSettings>,
}

impl DcpRegistry {
    /// Adds a producer. An older connection of the same name is closed; its streams end at once.
    pub fn enter(&self, name: &str, producer: &SharedProducer, connection: &Arc<ConnectionInfo>) {
        let old = self.consumers.lock().remove(name);
        if let Some(old) = old {
            old.connection.mailbox.shut_down();
        }
        self.insert(name, producer, Some(connection));
    }

    /// Adds a producer of this process, under a unique name.
    pub fn enter_feed(&self, name: &str, producer: &SharedProducer) {
        self.insert(name, producer, None);
    }

    fn insert(
        &self,
        name: &str,
        producer: &SharedProducer,
        connection: Option<&Arc<ConnectionInfo>>,
    ) {
        let registered = Registered {
            producer: Arc::clone(producer),
            connection: connection.cloned(),
        };
        let old = self.producers.lock().insert(name.to_owned(), registered);
        if let Some(old) = old {
            old.end();
        }
    }

    /// Removes a producer, unless another one took its name.
    pub fn leave(&self, name: &str, producer: &SharedProducer) {
        let mut producers = self.producers.lock();
        let same = producers.get(name).is_some_and(|known| {
            std::ptr::addr_eq(Arc::as_ptr(&known.producer), Arc::as_ptr(producer))
        });
        if same {
            producers.remove(name);
        }
    }

    /// Adds a consumer. An older connection of the same name is closed. Returns its number if it was a consumer, too.
    pub fn enter_consumer(&self, name: &str, consumer: RegisteredConsumer) -> Option<u64> {
        let old = self.producers.lock().remove(name);
        if let Some(old) = old {
            old.end();
        }
        let old = self.consumers.lock().insert(name.to_owned(), consumer)?;
        old.connection.mailbox.shut_down();
        Some(old.connection.id)
    }

    /// Removes a consumer, unless another one took its name.
    pub fn leave_consumer(&self, name: &str, connection: u64) {
        let mut consumers = self.consumers.lock();
        let same = consumers
            .get(name)
            .is_some_and(|known| known.connection.id == connection);
        if same {
            consumers.remove(name);
        }
    }

    /// Returns all consumers, sorted by name.
    pub fn consumers(&self) -> Vec<(String, RegisteredConsumer)> {
        let consumers = self.consumers.lock();
        let named = consumers.iter();
        named
            .map(|(name, known)| (name.clone(), known.clone()))
            .collect()
    }

    /// Returns all producers, sorted by name.
    pub fn all(&self) -> Vec<SharedProducer> {
        let producers = self.producers.lock();
        producers
            .values()
            .map(|known| Arc::clone(&known.producer))
            .collect()
    }

    /// Returns the window of each consumer in a bucket of this quota, bytes. All consumers share a part of the quota.
    pub fn window_bytes(&self, quota: u64) -> u32 {
        let settings = self.settings.read();
        let shared = || {
            share_of(
                settings.windows_of(quota),
                self.consumers.lock().len() as u64,
            )
        };
        settings.window_bytes.unwrap_or_else(shared)
    }
}

fn share_of(all: u64, consumers: u64) -> u32 {
    let each = all / consumers.max(1);
    u32::try_from(each.max(WINDOW_BYTES_MIN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_share_of_the_quota_within_32_bits() {
        let settings = DcpSettings::default();
        assert_eq!(settings.windows_of(1 << 30), (1 << 30) / 20);
        assert_eq!(settings.windows_of(u64::MAX), u64::MAX / 20);
        assert_eq!(share_of(1 << 30, 0), 1 << 30);
        assert_eq!(share_of(1 << 30, 4), 1 << 28);
        assert_eq!(share_of(1 << 20, 100), 1 << 20, "room for a large document");
        assert_eq!(share_of(1 << 40, 1), u32::MAX);
        assert_eq!(share_of(u64::MAX, 1), u32::MAX);
    }
}
