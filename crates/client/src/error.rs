//! Errors between a client and its server.

use std::io;

use identity::ScramError;
use wire::{Status, TooLong};

use crate::link::NO_TLS;

/// Reason why a request has no useful answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connect failed; another attempt may help.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// Connect string without secrets.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The connection broke, or the server did not answer in time; a new one may help.
    #[error("connection lost during {during}: {}", reason_of(source))]
    Lost {
        /// The request, or another activity of the connection.
        during: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server violated the protocol.
    #[error("the server broke the protocol during {during}: {reason}")]
    Protocol {
        /// The request, or another activity of the connection.
        during: &'static str,
        /// The violation.
        reason: String,
    },
    /// A key or value does not fit a frame; give a shorter one.
    #[error("cannot ask: {0}")]
    TooLong(#[from] TooLong),
    /// The server answered with an error status.
    #[error("{}", refusal(*status, during, about, context.as_deref()))]
    Refused {
        /// The request.
        during: &'static str,
        /// Subject of the request: a key, a bucket, a group; may be empty.
        about: String,
        /// The status.
        status: Status,
        /// Error text of the server beyond the status.
        context: Option<String>,
    },
    /// The SCRAM exchange failed in the client.
    #[error("cannot log in: {0}")]
    Scram(#[from] ScramError),
    /// Client and server have no common SASL mechanism.
    #[error("cannot log in: the server offers only {0:?}")]
    Mechanisms(String),
}

/// Returns the error as text. A socket reports the end of its time limit as an operation that would block.
fn reason_of(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match (error.kind(), tls) {
        (io::ErrorKind::WouldBlock, _) => "no answer in time".to_owned(),
        (_, Some(rustls::Error::InvalidMessage(_))) => {
            format!("the answer is no TLS; {NO_TLS}")
        }
        _ => error.to_string(),
    }
}

fn refusal(status: Status, during: &str, about: &str, context: Option<&str>) -> String {
    let context = context.map(|text| format!(" ({text})")).unwrap_or_default();
    let gap = if about.is_empty() { "" } else { " " };
    format!(
        "{during}{gap}{about}: {}, status 0x{:02x}{context}",
        status.description(),
        status.0
    )
}

impl ClientError {
    /// Creates the error of a server that violates the protocol.
    pub fn broken(during: &'static str, reason: &impl ToString) -> Self {
        Self::Protocol {
            during,
            reason: reason.to_string(),
        }
    }

    /// Returns whether a new connection may help.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_time_limit_is_told_in_words() {
        let source = io::Error::from(io::ErrorKind::WouldBlock);
        let during = "HELLO";
        let lost = ClientError::Lost { during, source };
        assert_eq!(
            lost.to_string(),
            "connection lost during HELLO: no answer in time"
        );
    }

    #[test]
    fn a_refusal_names_command_status_and_context() {
        let text = refusal(Status::LOCKED, "SET", "key-1", Some("held by another"));
        assert!(
            text.starts_with("SET key-1: ") && text.ends_with("0x09 (held by another)"),
            "{text}"
        );
    }
}
