//! TLS of connections to other nodes.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};

use crate::served::Tls;
use crate::trust::Trust;

/// What connections to other nodes are made with. Its files are read at the start, and whenever they are to be read again.
#[derive(Debug)]
pub struct PeerTls {
    trust: Trust,
    current: RwLock<Arc<ClientConfig>>,
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them is of no use; one line.
    pub fn open(trust: Trust) -> Result<Self, String> {
        let config = trust.config().map_err(|error| error.to_string())?;
        let current = RwLock::new(Arc::new(config));
        Ok(Self { trust, current })
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current.read())
    }

    /// Whether there is a certificate to show if the other node asks.
    pub fn shows_certificate(&self) -> bool {
        self.trust.own.is_some()
    }

    /// Reads the files again, for connections that are made from now on.
    ///
    /// # Errors
    /// What is wrong with them, one line; what was read before stays.
    pub fn reload(&self) -> Result<(), String> {
        let read = Self::open(self.trust.clone())?;
        *self.current.write() = read.config();
        Ok(())
    }

    /// Whether nodes that trust the same accept the certificate that this one serves, when they reach it under a host.
    ///
    /// # Errors
    /// They do not; why, one line.
    pub fn check(&self, served: &Tls, host: &str) -> Result<(), String> {
        let chain = served.chain();
        let refused = |why: &dyn std::fmt::Display| {
            let hint =
                "--peer-ca names the authorities of all nodes, --tls-cert a certificate of one";
            format!(
                "other nodes would refuse the certificate of this one, which they reach as {host}: {why}; {hint}"
            )
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| refused(&error))?;
        let roots = self.trust.roots().map_err(|error| error.to_string())?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|error| refused(&error))?;
        let (first, others) = chain
            .split_first()
            .ok_or_else(|| refused(&"there is none"))?;
        let judged = verifier.verify_server_cert(first, others, &name, &[], UnixTime::now());
        judged.map(drop).map_err(|error| refused(&error))
    }
}

/// What TLS has against the other side, or the other side against this one; `None` for what another error is.
pub fn tls_refusal(error: &io::Error) -> Option<String> {
    let refusal = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(refusal.to_string())
}
