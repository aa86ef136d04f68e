//! Schedules of cron jobs: minute, hour, day of the month, month, day of the week; or a macro such as `@daily`.

/// Error of a schedule, with the message of Kubernetes' parser; `None` for a valid one.
pub(crate) fn schedule_error(schedule: &str) -> Option<String> {
    if schedule.contains("TZ=") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if schedule.starts_with('@') {
        return descriptor_error(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).find_map(|(text, field)| field.error(text))
}

/// The range of a field's numbers, and the names for them.
struct CronField {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [CronField; 5] = [
    CronField { min: 0, max: 59, names: &[] },
    CronField { min: 0, max: 23, names: &[] },
    CronField { min: 1, max: 31, names: &[] },
    CronField {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    CronField { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl CronField {
    fn error(&self, text: &str) -> Option<String> {
        text.split(',').filter(|range| !range.is_empty()).find_map(|range| self.check_range(range).err())
    }

    /// `*`, `1` or `1-5`, optionally followed by a step such as `/2`.
    fn check_range(&self, text: &str) -> Result<(), String> {
        let (ends, step) = match *text.split('/').collect::<Vec<_>>() {
            [ends] => (ends, None),
            [ends, step] => (ends, Some(step)),
            _ => return Err(format!("too many slashes: {text}")),
        };
        let (start, end) = match *ends.split('-').collect::<Vec<_>>() {
            ["*" | "?"] => (self.min, self.max),
            [one] => {
                let start = self.parse_value(one)?;
                (start, if step.is_some() { self.max } else { start })
            }
            [start, end] => (self.parse_value(start)?, self.parse_value(end)?),
            _ => return Err(format!("too many hyphens: {text}")),
        };
        let step = step.map_or(Ok(1), parse_number)?;
        let Self { min: least, max: most, .. } = self;
        match () {
            () if start < *least => Err(format!("beginning of range ({start}) below minimum ({least}): {text}")),
            () if end > *most => Err(format!("end of range ({end}) above maximum ({most}): {text}")),
            () if start > end => Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}")),
            () if step == 0 => Err(format!("step of range should be a positive number: {text}")),
            () => Ok(()),
        }
    }

    fn parse_value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().zip(self.min..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map_or_else(|| parse_number(text), |(_, number)| Ok(number))
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    let invalid = |_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax");
    text.parse().map_err(invalid)
}

fn descriptor_error(schedule: &str) -> Option<String> {
    const WORDS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if WORDS.contains(&schedule) {
        return None;
    }
    match schedule.strip_prefix("@every ") {
        Some(duration) => api::duration::parse_magnitude(duration)
            .err()
            .map(|error| format!("failed to parse duration {schedule}: {error}")),
        None => Some(format!("unrecognized descriptor: {schedule}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_error_matches_kubernetes() {
        for good in [
            "* * * * *",
            "*/5 0-6 1,15 jan-mar MON",
            "0 0 ? * 6",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
            "  1  2 3 4 5 ",
        ] {
            assert_eq!(schedule_error(good), None, "{good}");
        }
        for (bad, expected) in [
            ("nonsense", "expected exactly 5 fields, found 1: [nonsense]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@often", "unrecognized descriptor: @often"),
            ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ] {
            assert_eq!(schedule_error(bad).as_deref(), Some(expected), "{bad}");
        }
    }
}
