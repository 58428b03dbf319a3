//! The address that a node advertises to clients and other nodes.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::peer::is_host;
use crate::settings::Ports;

/// Advertised host and ports of a node: `HOST[:KV[:HTTP[:KV_TLS[:HTTPS]]]]`, an IPv6 address in brackets. A port that
/// is missing is the port on which the node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Port of the KV protocol.
    pub kv: Option<u16>,
    /// Port of HTTP management.
    pub http: Option<u16>,
    /// Port of the KV protocol over TLS.
    pub kv_tls: Option<u16>,
    /// Port of HTTP management over TLS.
    pub https: Option<u16>,
}

impl Advertised {
    /// Returns the advertised ports of a node that listens on `own`.
    pub fn ports(&self, own: Ports) -> Ports {
        Ports {
            kv: self.kv.unwrap_or(own.kv),
            http: self.http.unwrap_or(own.http),
            kv_tls: self.kv_tls.or(own.kv_tls),
            https: self.https.or(own.https),
            ..own
        }
    }
}

impl FromStr for Advertised {
    type Err = &'static str;

    /// Parses the address. The error lists the allowed forms.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = "must be HOST[:KV[:HTTP[:KV_TLS[:HTTPS]]]], ports from 1 to 65535, an IPv6 address in brackets";
        let (host, ports) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, ports))) if host.parse::<Ipv6Addr>().is_ok() => (host, ports),
            Some(_) => return Err(allowed),
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if !is_host(host) {
            return Err(allowed);
        }
        if host.parse().is_ok_and(|host: IpAddr| host.is_unspecified()) {
            return Err("must name an address at which others can reach the node");
        }
        let mut read = Self {
            host: host.to_owned(),
            ..Self::default()
        };
        if ports.is_empty() {
            return Ok(read);
        }
        let mut rest = ports.strip_prefix(':').ok_or(allowed)?.split(':');
        for port in [
            &mut read.kv,
            &mut read.http,
            &mut read.kv_tls,
            &mut read.https,
        ] {
            let Some(text) = rest.next() else { break };
            let number = text.parse().ok().filter(|number| *number != 0);
            *port = Some(number.ok_or(allowed)?);
        }
        rest.next().map_or(Ok(read), |_| Err(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_not_named_are_the_nodes_own() {
        let own = Ports {
            kv: 1,
            http: 2,
            kv_tls: Some(3),
            ..Ports::default()
        };
        for (text, host, kv, http, kv_tls, https) in [
            ("couch", "couch", 1, 2, Some(3), None),
            ("10.0.0.1:7", "10.0.0.1", 7, 2, Some(3), None),
            ("[::1]", "::1", 1, 2, Some(3), None),
            ("[fe80::1]:7:8", "fe80::1", 7, 8, Some(3), None),
            ("h:7:8:9:10", "h", 7, 8, Some(9), Some(10)),
        ] {
            let read: Advertised = text.parse().unwrap();
            let told = read.ports(own);
            let got = (
                read.host.as_str(),
                told.kv,
                told.http,
                told.kv_tls,
                told.https,
            );
            assert_eq!(got, (host, kv, http, kv_tls, https), "{text}");
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            ":1",
            "h:",
            "h:0",
            "h:65536",
            "h:1:2:3:4:5",
            "h:x",
            "http://h",
            "::1",
            "[::1",
            "[h]",
            "[::1]7",
            "a b",
            "[]:1",
            "0.0.0.0:11210",
            "[::]",
        ] {
            assert!(text.parse::<Advertised>().is_err(), "{text}");
        }
    }
}
