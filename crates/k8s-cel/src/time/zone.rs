//! Time zones: offsets written out, and named zones from compiled zone files that the caller provides.

/// Gives the compiled zone file (TZif) of an IANA name, e.g. `Europe/Berlin`. The crate itself reads no files.
pub trait TimeZones: Sync {
    /// The bytes of the zone file, or nothing if the name is unknown.
    fn zone(&self, name: &str) -> Option<Vec<u8>>;
}

/// The offset of `zone` at an instant, in seconds east of UTC.
pub(crate) fn offset(zone: &str, seconds: i64, zones: Option<&dyn TimeZones>) -> Result<i32, String> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let hour = atoi(hours)?;
        let minute = atoi(minutes)?;
        let total = if zone.starts_with('-') { hour * 60 - minute } else { hour * 60 + minute };
        return i32::try_from(total * 60).map_err(|_| format!("unknown time zone {zone}"));
    }
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let file = zones.and_then(|zones| zones.zone(zone));
    file.and_then(|file| offset_in(&file, seconds)).ok_or_else(|| format!("unknown time zone {zone}"))
}

fn atoi(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let valid = !digits.is_empty() && digits.len() < 10 && digits.bytes().all(|b| b.is_ascii_digit());
    let error = || format!("strconv.Atoi: parsing \"{text}\": invalid syntax");
    if valid { text.parse().map_err(|_| error()) } else { Err(error()) }
}

/// Reads the 64-bit part of a zone file.
fn offset_in(file: &[u8], seconds: i64) -> Option<i32> {
    let first = Header::read(file)?;
    let second = file.get(first.length(4)..)?;
    let header = Header::read(second)?;
    let body = second.get(44..)?;
    let times = body.get(..header.times * 8)?;
    let indices = body.get(header.times * 8..header.times * 9)?;
    let types = body.get(header.times * 9..header.times * 9 + header.types * 6)?;
    let at = |n: usize| -> Option<i64> { Some(i64::from_be_bytes(times.get(n * 8..n * 8 + 8)?.try_into().ok()?)) };
    let mut last = None;
    for n in 0..header.times {
        if at(n)? > seconds {
            break;
        }
        last = Some(n);
    }
    if last == header.times.checked_sub(1) {
        // After the last change the rule in the footer holds.
        let footer = second.get(header.length(8)..)?;
        let rule = std::str::from_utf8(footer).ok()?.trim_matches('\n');
        if let Some(offset) = crate::time::zone::rule::offset(rule, seconds) {
            return Some(offset);
        }
    }
    let kind = last.map_or(Some(0), |n| indices.get(n).map(|&b| usize::from(b)))?;
    Some(i32::from_be_bytes(types.get(kind * 6..kind * 6 + 4)?.try_into().ok()?))
}

struct Header {
    times: usize,
    types: usize,
    letters: usize,
    leaps: usize,
    standards: usize,
    locals: usize,
}

impl Header {
    fn read(file: &[u8]) -> Option<Self> {
        if file.get(..4)? != b"TZif" {
            return None;
        }
        let count = |n: usize| -> Option<usize> {
            let bytes = file.get(20 + n * 4..24 + n * 4)?;
            usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok().filter(|&n| n < 100_000)
        };
        Some(Self {
            locals: count(0)?,
            standards: count(1)?,
            leaps: count(2)?,
            times: count(3)?,
            types: count(4)?,
            letters: count(5)?,
        })
    }

    /// Bytes of header and body with times of `width` bytes.
    fn length(&self, width: usize) -> usize {
        44 + self.times * (width + 1)
            + self.types * 6
            + self.letters
            + self.leaps * (width + 4)
            + self.standards
            + self.locals
    }
}

/// The rule at the end of a zone file, e.g. `CET-1CEST,M3.5.0,M10.5.0/3`.
mod rule {
    use crate::time::{civil, days_from_civil, days_in_month};

    pub(super) fn offset(rule: &str, seconds: i64) -> Option<i32> {
        let mut parts = rule.split(',');
        let mut rest = parts.next()?;
        name(&mut rest)?;
        let standard = -time(&mut rest)?;
        if rest.is_empty() {
            return i32::try_from(standard).ok();
        }
        name(&mut rest)?;
        let summer = if rest.is_empty() { standard + 3600 } else { -time(&mut rest)? };
        let (year, _, _) = civil((seconds + standard).div_euclid(86_400));
        let begin = date(parts.next()?, year)? - standard;
        let end = date(parts.next()?, year)? - summer;
        let in_summer = if begin < end { (begin..end).contains(&seconds) } else { !(end..begin).contains(&seconds) };
        i32::try_from(if in_summer { summer } else { standard }).ok()
    }

    fn name(rest: &mut &str) -> Option<()> {
        let end = if rest.starts_with('<') {
            rest.find('>')? + 1
        } else {
            rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())
        };
        *rest = rest.get(end..)?;
        Some(())
    }

    /// `[+-]hh[:mm[:ss]]` in seconds.
    fn time(rest: &mut &str) -> Option<i64> {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | ':'))).unwrap_or(rest.len());
        let text = &rest[..end];
        *rest = &rest[end..];
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let mut total = 0;
        for (part, scale) in text.trim_start_matches(['+', '-']).split(':').zip([3600, 60, 1]) {
            total += part.parse::<i64>().ok()? * scale;
        }
        Some(sign * total)
    }

    /// Local seconds since 1970 of `Mm.w.d[/time]`, `Jn` or `n` in a year.
    fn date(text: &str, year: i64) -> Option<i64> {
        let (day, mut at) = text.split_once('/').unwrap_or((text, "2"));
        let seconds = time(&mut at)?;
        let first = days_from_civil(year, 1, 1);
        let days = if let Some(fields) = day.strip_prefix('M') {
            let mut fields = fields.split('.').map(str::parse::<i64>);
            let (month, week, week_day) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
            let begin = days_from_civil(year, month, 1);
            let shift = (week_day - (begin + 4).rem_euclid(7)).rem_euclid(7) + (week - 1) * 7;
            let last = days_in_month(year, month);
            begin + if shift >= last { shift - 7 } else { shift }
        } else if let Some(n) = day.strip_prefix('J') {
            let n: i64 = n.parse().ok()?;
            let leap = days_in_month(year, 2) == 29;
            first + n - 1 + i64::from(leap && n >= 60)
        } else {
            first + day.parse::<i64>().ok()?
        };
        Some(days * 86_400 + seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_offsets_are_read_as_go_reads_them() {
        assert_eq!(offset("+01:30", 0, None), Ok(5400));
        assert_eq!(offset("-02:15", 0, None), Ok(-8100));
        assert_eq!(offset("02:00", 0, None), Ok(7200));
        assert_eq!(offset("UTC", 0, None), Ok(0));
        assert_eq!(offset("Nowhere/City", 0, None), Err("unknown time zone Nowhere/City".into()));
    }

    #[test]
    fn footer_rules_know_summer_time() {
        let rule = "CET-1CEST,M3.5.0,M10.5.0/3";
        assert_eq!(rule::offset(rule, 1_782_900_000), Some(7200)); // July 2026
        assert_eq!(rule::offset(rule, 1_767_225_600), Some(3600)); // January 2026
        let south = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        assert_eq!(rule::offset(south, 1_767_225_600), Some(39_600));
        assert_eq!(rule::offset("<+0545>-5:45", 0), Some(20_700));
    }
}
