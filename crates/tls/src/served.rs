//! The server side of TLS: the node's certificate, given or self-made, and its key.
//!
//! The certificate is read again on request. Open connections keep the old one.

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

/// Subdirectory of a data directory for a self-made authority.
const DIRECTORY: &str = "tls";

/// Returns the path of the certificate that clients must trust if the node makes its own certificates.
pub fn authority_file(data_dir: &Path) -> PathBuf {
    data_dir.join(DIRECTORY).join(made::CERTIFICATE_FILE)
}

/// Copies the self-made authority from one data directory to another, if there is one.
///
/// # Errors
/// The authority is damaged, or cannot be copied; one line.
pub fn copy_authority(from: &Path, to: &Path) -> Result<(), String> {
    made::copy(&from.join(DIRECTORY), &to.join(DIRECTORY))
}

/// Settings of the node's certificate.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Files of the certificate; `None` to make one.
    pub certificate: Option<CertificateFiles>,
    /// Data directory for a self-made authority; `None` to keep it in memory only.
    pub data_dir: Option<PathBuf>,
    /// Address that the node listens on.
    pub listen: IpAddr,
    /// Host names of the node, as configured.
    pub advertised: Vec<String>,
    /// File with the authorities of client certificates and their revocation lists (PEM). `None` for the
    /// self-made authority, if there is one.
    pub client_ca: Option<PathBuf>,
}

/// Source of the certificate.
#[derive(Clone, Debug)]
enum Source {
    Files(CertificateFiles),
    Made(made::CertificateDir),
}

/// A loaded certificate.
struct Loaded {
    key: Arc<CertifiedKey>,
    /// The certificate that clients must trust, as PEM.
    authority: Arc<str>,
    fingerprint: String,
    /// Reason why the certificate is not valid at present, if so.
    invalid: Option<String>,
}

/// Files that were read again and are not used yet.
pub(crate) struct ReadAgain {
    loaded: Loaded,
    verifier: Verifier,
}

impl ReadAgain {
    /// The certificate that the node is about to serve, followed by those of its authorities.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.loaded.key.cert
    }
}

/// The certificate in use.
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

/// Server side of TLS connections.
pub struct Tls {
    /// Settings for incoming connections.
    pub config: Arc<ServerConfig>,
    current: Arc<Current>,
    source: Source,
    client_ca: Option<PathBuf>,
    clients: Arc<Clients>,
}

impl Tls {
    /// Opens the certificate. Without files it makes one, signed by an authority that stays in the data directory.
    ///
    /// # Errors
    /// A file cannot be read or written, or certificate and key are not valid; one line.
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
        // A resumed session would bring a certificate that is not verified again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
            current,
            source,
            client_ca: options.client_ca,
            clients,
        })
    }

    /// Checks whether client certificates can be verified.
    ///
    /// # Errors
    /// No authority for them is configured; the remedy, in one line.
    pub fn can_ask(&self) -> Result<(), String> {
        if self.clients.can_ask() {
            return Ok(());
        }
        Err("client certificates need authorities: name them with --client-ca FILE".to_owned())
    }

    /// Sets whether clients are asked for a certificate in later handshakes. If [`Tls::can_ask`] fails, every
    /// certificate is refused.
    pub fn ask_clients(&self, ask: Ask) {
        self.clients.set_ask(ask);
    }

    /// Reads the certificate and the authorities of clients again, for later connections.
    ///
    /// # Errors
    /// A file is not valid; one line. All old settings stay.
    pub fn reload(&self) -> Result<(), String> {
        self.read_again().map(|read| self.replace(read))
    }

    /// Reads the certificate and the authorities of clients again; [`Tls::replace`] puts them into use.
    ///
    /// # Errors
    /// A file is not valid; one line.
    pub(crate) fn read_again(&self) -> Result<ReadAgain, String> {
        let client_ca = self.client_ca.as_deref();
        let (loaded, verifier) = load(&self.source, client_ca, self.config.crypto_provider())?;
        if let (Some(reason), Source::Files(files)) = (&loaded.invalid, &self.source) {
            return Err(format!("{}: {reason}", files.chain.display()));
        }
        Ok(ReadAgain { loaded, verifier })
    }

    /// Uses for later connections what was read again.
    pub(crate) fn replace(&self, ReadAgain { loaded, verifier }: ReadAgain) {
        loaded.tell();
        self.clients.set_verifier(verifier);
        *self.current.0.write() = loaded;
    }

    /// The node's certificate, followed by those of its authorities.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current.0.read().key.cert.clone()
    }

    /// The certificate that clients must trust, as PEM: the self-made authority, or the last certificate of the
    /// given chain.
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

/// Loads the certificate and the verifier of client certificates.
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
    // The authority of a given certificate may also sign certificates of unknown clients, so it is not used here.
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

/// Returns the fingerprint in the form of other tools: `AB:CD:...`.
fn fingerprint(certificate: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(certificate) {
        let colon = if text.is_empty() { "" } else { ":" };
        write!(text, "{colon}{byte:02X}").expect("writing to a string does not fail");
    }
    text
}
