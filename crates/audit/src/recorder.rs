//! The recorder: a bounded queue of events from the threads that serve clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use crate::event::Event;
use crate::line::{Line, Origin, User};
use crate::settings::{Settings, UserId};
use crate::stamp::Stamp;

/// Largest size of the queue in bytes. Events beyond it are dropped and counted.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Number of queued bytes from which the writer does not wait for more.
const GATHERED_BYTES: usize = 256 << 10;
/// Flag in the set of events: whether an event is recorded depends on its user.
const BY_USER: u64 = 1 << 63;

/// An item of the queue.
#[derive(Debug)]
pub(crate) enum Item {
    /// Whole lines, and their number.
    Lines(Vec<u8>, u64),
    /// A new configuration for the following lines.
    Settings(Arc<Settings>),
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    closed: bool,
}

/// Accepts events without waiting.
#[derive(Debug)]
pub struct Recorder {
    /// Set of recorded events, one bit each; empty while the audit is off.
    events: AtomicU64,
    settings: RwLock<Arc<Settings>>,
    /// Name of the host.
    host: String,
    queue: Mutex<Queue>,
    filled: Condvar,
    dropped: AtomicU64,
}

impl Recorder {
    /// Creates a recorder for a host. The audit is off.
    pub fn new(host: String, settings: Settings) -> Self {
        let off = Settings {
            enabled: false,
            ..settings
        };
        Self {
            events: AtomicU64::new(0),
            settings: RwLock::new(Arc::new(off)),
            host,
            queue: Mutex::default(),
            filled: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Name of the host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether any event is recorded. Cost: one load.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.events.load(Ordering::Relaxed) != 0
    }

    /// Whether an event is recorded for at least some users. Cost: one load.
    #[inline]
    pub fn wants(&self, event: Event) -> bool {
        self.events.load(Ordering::Relaxed) & event.bit() != 0
    }

    /// Whether an event is recorded for this user.
    pub fn wants_of(&self, event: Event, domain: &str, name: &str) -> bool {
        let events = self.events.load(Ordering::Relaxed);
        if events & event.bit() == 0 {
            return false;
        }
        if events & BY_USER == 0 || !event.descriptor().filterable {
            return true;
        }
        let user = UserId {
            domain: domain.to_owned(),
            user: name.to_owned(),
        };
        !self.settings.read().leaves_out(&user)
    }

    /// The current configuration.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Number of dropped events: the queue was full, or they could not be written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dropped(&self, events: u64) {
        self.dropped.fetch_add(events, Ordering::Relaxed);
    }

    /// Queues whole lines for the writer, or drops them if the queue is full.
    pub fn submit(&self, lines: Vec<u8>, events: u64) {
        if lines.is_empty() {
            return;
        }
        let bytes = lines.len();
        let mut queue = self.queue.lock();
        if queue.bytes + bytes > QUEUE_BYTES_MAX || queue.closed {
            drop(queue);
            return self.count_dropped(events);
        }
        let before = queue.bytes;
        queue.bytes += bytes;
        queue.items.push_back(Item::Lines(lines, events));
        let filled = before < GATHERED_BYTES && queue.bytes >= GATHERED_BYTES;
        drop(queue);
        if before == 0 || filled {
            self.filled.notify_one();
        }
    }

    /// Replaces the configuration. Records events about the change if the audit is or was on.
    pub fn configure(&self, settings: Settings, unix_ns: u64) {
        let settings = Arc::new(settings);
        let mut held = self.settings.write();
        let was_on = self.is_on();
        if was_on && !settings.enabled {
            self.note(Event::AuditStopped, &held, unix_ns);
        }
        self.push(Item::Settings(Arc::clone(&settings)));
        *held = Arc::clone(&settings);
        self.events.store(events_of(&settings), Ordering::Relaxed);
        if settings.enabled {
            self.note(Event::AuditConfigured, &settings, unix_ns);
        }
    }

    /// Stops the audit. The writer ends once it has written everything.
    pub fn close(&self, unix_ns: u64) {
        if self.is_on() {
            self.note(Event::AuditStopped, &self.settings(), unix_ns);
        }
        self.events.store(0, Ordering::Relaxed);
        self.queue.lock().closed = true;
        self.filled.notify_one();
    }

    /// Records an event about the audit itself.
    fn note(&self, event: Event, settings: &Settings, unix_ns: u64) {
        if !settings.records(event) {
            return;
        }
        let own = User {
            domain: "internal",
            name: "settee",
        };
        let mut out = Vec::new();
        let origin = Origin::new((None, None), own, None);
        let line = Line::begin(&mut out, event, (&mut Stamp::default(), unix_ns), &origin);
        let mut line = line.text("hostname", self.host.as_bytes());
        if let (Event::AuditConfigured, Some(fields)) = (event, settings.about().as_object()) {
            for (name, value) in fields {
                line = line.value(name, value);
            }
        }
        line.end();
        self.submit(out, 1);
    }

    fn push(&self, item: Item) {
        self.queue.lock().items.push_back(item);
        self.filled.notify_one();
    }

    /// Waits until there is something to write, at most for `at_most`. If events may be gathered, then waits for
    /// more of them for `gather`, unless there are many.
    pub fn wait(&self, at_most: Option<Duration>, gather: Duration) {
        let mut queue = self.queue.lock();
        let idle = |queue: &mut Queue| queue.items.is_empty() && !queue.closed;
        match at_most {
            Some(limit) => drop(self.filled.wait_while_for(&mut queue, idle, limit)),
            None => self.filled.wait_while(&mut queue, idle),
        }
        if gather.is_zero() || queue.items.is_empty() {
            return;
        }
        let few = |queue: &mut Queue| queue.bytes < GATHERED_BYTES && !queue.closed;
        let _timed_out = self.filled.wait_while_for(&mut queue, few, gather);
    }

    /// Removes all items; `None` once the recorder is closed and empty.
    pub(crate) fn take(&self) -> Option<VecDeque<Item>> {
        let mut queue = self.queue.lock();
        if queue.closed && queue.items.is_empty() {
            return None;
        }
        queue.bytes = 0;
        Some(std::mem::take(&mut queue.items))
    }
}

fn events_of(settings: &Settings) -> u64 {
    if !settings.enabled {
        return 0;
    }
    let recorded = Event::all()
        .iter()
        .filter(|one| settings.records(one.event));
    let events = recorded.fold(0, |bits, one| bits | one.event.bit());
    // The bit of the audit's own start keeps the set from being empty while the audit is on.
    let users = if settings.looks_at_users() {
        BY_USER
    } else {
        0
    };
    events | Event::AuditConfigured.bit() | users
}
