//! Look-up of a command by its opcode.

use wire::Opcode;

use super::command::Command;
use super::table::COMMANDS;

/// Index of each opcode's row in [`COMMANDS`]; 0xff if there is none.
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

/// Finds the row of an opcode, if the node serves it.
pub(crate) fn find(opcode: Opcode) -> Option<&'static Command> {
    COMMANDS.get(usize::from(ROW_OF[usize::from(opcode.0)]))
}
