//! Connect strings: they name server, user and bucket.

use std::fmt;
use std::str::FromStr;

/// Port of a node's data service.
const COUCHBASE_PORT: u16 = 11210;
/// Port of a node's data service over TLS.
const COUCHBASES_PORT: u16 = 11207;
/// Port of memcached.
const MEMCACHED_PORT: u16 = 11211;

/// The server, user and bucket of a connection.
///
/// Shape: `couchbase[s]://[USER[:PASSWORD]@]HOST[:PORT][/BUCKET]`, or `memcached://HOST[:PORT]`, or
/// just `HOST:PORT`, which means the latter. User, password and bucket are percent-decoded;
/// an IPv6 host stands in brackets.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the host.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User and bucket; `None` for a plain memcached server.
    pub login: Option<Login>,
    /// Whether the connection is over TLS.
    pub over_tls: bool,
}

/// User and bucket of a Couchbase connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// Password of the user; never printed.
    pub password: String,
    /// Source of the password.
    pub source: PasswordSource,
    /// Bucket to select.
    pub bucket: String,
}

/// Source of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// An explicit password.
    Given,
    /// The default password: neither user nor password were given.
    Default,
    /// A user was given without a password.
    Missing,
}

/// Reason why a connect string cannot be used; one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once("://") {
            Some(("couchbase", rest)) => couchbase(rest, COUCHBASE_PORT),
            Some(("couchbases", rest)) => Ok(Self {
                over_tls: true,
                ..couchbase(rest, COUCHBASES_PORT)?
            }),
            Some(("memcached", rest)) => memcached(rest),
            None => memcached(text),
            Some((scheme, _)) => refuse(format!(
                "unknown scheme {scheme}://; use couchbase://, couchbases:// or memcached://"
            )),
        }
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, AddressError> {
    Err(AddressError(reason.into()))
}

fn couchbase(rest: &str, default_port: u16) -> Result<Address, AddressError> {
    if rest.contains('?') {
        return refuse("options after ? are not supported");
    }
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    let (host, bucket) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(host, default_port)?;
    let (user, password, source) = match credentials.map(|text| (text, text.split_once(':'))) {
        None => ("Administrator", "password", PasswordSource::Default),
        Some((_, Some((user, password)))) => (user, password, PasswordSource::Given),
        Some((user, None)) => (user, "", PasswordSource::Missing),
    };
    let bucket = if bucket.is_empty() { "default" } else { bucket };
    let login = Login {
        user: percent_decode(user)?,
        password: percent_decode(password)?,
        source,
        bucket: percent_decode(bucket)?,
    };
    Ok(Address {
        host,
        port,
        login: Some(login),
        over_tls: false,
    })
}

