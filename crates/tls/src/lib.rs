//! TLS: the certificate of the node (given or self-made), the accepted certificates of clients, and the trust
//! anchors of links and tools.
//!
//! This crate may not open sockets, or know buckets or conversations.

mod clients;
mod made;
mod peer;
mod pem;
mod served;
mod trust;
mod validity;

pub use clients::Ask;
pub use peer::{PeerTls, tls_refusal};
pub use pem::CertificateFiles;
pub use served::{Tls, TlsOptions, authority_file, copy_authority};
pub use trust::Trust;
