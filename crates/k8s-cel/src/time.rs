//! Durations and timestamps: parsing and printing as Go does, calendar fields.

pub(crate) mod zone;

/// An instant with the offset it was written with, which printing keeps.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

pub(crate) const NANOS: i64 = 1_000_000_000;
/// 0001-01-01T00:00:00Z.
const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z.
const MAX_SECONDS: i64 = 253_402_300_799;

impl Timestamp {
    /// An instant in UTC, or nothing beyond the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Self { seconds, nanos, offset: 0 })
    }

    /// Adds nanoseconds, unless the result leaves the years 1 to 9999.
    pub(crate) fn add(self, nanos: i64) -> Option<Self> {
        let total = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS))?.checked_add(total / NANOS)?;
        let nanos = u32::try_from(total % NANOS).ok()?;
        Self::new(seconds, nanos).map(|sum| Self { offset: self.offset, ..sum })
    }

    /// The difference in nanoseconds, if it fits.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?;
        seconds.checked_mul(NANOS)?.checked_add(i64::from(self.nanos) - i64::from(other.nanos))
    }

    /// Calendar fields at an offset from UTC.
    pub(crate) fn calendar(self, offset: i32) -> Calendar {
        let local = self.seconds + i64::from(offset);
        let days = local.div_euclid(86_400);
        let rest = local.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        let first = days_from_civil(year, 1, 1);
        Calendar {
            year,
            month,
            day,
            year_day: days - first,
            week_day: (days + 4).rem_euclid(7),
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// RFC 3339 with as many decimals as needed.
    pub(crate) fn to_rfc3339(self) -> String {
        let c = self.calendar(self.offset);
        let mut out =
            format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", c.year, c.month, c.day, c.hour, c.minute, c.second);
        if self.nanos > 0 {
            let decimals = format!(".{:09}", self.nanos);
            out.push_str(decimals.trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let minutes = self.offset.abs() / 60;
            let sign = if self.offset < 0 { '-' } else { '+' };
            out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        out
    }
}

/// A date and time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calendar {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// 0-based.
    pub(crate) year_day: i64,
    /// Sunday is 0.
    pub(crate) week_day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

/// Year, month and day of a day number, 1970-01-01 being 0.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doy = (153 * mp + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// `2006-01-02` as days since 1970.
fn parse_day(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(text.get(..4)?)?, number(text.get(5..7)?)?, number(text.get(8..)?)?);
    let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    valid.then(|| days_from_civil(year, month, day))
}

/// `format: date`.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    Timestamp::new(parse_day(text)? * 86_400, 0)
}

/// `2006-01-02T15:04:05[.999](Z|+01:00)`.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let days = parse_day(text.get(..10)?)?;
    let rest = text.get(10..)?.strip_prefix('T')?;
    let (hour, minute, second) =
        (rest.get(..2)?, rest.get(2..5)?.strip_prefix(':')?, rest.get(5..8)?.strip_prefix(':')?);
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = rest.get(8..)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let padded = format!("{:0<9}", &fraction[..digits.min(9)]);
        nanos = if digits == 0 { return None } else { u32::try_from(number(&padded)?).ok()? };
        rest = &fraction[digits..];
    }
    let offset = if rest == "Z" { 0 } else { parse_offset(rest)? };
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - i64::from(offset);
    Timestamp::new(seconds, nanos).map(|timestamp| Timestamp { offset, ..timestamp })
}

fn parse_offset(text: &str) -> Option<i32> {
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes < 60).then(|| sign * i32::try_from(hours * 3600 + minutes * 60).unwrap_or(0))
}

/// `format: date-time`: RFC 3339, also without seconds' zone or with a space, as the OpenAPI library reads it.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if let Some(timestamp) = parse_rfc3339(text) {
        return Some(timestamp);
    }
    let mut normal = text.replacen(['t', ' '], "T", 1);
    if normal.ends_with('z') {
        normal.replace_range(normal.len() - 1.., "Z");
    }
    parse_rfc3339(&normal).or_else(|| parse_rfc3339(&format!("{normal}Z"))).or_else(|| parse_date(text))
}

/// Go's duration syntax, e.g. `-1h2.5s`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (integer, mut tail) = rest.split_at(whole);
        let mut fraction = "";
        if let Some(after) = tail.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, tail) = after.split_at(digits);
        }
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let unit = unit(&tail[..end])?;
        let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().ok()? };
        total = total.checked_add(integer.checked_mul(unit)?)?.checked_add(fraction_of(fraction, unit))?;
        if total > 1 << 63 {
            return None;
        }
        rest = &tail[end..];
    }
    if negative { 0i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0u64, 1.0f64);
    for b in digits.bytes() {
        if value > (i64::MAX as u64 - 9) / 10 {
            break;
        }
        value = value * 10 + u64::from(b - b'0');
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// `format: duration`: Go's syntax, or numbers with units up to weeks.
pub(crate) fn parse_format_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut total: i64 = 0;
    let mut rest = text.trim();
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let amount = number(&rest[..digits])?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let nanos: i64 = match rest[..letters].to_lowercase().trim_end_matches('s') {
            "n" | "nano" | "nanosecond" => 1,
            "u" | "µ" | "micro" | "microsecond" => 1000,
            "m" if rest[..letters].eq_ignore_ascii_case("ms") => 1_000_000,
            "milli" | "millisecond" => 1_000_000,
            "" | "sec" | "second" => NANOS,
            "m" | "min" | "minute" => 60 * NANOS,
            "h" | "hr" | "hour" => 3600 * NANOS,
            "d" | "day" => 86_400 * NANOS,
            "w" | "wk" | "week" => 7 * 86_400 * NANOS,
            _ => return None,
        };
        total = total.checked_add(amount.checked_mul(nanos)?)?;
        rest = rest[letters..].trim_start();
        any = true;
    }
    any.then_some(total)
}

/// Seconds with as many decimals as needed, as `string(duration)` prints.
pub(crate) fn duration_to_string(nanos: i64) -> String {
    format!("{}s", duration_seconds(nanos))
}

/// Whole seconds and the rest as a float, which is how Go converts.
pub(crate) fn duration_seconds(nanos: i64) -> f64 {
    (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9
}

#[cfg(test)]
mod tests;
