//! Answers in text.

use bucket::Clock;
use registry::{RecacheRead, RecacheTurn, Recaching};
use wire::Status;
use wire::text::{MetaFlags, MetaVerb, push_decimal, push_signed};

use super::conversation::{Form, MetaForm, TextConversation};
use crate::reply::Reply;

const END_OF_LINE: &[u8] = b"\r\n";
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(END_OF_LINE);
}

/// Returns the flags of a document: the extras of the answer.
fn flags_of(reply: &Reply<'_>) -> u64 {
    let flags = reply.extras.first_chunk::<4>();
    u64::from(flags.map_or(0, |bytes| u32::from_be_bytes(*bytes)))
}

/// Returns the new number of a counter.
fn number_of(reply: &Reply<'_>) -> u64 {
    let number = reply.value.first_chunk::<8>();
    number.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Returns the time in Unix seconds, rounded up like expiries.
fn now_s(clock: &dyn Clock) -> u32 {
    let now_s = clock.now().unix_ns.div_ceil(1_000_000_000);
    now_s.try_into().unwrap_or(u32::MAX)
}

/// Returns the seconds until a document expires; -1 if it does not.
fn ttl(expiry: u32, now_s: u32) -> i64 {
    if expiry == 0 {
        return -1;
    }
    expiry.saturating_sub(now_s).into()
}

impl TextConversation {
    /// Writes the answer of a command.
    pub(crate) fn answer(
        &self,
        reply: &Reply<'_>,
        clock: &dyn Clock,
        recaching: Option<&Recaching>,
        out: &mut Vec<u8>,
    ) {
        let succeeds = reply.status == Status::SUCCESS;
        self.refused.set((!succeeds).then_some(reply.status));
        if self.gives_or_takes_a_value() && succeeds {
            recaching.inspect(|all| all.stored(self.document_key()));
        }
        if self.noreply {
            return;
        }
        if !succeeds {
            return self.tell(reply.status, None, out);
        }
        match self.form {
            Form::Silent => {}
            Form::Value { with_cas } => self.value(reply, with_cas, out),
            Form::Store { .. } | Form::Login => line(out, "STORED"),
            Form::Delete => line(out, "DELETED"),
            Form::Touch => line(out, "TOUCHED"),
            Form::Flush => line(out, "OK"),
            Form::Count => {
                push_decimal(out, number_of(reply));
                out.extend_from_slice(END_OF_LINE);
            }
            Form::Stats => line(out, "END"),
            Form::Version => {
                out.extend_from_slice(b"VERSION ");
                // Some clients accept nothing behind the third number.
                let numbers = reply.value.split(|byte| *byte == b'-').next();
                out.extend_from_slice(numbers.unwrap_or(reply.value));
                out.extend_from_slice(END_OF_LINE);
            }
            Form::MetaNoop => line(out, "MN"),
            Form::Meta(form) if form.asks_cas => self.seen.set(Some(reply.cas)),
            Form::Meta(form) => {
                let now_s = now_s(clock);
                let turn = recaching.and_then(|all| self.recache_turn(form, reply, all, now_s));
                self.meta(form, (reply, turn), now_s, out);
            }
        }
    }

    /// Writes the refusal of a command.
    pub(crate) fn refuse(&self, status: Status, context: Option<&str>, out: &mut Vec<u8>) {
        self.refused.set(Some(status));
        if !self.noreply {
            self.tell(status, context, out);
        }
    }

    /// Appends a row of statistics.
    pub(crate) fn row(name: &str, value: &str, out: &mut Vec<u8>) {
        for part in ["STAT ", name, " ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn value(&self, reply: &Reply<'_>, with_cas: bool, out: &mut Vec<u8>) {
        let key = if reply.key.is_empty() {
            &self.key
        } else {
            reply.key
        };
        out.reserve(key.len() + reply.value.len() + 64);
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        out.push(b' ');
        push_decimal(out, flags_of(reply));
        out.push(b' ');
        push_decimal(out, reply.value.len() as u64);
        if with_cas {
            out.push(b' ');
            push_decimal(out, reply.cas.0);
        }
        out.extend_from_slice(END_OF_LINE);
        out.extend_from_slice(reply.value);
        out.extend_from_slice(END_OF_LINE);
    }

    /// Whether a success of the command ends the rebuild of its document.
    fn gives_or_takes_a_value(&self) -> bool {
        match self.form {
            Form::Store { .. } | Form::Delete => true,
            Form::Meta(form) => {
                !form.asks_cas && matches!(form.verb, MetaVerb::Set | MetaVerb::Delete)
            }
            _ => false,
        }
    }

    /// Returns whether the client that reads a document must recompute it.
    fn recache_turn(
        &self,
        form: MetaForm,
        reply: &Reply<'_>,
        recaching: &Recaching,
        now_s: u32,
    ) -> Option<RecacheTurn> {
        let key = self.document_key();
        if let Some(expiry) = form.stub {
            recaching.made_stub(key, reply.cas, expiry, now_s);
            return Some(RecacheTurn::Won);
        }
        match form.verb {
            MetaVerb::Get => {
                let left_s = u64::try_from(ttl(reply.expiry, now_s)).ok();
                let due = form.recache.zip(left_s);
                let read = RecacheRead {
                    cas: reply.cas,
                    expiry: reply.expiry,
                    empty: reply.value.is_empty(),
                    due: reply.stale || due.is_some_and(|(below, left)| left < u64::from(below)),
                };
                recaching.read(key, read, now_s)
            }
            _ => None,
        }
    }

    fn meta(
        &self,
        form: MetaForm,
        (reply, turn): (&Reply<'_>, Option<RecacheTurn>),
        now_s: u32,
        out: &mut Vec<u8>,
    ) {
        let expiry = form.stub.unwrap_or(reply.expiry);
        let mut digits = Vec::new();
        let value = match form.verb {
            MetaVerb::Arithmetic => {
                push_decimal(&mut digits, number_of(reply));
                digits.as_slice()
            }
            _ => reply.value,
        };
        match form.verb {
            MetaVerb::Debug => return self.debug(reply, now_s, out),
            MetaVerb::Set | MetaVerb::Delete | MetaVerb::Arithmetic if form.quiet => return,
            MetaVerb::Get | MetaVerb::Arithmetic if form.value => {
                out.reserve(value.len() + 128);
                out.extend_from_slice(b"VA ");
                push_decimal(out, value.len() as u64);
            }
            _ => out.extend_from_slice(b"HD"),
        }
        for (letter, token) in MetaFlags::of(&self.flags).iter() {
            match letter {
                b'c' => flag(out, letter, reply.cas.0),
                b'f' if form.stub.is_some() => flag(out, letter, 0),
                b'f' => flag(out, letter, flags_of(reply)),
                b's' if form.verb == MetaVerb::Set => flag(out, letter, form.brings as u64),
                b's' => flag(out, letter, value.len() as u64),
                b't' => {
                    out.extend_from_slice(b" t");
                    push_signed(out, ttl(expiry, now_s));
                }
                _ => self.repeat(letter, token, out),
            }
        }
        // In memcached's order.
        let marker: &[u8] = match (turn, reply.stale) {
            (Some(RecacheTurn::Won), false) => b" W",
            (Some(RecacheTurn::Won), true) => b" X W",
            (Some(RecacheTurn::Taken), false) => b" Z",
            (Some(RecacheTurn::Taken), true) => b" Z X",
            (None, true) => b" X",
            (None, false) => b"",
        };
        out.extend_from_slice(marker);
        out.extend_from_slice(END_OF_LINE);
        if form.value {
            out.extend_from_slice(value);
            out.extend_from_slice(END_OF_LINE);
        }
    }

    /// Writes the answer to `me`.
    fn debug(&self, reply: &Reply<'_>, now_s: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"ME ");
        out.extend_from_slice(&self.key);
        out.extend_from_slice(b" exp=");
        push_signed(out, ttl(reply.expiry, now_s));
        for (name, number) in [(" cas=", reply.cas.0), (" size=", reply.value.len() as u64)] {
            out.extend_from_slice(name.as_bytes());
            push_decimal(out, number);
        }
        out.extend_from_slice(END_OF_LINE);
    }

    /// Writes a flag whose answer is its own token, or the key.
    fn repeat(&self, letter: u8, token: &[u8], out: &mut Vec<u8>) {
        let repeated = match letter {
            b'O' => token,
            b'k' => &self.key,
            _ => return,
        };
        out.extend_from_slice(&[b' ', letter]);
        out.extend_from_slice(repeated);
        let is_base64 = || {
            MetaFlags::of(&self.flags)
                .iter()
                .any(|(letter, _)| letter == b'b')
        };
        if letter == b'k' && is_base64() {
            out.extend_from_slice(b" b");
        }
    }

    /// Writes the line of a status that is no success.
    fn tell(&self, status: Status, context: Option<&str>, out: &mut Vec<u8>) {
        let said = match (self.form, status) {
            (Form::Value { .. }, Status::KEY_ENOENT) => return,
            (Form::Store { with_cas: true }, Status::KEY_EEXISTS) => "EXISTS",
            (
                Form::Store { with_cas: true } | Form::Delete | Form::Touch | Form::Count,
                Status::KEY_ENOENT,
            ) => "NOT_FOUND",
            (Form::Store { .. }, Status::KEY_EEXISTS | Status::KEY_ENOENT | Status::NOT_STORED) => {
                "NOT_STORED"
            }
            (Form::Login, Status::AUTH_ERROR | Status::EACCESS | Status::EINVAL) => {
                "CLIENT_ERROR authentication failure"
            }
            (Form::Stats, Status::KEY_ENOENT) => "ERROR",
            (Form::Meta(form), Status::KEY_ENOENT | Status::KEY_EEXISTS | Status::NOT_STORED) => {
                return self.meta_miss(form, status, out);
            }
            (_, Status::EACCESS) if context.is_none() => "CLIENT_ERROR unauthenticated",
            (_, Status::DELTA_BADVAL) => {
                "CLIENT_ERROR cannot increment or decrement non-numeric value"
            }
            (_, Status::E2BIG) => "SERVER_ERROR object too large for cache",
            (_, Status::ENOMEM) => OUT_OF_MEMORY,
            _ => return explain(status, context, out),
        };
        line(out, said);
    }

    #[expect(
        clippy::match_same_arms,
        reason = "each row is an answer of the protocol"
    )]
    fn meta_miss(&self, form: MetaForm, status: Status, out: &mut Vec<u8>) {
        if form.holds.contains(&status) {
            return;
        }
        let (code, usual) = match (form.verb, status) {
            (MetaVerb::Get | MetaVerb::Debug, _) => ("EN", true),
            (MetaVerb::Set, Status::KEY_EEXISTS) if form.with_cas => ("EX", false),
            (MetaVerb::Set, Status::KEY_ENOENT) if form.with_cas => ("NF", false),
            (MetaVerb::Set, _) => ("NS", false),
            (MetaVerb::Delete | MetaVerb::Arithmetic, Status::KEY_ENOENT) => ("NF", false),
            (MetaVerb::Arithmetic, Status::NOT_STORED) => ("NS", false),
            (MetaVerb::Delete | MetaVerb::Arithmetic, _) => ("EX", false),
        };
        if usual && form.quiet {
            return;
        }
        out.extend_from_slice(code.as_bytes());
        for (letter, token) in MetaFlags::of(&self.flags).iter() {
            match letter {
                b'c' if form.verb == MetaVerb::Set => flag(out, letter, 0),
                _ => self.repeat(letter, token, out),
            }
        }
        out.extend_from_slice(END_OF_LINE);
    }
}

fn flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    push_decimal(out, number);
}

/// Writes a status that the text protocols do not have, with its context.
fn explain(status: Status, context: Option<&str>, out: &mut Vec<u8>) {
    let side = match status {
        Status::EINVAL | Status::NOT_SUPPORTED | Status::UNKNOWN_COMMAND => "CLIENT_ERROR ",
        _ => "SERVER_ERROR ",
    };
    let said = match (status, context) {
        (_, Some(context)) => context,
        (Status::ETMPFAIL, None) => "temporary failure; try again",
        (Status::LOCKED, None) => "the document is locked",
        (Status::NOT_MY_VBUCKET, None) => "the document is not active on this node",
        (Status::SYNC_WRITE_IN_PROGRESS | Status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS, None) => {
            "a durable write of the document is not decided"
        }
        (status, None) => status.name(),
    };
    out.extend_from_slice(side.as_bytes());
    line(out, said);
}
