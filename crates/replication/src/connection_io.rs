//! The loop that moves bytes between a connection and its consumer.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bucket::{ReadySet, Wake};
use consumer::Target;
use model::VbId;
use parking_lot::Mutex;
use registry::{Registry, ServedBucket};
use tokio::io::AsyncReadExt as _;

use super::consumer::Consumer;
use super::link::{End, READ_BYTES};
use super::socket::{Socket, send};

/// Time limit for a write: a peer that does not read counts as dead.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Size of the input buffer while little comes: a link that only sees no-ops holds no more.
const QUIET_READ_BYTES: usize = 16 << 10;

/// Wakes the thread of a connection.
#[derive(Default)]
pub(super) struct StreamWake {
    notify: tokio::sync::Notify,
    /// vBuckets whose streams must be restarted.
    turned: Mutex<Vec<VbId>>,
}

impl StreamWake {
    /// Requests that the stream of the vBucket ends, and is requested again if the vBucket is still a replica.
    pub(super) fn turn(&self, vb: VbId) {
        self.turned.lock().push(vb);
        self.notify.notify_one();
    }

    fn take_turned(&self) -> Vec<VbId> {
        std::mem::take(&mut *self.turned.lock())
    }
}

impl Wake for StreamWake {
    fn wake(&self) {
        self.notify.notify_one();
    }
}

/// Moves the bytes of one connection.
pub(super) struct ConnectionIo<'a> {
    node: &'a Registry,
    news: Arc<StreamWake>,
    /// vBuckets that may acknowledge more prepares.
    prepared: Arc<ReadySet>,
}

impl<'a> ConnectionIo<'a> {
    pub(super) fn new(node: &'a Registry, served: &ServedBucket) -> Self {
        Self::with_news(node, served, Arc::default())
    }

    pub(super) fn with_news(
        node: &'a Registry,
        served: &ServedBucket,
        news: Arc<StreamWake>,
    ) -> Self {
        let prepared = Arc::new(ReadySet::new(Arc::clone(&news) as Arc<dyn Wake>));
        served.bucket.tell_prepared(&prepared);
        Self {
            node,
            news,
            prepared,
        }
    }

    /// Runs until the connection ends; returns the reason.
    pub(super) async fn carry<T: Target>(
        &self,
        stream: &mut Socket,
        consumer: &mut Consumer<'_, T>,
        output: Vec<u8>,
    ) -> End {
        match self.try_carry(stream, consumer, output).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn try_carry<T: Target>(
        &self,
        stream: &mut Socket,
        consumer: &mut Consumer<'_, T>,
        mut output: Vec<u8>,
    ) -> Result<std::convert::Infallible, End> {
        let (mut input, mut read_bytes) = (Vec::new(), QUIET_READ_BYTES);
        loop {
            for vb in self.news.take_turned() {
                consumer.turn(vb, &mut output);
            }
            while let Some(vb) = self.prepared.next(VbId(0)) {
                consumer.acknowledge_prepares(vb, &mut output);
            }
            if !output.is_empty() {
                send(stream, &output, WRITE_LIMIT).await?;
                output.clear();
            }
            input.reserve(read_bytes);
            let read = tokio::select! {
                biased;
                read = tokio::time::timeout(consumer.due_in(), stream.read_buf(&mut input)) => read.map(Some),
                () = self.news.notify.notified() => Ok(None),
            };
            let now_ns = self.node.clock.mono_ns();
            match read {
                // Time advances, with or without news.
                Err(_) | Ok(None) => consumer.tick(now_ns, &mut output)?,
                Ok(Some(read)) => {
                    let read = read?;
                    if read == 0 {
                        return Err(End::Lost(ErrorKind::UnexpectedEof.into()));
                    }
                    let quiet = read < QUIET_READ_BYTES;
                    read_bytes = if quiet { QUIET_READ_BYTES } else { READ_BYTES };
                    let done_with = consumer.receive(&input, now_ns, &mut output)?;
                    input.drain(..done_with);
                    if input.is_empty() && input.capacity() > 4 * read_bytes {
                        input = Vec::new();
                    }
                }
            }
        }
    }
}
