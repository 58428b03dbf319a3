//! Documents of two walks as one walk.

use std::iter::Peekable;

use model::{Document, Seqno};

use crate::port::DocumentResult;

/// Merges two walks by seqno; of two rows with one seqno it takes that of the first walk.
pub(crate) fn merged(
    one: impl Iterator<Item = DocumentResult> + Send,
    other: impl Iterator<Item = DocumentResult> + Send,
) -> impl Iterator<Item = DocumentResult> + Send {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (at(&mut one), at(&mut other)) {
        (Some(first), Some(second)) if first == second => {
            other.next();
            one.next()
        }
        (Some(first), Some(second)) if second < first => other.next(),
        (None, Some(_)) => other.next(),
        _ => one.next(),
    })
}

/// Returns the seqno of the next row; zero for an error, so that it comes first.
fn at(rows: &mut Peekable<impl Iterator<Item = DocumentResult>>) -> Option<Seqno> {
    let next = rows.peek()?;
    Some(next.as_ref().map_or(Seqno::ZERO, Document::seqno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_sequences_have_no_duplicates() {
        let line = |value: &'static str, seqnos: &'static [u64]| {
            let document = move |at: &u64| Ok(crate::suite::document(*at, "k", value));
            seqnos.iter().map(document)
        };
        let all = merged(line("a", &[1, 3, 6, 7]), line("b", &[3, 4, 5, 7, 9]));
        let all = all.map(|row| {
            let row = row.expect("no error");
            format!("{}{}", row.value().escape_ascii(), row.seqno().0)
        });
        let all: Vec<String> = all.collect();
        assert_eq!(all, ["a1", "a3", "b4", "b5", "a6", "a7", "b9"]);
        assert_eq!(merged(line("a", &[]), line("b", &[])).count(), 0);
    }
}
