//! Certificates in PEM.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// Read limit for a file in bytes: a revocation list of some 400,000 certificates.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The word that marks a key as encrypted.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// Files with a certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by those of its authorities.
    pub chain: PathBuf,
    /// The key, PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Returns an error text, one line with the names of both files.
    pub(crate) fn refused(&self, error: &rustls::Error) -> String {
        let (chain, key) = (self.chain.display(), self.key.display());
        format!("{chain} and {key}: {error}")
    }
}

/// A certificate chain, and the key of its first certificate.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns a certificate in PEM.
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

/// Reads the certificates in a file.
///
/// # Errors
/// The file cannot be read, holds no certificate or a damaged one; one line with its name.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| format!("{}: {error}", path.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} holds no certificate", path.display()));
    }
    Ok(certificates)
}

/// Reads the revocation lists in a file, which may hold other items too. There may be none.
///
/// # Errors
/// The file cannot be read, or a list is damaged; one line with its name.
pub(crate) fn read_revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let text = read(path)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    lists.map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a chain and its key, without a check that they belong together.
///
/// # Errors
/// A file cannot be read, or holds something else; one line with its name.
pub(crate) fn read_pair(files: &CertificateFiles) -> Result<Pair, String> {
    let chain = read_certificates(&files.chain)?;
    let text = read(&files.key)?;
    // In the line before a key in PKCS#8, in a header of one in PKCS#1 or SEC1.
    if text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
        let file = files.key.display();
        return Err(format!(
            "{file} holds an encrypted key, which is not supported: `openssl pkey -in KEY` writes it without a passphrase"
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&text);
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
