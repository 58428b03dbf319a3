//! Meanings of etcd's refusals.

use std::fmt;

use cluster::coord::Answer;
use serde_json::Value;

use crate::problem::{AnswerResult, Problem, ProblemKind};

/// Refusal of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoLease,
    Compacted,
    /// The login is missing, or its token has expired.
    Token,
    Problem(Problem),
}

/// gRPC's numbers.
const PERMISSION_DENIED: i64 = 7;
const UNAVAILABLE: i64 = 14;

impl Refusal {
    /// Returns the answer that this refusal is, or the problem.
    pub(crate) fn answered(self) -> AnswerResult {
        match self {
            Self::NoLease => Ok(Answer::NoLease),
            Self::Compacted => Ok(Answer::Compacted),
            refusal => Err(refusal.into()),
        }
    }

    /// Makes the refusal for an answer that etcd would not send.
    pub(crate) fn unreadable(why: &dyn fmt::Display) -> Self {
        let sentence = format!("the answer is not one of etcd ({why})");
        Problem::new(ProblemKind::NotEtcd, sentence).into()
    }

    /// Reads a refusal of the gateway: a string, or an object with a message and gRPC's code.
    pub(crate) fn of(error: &Value) -> Self {
        let message = ["message", "error"]
            .iter()
            .find_map(|name| error[*name].as_str());
        let message = message.or(error.as_str()).unwrap_or("no reason is told");
        let code = ["code", "grpc_code"]
            .iter()
            .find_map(|name| error[*name].as_i64());
        let has = |text: &str| message.contains(text);
        let problem = |kind| Problem::new(kind, one_line(message));
        if has("requested lease not found") {
            return Self::NoLease;
        }
        if has("revision has been compacted") {
            return Self::Compacted;
        }
        if [
            "invalid auth token",
            "user name is empty",
            "revision of auth store is old",
        ]
        .into_iter()
        .any(has)
        {
            return Self::Token;
        }
        if has("no leader") {
            // etcd refuses so before it reads the request.
            return problem(ProblemKind::NoQuorum).not_done().into();
        }
        if has("request timed out") || has("leader changed") {
            return problem(ProblemKind::NoQuorum).into();
        }
        let denied = code == Some(PERMISSION_DENIED) || has("permission denied");
        if denied || has("authentication failed") {
            return problem(ProblemKind::Login).of_a_well_member().into();
        }
        match code {
            Some(UNAVAILABLE) => problem(ProblemKind::Unreachable).into(),
            _ => problem(ProblemKind::Refused).of_a_well_member().into(),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Problem(problem) => problem,
            other => Self::new(ProblemKind::Refused, format!("etcd refuses: {other:?}")),
        }
    }
}

/// Replaces characters that would break a line of output, and limits the length.
pub(crate) fn one_line(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(error: &str) -> (ProblemKind, bool) {
        let read = serde_json::from_str(error).unwrap();
        let Refusal::Problem(problem) = Refusal::of(&read) else {
            panic!("{error}");
        };
        assert!(!problem.to_string().is_empty());
        (problem.kind(), problem.not_done)
    }

    #[test]
    fn refusals_of_old_and_new_gateways_are_understood() {
        for (error, meaning) in [
            (
                r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#,
                Refusal::NoLease,
            ),
            (
                r#"{"code":11,"message":"etcdserver: mvcc: required revision has been compacted","details":[]}"#,
                Refusal::Compacted,
            ),
            (
                r#"{"error":"etcdserver: invalid auth token","code":16}"#,
                Refusal::Token,
            ),
            (
                r#"{"error":"etcdserver: user name is empty","code":3}"#,
                Refusal::Token,
            ),
        ] {
            assert_eq!(Refusal::of(&serde_json::from_str(error).unwrap()), meaning);
        }
        for (error, expected) in [
            (
                r#"{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}"#,
                (ProblemKind::NoQuorum, true),
            ),
            (
                r#"{"message":"etcdserver: request timed out","code":14}"#,
                (ProblemKind::NoQuorum, false),
            ),
            (
                r#"{"message":"etcdserver: permission denied","code":7}"#,
                (ProblemKind::Login, false),
            ),
            (
                r#"{"message":"etcdserver: authentication failed, invalid user ID or password","code":3}"#,
                (ProblemKind::Login, false),
            ),
            (
                r#"{"message":"etcdserver: mvcc: database space exceeded","code":8}"#,
                (ProblemKind::Refused, false),
            ),
            (
                r#"{"message":"all SubConns are in TransientFailure","code":14}"#,
                (ProblemKind::Unreachable, false),
            ),
            ("[1]", (ProblemKind::Refused, false)),
        ] {
            assert_eq!(kind(error), expected, "{error}");
        }
    }
}
