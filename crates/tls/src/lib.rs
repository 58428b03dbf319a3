//! TLS: the certificate that a node serves with, given or made, those that it accepts of clients, and what links and
//! tools trust.
//!
//! What this crate may not do: open sockets, know buckets or conversations.

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
