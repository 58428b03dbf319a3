//! Login and certificates, with the token that etcd gave for the login.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_rustls::rustls::ClientConfig;

use crate::options::{Login, Options};
use crate::problem::Problem;
use crate::refusal::Refusal;

/// Time for which a refused login is not tried again: etcd works hard on each (bcrypt), and on few at a time.
const REFUSED_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Access {
    pub(crate) login: Option<Login>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    token: Mutex<Token>,
}

enum Token {
    Unknown,
    Known(String),
    Refused(Problem, Instant),
}

impl Access {
    /// # Errors
    /// There are no trusted certificates, or the client certificate cannot be read.
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        let over_tls = options.endpoints.0.iter().any(|endpoint| endpoint.tls);
        let trust = options.trust.clone().unwrap_or_default();
        Ok(Self {
            login: options.login.clone(),
            tls: over_tls.then(|| trust.config().map(Arc::new)).transpose()?,
            token: Mutex::new(Token::Unknown),
        })
    }

    /// Returns the token, or the refusal of the login if it is recent.
    pub(crate) fn token(&self) -> Option<Result<String, Refusal>> {
        match &*self.token.lock() {
            Token::Known(token) => Some(Ok(token.clone())),
            Token::Refused(problem, at) if at.elapsed() < REFUSED_FOR => {
                Some(Err(problem.clone().into()))
            }
            Token::Refused(..) | Token::Unknown => None,
        }
    }

    pub(crate) fn granted(&self, token: String) {
        *self.token.lock() = Token::Known(token);
    }

    pub(crate) fn refused(&self, why: Problem) {
        *self.token.lock() = Token::Refused(why, Instant::now());
    }

    /// Forgets the token that etcd knows no more. Without `which`, any token.
    pub(crate) fn forget(&self, which: Option<&str>) {
        let mut token = self.token.lock();
        if matches!(&*token, Token::Known(known) if which.is_none_or(|which| which == known)) {
            *token = Token::Unknown;
        }
    }
}
