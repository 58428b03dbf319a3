//! Flags that name a server, and the client options made from them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Address, Client, ClientError, ConnectOptions, SaltedCache};
use server::{CertificateFiles, Trust};

use crate::exit::Failure;

/// Environment variable with the password for an address without one.
const PASSWORD_VARIABLE: &str = "SETTEE_CONNECT_PASSWORD";

/// Flags that every client command takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Server: couchbase://USER:PASSWORD@HOST:PORT/BUCKET (parts percent-encoded), the same with couchbases://
    /// over TLS, memcached://HOST:PORT, or HOST:PORT, which means memcached. Without :PASSWORD the password is
    /// taken from --password-file or from the environment variable SETTEE_CONNECT_PASSWORD; process lists do not
    /// show it there
    #[arg(
        long,
        env = "SETTEE_CONNECT",
        hide_env_values = true,
        value_name = "ADDRESS",
        default_value = "couchbase://Administrator:password@127.0.0.1:11210/default"
    )]
    connect: Address,
    #[command(flatten)]
    login: LoginArgs,
}

/// Flags about passwords, certificates and time that every client command takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// File with the password of the user in its first line; for an address without one
    #[arg(long, env = "SETTEE_CONNECT_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// With couchbases://: certificates to trust, a PEM file [default: those of the system]
    #[arg(long, env = "SETTEE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// With couchbases://: trust any certificate
    #[arg(long, env = "SETTEE_INSECURE", conflicts_with = "ca")]
    insecure: bool,
    /// With couchbases://: certificate to log in with, a PEM file, followed by those of its authorities; if the
    /// server maps it to a user, name and password are not sent
    #[arg(long, env = "SETTEE_CERT", value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(
        long = "key",
        env = "SETTEE_KEY",
        value_name = "FILE",
        requires = "cert"
    )]
    cert_key: Option<PathBuf>,
    /// Time limit for a connection and for each answer, in seconds
    #[arg(long, env = "SETTEE_TIMEOUT", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl ConnectArgs {
    /// Connects by the flags.
    ///
    /// # Errors
    /// As [`ConnectArgs::options`] and [`Client::connect`].
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let client = Client::connect(&self.options()?, &mut SaltedCache::default());
        Ok(client?)
    }

    /// Returns server, login, trusted certificates and timeout.
    ///
    /// # Errors
    /// The password is missing or cannot be read; there is no certificate to trust.
    pub(crate) fn options(&self) -> Result<ConnectOptions, Failure> {
        self.login.options_of("--connect", &self.connect)
    }

    /// Returns the options for another address; if it has no password, the same password is used.
    ///
    /// # Errors
    /// As [`ConnectArgs::options`].
    pub(crate) fn options_of(&self, address: &Address) -> Result<ConnectOptions, Failure> {
        self.login.options_of("--connect", address)
    }
}

impl LoginArgs {
    /// Returns server, login, trusted certificates and timeout for an address from the flag `what`.
    ///
    /// # Errors
    /// The password is missing or cannot be read; there is no certificate to trust.
    pub(crate) fn options_of(
        &self,
        what: &str,
        address: &Address,
    ) -> Result<ConnectOptions, Failure> {
        let usage = |reason: String| Failure::usage(format!("{what}: {reason}"));
        let password = self.password().map_err(usage)?;
        let address = address.clone().with_password(password).map_err(|error| {
            let hint =
                "write USER:PASSWORD@HOST, or give --password-file or SETTEE_CONNECT_PASSWORD";
            usage(format!("{error}: {hint}"))
        })?;
        let trust = Trust {
            ca: self.ca.clone(),
            insecure: self.insecure,
            own: self.own_certificate(),
        };
        let tls = address.over_tls.then(|| trust.config()).transpose();
        let tls = tls.map_err(|source| ClientError::Unreachable {
            address: address.to_string(),
            source,
        })?;
        Ok(ConnectOptions {
            address,
            tls: tls.map(Arc::new),
            timeout: Duration::from_secs(self.timeout),
            compressed: false,
        })
    }

    fn own_certificate(&self) -> Option<CertificateFiles> {
        let (chain, key) = (self.cert.clone()?, self.cert_key.clone()?);
        Some(CertificateFiles { chain, key })
    }

    fn password(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.password_file else {
            let variable = std::env::var(PASSWORD_VARIABLE);
            return Ok(variable.ok().filter(|password| !password.is_empty()));
        };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(first_line(&text).to_owned()))
    }
}

/// Returns the password in the text of a password file: the first line.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
