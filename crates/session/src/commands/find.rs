//! Looking a command up by its opcode.

use wire::Opcode;

use super::command::Command;
use super::table::COMMANDS;

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
