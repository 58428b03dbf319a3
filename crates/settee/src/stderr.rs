//! Lines on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes a line on standard error. One that cannot be written, as on a full disk, is left out, and ends nothing.
pub(crate) fn note(line: impl Display) {
    writeln!(io::stderr(), "settee: {line}").ok();
}
