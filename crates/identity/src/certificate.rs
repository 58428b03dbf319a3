//! Client certificates: whether clients are asked for one, and the user name of a certificate.
//!
//! The user name is in the certificate's subject or among its alternative names, optionally between a prefix and a
//! delimiter. The TLS handshake verifies that an authority signed the certificate.

use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Use of client certificates on the ports with TLS, in the words of the management calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// Clients are not asked for a certificate.
    #[default]
    Disable,
    /// Clients may send a certificate; others log in.
    Enable,
    /// Clients must send a certificate.
    Mandatory,
}

/// Place of a name in a certificate, in the words of the management calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum NamePath {
    /// The common name of the subject.
    #[serde(rename = "subject.cn")]
    SubjectCn,
    /// Alternative names that are host names.
    #[serde(rename = "san.dns")]
    SanDns,
    /// Alternative names that are e-mail addresses.
    #[serde(rename = "san.email")]
    SanEmail,
    /// Alternative names that are URIs.
    #[serde(rename = "san.uri")]
    SanUri,
}

/// A rule that takes the user name out of one name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NameRule {
    /// Place of the name.
    pub path: NamePath,
    /// Text before the user name; the rule ignores names without it.
    pub prefix: String,
    /// Characters that end the user name; the first one counts.
    pub delimiter: String,
}

impl NameRule {
    fn user<'n>(&self, name: &'n str) -> Option<&'n str> {
        let rest = name.strip_prefix(&*self.prefix)?;
        let end = rest.find(|c| self.delimiter.contains(c));
        let user = &rest[..end.unwrap_or(rest.len())];
        (!user.is_empty()).then_some(user)
    }
}

/// Settings of client certificates.
///
/// Shape as JSON: that of `/settings/clientCertAuth`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct CertificateSettings {
    /// Whether clients are asked for a certificate.
    pub state: CertificateState,
    /// Rules for the user name; the first one that yields a name counts.
    pub prefixes: Vec<NameRule>,
}

impl CertificateSettings {
    /// Creates settings with the whole common name as the user name.
    pub fn by_common_name(state: CertificateState) -> Self {
        let rule = NameRule {
            path: NamePath::SubjectCn,
            prefix: String::new(),
            delimiter: String::new(),
        };
        Self {
            state,
            prefixes: vec![rule],
        }
    }

    /// Returns the user name of a certificate, DER.
    pub fn user_name(&self, certificate: &[u8]) -> Option<String> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let rules = self.prefixes.iter();
        let mut found = rules.filter_map(|rule| {
            let names = names(&certificate, rule.path);
            names
                .iter()
                .find_map(|name| rule.user(name).map(str::to_owned))
        });
        found.next()
    }
}

/// Returns the names at a path, in order.
fn names(certificate: &X509Certificate<'_>, path: NamePath) -> Vec<String> {
    if path == NamePath::SubjectCn {
        let names = certificate.subject().iter_common_name();
        let names = names.filter_map(|name| name.as_str().ok());
        return names.map(str::to_owned).collect();
    }
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative
        .iter()
        .flat_map(|names| &names.value.general_names);
    let at_path = names.filter_map(|name| match (path, name) {
        (NamePath::SanDns, GeneralName::DNSName(name))
        | (NamePath::SanEmail, GeneralName::RFC822Name(name))
        | (NamePath::SanUri, GeneralName::URI(name)) => Some((*name).to_owned()),
        _ => None,
    });
    at_path.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: NamePath, prefix: &str, delimiter: &str) -> NameRule {
        NameRule {
            path,
            prefix: prefix.into(),
            delimiter: delimiter.into(),
        }
    }

    #[test]
    fn the_user_name_is_between_prefix_and_delimiter() {
        let user = |prefix, delimiter, name| {
            let rule = rule(NamePath::SubjectCn, prefix, delimiter);
            rule.user(name).map(str::to_owned)
        };
        assert_eq!(user("", "", "ada").as_deref(), Some("ada"));
        assert_eq!(user("www.", ".,;", "www.ada.org").as_deref(), Some("ada"));
        assert_eq!(user("www.", ".,;", "www.ada;b.c").as_deref(), Some("ada"));
        assert_eq!(user("www.", ".", "www.ada").as_deref(), Some("ada"));
        assert_eq!(user("www.", ".", "ada.org"), None);
        assert_eq!(user("www.", ".", "WWW.ada.org"), None);
        assert_eq!(user("www.", ".", "www."), None);
        assert_eq!(user("www.", ".", "www..org"), None);
        assert_eq!(user("", "@", "ada@b.org").as_deref(), Some("ada"));
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_user() {
        let settings = CertificateSettings::by_common_name(CertificateState::Enable);
        for bytes in [&b""[..], b"\x30", b"\x30\x82\xff\xff", &[0x30; 500]] {
            assert_eq!(settings.user_name(bytes), None);
        }
    }

    #[test]
    fn settings_have_the_form_of_the_management_call() {
        let text = r#"{"state":"mandatory","prefixes":[
            {"path":"san.email","prefix":"","delimiter":"@"},
            {"path":"subject.cn","prefix":"www.","delimiter":".,;"}]}"#;
        let settings: CertificateSettings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.state, CertificateState::Mandatory);
        assert_eq!(settings.prefixes[0], rule(NamePath::SanEmail, "", "@"));
        let told: serde_json::Value = serde_json::to_value(&settings).unwrap();
        assert_eq!(
            told,
            serde_json::from_str::<serde_json::Value>(text).unwrap()
        );
    }
}
