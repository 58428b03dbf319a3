//! Replication topology: the nodes that hold a vBucket, as set on the active node.

/// Maximum number of nodes in a chain; the protocol has one active node and three replicas.
const NODES_MAX: usize = 8;
/// Maximum number of chains: two while a vBucket moves.
const CHAINS_MAX: usize = 2;

/// One chain: the active node, then its replicas; `None` for a replica that is configured but
/// missing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    nodes: Vec<Option<Box<str>>>,
}

impl Chain {
    /// Returns the majority of all nodes, missing ones included.
    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Number of nodes that exist.
    fn existing(&self) -> usize {
        self.nodes.iter().flatten().count()
    }

    fn is_possible(&self) -> bool {
        self.existing() >= self.majority()
    }

    /// Number of nodes that agree.
    fn agreed(&self, own: bool, other: &dyn Fn(&str) -> bool) -> usize {
        let others = self.nodes.iter().skip(1).flatten();
        usize::from(own) + others.filter(|name| other(name)).count()
    }
}

/// One or two chains. Without a chain, only this node holds the vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    chains: Vec<Chain>,
}

impl Topology {
    /// Parses the JSON text of the protocol: a list of chains, each a list of names and nulls.
    /// `None` if the text is not such a list, or a chain has no active node.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let mut reader = TopologyReader {
            rest: text.as_bytes(),
        };
        let mut chains = Vec::new();
        reader.list(&mut |reader| {
            let mut nodes = Vec::new();
            reader.list(&mut |reader| {
                nodes.push(reader.node()?.0);
                (nodes.len() <= NODES_MAX).then_some(())
            })?;
            nodes.first()?.as_ref()?;
            chains.push(Chain { nodes });
            (chains.len() <= CHAINS_MAX).then_some(())
        })?;
        reader
            .rest
            .trim_ascii()
            .is_empty()
            .then_some(Self { chains })
    }

    /// Whether only this node holds the vBucket.
    pub(crate) fn is_alone(&self) -> bool {
        self.chains.is_empty()
    }

    /// Whether each chain has enough nodes for a majority.
    pub(crate) fn is_possible(&self) -> bool {
        self.chains.iter().all(Chain::is_possible)
    }

    /// Whether a majority of each chain agrees. The active node is the first of each chain: `own`
    /// is its answer. `other` answers for the others.
    pub(crate) fn is_satisfied(&self, own: bool, other: &dyn Fn(&str) -> bool) -> bool {
        let agrees = |chain: &Chain| chain.agreed(own, other) >= chain.majority();
        self.each(own, agrees)
    }

    /// Whether each chain agrees as well as it can: a majority, or all nodes that exist if they are
    /// fewer.
    pub(crate) fn is_satisfied_by_existing(&self, own: bool, other: &dyn Fn(&str) -> bool) -> bool {
        let needed = |chain: &Chain| chain.majority().min(chain.existing());
        self.each(own, |chain| chain.agreed(own, other) >= needed(chain))
    }

    /// Whether each chain agrees; without a chain, whether this node does.
    fn each(&self, own: bool, agrees: impl Fn(&Chain) -> bool) -> bool {
        if self.is_alone() {
            return own;
        }
        self.chains.iter().all(agrees)
    }

    /// The chains with their names in order, for statistics.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &[Option<Box<str>>]> {
        self.chains.iter().map(|chain| chain.nodes.as_slice())
    }

    /// Whether a chain names the node.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let mut nodes = self.chains.iter().flat_map(|chain| &chain.nodes).flatten();
        nodes.any(|node| **node == *name)
    }
}

/// A node, or a missing one.
struct NodeName(Option<Box<str>>);

/// A parser for the JSON that a topology needs.
struct TopologyReader<'a> {
    rest: &'a [u8],
}

