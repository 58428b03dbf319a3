//! Watches: one for each prefix.
//!
//! etcd sends progress to an idle watch only every ten minutes. A participant assumes that a watch request
//! was lost if the watch lags behind etcd's revision. So when a renewal of a lease returns a revision that a
//! watch has not reached for a moment, [`Watches::behind`] checks whether anything changed, and reports the
//! revision if not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::coord::{Answer, KeyChange, RequestId};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::lines::Lines;
use crate::members::Members;
use crate::messages::{Call, unchanged_until, watched};
use crate::problem::{AnswerResult, Problem, ProblemKind};
use crate::refusal::Refusal;

/// Function that delivers answers.
pub(crate) type Answers = dyn Fn(RequestId, AnswerResult) + Send + Sync;

/// Time within which changes arrive that are older than a known revision.
const LATE: Duration = Duration::from_millis(200);

pub(crate) struct Watches {
    members: Arc<Members>,
    answers: Arc<Answers>,
    open: Mutex<BTreeMap<String, Watch>>,
}

struct Watch {
    id: RequestId,
    /// Member of the watch; a watch that replaces this one tries the next member first.
    at: usize,
    /// Revision up to which everything was reported.
    seen: u64,
    /// Whether a check for changes is in progress.
    asking: bool,
    task: Option<AbortHandle>,
}

impl Watches {
    pub(crate) fn new(members: Arc<Members>, answers: Arc<Answers>) -> Arc<Self> {
        let open = Mutex::default();
        Arc::new(Self {
            members,
            answers,
            open,
        })
    }

    /// Delivers an answer to a request.
    pub(crate) fn answer_to(&self, id: RequestId, answer: AnswerResult) {
        (self.answers)(id, answer);
    }

    /// Opens a watch. It ends an open watch of the same prefix: that one may have lagged, so another member is tried.
    pub(crate) fn open(self: &Arc<Self>, id: RequestId, prefix: &str, from: u64, call: Call) {
        let seen = from.saturating_sub(1);
        let before = self.end(prefix, None);
        if let Some(before) = before {
            let problem = Problem::late_watch().at(self.members.endpoint(before.at));
            self.members.leave(before.at, &problem);
            (self.answers)(before.id, Err(problem));
        }
        let watch = Watch {
            id,
            at: 0,
            seen,
            asking: false,
            task: None,
        };
        self.open.lock().insert(prefix.to_owned(), watch);
        let watches = Arc::clone(self);
        let of = prefix.to_owned();
        let task = tokio::spawn(async move {
            let answer = watches.run(id, &of, &call).await.answered();
            if watches.end(&of, Some(id)).is_some() {
                (watches.answers)(id, answer);
            }
        });
        if let Some(watch) = self.open.lock().get_mut(prefix) {
            watch.task = Some(task.abort_handle());
        }
    }

    /// Removes a watch; only the one with this ID, if an ID is given.
    fn end(&self, prefix: &str, id: Option<RequestId>) -> Option<Watch> {
        let mut open = self.open.lock();
        open.get(prefix)
            .filter(|watch| id.is_none_or(|id| id == watch.id))?;
        let watch = open.remove(prefix)?;
        if let (None, Some(task)) = (id, &watch.task) {
            task.abort();
        }
        Some(watch)
    }

    /// Reports changes, until the watch ends.
    async fn run(&self, id: RequestId, prefix: &str, call: &Call) -> Refusal {
        let mut last = None;
        for at in self.members.in_turn() {
            if let Some(watch) = self.open.lock().get_mut(prefix) {
                watch.at = at;
            }
            let left = self.members.failed(at);
            let refusal = tokio::select! {
                refusal = self.run_at(at, id, prefix, call) => refusal,
                problem = left => problem.begun().into(),
            };
            match refusal {
                Refusal::Problem(problem) if problem.not_done => last = Some(problem),
                other => return other,
            }
        }
        last.expect("there is a member, and all of them failed")
            .into()
    }

    async fn run_at(&self, at: usize, id: RequestId, prefix: &str, call: &Call) -> Refusal {
        let (_connection, answer) = match self.members.open_at(at, call).await {
            Ok(opened) => opened,
            Err(refusal) => return refusal,
        };
        let mut body = answer.into_body();
        let mut lines = Lines::default();
        loop {
            let Some(Ok(frame)) = body.frame().await else {
                let problem = Problem::new(ProblemKind::Unreachable, "a watch broke off");
                return self.failed(at, problem.into());
            };
            let Some(chunk) = frame.data_ref() else {
                continue;
            };
            let Ok(messages) = lines.take(chunk) else {
                let problem = Problem::new(ProblemKind::NotEtcd, "a message is too long");
                return self.failed(at, problem.into());
            };
            for message in messages {
                match watched(&message) {
                    Ok(None) => {}
                    Ok(Some((revision, changes))) => self.tell(id, prefix, revision, changes),
                    Err(refusal) => return self.failed(at, refusal),
                }
            }
        }
    }

    /// Returns the end of an open watch: it is not moved to another member, since some changes may have been
    /// reported.
    fn failed(&self, at: usize, refusal: Refusal) -> Refusal {
        match self.members.judge::<()>(at, Err(refusal)) {
            Err(Refusal::Problem(problem)) => problem.begun().into(),
            Err(refusal) => refusal,
            Ok(()) => Refusal::Token,
        }
    }

    fn tell(&self, id: RequestId, prefix: &str, revision: u64, changes: Vec<KeyChange>) {
        {
            let mut open = self.open.lock();
            let Some(watch) = open.get_mut(prefix).filter(|watch| watch.id == id) else {
                return;
            };
            if changes.is_empty() && revision <= watch.seen {
                return;
            }
            watch.seen = watch.seen.max(revision);
        }
        (self.answers)(id, Ok(Answer::Changes { revision, changes }));
    }

    /// Reports a revision of etcd to watches whose keys did not change.
    pub(crate) fn behind(self: &Arc<Self>, revision: u64) {
        let mut open = self.open.lock();
        let behind = open
            .iter_mut()
            .filter(|(_, watch)| watch.seen < revision && !watch.asking);
        for (prefix, watch) in behind {
            watch.asking = true;
            let (watches, prefix) = (Arc::clone(self), prefix.clone());
            let (id, seen) = (watch.id, watch.seen);
            tokio::spawn(async move {
                watches.ask_again(id, &prefix, seen).await;
                if let Some(watch) = watches.open.lock().get_mut(&prefix) {
                    watch.asking = false;
                }
            });
        }
    }

    async fn ask_again(&self, id: RequestId, prefix: &str, seen: u64) {
        let still = || {
            let open = self.open.lock();
            let watch = open.get(prefix);
            watch.is_some_and(|watch| watch.id == id && watch.seen == seen)
        };
        tokio::time::sleep(LATE).await;
        if !still() {
            return;
        }
        let call = Call::changed_since(prefix, seen);
        if let Ok(Some(revision)) = self.members.call(&call, unchanged_until).await
            && still()
        {
            self.tell(id, prefix, revision, Vec::new());
        }
    }
}
