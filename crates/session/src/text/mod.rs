//! Conversations in the text protocols of memcached.
//!
//! Each text request becomes the frame that a client of the binary protocol would send, and runs like that
//! frame. Its answer is written as text. So privileges, admission, waits and durability are those of the
//! binary commands.
//!
//! ```text
//!   bytes -> decode_text -> TextRequest -> Form (how it is answered), Frame -> execute -> Reply -> line
//! ```

mod answer;
mod conversation;
mod meta;
mod run;
mod stats;

pub(crate) use conversation::TextConversation;
