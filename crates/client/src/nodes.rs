//! The nodes of a bucket, and the active node of each vBucket by the newest map that any of them sent.

use std::collections::BTreeSet;

use identity::SaltedCache;
use model::VbId;
use wire::{ClusterMapNotification, Frame, Magic, Status};

use crate::address::Address;
use crate::connection::{Client, ConnectOptions};
use crate::error::ClientError;
use crate::map::BucketMap;

/// The nodes of a bucket. A node keeps its number, whatever its index in maps. Number 0 is the first node that the
/// client connected to; it has every vBucket where servers have no maps.
#[derive(Clone, Debug)]
pub struct Nodes {
    options: ConnectOptions,
    cache: SaltedCache,
    known: Vec<NodeAddress>,
    /// Epoch and revision of the newest map.
    revision: Option<(i64, i64)>,
    /// UUID of the bucket.
    uuid: Option<String>,
    /// The nodes of each vBucket's copies, the active one first.
    rows: Vec<Vec<Option<usize>>>,
    /// Whether the client reaches nodes by their external (alternate) addresses.
    outside: bool,
    /// The last node that the client asked for its map.
    asked: usize,
}

/// The first node, or a node that a map lists.
#[derive(Clone, Debug)]
struct NodeAddress {
    /// Host and port that the client connects to.
    at: (String, u16),
    /// Host and port in maps; they differ from `at` behind a proxy.
    advertised: Option<(String, u16)>,
}

