//! Everything the node knows about each opcode, in one row, and the commands themselves.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all commands have the signature that their row asks for"
)]

mod bootstrap;
mod collections;
mod dcp;
mod documents;
mod durable;
mod node;
mod observe;
mod params;
mod read;
mod replication;
mod scan;
mod subdoc;
mod table;
mod vbuckets;
mod write;

use std::fmt::Write as _;

use identity::Role;
use wire::{Frame, Opcode, OpcodeInfo, Standing};

use crate::session::{Context, Done, Refusal};

pub(crate) use collections::UNKNOWN_COLLECTION_CONTEXT;
pub(crate) use scan::Scanning;
pub(crate) use table::COMMANDS;

/// What a command needs to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A document of the selected bucket.
    Document,
    /// The selected bucket.
    Bucket,
    /// Nothing but the node.
    Node,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Bucket => "bucket",
            Self::Node => "node",
        }
    }
}

/// What a user must be allowed to do, in the protocol's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    Read,
    Insert,
    Upsert,
    Delete,
    SimpleStats,
    DcpProducer,
    DcpConsumer,
    RangeScan,
    NodeSupervisor,
    Administrator,
}

/// One row.
pub(crate) struct Command {
    pub(crate) opcode: Opcode,
    pub(crate) scope: Scope,
    /// All of them are needed. The administrator has all.
    pub(crate) privileges: &'static [Privilege],
    /// Whether [`Role::Memcached`] may send it.
    pub(crate) memcached: bool,
    /// Whether it may be sent before a login.
    pub(crate) before_login: bool,
    /// A word on what is different here, for the compatibility page.
    pub(crate) note: &'static str,
    pub(crate) run: fn(&mut Context<'_>, &Frame<'_>) -> Result<Done, Refusal>,
}

impl Command {
    /// Whether a peer in this role may send it.
    pub(crate) fn allows(&self, role: Role) -> bool {
        match role {
            Role::Admin => true,
            Role::Memcached => self.memcached,
        }
    }
}

/// Row of each opcode in [`COMMANDS`], 0xff for none.
static ROW_OF: [u8; 256] = rows();

const fn rows() -> [u8; 256] {
    let mut rows = [0xff; 256];
    let mut row = 0;
    while row < COMMANDS.len() {
        rows[COMMANDS[row].opcode.0 as usize] = row as u8;
        row += 1;
    }
    rows
}

/// The row of an opcode, if the node serves it.
pub(crate) fn find(opcode: Opcode) -> Option<&'static Command> {
    COMMANDS.get(usize::from(ROW_OF[usize::from(opcode.0)]))
}

/// Whether the command takes a durability level. The protocol lets some others name one, which
/// then are refused.
pub(crate) fn writes_durably(opcode: Opcode) -> bool {
    const TABLE: &[Opcode] = &[
        Opcode::SET,
        Opcode::ADD,
        Opcode::REPLACE,
        Opcode::DELETE,
        Opcode::INCREMENT,
        Opcode::DECREMENT,
        Opcode::APPEND,
        Opcode::PREPEND,
        Opcode::SUBDOC_DICT_ADD,
        Opcode::SUBDOC_DICT_UPSERT,
        Opcode::SUBDOC_DELETE,
        Opcode::SUBDOC_REPLACE,
        Opcode::SUBDOC_ARRAY_PUSH_LAST,
        Opcode::SUBDOC_ARRAY_PUSH_FIRST,
        Opcode::SUBDOC_ARRAY_INSERT,
        Opcode::SUBDOC_ARRAY_ADD_UNIQUE,
        Opcode::SUBDOC_COUNTER,
        Opcode::SUBDOC_MULTI_MUTATION,
        Opcode::SUBDOC_REPLACE_BODY_WITH_XATTR,
    ];
    TABLE.contains(&opcode)
}

/// The page `docs/compatibility.md`: every opcode of the protocol, and what this node does.
#[must_use]
pub fn compatibility_page() -> String {
    let mut page = String::from(include_str!("compatibility_head.md"));
    let served = OpcodeInfo::all()
        .iter()
        .filter(|info| find(info.opcode).is_some())
        .count();
    let known = OpcodeInfo::all()
        .iter()
        .filter(|info| info.standing == Standing::Known)
        .count();
    let _infallible = writeln!(
        page,
        "\n{served} of {known} opcodes are served. `-` answers `NotSupported` (0x83), an opcode \
         that is not listed `UnknownCommand` (0x81).\n\n\
         | Opcode | Name | Served | Scope | Privileges | memcached port | Note |\n\
         |---|---|---|---|---|---|---|"
    );
    for info in OpcodeInfo::all() {
        let (served, scope, privileges, memcached, note) = match find(info.opcode) {
            Some(command) => {
                let names: Vec<String> = command
                    .privileges
                    .iter()
                    .map(|one| format!("{one:?}"))
                    .collect();
                let memcached = if command.memcached { "yes" } else { "" };
                let (scope, note) = (command.scope.name(), command.note);
                ("yes", scope, names.join(", "), memcached, note)
            }
            None if info.standing == Standing::Removed => {
                ("-", "", String::new(), "", "removed from the protocol")
            }
            None => ("-", "", String::new(), "", ""),
        };
        let _infallible = writeln!(
            page,
            "| 0x{:02x} | {} | {served} | {scope} | {privileges} | {memcached} | {note} |",
            info.opcode.0, info.name
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_and_is_part_of_the_protocol() {
        for command in COMMANDS {
            let info = command.opcode.info().unwrap();
            assert_eq!(info.standing, Standing::Known, "{}", info.name);
            assert_eq!(find(command.opcode).unwrap().opcode, command.opcode);
            let document = command.scope == Scope::Document;
            assert_eq!(info.keyed, document, "{}: scope and key", info.name);
        }
        assert!(find(Opcode(0xff)).is_none());
    }

    #[test]
    fn the_compatibility_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            compatibility_page(),
            "run: cargo run -p settee -- compat-table > docs/compatibility.md"
        );
    }
}
