//! Tests of wrong passwords: the tries of a connection, and the delay of other connections.

use identity::FAILURES_PER_CONNECTION;
use wire::{Opcode, Status};

use crate::client::{Client, PASSWORD, Request, USER, plain};
use crate::place::own;

#[test]
fn some_wrong_logins_end_the_connection_whether_the_user_is_known_or_not() {
    let node = own();
    let port = node.ports().kv;
    for user in [USER, "nobody"] {
        let mut client = Client::connect(port);
        for number in 1..=FAILURES_PER_CONNECTION {
            let answer = client.call(&plain(user, "wrong")).is(Status::AUTH_ERROR);
            assert!(
                answer.value.is_empty(),
                "{number}: nothing tells which one it was"
            );
        }
        client.expect_end();
    }
    node.shutdown().unwrap();
}

#[test]
fn a_right_login_resets_the_delay_and_logged_in_clients_do_not_wait() {
    let node = own();
    let port = node.ports().kv;
    let mut neighbour = Client::ready(port);
    let mut guessing = Client::connect(port);
    let wrong: Vec<Request> = (0..100).map(|_| plain(USER, "wrong")).collect();
    guessing.pipeline(&wrong);
    let answers = std::iter::from_fn(|| guessing.next());
    assert!(answers.count() < 10, "most are not even looked at");
    // More connections wait than there are threads that serve.
    let mut waiting: Vec<Client> = (0..16).map(|_| Client::connect(port)).collect();
    for client in &mut waiting {
        client.send(&plain(USER, "wrong").bytes());
    }
    for _ in 0..100 {
        neighbour.call(&Request::new(Opcode::NOOP)).ok();
    }
    let refused = waiting.iter_mut().map(Client::next);
    assert!(
        refused
            .flatten()
            .all(|answer| answer.status == Status::AUTH_ERROR)
    );
    let mut patient = Client::connect(port);
    while patient.next_login() != Some(Status::SUCCESS) {
        patient = Client::connect(port);
    }
    for _ in 0..5 {
        let mut client = Client::connect(port);
        client.call(&plain(USER, "wrong")).is(Status::AUTH_ERROR);
        client.call(&plain(USER, PASSWORD)).ok();
    }
    node.shutdown().unwrap();
}

impl Client {
    /// Sends a right login. Returns its status; `None` if the connection ends.
    fn next_login(&mut self) -> Option<Status> {
        self.send(&plain(USER, PASSWORD).bytes());
        self.next().map(|answer| answer.status)
    }
}
