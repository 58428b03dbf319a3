//! Numbers in answers.

/// Number of digits of the largest number.
const DIGITS: usize = 20;

/// Appends a number in decimal.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; DIGITS];
    let mut left = number;
    let mut first = DIGITS;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' | (left % 10) as u8;
        left /= 10;
        first = first.saturating_sub(1);
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Appends a number in decimal, possibly negative.
pub fn push_signed(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    push_decimal(out, number.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_decimal_and_signed_match_the_standard_library() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
        for number in [i64::MIN, -1, 0, 7] {
            let mut out = Vec::new();
            push_signed(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
