//! A connection to another node of a cluster, for the vBuckets of a bucket that follow it.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bucket::WarmupStage;
use consumer::{ConsumerOptions, Followed, StandingOptions};
use copies::{Gate, Gated, PeerId};
use identity::Password;
use model::VbId;
use registry::{Progress, Registry, ServedBucket, Stage};
use tls::PeerTls;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::block_in_place;
use wire::dcp::StreamFlags;

use crate::connection_io::{ConnectionIo, StreamWake};
use crate::consumer::Consumer;
use crate::link::{End, window_bytes};
use crate::link_problems::LinkProblems;
use crate::setup::Introduction;
use crate::socket::connect;

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two connections.
const BACKOFF: Duration = Duration::from_millis(100);
/// Interval before a stream is requested again: a new active copy appears within some milliseconds.
const RETRY: Duration = Duration::from_millis(25);

/// The threads for all connections of a node to other nodes: one for each processor, from the first connection on.
#[derive(Default)]
pub struct PeerThreads(OnceLock<Runtime>);

impl PeerThreads {
    fn runtime(&self) -> io::Result<&Runtime> {
        if let Some(runtime) = self.0.get() {
            return Ok(runtime);
        }
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.thread_name("peer").enable_all().build()?;
        Ok(self.0.get_or_init(|| runtime))
    }
}

impl Drop for PeerThreads {
    fn drop(&mut self) {
        // The last reference may be dropped by a thread that must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Parameters of a connection.
#[derive(Clone)]
pub struct PeerOptions {
    /// This node's name in the chains of durable writes.
    pub me: String,
    /// Id of the other node.
    pub peer: PeerId,
    /// Name of the other node, for the log.
    pub name: String,
    /// Host and port of the other node's KV protocol.
    pub at: (String, u16),
    /// Settings for connections over TLS; `None` without TLS.
    pub tls: Option<Arc<PeerTls>>,
    /// User to log in as.
    pub username: String,
    /// Password of that user.
    pub password: Password,
    /// Collects the reasons why the node is not followed.
    pub problems: Arc<LinkProblems>,
    /// Threads that serve the connection.
    pub threads: Arc<PeerThreads>,
}

/// A connection to another node. It ends when the value is dropped.
pub struct PeerLink {
    at: (String, u16),
    news: Arc<StreamWake>,
    stop: watch::Sender<bool>,
    /// Disconnected once the connection has ended.
    ended: Receiver<()>,
}

impl PeerLink {
    /// Connects, and connects again, until the value is dropped.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn start(
        node: &Arc<Registry>,
        served: &Arc<ServedBucket>,
        gate: &Arc<Gate>,
        options: PeerOptions,
    ) -> io::Result<Self> {
        let threads = Arc::clone(&options.threads);
        let runtime = threads.runtime()?;
        let (stop, stopping) = watch::channel(false);
        let (news, progress) = (
            Arc::new(StreamWake::default()),
            Arc::new(Progress::new(served.bucket.vbuckets())),
        );
        let at = options.at.clone();
        let worker = LinkWorker {
            node: Arc::clone(node),
            served: Arc::clone(served),
            gate: Arc::clone(gate),
            options,
            news: Arc::clone(&news),
            progress: Arc::clone(&progress),
        };
        let (runs, ended) = channel();
        runtime.spawn(async move {
            worker.run(stopping).await;
            drop::<std::sync::mpsc::Sender<()>>(runs);
        });
        Ok(Self {
            at,
            news,
            stop,
            ended,
        })
    }

    /// Host and port of the other node.
    pub fn at(&self) -> &(String, u16) {
        &self.at
    }

    /// Restarts the stream of a vBucket whose role or producer changed.
    pub fn turn(&self, vb: VbId) {
        self.news.turn(vb);
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let ended = self.ended.recv();
        debug_assert!(ended.is_err(), "the other end is dropped unused");
    }
}

struct LinkWorker {
    node: Arc<Registry>,
    served: Arc<ServedBucket>,
    gate: Arc<Gate>,
    options: PeerOptions,
    news: Arc<StreamWake>,
    progress: Arc<Progress>,
}

impl LinkWorker {
    async fn run(self, mut stopping: watch::Receiver<bool>) {
        loop {
            let end = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => return,
                end = self.converse() => end.to_string(),
            };
            self.progress.set_stage(Stage::Connecting);
            if self.progress.last_error() != end {
                let (bucket, node) = (self.served.name(), &self.options.name);
                self.options.problems.note(bucket, node, &end);
                self.progress.set_last_error(&end);
            }
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(BACKOFF) => {}
            }
        }
    }

    async fn converse(&self) -> End {
        match self.try_converse().await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn try_converse(&self) -> Result<End, End> {
        while self.served.bucket.warmup().stage() != WarmupStage::Done {
            tokio::time::sleep(BACKOFF).await;
        }
        let (host, port) = &self.options.at;
        let tls = self.options.tls.as_ref().map(|tls| tls.config());
        let mut stream = connect(host, *port, tls, CONNECT_LIMIT).await?;
        self.progress.set_stage(Stage::Introducing);
        let about = self.introduction();
        let target = Gated {
            target: Followed {
                node: Arc::clone(&self.node),
                served: Arc::clone(&self.served),
                active: None,
                may_block: |work| block_in_place(work),
            },
            gate: Arc::clone(&self.gate),
            peer: self.options.peer,
        };
        let mut output = Vec::new();
        let now_ns = self.node.clock.mono_ns();
        let progress = Arc::clone(&self.progress);
        let mut consumer = Consumer::new(&target, &about, progress, now_ns, &mut output)?;
        let carrier = ConnectionIo::with_news(&self.node, &self.served, Arc::clone(&self.news));
        Ok(carrier.carry(&mut stream, &mut consumer, output).await)
    }

    fn introduction(&self) -> Introduction {
        let env = &self.node.env;
        Introduction {
            user: self.options.username.clone(),
            password: self.options.password.clone(),
            certified: false,
            nonce: format!("{:016x}{:016x}", env.random_u64(), env.random_u64()),
            bucket: self.served.name().to_owned(),
            name: format!("cluster:{}:{}", self.node.uuid, self.served.name()),
            wishes: ConsumerOptions {
                window_bytes: window_bytes(&self.served),
                consumer: self.options.me.clone(),
                bucket_uuid: self.served.uuid.clone(),
            },
            about: String::new(),
            must_register: false,
            tells: false,
            streams: StandingOptions {
                flags: StreamFlags::ACTIVE_ONLY,
                retry: RETRY,
                poll: None,
            },
        }
    }
}
