//! Failures of etcd, with a kind and a sentence.

use std::fmt;

use cluster::coord::Answer;

/// Kind of a problem, by the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// No member can be reached, or none answers in time.
    Unreachable,
    /// The server is no etcd that this crate supports.
    NotEtcd,
    /// Members answer, but most of them are away or have no leader.
    NoQuorum,
    /// etcd denies this user the request.
    Login,
    /// etcd refuses: it has no space, a request is too large, or a setting is missing.
    Refused,
}

/// Reason why etcd did not carry out a request: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    sentence: String,
    /// Whether the request was certainly not carried out, so it may be sent to another member.
    pub(crate) not_done: bool,
    /// Whether the next request may use the same member.
    pub(crate) member_is_well: bool,
    /// Whether it ends a watch that was late, and is begun again.
    watch_is_late: bool,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
            not_done: false,
            member_is_well: false,
            watch_is_late: false,
        }
    }

    /// Creates the end of a watch that may be late, and is begun again.
    pub(crate) fn late_watch() -> Self {
        Self {
            watch_is_late: true,
            ..Self::new(ProblemKind::Unreachable, "a watch lagged behind")
        }
    }

    /// Marks that the request was certainly not carried out.
    pub(crate) fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Marks that the request may have been carried out.
    pub(crate) fn begun(mut self) -> Self {
        self.not_done = false;
        self
    }

    /// Marks that the member itself works.
    pub(crate) fn of_a_well_member(mut self) -> Self {
        self.member_is_well = true;
        self
    }

    /// Adds the name of the member to the sentence.
    pub(crate) fn at(mut self, member: &dyn fmt::Display) -> Self {
        self.sentence = format!("{member}: {}", self.sentence);
        self
    }

    /// Whether it ends a watch that was late, and is begun again: etcd carries out requests.
    pub fn watch_is_late(&self) -> bool {
        self.watch_is_late
    }

    /// Returns the kind.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }
}

/// Answer of etcd to a request, or the reason why there is none. A transaction without an answer may have been made.
pub type AnswerResult = Result<Answer, Problem>;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Problem {}
