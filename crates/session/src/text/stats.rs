//! Statistics in text.

use value::VALUE_BYTES_MAX;
use wire::Opcode;
use wire::{Frame, RawParts};

use super::conversation::{Form, TextConversation};
use super::run::say;
use crate::outcome::CommandOutcome;
use crate::receive::{Turn, Verdict};
use crate::session::Session;

impl Session {
    /// Runs `stats`. This node has no slabs: the groups about slabs have no rows.
    pub(super) fn text_stats(
        &mut self,
        group: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> Result<CommandOutcome, Verdict> {
        match group {
            b"items" | b"slabs" | b"sizes" | b"conns" if self.is_authenticated() => say(out, "END"),
            b"settings" if self.is_authenticated() => {
                self.settings_rows(out);
                say(out, "END")
            }
            _ => {
                self.expect(Form::Stats, false);
                let parts = RawParts {
                    key: group,
                    ..RawParts::default()
                };
                self.run_frame(
                    &Frame::request(Opcode::STAT, model::Cas(0), parts),
                    turn,
                    out,
                )
            }
        }
    }

    /// Appends the rows of `stats settings`, as far as memcached clients read them.
    fn settings_rows(&self, out: &mut Vec<u8>) {
        let Some(served) = &self.bucket else {
            return;
        };
        let settings = served.settings();
        let mut row = |name: &str, value: &str| TextConversation::row(name, value, out);
        row("maxbytes", &served.bucket.memory().quota().to_string());
        row("item_size_max", &VALUE_BYTES_MAX.to_string());
        row("cas_enabled", "yes");
        let flush = if settings.flush_enabled { "yes" } else { "no" };
        row("flush_enabled", flush);
    }
}
