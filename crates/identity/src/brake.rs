//! Back-off of failed logins, by address.
//!
//! The back-off is exponential: after some wrong logins in a row, further ones are judged one after the other, at an
//! interval that doubles with each wrong one up to half a second. An early login waits for its turn. A login whose wait
//! would be too long is refused unjudged and with a delay, so that each attempt costs time. A right login ends the
//! back-off. The number of remembered addresses is limited.
//!
//! Sans I/O: time is a parameter, in monotonic nanoseconds.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;

const MS: u64 = 1_000_000;
/// Wrong logins in a row without back-off: mistyped passwords, clients that try each mechanism.
const FREE_FAILURES: u32 = 8;
/// Interval between the next two logins, ns; each wrong one doubles it up to the maximum.
const SPACING_NS: u64 = 25 * MS;
const SPACING_NS_MAX: u64 = 500 * MS;
/// Longest wait for a turn, ns; also the delay of a login that is refused unjudged.
const WAIT_NS_MAX: u64 = 2_000 * MS;
/// Time without a wrong login after which an address is forgotten, ns.
const FORGET_NS: u64 = 60_000 * MS;
/// Largest number of remembered addresses; a new one replaces the one that was quiet for longest.
const PEERS_MAX: usize = 4096;
/// Shortest interval between two log lines about an address, ns.
const LINE_NS: u64 = 1_000 * MS;

/// Wrong logins after which a connection is closed: more than a client has mechanisms to try.
pub const FAILURES_PER_CONNECTION: u32 = 8;

/// Turn of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginTurn {
    /// The login may be judged at once.
    Now,
    /// The login may be judged after this time.
    After(Duration),
    /// The login is refused after this time: too many wait already.
    Refused(Duration),
}

/// History of an address.
#[derive(Clone, Copy, Debug, Default)]
struct AddressHistory {
    /// Wrong logins since the last right one.
    failures: u32,
    last_failure_ns: u64,
    /// Time of the next turn, monotonic ns.
    next_ns: u64,
    /// Wrong logins that were not logged yet.
    untold: u32,
    /// Time of the last log line, monotonic ns.
    told_ns: Option<u64>,
}

impl AddressHistory {
    fn spacing_ns(&self) -> u64 {
        let doublings = self.failures.saturating_sub(FREE_FAILURES).min(16);
        (SPACING_NS << doublings).min(SPACING_NS_MAX)
    }

    fn is_forgotten(&self, now_ns: u64) -> bool {
        self.untold == 0 && now_ns.saturating_sub(self.last_failure_ns) > FORGET_NS
    }

    /// Returns the count of wrong logins to log, if a line is due.
    fn line(&mut self, now_ns: u64) -> Option<u32> {
        let due = |logged_ns: u64| now_ns.saturating_sub(logged_ns) >= LINE_NS;
        if self.untold == 0 || !self.told_ns.is_none_or(due) {
            return None;
        }
        self.told_ns = Some(now_ns);
        Some(std::mem::take(&mut self.untold))
    }
}

/// Addresses with recent wrong logins.
#[derive(Debug, Default)]
pub struct LoginBrake {
    peers: Mutex<HashMap<IpAddr, AddressHistory>>,
}

impl LoginBrake {
    /// Reserves a turn to judge a login from `address`. Returns when the turn comes.
    pub fn turn(&self, address: IpAddr, now_ns: u64) -> LoginTurn {
        let mut peers = self.peers.lock();
        let Some(peer) = peers.get_mut(&key(address)) else {
            return LoginTurn::Now;
        };
        if peer.failures < FREE_FAILURES || peer.is_forgotten(now_ns) {
            return LoginTurn::Now;
        }
        let at_ns = peer.next_ns.max(now_ns);
        let wait_ns = at_ns - now_ns;
        if wait_ns > WAIT_NS_MAX {
            return LoginTurn::Refused(Duration::from_nanos(WAIT_NS_MAX));
        }
        peer.next_ns = at_ns + peer.spacing_ns();
        match wait_ns {
            0 => LoginTurn::Now,
            _ => LoginTurn::After(Duration::from_nanos(wait_ns)),
        }
    }

    /// Notes a right login, which ends the back-off.
    pub fn succeeded(&self, address: IpAddr) {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get_mut(&key(address)) {
            peer.failures = 0;
            peer.next_ns = 0;
        }
    }

    /// Notes a wrong login, or one that was refused unjudged. Returns the count of wrong logins to log, if a line is
    /// due.
    pub fn failed(&self, address: IpAddr, now_ns: u64) -> Option<u32> {
        let mut peers = self.peers.lock();
        let key = key(address);
        if !peers.contains_key(&key) && peers.len() >= PEERS_MAX {
            forget_one(&mut peers);
        }
        let peer = peers.entry(key).or_default();
        if peer.is_forgotten(now_ns) {
            peer.failures = 0;
        }
        peer.failures = peer.failures.saturating_add(1);
        peer.untold = peer.untold.saturating_add(1);
        peer.last_failure_ns = now_ns;
        peer.line(now_ns)
    }

