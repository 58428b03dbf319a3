//! Watches: one for each prefix.
//!
//! etcd tells a watch that nothing changed only every ten minutes. A participant takes a watch that is behind etcd's
//! revision for one whose request was lost. So where a renewal of a lease tells a revision that a watch has not told
//! for a moment, [`Watches::behind`] asks whether anything changed, and tells the revision if not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::coord::{Answer, Change, RequestId};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::lines::Lines;
use crate::members::Members;
use crate::messages::{Call, unchanged_until, watched};
use crate::problem::{Problem, ProblemKind};
use crate::refusal::Refusal;

/// How answers go to where they were asked for.
pub(crate) type Answers = dyn Fn(RequestId, Answer) + Send + Sync;

/// Changes that were made before a revision was told come within this time.
const LATE: Duration = Duration::from_millis(200);

pub(crate) struct Watches {
    members: Arc<Members>,
    answers: Arc<Answers>,
    open: Mutex<BTreeMap<String, Watch>>,
}

struct Watch {
    id: RequestId,
    /// The member that is asked; the next one is asked first if this watch is replaced.
    at: usize,
    /// Everything up to here was told.
    told: u64,
    /// Whether it is found out if anything changed since.
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

    /// Answers a request.
    pub(crate) fn answer_to(&self, id: RequestId, answer: Answer) {
        (self.answers)(id, answer);
    }

    /// Opens a watch. One of the same prefix that is open is over: it may have been behind, so another member is asked.
    pub(crate) fn open(self: &Arc<Self>, id: RequestId, prefix: &str, from: u64, call: Call) {
        let told = from.saturating_sub(1);
        let before = self.end(prefix, None);
        if let Some(before) = before {
            (self.answers)(before.id, Answer::Unavailable);
            self.members.leave(before.at);
        }
        let watch = Watch {
            id,
            at: 0,
            told,
            asking: false,
            task: None,
        };
        self.open.lock().insert(prefix.to_owned(), watch);
        let watches = Arc::clone(self);
        let of = prefix.to_owned();
        let task = tokio::spawn(async move {
            let answer = match watches.run(id, &of, &call).await {
                Refusal::Compacted => Answer::Compacted,
                _ => Answer::Unavailable,
            };
            if watches.end(&of, Some(id)).is_some() {
                (watches.answers)(id, answer);
            }
        });
        if let Some(watch) = self.open.lock().get_mut(prefix) {
            watch.task = Some(task.abort_handle());
        }
    }

    /// Takes a watch away, the one of that number if one is given.
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

    /// Tells changes, until something ends the watch.
    async fn run(&self, id: RequestId, prefix: &str, call: &Call) -> Refusal {
        let mut last = None;
        for at in self.members.in_turn() {
            if let Some(watch) = self.open.lock().get_mut(prefix) {
                watch.at = at;
            }
            let left = self.members.left(at);
            let refusal = tokio::select! {
                refusal = self.run_at(at, id, prefix, call) => refusal,
                () = left => Problem::new(ProblemKind::Unreachable, "the member failed").into(),
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

    /// The end of a watch that was open: another member is not asked for it, since some may have been told.
    fn failed(&self, at: usize, refusal: Refusal) -> Refusal {
        match self.members.judge::<()>(at, Err(refusal)) {
            Err(Refusal::Problem(problem)) => problem.begun().into(),
            Err(refusal) => refusal,
            Ok(()) => Refusal::Token,
        }
    }

    fn tell(&self, id: RequestId, prefix: &str, revision: u64, changes: Vec<Change>) {
        {
            let mut open = self.open.lock();
            let Some(watch) = open.get_mut(prefix).filter(|watch| watch.id == id) else {
                return;
            };
            if changes.is_empty() && revision <= watch.told {
                return;
            }
            watch.told = watch.told.max(revision);
        }
        (self.answers)(id, Answer::Changes { revision, changes });
    }

    /// etcd has that revision: tells it to watches of keys that did not change.
    pub(crate) fn behind(self: &Arc<Self>, revision: u64) {
        let mut open = self.open.lock();
        let behind = open
            .iter_mut()
            .filter(|(_, watch)| watch.told < revision && !watch.asking);
        for (prefix, watch) in behind {
            watch.asking = true;
            let (watches, prefix) = (Arc::clone(self), prefix.clone());
            let (id, told) = (watch.id, watch.told);
            tokio::spawn(async move {
                watches.ask_again(id, &prefix, told).await;
                if let Some(watch) = watches.open.lock().get_mut(&prefix) {
                    watch.asking = false;
                }
            });
        }
    }

    async fn ask_again(&self, id: RequestId, prefix: &str, told: u64) {
        let still = || {
            let open = self.open.lock();
            let watch = open.get(prefix);
            watch.is_some_and(|watch| watch.id == id && watch.told == told)
        };
        tokio::time::sleep(LATE).await;
        if !still() {
            return;
        }
        let call = Call::changed_since(prefix, told);
        if let Ok(Some(revision)) = self.members.call(&call, unchanged_until).await
            && still()
        {
            self.tell(id, prefix, revision, Vec::new());
        }
    }
}
