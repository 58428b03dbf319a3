//! The members of an etcd: requests go to one member until it fails, then to the next one.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::{Method, Response};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Access;
use crate::connection::{Connection, MemberRequest, body, connect, send};
use crate::messages::{Call, read};
use crate::options::{Endpoint, Login, Options};
use crate::problem::{Problem, ProblemKind};
use crate::refusal::Refusal;

/// Maximum number of idle connections to a member.
const IDLE_MAX: usize = 4;

pub(crate) struct Members {
    all: Vec<EtcdMember>,
    access: RwLock<Arc<Access>>,
    pub(crate) timeout: Duration,
    /// Index of the member to which requests go.
    current: Mutex<usize>,
}

struct EtcdMember {
    endpoint: Endpoint,
    idle: Mutex<Vec<Connection>>,
    /// Held during a login, so that the requests of one moment need one.
    login: tokio::sync::Mutex<()>,
    /// Problem of the request that failed last, for watches.
    failures: watch::Sender<Option<Problem>>,
}

impl Members {
    /// # Errors
    /// There are no trusted certificates, or the client certificate cannot be read.
    pub(crate) fn new(options: Options) -> io::Result<Self> {
        let access = RwLock::new(Arc::new(Access::new(&options)?));
        let endpoints = options.endpoints.0;
        if endpoints.is_empty() {
            return Err(io::Error::other("no member of etcd is named"));
        }
        let member = |endpoint| EtcdMember {
            endpoint,
            idle: Mutex::default(),
            login: tokio::sync::Mutex::default(),
            failures: watch::Sender::new(None),
        };
        Ok(Self {
            all: endpoints.into_iter().map(member).collect(),
            access,
            timeout: options.timeout,
            current: Mutex::default(),
        })
    }

    /// Uses another login from now on, and other certificates for later connections.
    ///
    /// # Errors
    /// As [`Members::new`].
    pub(crate) fn renew(&self, options: &Options) -> io::Result<()> {
        *self.access.write() = Arc::new(Access::new(options)?);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn endpoint(&self, at: usize) -> &Endpoint {
        &self.all[at].endpoint
    }

    /// Returns all members, in the order in which they are tried.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (*self.current.lock(), self.len());
        (first..first + count).map(move |at| at % count)
    }

    /// Makes the next member the current one after a failure of this one.
    pub(crate) fn leave(&self, at: usize, problem: &Problem) {
        let member = &self.all[at];
        member.idle.lock().clear();
        member.failures.send_replace(Some(problem.clone()));
        let mut current = self.current.lock();
        if *current == at {
            *current = (at + 1) % self.len();
        }
    }

    /// Waits until a request to the member fails; returns its problem.
    pub(crate) async fn failed(&self, at: usize) -> Problem {
        let mut failures = self.all[at].failures.subscribe();
        let changed = failures.changed().await;
        changed.expect("the sender lives as long as the members");
        let problem = failures.borrow().clone();
        problem.expect("only failures are sent")
    }

    /// Calls one member after the other, until one of them may have carried out the request.
    pub(crate) async fn call<T>(
        &self,
        call: &Call,
        read: impl Fn(&[u8]) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut last = None;
        for at in self.in_turn() {
            match self.call_at(at, call, &read).await {
                Err(Refusal::Problem(problem)) if problem.not_done => last = Some(problem),
                other => return other,
            }
        }
        let last = last.expect("there is a member, and all of them failed");
        Err(last.into())
    }

    /// Calls members like [`Members::call`], for a call that may be repeated: if a member is slow, the next
    /// one is called as well. If that one answers first, the slow one is left.
    pub(crate) async fn call_twice<T>(
        &self,
        call: &Call,
        read: impl Fn(&[u8]) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut turn = self.in_turn();
        let first = self.call(call, &read);
        let (Some(slow), Some(next)) = (turn.next(), turn.next()) else {
            return first.await;
        };
        let mut first = pin!(first);
        if let Ok(answer) = timeout(self.timeout / 4, &mut first).await {
            return answer;
        }
        let mut second = pin!(self.call_at(next, call, &read));
        tokio::select! {
            answer = &mut first => match answer {
                Ok(answer) => Ok(answer),
                Err(_) => second.await,
            },
            answer = &mut second => match answer {
                Ok(answer) => {
                    let problem = Self::late(self.timeout / 4);
                    self.leave(slow, &problem.at(self.endpoint(slow)));
                    Ok(answer)
                }
                Err(_) => first.await,
            },
        }
    }

    /// Calls one member.
    pub(crate) async fn call_at<T>(
        &self,
        at: usize,
        call: &Call,
        read: impl Fn(&[u8]) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let exchange = async {
            let (connection, answer) = self.ask(at, call).await?;
            let answer = body(answer).await?;
            self.keep(at, connection);
            read(&answer)
        };
        let answer = timeout(self.timeout, exchange).await;
        self.judge(
            at,
            answer.unwrap_or_else(|_| Err(Self::late(self.timeout).into())),
        )
    }

    /// Opens a stream at one member. It ends with the connection.
    pub(crate) async fn open_at(
        &self,
        at: usize,
        call: &Call,
    ) -> Result<(Connection, Response<Incoming>), Refusal> {
        let opened = timeout(self.timeout, self.ask(at, call)).await;
        self.judge(
            at,
            opened.unwrap_or_else(|_| Err(Self::late(self.timeout).into())),
        )
    }