impl TopologyReader<'_> {
    fn take(&mut self, token: &[u8]) -> Option<()> {
        self.rest = self.rest.trim_ascii_start().strip_prefix(token)?;
        Some(())
    }

    /// Parses `[`, items separated by commas, `]`.
    fn list(&mut self, item: &mut dyn FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b"[")?;
        if self.take(b"]").is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.take(b"]").is_some() {
                return Some(());
            }
            self.take(b",")?;
        }
    }

    /// Parses a string or `null`. Of the escapes only `\"`, `\\` and `\/` are accepted: names of
    /// nodes have no others.
    fn node(&mut self) -> Option<NodeName> {
        if self.take(b"null").is_some() {
            return Some(NodeName(None));
        }
        self.take(b"\"")?;
        let mut bytes = Vec::new();
        loop {
            let (&first, rest) = self.rest.split_first()?;
            self.rest = rest;
            match first {
                b'"' => break,
                b'\\' => {
                    let (&escaped, rest) = rest.split_first()?;
                    self.rest = rest;
                    if !matches!(escaped, b'"' | b'\\' | b'/') {
                        return None;
                    }
                    bytes.push(escaped);
                }
                other => bytes.push(other),
            }
        }
        let name = String::from_utf8(bytes).ok()?;
        Some(NodeName(Some(name.into_boxed_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfied(text: &str, agreed: &[&str]) -> bool {
        let topology = Topology::parse(text).expect("a topology");
        topology.is_satisfied(agreed.contains(&"a"), &|name| agreed.contains(&name))
    }

    #[test]
    fn majority_counts_missing_nodes() {
        let possible = |text| Topology::parse(text).map(|topology| topology.is_possible());
        assert_eq!(possible(""), Some(true));
        assert_eq!(possible(r#"[["a"]]"#), Some(true));
        assert_eq!(possible(r#"[["a","b"]]"#), Some(true));
        assert_eq!(possible(r#"[["a",null]]"#), Some(false));
        assert_eq!(possible(r#"[["a","b",null]]"#), Some(true));
        assert_eq!(possible(r#"[["a",null,null]]"#), Some(false));
        assert_eq!(possible(r#"[["a","b",null,null]]"#), Some(false));
        assert_eq!(possible(r#"[["a","b","c",null]]"#), Some(true));
        assert_eq!(possible(r#"[["a","b"],["a",null]]"#), Some(false));
    }

    #[test]
    fn each_chain_needs_its_own_majority() {
        assert!(satisfied("", &["a"]));
        assert!(!satisfied("", &[]));
        assert!(satisfied(r#"[["a"]]"#, &["a"]));
        assert!(!satisfied(r#"[["a","b"]]"#, &["a"]));
        assert!(satisfied(r#"[["a","b"]]"#, &["a", "b"]));
        assert!(satisfied(r#"[["a","b","c"]]"#, &["a", "c"]));
        assert!(satisfied(r#"[["a","b","c"]]"#, &["b", "c"]));
        assert!(!satisfied(r#"[["a","b","c"]]"#, &["b"]));
        assert!(!satisfied(r#"[["a","b","c","d"]]"#, &["a", "b"]));
        assert!(satisfied(r#"[["a","b","c","d"]]"#, &["a", "b", "d"]));
        assert!(!satisfied(r#"[["a","b"],["a","c"]]"#, &["a", "b"]));
        assert!(satisfied(r#"[["a","b"],["a","c"]]"#, &["a", "b", "c"]));
    }

    #[test]
    fn missing_nodes_do_not_count_for_what_was_taken_over() {
        let satisfied = |text: &str, agreed: &[&str]| {
            let topology = Topology::parse(text).expect("a topology");
            topology.is_satisfied_by_existing(agreed.contains(&"a"), &|name| agreed.contains(&name))
        };
        assert!(satisfied(r#"[["a",null]]"#, &["a"]));
        assert!(!satisfied(r#"[["a",null]]"#, &[]));
        assert!(!satisfied(r#"[["a","b",null]]"#, &["a"]));
        assert!(satisfied(r#"[["a","b",null]]"#, &["a", "b"]));
        assert!(!satisfied(r#"[["a","b",null,null]]"#, &["a"]));
        assert!(satisfied(r#"[["a","b",null,null]]"#, &["a", "b"]));
        assert!(!satisfied(r#"[["a","b"],["a",null]]"#, &["a"]));
    }

    #[test]
    fn parse_refuses_texts_that_are_no_topology() {
        for text in [
            "[",
            "[[",
            "[[]]",
            "[[null]]",
            r#"["a"]"#,
            r#"[["a",]]"#,
            r#"[["a"]]x"#,
            r#"[["a]]"#,
            r#"[["\u0061"]]"#,
            r#"[["a"],["a"],["a"]]"#,
            r#"[["a",1]]"#,
            "{}",
            r#"[["1","2","3","4","5","6","7","8","9"]]"#,
        ] {
            assert_eq!(Topology::parse(text), None, "{text}");
        }
        let spaced = Topology::parse(" [ [ \"a\\\"b\" , null ] ] ").expect("white space is fine");
        assert!(spaced.knows("a\"b"));
        assert_eq!(Topology::parse("[]"), Some(Topology::default()));
    }
}
