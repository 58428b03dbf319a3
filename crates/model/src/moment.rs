//! Human-readable UTC timestamps.

/// Formats nanoseconds since 1970 as `2026-11-21T02:47:11.190179842`.
pub fn utc(unix_ns: u64) -> String {
    let (seconds, ns) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}")
}

/// Returns year, month and day of a number of days since 1970.
///
/// Years are counted from March, so that the leap day is the last one; 400 years always have
/// 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let january = month >= 10;
    let year = era * 400 + year + u64::from(january);
    let month = if january { month - 9 } else { month + 3 };
    (year, month, day - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let known = [
            (0, "1970-01-01T00:00:00.000000000"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001"),
            (1_795_229_231_190_179_842, "2026-11-21T02:47:11.190179842"),
            (4_107_542_399_000_000_000, "2100-02-28T23:59:59.000000000"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000"),
        ];
        for (ns, text) in known {
            assert_eq!(utc(ns), text);
        }
    }
}
