//! Natural order: `vb_9` before `vb_10`.

use std::cmp::Ordering;

/// Compares runs of digits as numbers, and everything else byte by byte.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut rest_a, mut rest_b) = different(a, b);
    loop {
        let (digits_a, digits_b) = (digits(rest_a), digits(rest_b));
        if !digits_a.is_empty() && !digits_b.is_empty() {
            let order = compare_numbers(digits_a, digits_b);
            if order.is_ne() {
                return order;
            }
            (rest_a, rest_b) = (&rest_a[digits_a.len()..], &rest_b[digits_b.len()..]);
            continue;
        }
        match (rest_a.split_first(), rest_b.split_first()) {
            (Some((byte_a, tail_a)), Some((byte_b, tail_b))) if byte_a == byte_b => {
                (rest_a, rest_b) = (tail_a, tail_b);
            }
            // Names that differ only in leading zeros are ordered at the end.
            (None, None) => return a.cmp(b),
            (first_a, first_b) => {
                return first_a
                    .map(|(byte, _)| byte)
                    .cmp(&first_b.map(|(byte, _)| byte));
            }
        }
    }
}

/// Returns the rests after the common part; a number that is split by the end of that part is kept whole.
fn different<'a>(a: &'a [u8], b: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let words = 8 * words.take_while(|(a, b)| a == b).count();
    let bytes = a[words..].iter().zip(&b[words..]);
    let same = words + bytes.take_while(|(a, b)| a == b).count();
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let number = a[..same].iter().rev().take_while(is_digit).count();
    (&a[same - number..], &b[same - number..])
}

fn digits(text: &[u8]) -> &[u8] {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..len]
}

/// Compares numbers of any length: without leading zeros, the longer one is larger.
fn compare_numbers(a: &[u8], b: &[u8]) -> Ordering {
    let significant = |number: &[u8]| number.iter().take_while(|&&byte| byte == b'0').count();
    let (a, b) = (&a[significant(a)..], &b[significant(b)..]);
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order() {
        let mut names = [
            "vb_10",
            "vb_9:x",
            "vb_9",
            "a",
            "",
            "vb_1:2:b",
            "vb_1:10:a",
            "b",
            "vb_09",
            "1",
            "02",
        ];
        names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
        assert_eq!(
            names,
            [
                "",
                "1",
                "02",
                "a",
                "b",
                "vb_1:2:b",
                "vb_1:10:a",
                "vb_09",
                "vb_9",
                "vb_9:x",
                "vb_10"
            ]
        );
    }

    #[test]
    fn numbers_beyond_64_bits() {
        assert_eq!(
            compare(b"a99999999999999999999", b"a100000000000000000000"),
            Ordering::Less
        );
        assert_eq!(compare(b"a1", b"a1"), Ordering::Equal);
    }
}
