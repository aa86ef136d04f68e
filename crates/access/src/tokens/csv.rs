//! Comma-separated values as Go's `encoding/csv` reads them: fields may stand in quotes, a quote in them is doubled, and a
//! quoted field may hold line breaks. Empty lines are skipped.

/// A record that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct CsvError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: &'static str,
}

/// A record and the line it begins on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// Reads all records.
pub(super) fn records(text: &str) -> Result<Vec<Record>, CsvError> {
    let mut reader = Reader { rest: text, line: 1 };
    let mut records = Vec::new();
    while !reader.rest.is_empty() {
        if let Some(rest) = strip_line_end(reader.rest) {
            reader.advance(rest);
            continue;
        }
        records.push(reader.record()?);
    }
    Ok(records)
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    fn record(&mut self) -> Result<Record, CsvError> {
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(if self.rest.starts_with('"') { self.quoted()? } else { self.bare()? });
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            if let Some(rest) = strip_line_end(self.rest) {
                self.advance(rest);
            }
            return Ok(Record { line, fields });
        }
    }

    fn bare(&mut self) -> Result<String, CsvError> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        // A carriage return belongs to the line's end only directly before it.
        let end = if self.rest[end..].starts_with('\n') {
            self.rest[..end].strip_suffix('\r').map_or(end, str::len)
        } else {
            end
        };
        let (field, rest) = self.rest.split_at(end);
        if field.contains('"') {
            return Err(self.error("a quote stands in a field that does not begin with one"));
        }
        self.rest = rest;
        Ok(field.to_owned())
    }

    fn quoted(&mut self) -> Result<String, CsvError> {
        let begin = self.line;
        let mut field = String::new();
        let mut rest = &self.rest[1..];
        loop {
            let Some((part, after)) = rest.split_once('"') else {
                return Err(CsvError { line: begin, fault: "a quoted field does not end" });
            };
            field.push_str(part);
            self.line += part.matches('\n').count();
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    rest = after;
                }
                None => {
                    self.rest = after;
                    break;
                }
            }
        }
        let ends_well = self.rest.is_empty() || self.rest.starts_with(',') || strip_line_end(self.rest).is_some();
        if ends_well { Ok(field) } else { Err(self.error("text follows the closing quote of a field")) }
    }

    fn advance(&mut self, rest: &'a str) {
        self.rest = rest;
        self.line += 1;
    }

    fn error(&self, fault: &'static str) -> CsvError {
        CsvError { line: self.line, fault }
    }
}

fn strip_line_end(text: &str) -> Option<&str> {
    text.strip_prefix('\n').or_else(|| text.strip_prefix("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let records = records(text).unwrap();
        let records: Vec<(usize, Vec<&str>)> =
            records.iter().map(|record| (record.line, record.fields.iter().map(String::as_str).collect())).collect();
        let expected: Vec<(usize, Vec<&str>)> =
            expected.iter().map(|(line, fields)| (*line, fields.to_vec())).collect();
        assert_eq!(records, expected, "{text:?}");
    }

    #[test]
    fn records_read_as_in_go() {
        check("", &[]);
        check("\n\r\n\n", &[]);
        check("a,b", &[(1, &["a", "b"])]);
        check("a,b\n", &[(1, &["a", "b"])]);
        check("a,b\r\n\nc,,\n", &[(1, &["a", "b"]), (3, &["c", "", ""])]);
        check("a,\"b,c\",d", &[(1, &["a", "b,c", "d"])]);
        check("\"a\"\"b\"\r\n\"\"", &[(1, &["a\"b"]), (2, &[""])]);
        check("\"a\nb\",c\nd", &[(1, &["a\nb", "c"]), (3, &["d"])]);
        check(" a , b ", &[(1, &[" a ", " b "])]);
        check("a\rb,c", &[(1, &["a\rb", "c"])]);
        check(",", &[(1, &["", ""])]);
    }

    #[test]
    fn faults_name_their_line() {
        for (text, expected) in [
            ("a\nb\"c", "line 2: a quote stands in a field that does not begin with one"),
            ("a\n\n\"b\nc", "line 3: a quoted field does not end"),
            ("\"a\nb\"c", "line 2: text follows the closing quote of a field"),
            ("\"", "line 1: a quoted field does not end"),
        ] {
            assert_eq!(records(text).unwrap_err().to_string(), expected);
        }
    }
}
