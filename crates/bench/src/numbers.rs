//! Small arithmetic: conversions, medians, even shares.

use std::ops::Range;

/// Number of bytes in a MiB.
pub(crate) const BYTES_PER_MIB: f64 = 1_048_576.0;

/// Converts a count to a floating-point number; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds stay far below 2^53"
)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Returns the median: the middle value, or the mean of the two middle ones; 0 without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Returns `total * part / parts`, without overflow.
pub(crate) fn portion(total: u64, part: u64, parts: u64) -> u64 {
    (u128::from(total) * u128::from(part) / u128::from(parts)) as u64
}

/// Returns part `index` of `0..total`, divided as evenly as possible.
pub(crate) fn share(index: u32, parts: u32, total: u64) -> Range<u64> {
    let edge = |part: u32| portion(total, part.into(), parts.into());
    edge(index)..edge(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let cases: [(&[f64], f64); 4] = [
            (&[], 0.0),
            (&[3.0], 3.0),
            (&[9.0, 1.0, 5.0], 5.0),
            (&[4.0, 1.0, 2.0, 9.0], 3.0),
        ];
        for (values, expected) in cases {
            assert!(
                (median(values.iter().copied()) - expected).abs() < 1e-9,
                "{values:?}"
            );
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        for (parts, total) in [(1, 10), (3, 10), (4, 4), (7, 1_000_000_000)] {
            let shares: Vec<_> = (0..parts).map(|index| share(index, parts, total)).collect();
            assert_eq!(
                (shares[0].start, shares[parts as usize - 1].end),
                (0, total)
            );
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            let sizes: Vec<_> = shares.iter().map(|share| share.end - share.start).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
