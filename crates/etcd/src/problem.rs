//! Why etcd did not do what it was asked for.

use std::fmt;

/// What helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// No member can be reached, or none answers in time.
    Unreachable,
    /// What answers is no etcd that this crate speaks to.
    NotEtcd,
    /// Members answer, but most of them are away or have no leader.
    NoQuorum,
    /// etcd does not let this user do it.
    Login,
    /// etcd refuses: it has no space, a request is too large, or a setting is missing.
    Refused,
}

/// Why etcd did not do what it was asked for: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    sentence: String,
    /// The request was not carried out, so it may be made again elsewhere.
    pub(crate) not_done: bool,
    /// The member may be tried again by the next request.
    pub(crate) member_is_well: bool,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
            not_done: false,
            member_is_well: false,
        }
    }

    /// The same, of a request that was certainly not carried out.
    pub(crate) fn not_done(self) -> Self {
        Self {
            not_done: true,
            ..self
        }
    }

    /// The same, of what had begun.
    pub(crate) fn begun(self) -> Self {
        Self {
            not_done: false,
            ..self
        }
    }

    /// The same, where the member did what it could.
    pub(crate) fn of_a_well_member(self) -> Self {
        Self {
            member_is_well: true,
            ..self
        }
    }

    /// The same, said of a member.
    pub(crate) fn at(self, member: &dyn fmt::Display) -> Self {
        Self {
            sentence: format!("{member}: {}", self.sentence),
            ..self
        }
    }

    /// What helps.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Problem {}
