//! Human-readable durations in Kubernetes' format.

use jiff::SignedDuration;

/// Formats a duration in one or two units, coarser for longer durations: `75s`, `5m30s`, `3h20m`, `4d2h`, `2y100d`.
///
/// Negative durations below two seconds, from clock skew, yield `0s`; longer ones `<invalid>`.
pub fn human_duration(duration: SignedDuration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    match duration.as_secs() {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        seconds if seconds < 2 * MINUTE => format!("{seconds}s"),
        seconds if seconds < 10 * MINUTE => two_units(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        seconds if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        seconds if seconds < 8 * HOUR => two_units(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        seconds if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        seconds if seconds < 8 * DAY => two_units(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        seconds if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        seconds if seconds < 8 * YEAR => two_units(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        seconds => format!("{}y", seconds / YEAR),
    }
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_duration_uses_coarser_units_for_longer_durations() {
        let (minute, hour, day) = (60, 3600, 86_400);
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (10 * minute - 1, "9m59s"),
            (10 * minute, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 59, "3h"),
            (3 * hour + 60, "3h1m"),
            (8 * hour - 1, "7h59m"),
            (8 * hour, "8h"),
            (2 * day - 1, "47h"),
            (2 * day, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day - 1, "7d23h"),
            (8 * day, "8d"),
            (730 * day - 1, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day - 1, "7y364d"),
            (8 * 365 * day, "8y"),
            (100 * 365 * day, "100y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }
}
