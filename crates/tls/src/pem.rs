//! Certificates in PEM.

use std::path::{Path, PathBuf};

use rustls::Error;
use rustls::pki_types::pem::{self, PemObject as _};
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
    pub(crate) fn refused(&self, error: &Error) -> String {
        let (chain, key) = (self.chain.display(), self.key.display());
        match error {
            Error::InconsistentKeys(_) => {
                format!("{key}: the key is not that of the certificate in {chain}")
            }
            _ => format!("{chain} and {key}: {error}"),
        }
    }
}

/// A certificate chain, and the key of its first certificate.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the reason why a text in PEM cannot be read. The reason has no part of the text, which may be a key.
pub(crate) fn unreadable(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "is cut off: a section has no line that ends it".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "is damaged: a line that begins a section is wrong".to_owned()
        }
        pem::Error::Base64Decode(why) => format!("is damaged: {why}"),
        pem::Error::NoItemsFound => "has none".to_owned(),
        _ => format!("is damaged: {error}"),
    }
}

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
    let certificates =
        certificates.map_err(|error| format!("{} {}", path.display(), unreadable(&error)))?;
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
    lists.map_err(|error| format!("{} {}", path.display(), unreadable(&error)))
}

/// Reads a chain and its key, without a check that they belong together.
///
/// # Errors
/// A file cannot be read, or holds something else; one line with its name.
pub(crate) fn read_pair(files: &CertificateFiles) -> Result<Pair, String> {
    let chain = read_certificates(&files.chain)?;
    let (text, file) = (read(&files.key)?, files.key.display());
    // In the line before a key in PKCS#8, in a header of one in PKCS#1 or SEC1.
    if text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
        return Err(format!(
            "{file} holds an encrypted key, which is not supported: `openssl pkey -in KEY` writes it without a passphrase"
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => format!("{file} holds no key"),
        error => format!("{file} {}", unreadable(&error)),
    })?;
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
