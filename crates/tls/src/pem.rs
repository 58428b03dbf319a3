//! Certificates as text.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// What is read of a file at most: a revocation list of some 400,000 certificates.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate itself, then those of its authorities.
    pub chain: PathBuf,
    /// Its key, PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Why the two of them are of no use, one line with their names.
    pub(crate) fn refused(&self, error: &rustls::Error) -> String {
        let (chain, key) = (self.chain.display(), self.key.display());
        format!("{chain} and {key}: {error}")
    }
}

/// A chain, and the key of its first certificate.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A certificate as PEM.
pub(crate) fn to_pem(certificate: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// The certificates in a file.
///
/// # Errors
/// It cannot be read, holds none, or a damaged one; one line with its name.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| format!("{}: {error}", path.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} holds no certificate", path.display()));
    }
    Ok(certificates)
}

/// The revocation lists in a file, among other things; there may be none.
///
/// # Errors
/// It cannot be read, or one is damaged; one line with its name.
pub(crate) fn read_revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let text = read(path)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    lists.map_err(|error| format!("{}: {error}", path.display()))
}

/// A chain and its key. Whether they belong together is not looked at.
///
/// # Errors
/// A file cannot be read, or holds something else; one line with its name.
pub(crate) fn read_pair(files: &CertificateFiles) -> Result<Pair, String> {
    let chain = read_certificates(&files.chain)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?);
    let key = key.map_err(|error| format!("{} holds no key: {error}", files.key.display()))?;
    Ok((chain, key))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(bytes)
}