    /// Returns the member's answer about its version.
    pub(crate) async fn version_at(&self, at: usize) -> Result<Bytes, Refusal> {
        let asked = MemberRequest {
            method: Method::GET,
            path: "/version",
            body: "",
            token: None,
        };
        let exchange = async { body(self.exchange(at, &asked).await?.1).await };
        let version = timeout(self.timeout, exchange).await;
        self.judge(
            at,
            version.unwrap_or_else(|_| Err(Self::late(self.timeout).into())),
        )
    }

    /// Adds the member's name to a problem, and leaves a member that failed.
    pub(crate) fn judge<T>(&self, at: usize, result: Result<T, Refusal>) -> Result<T, Refusal> {
        let problem = match result {
            Err(Refusal::Problem(problem)) => problem,
            Err(Refusal::Token) => self.no_login(),
            other => return other,
        };
        let problem = problem.at(self.endpoint(at));
        if !problem.member_is_well {
            self.leave(at, &problem);
        }
        Err(problem.into())
    }

    fn no_login(&self) -> Problem {
        let access = self.access();
        access.forget(None);
        let sentence = match &access.login {
            None => "etcd asks for a user and a password".to_owned(),
            Some(login) => format!("the login of {} is not valid any more", login.user),
        };
        Problem::new(ProblemKind::Login, sentence).of_a_well_member()
    }

    fn late(limit: Duration) -> Problem {
        let sentence = format!("no answer within {} ms", limit.as_millis());
        Problem::new(ProblemKind::Unreachable, sentence)
    }

    /// Returns the head of an answer with a successful status; gets a new token if etcd does not know the
    /// present one.
    async fn ask(
        &self,
        at: usize,
        call: &Call,
    ) -> Result<(Connection, Response<Incoming>), Refusal> {
        let mut renewed = false;
        loop {
            let token = self.token(at).await?;
            let asked = MemberRequest {
                method: Method::POST,
                path: call.path,
                body: &call.body,
                token: token.as_deref(),
            };
            let (connection, answer) = self.exchange(at, &asked).await?;
            if answer.status().is_success() {
                return Ok((connection, answer));
            }
            match body(answer).await {
                Err(Refusal::Token) if token.is_some() && !renewed => {
                    renewed = true;
                    self.access().forget(token.as_deref());
                }
                Err(refusal) => {
                    self.keep(at, connection);
                    return Err(refusal);
                }
                Ok(_) => return Err(Refusal::unreadable(&"a refusal that grants")),
            }
        }
    }

    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read())
    }

    /// Returns a token for the login; `None` without a login, or if etcd does not require one.
    async fn token(&self, at: usize) -> Result<Option<String>, Refusal> {
        let access = self.access();
        let Some(login) = &access.login else {
            return Ok(None);
        };
        if let Some(token) = access.token() {
            return token.map(Some);
        }
        let _turn = self.all[at].login.lock().await;
        if let Some(token) = access.token() {
            return token.map(Some);
        }
        match self.log_in(at, login).await {
            Err(Refusal::Problem(problem)) if problem.to_string().contains("is not enabled") => {
                Ok(None)
            }
            // The request itself comes after the login.
            Err(Refusal::Problem(problem)) => {
                let problem = problem.not_done();
                if problem.kind() == ProblemKind::Login {
                    access.refused(problem.clone());
                }
                Err(problem.into())
            }
            Err(refusal) => Err(refusal),
            Ok(token) => {
                access.granted(token.clone());
                Ok(Some(token))
            }
        }
    }

    /// Asks a member for a token.
    async fn log_in(&self, at: usize, login: &Login) -> Result<String, Refusal> {
        #[derive(Deserialize)]
        struct Authenticated {
            token: String,
        }
        let credentials = json!({ "name": login.user, "password": login.password }).to_string();
        let asked = MemberRequest {
            method: Method::POST,
            path: "/v3/auth/authenticate",
            body: &credentials,
            token: None,
        };
        let (connection, answer) = self.exchange(at, &asked).await?;
        let answer = body(answer).await;
        self.keep(at, connection);
        Ok(read::<Authenticated>(&answer?)?.token)
    }

    /// Returns the head of an answer, over an idle connection or a new one.
    async fn exchange(
        &self,
        at: usize,
        asked: &MemberRequest<'_>,
    ) -> Result<(Connection, Response<Incoming>), Problem> {
        let member = &self.all[at];
        let waiting = member.idle.lock().pop();
        if let Some(mut connection) = waiting
            && connection.ready().await.is_ok()
        {
            match send(&mut connection, &member.endpoint, asked).await {
                // The member closed the connection while it was idle.
                Err(problem) if problem.not_done => {}
                sent => return sent.map(|answer| (connection, answer)),
            }
        }
        let tls = self.access().tls.clone();
        let connected = timeout(self.timeout / 2, connect(&member.endpoint, tls.as_ref()));
        let mut connection = connected.await.unwrap_or_else(|_| {
            let sentence = "no connection in time";
            Err(Problem::new(ProblemKind::Unreachable, sentence).not_done())
        })?;
        let answer = send(&mut connection, &member.endpoint, asked).await?;
        Ok((connection, answer))
    }

    /// Keeps an idle connection for the next request.
    fn keep(&self, at: usize, connection: Connection) {
        let mut idle = self.all[at].idle.lock();
        if idle.len() < IDLE_MAX && !connection.is_closed() {
            idle.push(connection);
        }
    }
}
