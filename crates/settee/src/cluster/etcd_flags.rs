//! Flags that name an etcd.

use std::path::PathBuf;

use etcd::{Endpoints, Login, Options, Problem, ProblemKind};
use server::{CertificateFiles, Trust};

use crate::connect::first_line;
use crate::exit::{Failure, Sysexit};

/// Variable of the environment that holds the password of the user of etcd.
const PASSWORD_VARIABLE: &str = "SETTEE_ETCD_PASSWORD";

/// Flags of commands that speak to etcd themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// Members of etcd: http://HOST:PORT,http://HOST:PORT,... or the same with https://
    #[arg(
        long,
        env = "SETTEE_ETCD",
        value_name = "ADDRESSES",
        default_value = "http://127.0.0.1:2379"
    )]
    etcd: Endpoints,
    /// User of etcd; its password is in --password-file or in the environment's SETTEE_ETCD_PASSWORD
    #[arg(long, env = "SETTEE_ETCD_USERNAME", value_name = "USER")]
    user: Option<String>,
    /// File with the password of that user, in its first line
    #[arg(
        long,
        env = "SETTEE_ETCD_PASSWORD_FILE",
        value_name = "FILE",
        requires = "user"
    )]
    password_file: Option<PathBuf>,
    /// With https://: certificates to trust, a PEM file [default: what the system trusts]
    #[arg(long, env = "SETTEE_ETCD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// With https://: trust any certificate
    #[arg(long, env = "SETTEE_ETCD_INSECURE", conflicts_with = "ca")]
    insecure: bool,
    /// With https://: certificate to show, a PEM file with those of its authorities behind it
    #[arg(
        long,
        env = "SETTEE_ETCD_CERT",
        value_name = "FILE",
        requires = "cert_key"
    )]
    cert: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(
        long = "key",
        env = "SETTEE_ETCD_KEY",
        value_name = "FILE",
        requires = "cert"
    )]
    cert_key: Option<PathBuf>,
}

impl EtcdArgs {
    /// Where etcd is, and how one logs in.
    ///
    /// # Errors
    /// The password is missing or cannot be read.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let own = match (&self.cert, &self.cert_key) {
            (Some(chain), Some(key)) => Some(CertificateFiles {
                chain: chain.clone(),
                key: key.clone(),
            }),
            _ => None,
        };
        let trust = Trust {
            ca: self.ca.clone(),
            insecure: self.insecure,
            own,
        };
        Ok(Options {
            login: self.login()?,
            trust: Some(trust),
            ..Options::new(self.etcd.clone())
        })
    }

    fn login(&self) -> Result<Option<Login>, Failure> {
        let Some(user) = self.user.clone() else {
            return Ok(None);
        };
        let password = match &self.password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::usage(format!("--password-file: {}: {error}", path.display()))
                })?;
                first_line(&text).to_owned()
            }
            None => std::env::var(PASSWORD_VARIABLE).unwrap_or_default(),
        };
        if password.is_empty() {
            let why =
                format!("--user {user}: give --password-file, or {PASSWORD_VARIABLE} its password");
            return Err(Failure::usage(why));
        }
        Ok(Some(Login { user, password }))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let code = match problem.kind() {
            ProblemKind::Unreachable | ProblemKind::Refused => Sysexit::Unavailable,
            ProblemKind::NotEtcd => Sysexit::Protocol,
            ProblemKind::NoQuorum => Sysexit::TempFail,
            ProblemKind::Login => Sysexit::NoPerm,
        };
        Self::new(code, problem.to_string())
    }
}
