//! Output of progress and tables.

/// Shows a line in place of the previous one; returns whether the run goes on.
pub type Progress = Box<dyn Fn(&str) -> bool>;

/// Emphasis of text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// Creates a style for plain text, or for coloured text on a terminal.
    pub fn new(coloured: bool) -> Self {
        Self { coloured }
    }

    /// Returns `text` in bold.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Returns `text` in red: something is wrong.
    pub(crate) fn alarm(self, text: &str) -> String {
        self.wrap("31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_style_adds_nothing() {
        assert_eq!(Style::new(false).bold("x"), "x");
        assert_eq!(Style::new(true).alarm("x"), "\x1b[31mx\x1b[0m");
    }
}