impl Nodes {
    /// Connects to the first node and takes its map.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(options: &ConnectOptions) -> Result<(Self, Client), ClientError> {
        let (host, port) = options.address.host_port();
        let first = NodeAddress {
            at: (host.to_owned(), port),
            advertised: None,
        };
        let mut nodes = Self {
            options: options.clone(),
            cache: SaltedCache::default(),
            known: vec![first],
            revision: None,
            uuid: None,
            rows: Vec::new(),
            outside: false,
            asked: 0,
        };
        let client = nodes.open(0)?;
        Ok((nodes, client))
    }

    /// Connects to a node, and takes its map if it is a newer one.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn open(&mut self, node: usize) -> Result<Client, ClientError> {
        let options = ConnectOptions {
            address: self.address(node),
            ..self.options.clone()
        };
        let mut client = Client::connect(&options, &mut self.cache)?;
        if let Some(map) = client.map.take() {
            self.take(&map, node);
        }
        Ok(client)
    }

    /// Takes a map that a node sent, if it is newer; returns whether it is.
    pub fn learn(&mut self, json: &[u8], named_by: usize) -> bool {
        BucketMap::parse(json).is_some_and(|map| self.take(&map, named_by))
    }

    /// Asks the nodes for their map, one after the other, until one answers. Each call begins with the next node.
    ///
    /// # Errors
    /// The error of the last node, if no node answers.
    pub fn refresh(&mut self) -> Result<(), ClientError> {
        let count = self.known.len();
        let mut tries = 1;
        loop {
            self.asked = (self.asked + 1) % count;
            match self.open(self.asked) {
                Ok(_) => return Ok(()),
                Err(error) if tries >= count => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// Returns the node on which a vBucket is active; `None` if there is none.
    pub fn owner(&self, vbucket: VbId) -> Option<usize> {
        if self.rows.is_empty() {
            return Some(0);
        }
        *self.copies(vbucket).first()?
    }

    /// Returns the nodes of a vBucket's copies, the active one first; `None` for a missing copy.
    pub fn copies(&self, vbucket: VbId) -> &[Option<usize>] {
        let row = self.rows.get(usize::from(vbucket.0));
        row.map_or(&[], Vec::as_slice)
    }

    /// Returns the number of vBuckets; 0 where servers have none.
    pub fn vbuckets(&self) -> u16 {
        u16::try_from(self.rows.len()).unwrap_or(u16::MAX)
    }

    /// Returns the UUID of the bucket, if the server sent it.
    pub fn bucket_uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    /// Returns the nodes with active vBuckets.
    pub fn active(&self) -> BTreeSet<usize> {
        if self.rows.is_empty() {
            return BTreeSet::from([0]);
        }
        self.rows.iter().filter_map(|row| *row.first()?).collect()
    }

    /// Returns the address of a node that the client connects to.
    pub fn address(&self, node: usize) -> Address {
        let address = self.options.address.clone();
        match self.known.get(node) {
            Some(NodeAddress {
                at: (host, port), ..
            }) => Address {
                host: host.clone(),
                port: *port,
                ..address
            },
            None => address,
        }
    }

    fn take(&mut self, map: &BucketMap, named_by: usize) -> bool {
        let Some(teller) = self.known.get(named_by).cloned() else {
            return false;
        };
        if self.revision.is_some_and(|known| map.revision() <= known) {
            return false;
        }
        let over_tls = self.options.address.over_tls;
        if self.revision.is_none() {
            let lists = |outside| {
                let mut at = map
                    .nodes_ext
                    .iter()
                    .map(|node| node.address(outside, over_tls, &teller.at.0));
                at.any(|at| at.as_ref() == Some(&teller.at))
            };
            self.outside = !lists(false) && lists(true);
        }
        self.revision = Some(map.revision());
        self.uuid.clone_from(&map.uuid);
        let mut numbers = Vec::with_capacity(map.nodes_ext.len());
        for node in &map.nodes_ext {
            let advertised = node.address(self.outside, over_tls, &teller.at.0);
            if node.this_node {
                self.known[named_by].advertised = advertised;
                numbers.push(Some(named_by));
            } else {
                numbers.push(advertised.map(|advertised| self.number_of(advertised)));
            }
        }
        let number = |at: usize| numbers.get(at).copied().flatten();
        let row =
            |row: &mut dyn Iterator<Item = Option<usize>>| row.map(|at| number(at?)).collect();
        self.rows = map.rows().map(|mut copies| row(&mut copies)).collect();
        true
    }

    /// Returns the number of the node at an address; a new number for a new address.
    fn number_of(&mut self, advertised: (String, u16)) -> usize {
        let mut known = self.known.iter();
        let found =
            known.position(|node| node.advertised.as_ref().unwrap_or(&node.at) == &advertised);
        found.unwrap_or_else(|| {
            self.known.push(NodeAddress {
                at: advertised,
                advertised: None,
            });
            self.known.len() - 1
        })
    }
}

/// Returns the map in a frame: in a map notification, or in a `NOT_MY_VBUCKET` answer.
pub fn map_in<'f>(frame: &Frame<'f>) -> Option<&'f [u8]> {
    if frame.header.magic == Magic::ServerRequest {
        return ClusterMapNotification::parse(frame).ok()?.map;
    }
    let is_refusal =
        frame.header.magic.is_client_response() && frame.status() == Status::NOT_MY_VBUCKET;
    is_refusal.then_some(frame.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeServer, Fault, options};

    /// Returns a map of three nodes; `this` is the index of the node that sends it.
    fn map(rev: u32, this: usize, rows: &str) -> String {
        let node = |at: usize| {
            let port = 11210 + at;
            let this = if at == this {
                r#""thisNode":true,"#
            } else {
                ""
            };
            let outside = format!(
                r#"{{"external":{{"hostname":"out","ports":{{"kv":{}}}}}}}"#,
                port + 1000
            );
            format!(
                r#"{{{this}"hostname":"in","services":{{"kv":{port}}},"alternateAddresses":{outside}}}"#
            )
        };
        let nodes = [node(0), node(1), node(2)].join(",");
        format!(
            r#"{{"revEpoch":1,"rev":{rev},"nodesExt":[{nodes}],"vBucketServerMap":{{"vBucketMap":{rows}}}}}"#
        )
    }

    fn nodes(first: &str) -> Nodes {
        let options = options(&format!("couchbase://u:p@{first}/b"));
        let (host, port) = options.address.host_port();
        let at = (host.to_owned(), port);
        Nodes {
            known: vec![NodeAddress {
                at,
                advertised: None,
            }],
            options,
            cache: SaltedCache::default(),
            revision: None,
            uuid: None,
            rows: Vec::new(),
            outside: false,
            asked: 0,
        }
    }

    fn owners(nodes: &Nodes) -> Vec<Option<String>> {
        let owner = |vb| {
            let (host, port) = (
                nodes.address(nodes.owner(VbId(vb))?).host,
                nodes.address(nodes.owner(VbId(vb))?).port,
            );
            Some(format!("{host}:{port}"))
        };
        (0..nodes.vbuckets()).map(owner).collect()
    }

    fn at(names: &[&str]) -> Vec<Option<String>> {
        names
            .iter()
            .map(|name| (!name.is_empty()).then(|| (*name).to_owned()))
            .collect()
    }

    #[test]
    fn newer_maps_are_taken_from_any_node_and_older_ones_are_not() {
        let mut nodes = nodes("in:11211");
        assert!(nodes.learn(map(7, 1, "[[0],[1,2],[-1],[2,-1]]").as_bytes(), 0));
        assert_eq!(
            owners(&nodes),
            at(&["in:11210", "in:11211", "", "in:11212"])
        );
        assert_eq!(nodes.active().len(), 3);
        let third = nodes.owner(VbId(3)).unwrap();
        assert!(!nodes.learn(map(7, 2, "[[2],[2],[2],[2]]").as_bytes(), third));
        assert!(!nodes.learn(b"none", third));
        assert_eq!(nodes.copies(VbId(1)), [Some(0), Some(third)]);
        assert_eq!(nodes.copies(VbId(3)), [Some(third), None]);
        assert!(nodes.copies(VbId(4)).is_empty());
        assert!(nodes.learn(map(8, 2, "[[1],[1],[1],[2]]").as_bytes(), third));
        assert_eq!(
            owners(&nodes),
            at(&["in:11211", "in:11211", "in:11211", "in:11212"])
        );
        assert_eq!(nodes.owner(VbId(0)), Some(0), "the node keeps its number");
        assert_eq!(nodes.owner(VbId(3)), Some(third));
    }

    #[test]
    fn node_behind_a_proxy_keeps_its_connect_address() {
        let mut nodes = nodes("proxy:1");
        assert!(nodes.learn(map(1, 0, "[[0],[1]]").as_bytes(), 0));
        assert_eq!(owners(&nodes), at(&["proxy:1", "in:11211"]));
        assert!(nodes.learn(map(2, 1, "[[1],[0]]").as_bytes(), 1));
        assert_eq!(owners(&nodes), at(&["in:11211", "proxy:1"]));
    }

    #[test]
    fn clients_of_another_network_use_external_addresses() {
        let mut nodes = nodes("out:12211");
        assert!(nodes.learn(map(1, 1, "[[0],[1]]").as_bytes(), 0));
        assert_eq!(owners(&nodes), at(&["out:12210", "out:12211"]));
    }

    #[test]
    fn server_without_maps_has_every_vbucket() {
        let server = FakeServer::start(false, Fault::None);
        let (nodes, _) = Nodes::connect(&server.options()).unwrap();
        assert_eq!((nodes.vbuckets(), nodes.owner(VbId(0))), (0, Some(0)));
        assert_eq!(nodes.active(), BTreeSet::from([0]));
        let server = FakeServer::start(true, Fault::None);
        let (nodes, client) = Nodes::connect(&server.options()).unwrap();
        assert_eq!(client.key_form().vbuckets, Some(nodes.vbuckets()));
        assert_eq!(nodes.owner(VbId(63)), Some(0));
    }
}
