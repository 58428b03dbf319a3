//! The producers and consumers of a bucket by name: one connection per name.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Now;
use parking_lot::{Mutex, RwLock};

use super::figures::ProducerFigures;
use super::settings::DcpSettings;
use crate::connections::ConnectionInfo;
use crate::progress::Progress;

/// A share of the windows is not less: room for a large document.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

/// A producer as far as others than its own connection deal with it.
pub trait Producer: Send + Sync {
    /// Ends all its streams without a word; it produces nothing any more.
    fn close(&self);

    /// How it stands; what its streams have still to send is left at zero.
    fn figures(&self, now: Now) -> ProducerFigures;
}

/// A producer, shared by its connection and statistics.
pub type SharedProducer = Arc<dyn Producer>;

struct Registered {
    producer: SharedProducer,
    /// None for those behind which no KV connection stands.
    connection: Option<Arc<ConnectionInfo>>,
}

impl Registered {
    /// Another one takes its name.
    fn end(&self) {
        // Before the new one has a stream: cursors are known by name.
        self.producer.close();
        if let Some(connection) = &self.connection {
            connection.mailbox.shut_down();
        }
    }
}

/// A consumer as statistics see it.
#[derive(Clone)]
pub struct RegisteredConsumer {
    /// Its connection.
    pub connection: Arc<ConnectionInfo>,
    /// How it gets on.
    pub progress: Arc<Progress>,
    /// When it was opened, seconds since 1970.
    pub created_s: u32,
}

/// All producers and consumers of one bucket.
#[derive(Default)]
pub struct DcpRegistry {
    producers: Mutex<BTreeMap<String, Registered>>,
    consumers: Mutex<BTreeMap<String, RegisteredConsumer>>,
    /// What can be changed while the node runs.
    pub settings: RwLock<DcpSettings>,
}

impl DcpRegistry {
    /// Enters a producer. An older connection of the same name is closed, its streams at once.
    pub fn enter(&self, name: &str, producer: &SharedProducer, connection: &Arc<ConnectionInfo>) {
        let old = self.consumers.lock().remove(name);
        if let Some(old) = old {
            old.connection.mailbox.shut_down();
        }
        self.insert(name, producer, Some(connection));
    }

    /// Enters a producer of this process, under a unique name.
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

    /// Strikes a producer off, unless another one took its name.
    pub fn leave(&self, name: &str, producer: &SharedProducer) {
        let mut producers = self.producers.lock();
        let same = producers.get(name).is_some_and(|known| {
            std::ptr::addr_eq(Arc::as_ptr(&known.producer), Arc::as_ptr(producer))
        });
        if same {
            producers.remove(name);
        }
    }

    /// Enters a consumer. An older connection of the same name is closed; returns the number of one
    /// that was a consumer, too.
    pub fn enter_consumer(&self, name: &str, consumer: RegisteredConsumer) -> Option<u64> {
        let old = self.producers.lock().remove(name);
        if let Some(old) = old {
            old.end();
        }
        let old = self.consumers.lock().insert(name.to_owned(), consumer)?;
        old.connection.mailbox.shut_down();
        Some(old.connection.id)
    }

    /// Strikes a consumer off, unless another one took its name.
    pub fn leave_consumer(&self, name: &str, connection: u64) {
        let mut consumers = self.consumers.lock();
        let same = consumers
            .get(name)
            .is_some_and(|known| known.connection.id == connection);
        if same {
            consumers.remove(name);
        }
    }

    /// All consumers, sorted by name.
    pub fn consumers(&self) -> Vec<(String, RegisteredConsumer)> {
        let consumers = self.consumers.lock();
        let named = consumers.iter();
        named
            .map(|(name, known)| (name.clone(), known.clone()))
            .collect()
    }

    /// All producers, sorted by name.
    pub fn all(&self) -> Vec<SharedProducer> {
        let producers = self.producers.lock();
        producers
            .values()
            .map(|known| Arc::clone(&known.producer))
            .collect()
    }

    /// What each consumer may have on its way in a bucket of this quota: they share a part of it.
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
    fn a_window_is_a_share_of_the_quota_that_32_bits_can_say() {
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
