//! TLS: the certificate that a node serves with, given or made, and what links and tools trust.
//!
//! What this crate may not do: open sockets, know buckets or conversations.

mod made;
mod pem;
mod served;
mod trust;

pub use served::{CertificateFiles, Tls, TlsOptions, authority_file, copy_authority};
pub use trust::Trust;
