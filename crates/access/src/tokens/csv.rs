//! A CSV parser compatible with Go's `encoding/csv`: fields may be quoted, quotes inside are doubled, and quoted
//! fields may contain line breaks. Empty lines are skipped.

/// A malformed record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CsvError {
    /// Counted from 1.
    pub line: usize,
    /// A description of the mistake.
    pub message: &'static str,
}

/// A record and the line it starts on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CsvRecord {
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// Parses all records.
pub(super) fn parse_records(text: &str) -> Result<Vec<CsvRecord>, CsvError> {
    let mut reader = CsvReader { remaining: text, line: 1 };
    let mut records = Vec::new();
    while !reader.remaining.is_empty() {
        if let Some(rest) = strip_line_end(reader.remaining) {
            reader.advance_line(rest);
            continue;
        }
        records.push(reader.read_record()?);
    }
    Ok(records)
}

struct CsvReader<'a> {
    remaining: &'a str,
    line: usize,
}

impl<'a> CsvReader<'a> {
    fn read_record(&mut self) -> Result<CsvRecord, CsvError> {
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(if self.remaining.starts_with('"') {
                self.read_quoted_field()?
            } else {
                self.read_bare_field()?
            });
            if let Some(rest) = self.remaining.strip_prefix(',') {
                self.remaining = rest;
                continue;
            }
            if let Some(rest) = strip_line_end(self.remaining) {
                self.advance_line(rest);
            }
            return Ok(CsvRecord { line, fields });
        }
    }

    fn read_bare_field(&mut self) -> Result<String, CsvError> {
        let end = self.remaining.find([',', '\n']).unwrap_or(self.remaining.len());
        // A carriage return is part of the line end only if it directly precedes the newline.
        let end = if self.remaining[end..].starts_with('\n') {
            self.remaining[..end].strip_suffix('\r').map_or(end, str::len)
        } else {
            end
        };
        let (field, rest) = self.remaining.split_at(end);
        if field.contains('"') {
            return Err(self.error_at_line("quote in an unquoted field"));
        }
        self.remaining = rest;
        Ok(field.to_owned())
    }

    fn read_quoted_field(&mut self) -> Result<String, CsvError> {
        let start_line = self.line;
        let mut field = String::new();
        let mut rest = &self.remaining[1..];
        loop {
            let Some((part, after)) = rest.split_once('"') else {
                return Err(CsvError { line: start_line, message: "quoted field without a closing quote" });
            };
            field.push_str(part);
            self.line += part.matches('\n').count();
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    rest = after;
                }
                None => {
                    self.remaining = after;
                    break;
                }
            }
        }
        let ends_well =
            self.remaining.is_empty() || self.remaining.starts_with(',') || strip_line_end(self.remaining).is_some();
        if ends_well { Ok(field) } else { Err(self.error_at_line("text after the closing quote of a field")) }
    }

    fn advance_line(&mut self, rest: &'a str) {
        self.remaining = rest;
        self.line += 1;
    }

    fn error_at_line(&self, message: &'static str) -> CsvError {
        CsvError { line: self.line, message }
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
        let records = parse_records(text).unwrap();
        let records: Vec<(usize, Vec<&str>)> =
            records.iter().map(|record| (record.line, record.fields.iter().map(String::as_str).collect())).collect();
        let expected: Vec<(usize, Vec<&str>)> =
            expected.iter().map(|(line, fields)| (*line, fields.to_vec())).collect();
        assert_eq!(records, expected, "{text:?}");
    }

    #[test]
    fn parse_records_matches_go_encoding_csv() {
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
    fn parse_records_error_names_line() {
        for (text, expected) in [
            ("a\nb\"c", "line 2: quote in an unquoted field"),
            ("a\n\n\"b\nc", "line 3: quoted field without a closing quote"),
            ("\"a\nb\"c", "line 2: text after the closing quote of a field"),
            ("\"", "line 1: quoted field without a closing quote"),
        ] {
            assert_eq!(parse_records(text).unwrap_err().to_string(), expected);
        }
    }
}
