//! What connections over TLS are served with: the node's certificate, given or made, and its key.
//!
//! A certificate is read again on request; connections that are open keep what they began with.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

use crate::clients::{self, Ask, Clients, Verifier};
use crate::made;
use crate::pem::{CertificateFiles, read_pair, to_pem};
use crate::validity;

/// The part of a data directory in which an authority that was made is kept.
const DIRECTORY: &str = "tls";

/// Where the certificate lies that clients of a node are to trust, if the node made it.
pub fn authority_file(data_dir: &Path) -> PathBuf {
    data_dir.join(DIRECTORY).join(made::CERTIFICATE_FILE)
}

/// Copies the authority that the node of one data directory made into another one, if it did.
///
/// # Errors
/// It is damaged, or cannot be copied; one line.
pub fn copy_authority(from: &Path, to: &Path) -> Result<(), String> {
    made::copy(&from.join(DIRECTORY), &to.join(DIRECTORY))
}

/// Where the certificate of a node comes from.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The files that were named; `None` to make a certificate.
    pub certificate: Option<CertificateFiles>,
    /// Where the authority of a certificate that is made stays; `None` for memory.
    pub data_dir: Option<PathBuf>,
    /// The address that the node listens on.
    pub listen: IpAddr,
    /// The hosts under which it is reached, as far as that was said.
    pub advertised: Vec<String>,
    /// File with the authorities of client certificates and their revocation lists, PEM; `None` for the one that the node makes, if it does.
    pub client_ca: Option<PathBuf>,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
enum Source {
    Files(CertificateFiles),
    Made(made::CertificateDir),
}

/// A certificate that can be served.
struct Loaded {
    key: Arc<CertifiedKey>,
    /// What clients are to trust, as PEM.
    authority: Arc<str>,
    fingerprint: String,
    /// Why it is of no use at this time of day.
    invalid: Option<String>,
}

/// The certificate that is served now.
struct Current(RwLock<Loaded>);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "certificate below {}", self.0.read().fingerprint)
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}

/// What connections over TLS are served with.
pub struct Tls {
    /// For connections that come.
    pub config: Arc<ServerConfig>,
    current: Arc<Current>,
    source: Source,
    client_ca: Option<PathBuf>,
    clients: Arc<Clients>,
}

impl Tls {
    /// What a node that is told so serves TLS with. Where no files are named, a certificate is made, below an
    /// authority that stays in the data directory.
    ///
    /// # Errors
    /// A file cannot be read or written, or is no certificate, or no key of it; one line.
    pub fn open(options: TlsOptions) -> Result<Self, String> {
        let source = match options.certificate {
            Some(files) => Source::Files(files),
            None => Source::Made(made::CertificateDir {
                directory: options.data_dir.map(|dir| dir.join(DIRECTORY)),
                listen: options.listen,
                advertised: options.advertised,
            }),
        };
        let provider = Arc::new(ring::default_provider());
        let (loaded, verifier) = load(&source, options.client_ca.as_deref(), &provider)?;
        loaded.tell();
        if let Some(reason) = &loaded.invalid {
            tracing::error!(reason, "TLS: clients will refuse the certificate");
        }
        let clients = Arc::new(Clients::new(verifier, Arc::clone(&provider)));
        let current = Arc::new(Current(RwLock::new(loaded)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(Arc::clone(&clients) as _)
            .with_cert_resolver(Arc::clone(&current) as _);
        // A session that is resumed would bring a certificate along that is not looked at again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
            current,
            source,
            client_ca: options.client_ca,
            clients,
        })
    }

    /// Whether certificates of clients can be judged.
    ///
    /// # Errors
    /// No authority of theirs is known; what to do, one line.
    pub fn can_ask(&self) -> Result<(), String> {
        if self.clients.can_ask() {
            return Ok(());
        }
        Err("client certificates need authorities: name them with --client-ca FILE".to_owned())
    }

    /// Whether clients are asked for a certificate, for handshakes that begin from now on. Where [`Tls::can_ask`] says
    /// no, each certificate is refused.
    pub fn ask_clients(&self, ask: Ask) {
        self.clients.set_ask(ask);
    }

    /// Reads the certificate and the authorities of clients again, for connections that come from now on.
    ///
    /// # Errors
    /// What is wrong with them, one line; all those before stay.
    pub fn reload(&self) -> Result<(), String> {
        let client_ca = self.client_ca.as_deref();
        let (loaded, verifier) = load(&self.source, client_ca, self.config.crypto_provider())?;
        if let (Some(reason), Source::Files(files)) = (&loaded.invalid, &self.source) {
            return Err(format!("{}: {reason}", files.chain.display()));
        }
        loaded.tell();
        self.clients.set_verifier(verifier);
        *self.current.0.write() = loaded;
        Ok(())
    }

    /// The certificate that is served, then those of its authorities.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current.0.read().key.cert.clone()
    }

    /// What clients are to trust, as PEM: the authority of a certificate that was made, the last
    /// one of a chain that was given.
    pub fn authority(&self) -> Arc<str> {
        Arc::clone(&self.current.0.read().authority)
    }
}

impl Loaded {
    fn tell(&self) {
        let sha256 = &self.fingerprint;
        tracing::info!(sha256, "TLS: clients are to trust this certificate");
    }
}

/// The certificate, and what certificates of clients are judged by.
fn load(
    source: &Source,
    client_ca: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<(Loaded, Verifier), String> {
    let (chain, key, authority) = match source {
        Source::Files(files) => {
            let (chain, key) = read_pair(files)?;
            let authority = chain.last().cloned();
            let authority = authority.expect("a chain that was read is not empty");
            (chain, key, authority)
        }
        Source::Made(place) => place.make()?,
    };
    // The authority of a certificate that was given may vouch for strangers.
    let clients = match (client_ca, source) {
        (Some(path), _) => clients::of_file(path, provider)?,
        (None, Source::Made(_)) => {
            clients::of_authorities(vec![authority.clone()], Vec::new(), provider)?
        }
        (None, Source::Files(_)) => None,
    };
    let invalid = chain.first().and_then(|first| validity::check(first).err());
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match source {
        Source::Files(files) => files.refused(&error),
        Source::Made(_) => error.to_string(),
    })?;
    let loaded = Loaded {
        key: Arc::new(key),
        fingerprint: fingerprint(&authority),
        authority: to_pem(&authority).into(),
        invalid,
    };
    Ok((loaded, clients))
}

/// As other tools print it: `AB:CD:...`.
fn fingerprint(certificate: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(certificate) {
        let colon = if text.is_empty() { "" } else { ":" };
        write!(text, "{colon}{byte:02X}").expect("writing to a string does not fail");
    }
    text
}
