//! The client against a server that answers as a script says: with what etcd 3.4.23 answered, and with what it would not.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod fake;
mod members;
mod watches;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cluster::coord::{Answer, RequestId};
use etcd::{Etcd, Login, Options};

use crate::fake::PATIENCE;

/// A client and what it is answered.
struct Client {
    etcd: Etcd,
    answers: Receiver<(RequestId, Answer)>,
}

impl Client {
    fn of(members: &[String]) -> Self {
        Self::with(options(members))
    }

    fn with(options: Options) -> Self {
        let (send, answers) = channel();
        // A test that is over does not hear of it.
        let take = Box::new(move |id, answer| drop(send.send((id, answer))));
        let etcd = Etcd::start(options, take).unwrap();
        Self { etcd, answers }
    }

    fn next(&self) -> (u64, Answer) {
        let (id, answer) = self.answers.recv_timeout(PATIENCE).expect("an answer");
        (id.0, answer)
    }

    fn problem(&self) -> String {
        self.etcd.problem().expect("a problem").to_string()
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
