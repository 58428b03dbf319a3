//! How a run shows its progress and its table.

/// Shows a line in place of the one before; tells whether the run is to go on.
pub type Progress = Box<dyn Fn(&str) -> bool>;

/// How text may be emphasised.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// Plain text, or coloured text for a terminal.
    pub fn new(coloured: bool) -> Self {
        Self { coloured }
    }

    /// `text` in bold.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// `text` in red: something is wrong.
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
