//! The client against a scripted server, with answers of etcd 3.4.23 and with answers that etcd would not send.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod fake;
mod members;
mod watches;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cluster::coord::{Request, RequestId};
use etcd::{AnswerResult, Etcd, Login, Options};

use crate::fake::PATIENCE;

/// A client with its received answers.
struct Client {
    etcd: Etcd,
    answers: Receiver<(RequestId, AnswerResult)>,
}

impl Client {
    fn of(members: &[String]) -> Self {
        Self::with(options(members))
    }

    fn with(options: Options) -> Self {
        let (send, answers) = channel();
        // A test that is over receives no answers.
        let take = Box::new(move |id, answer| drop(send.send((id, answer))));
        let etcd = Etcd::start(options, take).unwrap();
        Self { etcd, answers }
    }

    fn next(&self) -> (u64, AnswerResult) {
        let (id, answer) = self.answers.recv_timeout(PATIENCE).expect("an answer");
        (id.0, answer)
    }

    /// Returns the request that got no answer next, with the reason.
    fn next_problem(&self) -> (u64, String) {
        let (id, answer) = self.next();
        (id, answer.unwrap_err().to_string())
    }

    /// Returns the reason why a request gets no answer.
    fn problem(&self, request: Request) -> String {
        self.etcd.ask(request, PATIENCE).unwrap_err().to_string()
    }
}

fn options(members: &[String]) -> Options {
    Options {
        timeout: Duration::from_secs(5),
        ..Options::new(members.join(",").parse().unwrap())
    }
}

fn login() -> Login {
    let (user, password) = ("root".to_owned(), "secret".to_owned());
    Login { user, password }
}
