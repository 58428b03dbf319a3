//! Addresses of etcd, and the login.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tls::Trust;

/// Default port of etcd for clients.
const PORT: u16 = 2379;

/// Maximum number of members in an address.
const ENDPOINTS_MAX: usize = 16;

const NAME_CHARS_MAX: usize = 64;

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether to use TLS.
    pub tls: bool,
    /// Name or IP address, without brackets.
    pub host: String,
    /// Port for clients.
    pub port: u16,
}

impl Endpoint {
    /// Returns host and port in the form of an address.
    pub(crate) fn authority(&self) -> String {
        match &*self.host {
            host if host.contains(':') => format!("[{host}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }

    fn parse(text: &str, tls: bool) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{text}`: {why}"));
        if text.contains('@') {
            return wrong("user and password have options of their own");
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) => (host, port.strip_prefix(':')),
                None => return wrong("`]` is missing"),
            },
            None => text
                .split_once(':')
                .map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let known = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        if host.is_empty() || !host.chars().all(known) {
            return wrong("is not HOST or HOST:PORT");
        }
        let port = match port.map(u16::from_str) {
            None => PORT,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return wrong("the port is not a number from 1 to 65535"),
        };
        let host = host.to_owned();
        Ok(Self { tls, host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// Members of one etcd: `http://HOST:PORT,https://HOST:PORT,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(pub Vec<Endpoint>);

impl Endpoints {
    fn collect(all: impl Iterator<Item = Result<Endpoint, String>>) -> Result<Self, String> {
        let all: Vec<Endpoint> = all.collect::<Result<_, _>>()?;
        if all.len() > ENDPOINTS_MAX {
            return Err(format!("more than {ENDPOINTS_MAX} members of etcd"));
        }
        if all.iter().any(|endpoint| endpoint.tls != all[0].tls) {
            return Err("members of one etcd are all with TLS, or all without".to_owned());
        }
        Ok(Self(all))
    }
}

impl FromStr for Endpoints {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = text.split(',').map(|member| {
            let member = member.trim();
            let member = member.strip_suffix('/').unwrap_or(member);
            match member.split_once("://") {
                None => Endpoint::parse(member, false),
                Some(("http", rest)) => Endpoint::parse(rest, false),
                Some(("https", rest)) => Endpoint::parse(rest, true),
                Some(_) => Err(format!(
                    "`{member}` is not http://HOST:PORT or https://HOST:PORT"
                )),
            }
        });
        Self::collect(all)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Endpoint::to_string).collect();
        f.write_str(&all.join(","))
    }
}

/// Address of a cluster: `etcd://HOST:PORT,HOST:PORT/NAME`, or `etcds://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAddress {
    /// Members of etcd.
    pub endpoints: Endpoints,
    /// The cluster's name.
    pub name: String,
}

impl FromStr for ClusterAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is not etcd://HOST:PORT,HOST:PORT/NAME (TLS: etcds://)");
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(form()),
        };
        let (members, name) = rest.split_once('/').ok_or_else(form)?;
        check_name(name)?;
        let all = members
            .split(',')
            .map(|member| Endpoint::parse(member, tls));
        let endpoints = Endpoints::collect(all)?;
        let name = name.to_owned();
        Ok(Self { endpoints, name })
    }
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.endpoints.0.iter().map(Endpoint::authority).collect();
        let tls = self.endpoints.0.iter().any(|member| member.tls);
        let scheme = if tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", all.join(","), self.name)
    }
}

/// Checks the name of a cluster.
///
/// # Errors
/// The reason why the name is invalid.
pub fn check_name(name: &str) -> Result<(), String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(known) {
        return Err(format!(
            "a cluster's name has 1 to {NAME_CHARS_MAX} letters, digits, `.`, `_` and `-`, not `{name}`"
        ));
    }
    Ok(())
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, ...)", self.user)
    }
}

/// Addresses of etcd, login and trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Members, tried in this order.
    pub endpoints: Endpoints,
    /// User; `None` if etcd requires none.
    pub login: Option<Login>,
    /// Trusted certificates of members; `None` for those that the system trusts.
    pub trust: Option<Trust>,
    /// Timeout of a request.
    pub timeout: Duration,
}

impl Options {
    /// Creates options with these members, without a login, and with a timeout of 2 s.
    pub fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            login: None,
            trust: None,
            timeout: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(text: &str) -> Result<String, String> {
        text.parse::<ClusterAddress>()
            .map(|read| read.endpoints.to_string() + " " + &read.name)
    }

    #[test]
    fn an_address_of_a_cluster_has_members_and_a_name() {
        for (text, read) in [
            ("etcd://a/shop", "http://a:2379 shop"),
            ("etcd://a:1,b/shop", "http://a:1,http://b:2379 shop"),
            ("etcds://[::1]:5/s", "https://[::1]:5 s"),
        ] {
            assert_eq!(cluster(text).as_deref(), Ok(read));
            let address: ClusterAddress = text.parse().unwrap();
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn invalid_address_is_refused_with_one_line() {
        for text in [
            "",
            "shop",
            "http://a/shop",
            "etcd://a",
            "etcd://a/",
            "etcd:///shop",
            "etcd://a,/shop",
            "etcd://a:0/shop",
            "etcd://a:70000/shop",
            "etcd://root:pw@a/shop",
            "etcd://[::1/shop",
            "etcd://a/shop/b",
            "etcd://a b/shop",
        ] {
            let why = cluster(text).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn members_are_listed_with_or_without_a_scheme() {
        let read: Endpoints = "http://a:1/, http://b,c:3".parse().unwrap();
        assert_eq!(read.to_string(), "http://a:1,http://b:2379,http://c:3");
        assert!("https://a,b".parse::<Endpoints>().is_err());
        assert!("ftp://a".parse::<Endpoints>().is_err());
        assert!("".parse::<Endpoints>().is_err());
        assert!(["a"; 17].join(",").parse::<Endpoints>().is_err());
    }

    #[test]
    fn debug_output_hides_the_password() {
        let (user, password) = ("root".to_owned(), "secret".to_owned());
        let options = Options {
            login: Some(Login { user, password }),
            ..Options::new("a".parse().unwrap())
        };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
