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
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

use crate::made;
use crate::pem::to_pem;

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

/// What is read of a file at most: more is no certificate.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the node, then those of its authorities.
    pub chain: PathBuf,
    /// Its key, PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
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
    /// The host under which it is reached, if that was said.
    pub advertise: Option<String>,
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
                advertise: options.advertise,
            }),
        };
        let provider = Arc::new(ring::default_provider());
        let loaded = load(&source, &provider)?;
        loaded.tell();
        let current = Arc::new(Current(RwLock::new(loaded)));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as _);
        Ok(Self {
            config: Arc::new(config),
            current,
            source,
        })
    }

    /// Reads the certificate again, for connections that come from now on.
    ///
    /// # Errors
    /// What is wrong with it, one line; the one before stays.
    pub fn reload(&self) -> Result<(), String> {
        let loaded = load(&self.source, self.config.crypto_provider())?;
        loaded.tell();
        *self.current.0.write() = loaded;
        Ok(())
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

fn load(source: &Source, provider: &CryptoProvider) -> Result<Loaded, String> {
    let (chain, key, authority) = match source {
        Source::Files(files) => {
            let (chain, key) = read_files(files)?;
            let authority = chain.last().cloned();
            let authority = authority.expect("a chain that was read is not empty");
            (chain, key, authority)
        }
        Source::Made(place) => place.make()?,
    };
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match source {
        Source::Files(files) => format!(
            "{} and {}: {error}",
            files.chain.display(),
            files.key.display()
        ),
        Source::Made(_) => error.to_string(),
    })?;
    Ok(Loaded {
        key: Arc::new(key),
        fingerprint: fingerprint(&authority),
        authority: to_pem(&authority).into(),
    })
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_files(files: &CertificateFiles) -> Result<Pair, String> {
    let chain = read(&files.chain)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|error| format!("{}: {error}", files.chain.display()))?;
    if chain.is_empty() {
        return Err(format!("{} holds no certificate", files.chain.display()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?);
    let key = key.map_err(|error| format!("{} holds no key: {error}", files.key.display()))?;
    Ok((chain, key))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(bytes)
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
