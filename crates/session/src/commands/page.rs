//! The page `docs/opcodes.md`.

use std::fmt::Write as _;

use wire::{OpcodeInfo, OpcodeSupport};

use super::command::PrivilegeScope;
use super::find::find;
use super::refused::reason;

/// Returns the page `docs/opcodes.md`: every opcode of the protocol, and what this node does.
pub fn opcodes_page() -> String {
    let mut page = String::from(include_str!("opcodes_head.md"));
    let served = OpcodeInfo::all()
        .iter()
        .filter(|info| find(info.opcode).is_some())
        .count();
    let known = OpcodeInfo::all()
        .iter()
        .filter(|info| info.standing == OpcodeSupport::Known)
        .count();
    let _infallible = writeln!(
        page,
        "\n{served} of {known} opcodes are served. `-` answers `NotSupported` (0x83), an opcode \
         that is not listed `UnknownCommand` (0x81).\n\n\
         | Opcode | Name | Served | Scope | Privileges | Needed in | memcached port | Note |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for info in OpcodeInfo::all() {
        let (served, scope, privileges, within, memcached, note) = match find(info.opcode) {
            Some(command) => {
                let memcached = if command.memcached { "yes" } else { "" };
                let (scope, note) = (command.scope.name(), command.note);
                let within = match command.within {
                    _ if command.privileges.is_empty() => "",
                    PrivilegeScope::Document => "collection",
                    PrivilegeScope::Anywhere => "a collection",
                    PrivilegeScope::Whole => scope,
                };
                (
                    "yes",
                    scope,
                    command.privileges.to_string(),
                    within,
                    memcached,
                    note,
                )
            }
            None if info.standing == OpcodeSupport::Removed => {
                ("-", "", String::new(), "", "", "removed from the protocol")
            }
            None => {
                let reason = reason(info.opcode).unwrap_or("");
                ("-", "", String::new(), "", "", reason)
            }
        };
        let _infallible = writeln!(
            page,
            "| 0x{:02x} | {} | {served} | {scope} | {privileges} | {within} | {memcached} | {note} |",
            info.opcode.0, info.name
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use wire::Opcode;

    use super::*;
    use crate::commands::command::Scope;
    use crate::commands::table::COMMANDS;

    #[test]
    fn every_row_is_found_and_is_part_of_the_protocol() {
        for command in COMMANDS {
            let info = command.opcode.info().unwrap();
            assert_eq!(info.standing, OpcodeSupport::Known, "{}", info.name);
            assert_eq!(find(command.opcode).unwrap().opcode, command.opcode);
            let document = command.scope == Scope::Document;
            assert_eq!(info.keyed, document, "{}: scope and key", info.name);
        }
        assert!(find(Opcode(0xff)).is_none());
    }

    #[test]
    fn the_page_of_opcodes_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/opcodes.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            opcodes_page(),
            "run: cargo run -p settee -- compat-table > docs/opcodes.md"
        );
    }
}
