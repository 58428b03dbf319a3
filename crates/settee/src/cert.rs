//! `settee cert`: prints the certificate that clients of a node with TLS must trust.

use std::path::PathBuf;

use crate::exit::{Failure, Sysexit};
use crate::output;

/// Print the certificate that clients of a node must trust
///
/// It is the authority with which a node signs its own certificates if it is started with --kv-tls-port or
/// --https-port and without --tls-cert; it stays the same. A node without a data directory, or with a given
/// certificate, returns the certificate to trust over HTTP: curl http://HOST:8091/pools/default/certificate
#[derive(Debug, clap::Args)]
pub(crate) struct CertArgs {
    /// The node's data directory
    #[arg(
        long,
        env = "SETTEE_DATA_DIR",
        value_name = "DIR",
        default_value = "./settee-data"
    )]
    data_dir: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// There is no certificate, or it cannot be read.
pub(crate) fn run(args: &CertArgs) -> Result<(), Failure> {
    let path = server::authority_file(&args.data_dir);
    let pem = std::fs::read(&path).map_err(|error| {
        let line = format!(
            "{}: {error}; a node makes it when it is started with --kv-tls-port",
            path.display()
        );
        Failure::new(Sysexit::NoInput, line)
    })?;
    output::print(&pem)
}