    /// Returns the log lines that are due, and forgets addresses that were quiet for long.
    pub fn lines_due(&self, now_ns: u64) -> Vec<(IpAddr, u32)> {
        let mut peers = self.peers.lock();
        let mut lines = Vec::new();
        peers.retain(|address, peer| {
            lines.extend(peer.line(now_ns).map(|count| (*address, count)));
            !peer.is_forgotten(now_ns)
        });
        lines
    }
}

/// Returns the key of an address: for IPv6 its network, since one machine has all addresses of a network.
fn key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Removes the address that was quiet for longest.
fn forget_one(peers: &mut HashMap<IpAddr, AddressHistory>) {
    let oldest = peers.iter().min_by_key(|(_, peer)| peer.last_failure_ns);
    if let Some(address) = oldest.map(|(address, _)| *address) {
        peers.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    /// Returns the number of wrong logins that are judged within a second of constant tries.
    fn judged_within_a_second(brake: &LoginBrake, from_ns: u64) -> u32 {
        let mut judged = 0;
        for ms in 0..1000 {
            let now_ns = from_ns + ms * MS;
            if brake.turn(PEER, now_ns) == LoginTurn::Now {
                judged += 1;
                brake.failed(PEER, now_ns);
            }
        }
        judged
    }

    #[test]
    fn wrong_logins_back_off_until_a_right_one() {
        let brake = LoginBrake::default();
        for _ in 0..FREE_FAILURES {
            assert_eq!(brake.turn(PEER, 0), LoginTurn::Now, "a typo costs nothing");
            brake.failed(PEER, 0);
        }
        let other = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        assert!(judged_within_a_second(&brake, 0) < 10);
        assert_eq!(brake.turn(other, 1), LoginTurn::Now);
        let later = 10_000 * MS;
        assert!(judged_within_a_second(&brake, later) <= 2);
        brake.succeeded(PEER);
        assert_eq!(brake.turn(PEER, later + 1000 * MS), LoginTurn::Now);
        assert_eq!(brake.turn(PEER, later + 1000 * MS), LoginTurn::Now);
    }

    #[test]
    fn few_logins_wait_each_for_its_own_turn_and_a_bounded_time() {
        let brake = LoginBrake::default();
        for _ in 0..100 {
            brake.failed(PEER, 0);
        }
        let longest = Duration::from_nanos(WAIT_NS_MAX);
        let mut waits = Vec::new();
        for _ in 0..1000 {
            match brake.turn(PEER, 0) {
                LoginTurn::Now => waits.push(Duration::ZERO),
                LoginTurn::After(wait) => waits.push(wait),
                LoginTurn::Refused(wait) => assert_eq!(wait, longest),
            }
        }
        let spacing = SPACING_NS_MAX;
        let turns: Vec<_> = (0..=WAIT_NS_MAX / spacing)
            .map(|turn| Duration::from_nanos(turn * spacing))
            .collect();
        assert_eq!(waits, turns);
        let quiet = WAIT_NS_MAX + FORGET_NS;
        assert!(
            brake.lines_due(quiet).len() == 1,
            "what was counted is told"
        );
        assert!(brake.lines_due(quiet).is_empty() && brake.peers.lock().is_empty());
    }

    #[test]
    fn one_log_line_a_second_counts_wrong_logins() {
        let brake = LoginBrake::default();
        let mut lines = Vec::new();
        for ms in 0..2500 {
            lines.extend(brake.failed(PEER, ms * MS));
        }
        lines.extend(brake.lines_due(2600 * MS).iter().map(|(_, count)| count));
        assert_eq!(lines, [1, 1000, 1000], "the rest is not due yet");
        let rest = brake.lines_due(3000 * MS);
        assert_eq!(rest, [(PEER, 499)]);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let brake = LoginBrake::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..(PEERS_MAX as u32 + 100) {
            brake.failed(address(n), u64::from(n));
        }
        let peers = brake.peers.lock();
        assert_eq!(peers.len(), PEERS_MAX);
        assert!(!peers.contains_key(&address(99)) && peers.contains_key(&address(100)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let brake = LoginBrake::default();
        for n in 0..100_u16 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, n);
            brake.failed(address.into(), 0);
        }
        let same = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9);
        let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1);
        let mapped: Ipv6Addr = "::ffff:192.0.2.7".parse().unwrap();
        brake.turn(same.into(), 0);
        assert_ne!(brake.turn(same.into(), 0), LoginTurn::Now);
        assert_eq!(brake.turn(other.into(), 0), LoginTurn::Now);
        assert_eq!(key(mapped.into()), PEER);
    }
}
