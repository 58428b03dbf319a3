//! The handle of a client: requests in, answers out, one thread between them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use cluster::coord::{Answer, KeyValue, Range, Request, RequestId};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::members::Members;
use crate::messages::{Call, answer};
use crate::options::Options;
use crate::problem::{AnswerResult, Problem, ProblemKind};
use crate::refusal::Refusal;
use crate::watches::{Answers, Watches};

/// Maximum number of requests in flight; a further one is not carried out.
const UNDER_WAY_MAX: usize = 256;

/// A client of etcd: one thread with its connections. Dropping it ends both; requests in flight then get no answer.
pub struct Etcd {
    members: Arc<Members>,
    commands: Option<UnboundedSender<QueuedRequest>>,
    thread: Option<JoinHandle<()>>,
}

struct QueuedRequest {
    to: AnswerTarget,
    request: Request,
}

/// Target of an answer.
enum AnswerTarget {
    Answers(RequestId),
    Asked(SyncSender<AnswerResult>),
}

impl Etcd {
    /// Starts the thread, without connecting. `answers` is called on that thread, and must not block it.
    ///
    /// # Errors
    /// There are no trusted certificates, a certificate cannot be read, or no thread can be started.
    pub fn start(options: Options, answers: Box<Answers>) -> io::Result<Self> {
        let members = Arc::new(Members::new(options)?);
        let runtime = runtime()?;
        let (commands, inbox) = unbounded_channel();
        let watches = Watches::new(Arc::clone(&members), Arc::from(answers));
        let work = Work {
            members: Arc::clone(&members),
            watches,
            room: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
        };
        let thread = Builder::new().name("etcd".to_owned()).spawn(move || {
            runtime.block_on(work.run(inbox));
            // Does not wait for name look-ups in progress.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            members,
            commands: Some(commands),
            thread: Some(thread),
        })
    }

    /// Sends a request; never blocks. It gets one answer, a watch gets answers until one ends it. A watch
    /// ends an open watch of the same prefix.
    pub fn request(&self, id: RequestId, request: Request) {
        self.send(AnswerTarget::Answers(id), request);
    }

    /// Waits for the answer to a request other than a watch.
    ///
    /// # Errors
    /// The reason why there is no answer in time.
    pub fn ask(&self, request: Request, patience: Duration) -> AnswerResult {
        let (answer, answered) = sync_channel(1);
        self.send(AnswerTarget::Asked(answer), request);
        answered.recv_timeout(patience).unwrap_or_else(|_| {
            let sentence = format!("etcd does not answer within {} s", patience.as_secs());
            Err(Problem::new(ProblemKind::Unreachable, sentence))
        })
    }

    /// Reads keys; returns the revision of etcd and what was found.
    ///
    /// # Errors
    /// The reason why there is no answer in time.
    pub fn read(&self, keys: Range, patience: Duration) -> Result<(u64, Vec<KeyValue>), Problem> {
        match self.ask(Request::Get(keys), patience)? {
            Answer::Got { revision, found } => Ok((revision, found)),
            _ => Err(Problem::new(
                ProblemKind::NotEtcd,
                "etcd gave no answer to a question",
            )),
        }
    }

    /// Uses the login of these options from now on, and their certificates, which are read again, for later connections.
    ///
    /// # Errors
    /// There are no trusted certificates, or a certificate cannot be read; login and certificates stay.
    pub fn renew(&self, options: &Options) -> io::Result<()> {
        self.members.renew(options)
    }

    fn send(&self, to: AnswerTarget, request: Request) {
        let command = QueuedRequest { to, request };
        let commands = self.commands.as_ref().expect("it ends by being dropped");
        let sent = commands.send(command);
        assert!(sent.is_ok(), "the thread ends when this is dropped");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.commands = None;
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            thread.join().expect("the thread does not panic");
        }
    }
}

/// Makes a runtime for one thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
}

struct Work {
    members: Arc<Members>,
    watches: Arc<Watches>,
    room: Arc<Semaphore>,
}

impl Work {
    async fn run(&self, mut inbox: UnboundedReceiver<QueuedRequest>) {
        while let Some(QueuedRequest { to, request }) = inbox.recv().await {
            let call = Call::of(&request);
            match (to, request) {
                (AnswerTarget::Answers(id), Request::Watch { prefix, from }) => {
                    self.watches.open(id, &prefix, from, call);
                }
                (to, request) => self.begin(to, request, call),
            }
        }
    }

    fn begin(&self, to: AnswerTarget, request: Request, call: Call) {
        let watches = Arc::clone(&self.watches);
        let room = Arc::clone(&self.room).try_acquire_owned();
        let (Ok(room), false) = (room, matches!(request, Request::Watch { .. })) else {
            let sentence = format!("more than {UNDER_WAY_MAX} requests wait for etcd");
            return watches.answer(to, Err(Problem::new(ProblemKind::Unreachable, sentence)));
        };
        let members = Arc::clone(&self.members);
        tokio::spawn(async move {
            let read = |body: &[u8]| answer(&request, body);
            let called = match &request {
                Request::Get(_) | Request::KeepAlive(_) => members.call_twice(&call, read).await,
                _ => members.call(&call, read).await,
            };
            let answer = match called {
                // A transaction with a missing lease counts as one whose condition does not hold.
                Err(Refusal::NoLease) if matches!(request, Request::Txn(_)) => Ok(Answer::Refused),
                called => called.or_else(Refusal::answered),
            };
            if let Ok(Answer::KeptAlive(revision)) = answer {
                watches.behind(revision);
            }
            drop(room);
            watches.answer(to, answer);
        });
    }
}

impl Watches {
    fn answer(&self, to: AnswerTarget, answer: AnswerResult) {
        match to {
            AnswerTarget::Answers(id) => self.answer_to(id, answer),
            // The caller may have stopped waiting.
            AnswerTarget::Asked(asked) => drop(asked.try_send(answer)),
        }
    }
}