fn memcached(rest: &str) -> Result<Address, AddressError> {
    if rest.contains(['@', '/', '?']) {
        return refuse("memcached:// takes a host and a port only");
    }
    let (host, port) = host_and_port(rest, MEMCACHED_PORT)?;
    Ok(Address {
        host,
        port,
        login: None,
        over_tls: false,
    })
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), AddressError> {
    if text.contains(',') {
        return refuse("more than one host is not supported");
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (
            host,
            rest.strip_prefix(':').or(rest.is_empty().then_some("")),
        ),
        None if text.matches(':').count() > 1 => {
            return refuse(format!("an IPv6 host stands in brackets: [{text}]"));
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    if host.is_empty() {
        return refuse("the host is missing");
    }
    let port = match port {
        Some("") => Some(default_port),
        Some(port) => port.parse().ok().filter(|&port| port != 0),
        None => None,
    };
    match port {
        Some(port) => Ok((host.to_owned(), port)),
        None => refuse(format!("the port of {text} is not a number of 1..65535")),
    }
}

fn percent_decode(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match decoded {
            Some(decoded) => bytes.push(decoded),
            None => return refuse("% must be followed by two hexadecimal digits (%25 is %)"),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).or_else(|_| refuse("percent-encoded bytes are not UTF-8"))
}

impl Address {
    /// Takes a password that was given beside the address, unless the address has one.
    ///
    /// # Errors
    /// The user has no password.
    pub fn with_password(mut self, beside: Option<String>) -> Result<Self, AddressError> {
        let Some(login) = &mut self.login else {
            return Ok(self);
        };
        match (login.source, beside) {
            (PasswordSource::Given, _) | (PasswordSource::Default, None) => {}
            (_, Some(password)) => {
                login.password = password;
                login.source = PasswordSource::Given;
            }
            (PasswordSource::Missing, None) => return refuse("the user has no password"),
        }
        Ok(self)
    }

    /// Returns host and port in the form that sockets take.
    pub fn host_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Address {
    /// Writes the connect string without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (&self.login, self.over_tls) {
            (None, _) => "memcached",
            (Some(_), false) => "couchbase",
            (Some(_), true) => "couchbases",
        };
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)?;
        self.login
            .iter()
            .try_for_each(|login| write!(f, "/{}", login.bucket))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn with(user: &str, password: &str, bucket: &str) -> Login {
        let [user, password, bucket] = [user, password, bucket].map(str::to_owned);
        Login {
            user,
            password,
            source: PasswordSource::Given,
            bucket,
        }
    }

    #[test]
    fn a_full_connect_string() {
        let address = parse("couchbase://us%40er:p%3Aw%2F%25@example.org:9000/travel%2Dx");
        assert_eq!(address.host_port(), ("example.org", 9000));
        assert!(address.login == Some(with("us@er", "p:w/%", "travel-x")));
        assert_eq!(address.to_string(), "couchbase://example.org:9000/travel-x");
    }

    #[test]
    fn omitted_parts_have_defaults() {
        let address = parse("couchbase://10.0.0.1");
        assert_eq!(address.host_port(), ("10.0.0.1", 11210));
        let login = Login {
            source: PasswordSource::Default,
            ..with("Administrator", "password", "default")
        };
        assert!(address.login == Some(login));
        assert!(parse("couchbase://a:b@h/").login == Some(with("a", "b", "default")));
        assert!(parse("couchbase://a:@h").login == Some(with("a", "", "default")));
    }

    #[test]
    fn memcached_has_neither_user_nor_bucket() {
        for (text, host, port) in [
            ("memcached://h", "h", 11211),
            ("memcached://[::1]:5", "::1", 5),
            ("h:7", "h", 7),
            ("[fe80::1]", "fe80::1", 11211),
        ] {
            let address = parse(text);
            assert_eq!(address.host_port(), (host, port), "{text}");
            assert!(address.login.is_none(), "{text}");
        }
    }

    #[test]
    fn a_password_may_hold_an_at_sign() {
        assert!(parse("couchbase://u:p@ss@h").login == Some(with("u", "p@ss", "default")));
    }

    #[test]
    fn invalid_connect_strings_are_refused() {
        for (text, reason) in [
            ("http://h", "unknown scheme http://"),
            ("couchbase://", "host is missing"),
            ("couchbase://h:0", "port"),
            ("couchbase://h:65536", "port"),
            ("couchbase://h:", ""),
            ("couchbase://h1,h2", "more than one host"),
            ("couchbase://h?x=1", "options"),
            ("couchbase://u:%zz@h", "hexadecimal"),
            ("couchbase://u:%+1@h", "hexadecimal"),
            ("couchbase://u:%4@h", "hexadecimal"),
            ("couchbase://u:%ff@h", "UTF-8"),
            ("memcached://u:p@h", "only"),
            ("::1", "brackets"),
            ("[::1]x", "port"),
        ] {
            match text.parse::<Address>() {
                Err(error) => assert!(error.to_string().contains(reason), "{text}: {error}"),
                Ok(address) => assert!(reason.is_empty(), "{text} gave {address}"),
            }
        }
    }

    #[test]
    fn a_password_may_be_given_beside_the_address() {
        for (text, beside, expected) in [
            ("couchbase://u@h", Some("p"), Ok(("u", "p"))),
            ("couchbase://u:p@h", Some("other"), Ok(("u", "p"))),
            ("couchbase://u:@h", Some("other"), Ok(("u", ""))),
            ("couchbase://h", Some("p"), Ok(("Administrator", "p"))),
            ("couchbase://h", None, Ok(("Administrator", "password"))),
            ("couchbase://u@h", None, Err("the user has no password")),
        ] {
            let found = parse(text).with_password(beside.map(str::to_owned));
            let found = found.map(|address| address.login.map(|one| (one.user, one.password)));
            let found = found.map_err(|error| error.to_string());
            let expected = expected.map(|(user, password)| Some((user.into(), password.into())));
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        }
        assert!(
            parse("h:1").with_password(None).is_ok(),
            "memcached has none"
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        assert!(!format!("{:?}", parse("couchbase://u:secret@h")).contains("secret"));
    }
}
