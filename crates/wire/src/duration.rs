//! The two-byte code for the server's processing time of a request.

/// Microseconds above which the code does not grow.
const MICROS_MAX: u64 = 120_125_042;

/// Codes of 0 to 127 microseconds: covers nearly every answer from memory without a power function.
const SMALL: [u8; 128] = [
    0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 9, 10, 10, 10, 10,
    11, 11, 11, 11, 11, 11, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 14, 14, 14, 14, 14, 14, 15,
    15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 17, 17, 18, 18, 18, 18, 18,
    18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 20, 20, 20, 20, 20, 20, 20, 20, 21, 21, 21, 21, 21, 21,
    21, 21, 21, 22, 22, 22, 22, 22, 22, 22, 22, 23, 23, 23, 23, 23, 23, 23, 23, 23, 24, 24, 24, 24,
    24, 24,
];

/// Encodes microseconds as the payload of response frame info 0.
///
/// Shape: `round((2 * micros) ^ (1 / 1.74))`, at most 65,535 for about two minutes or more.
///
/// Source: protocol section 1.2. Test: `duration::tests`.
pub fn encode_server_duration(micros: u64) -> u16 {
    match SMALL.get(usize::try_from(micros).unwrap_or(usize::MAX)) {
        Some(&code) => u16::from(code),
        None => encode_slowly(micros),
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the value is at most 120125042 and its code at most 65535, both positive"
)]
fn encode_slowly(micros: u64) -> u16 {
    let doubled = micros.min(MICROS_MAX) as f64 * 2.0;
    doubled.powf(1.0 / 1.74).round() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes() {
        let known = [
            (0, 0),
            (1, 1),
            (10, 6),
            (100, 21),
            (500, 53),
            (1000, 79),
            (10_000, 296),
        ];
        for (micros, code) in known {
            assert_eq!(encode_server_duration(micros), code, "{micros} us");
        }
        assert_eq!(encode_server_duration(1_000_000), 4181);
        assert_eq!(encode_server_duration(MICROS_MAX), u16::MAX);
        assert_eq!(encode_server_duration(u64::MAX), u16::MAX);
    }

    #[test]
    fn the_table_of_small_codes_follows_the_formula() {
        for micros in 0..200 {
            assert_eq!(
                encode_server_duration(micros),
                encode_slowly(micros),
                "{micros} us"
            );
        }
    }

    #[test]
    fn code_decodes_and_encodes_to_itself() {
        for code in [0, 1, 2, 21, 296, 4181, 40_000, u16::MAX] {
            let micros = f64::from(code).powf(1.74) / 2.0;
            assert_eq!(encode_slowly_f(micros), code);
        }
    }

    #[expect(clippy::cast_sign_loss, reason = "a duration is positive")]
    fn encode_slowly_f(micros: f64) -> u16 {
        (micros * 2.0).powf(1.0 / 1.74).round() as u16
    }
}
