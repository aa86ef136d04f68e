//! SPDX licence expressions, such as `MIT OR (Apache-2.0 WITH LLVM-exception AND ISC)`.

use anyhow::{Result, bail};

/// `AND` binds closer than `OR`.
#[derive(Debug)]
pub(super) enum LicenceExpression {
    /// Licence with its exception, if any: `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
    All(Vec<LicenceExpression>),
    Any(Vec<LicenceExpression>),
}

impl LicenceExpression {
    /// True if the allowed licences satisfy the expression.
    pub(super) fn is_satisfied_by(&self, allowed: &[&str]) -> bool {
        match self {
            // `MPL-2.0+` permits that version or a later one.
            LicenceExpression::Licence(name) => allowed.contains(&name.trim_end_matches('+')),
            LicenceExpression::All(parts) => parts.iter().all(|part| part.is_satisfied_by(allowed)),
            LicenceExpression::Any(parts) => parts.iter().any(|part| part.is_satisfied_by(allowed)),
        }
    }
}

/// Parses an expression; `/`, as in old manifests, means `OR`.
pub(super) fn parse(text: &str) -> Result<LicenceExpression> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = ExpressionParser { tokens: spaced.split_whitespace().collect(), next: 0, text };
    let expression = tokens.parse_or(0)?;
    match tokens.peek() {
        None => Ok(expression),
        Some(token) => bail!("the licence expression `{text}` has `{token}` where it should end"),
    }
}

/// Expressions of real crates nest one or two levels.
const DEPTH_MAX: usize = 8;

struct ExpressionParser<'a> {
    tokens: Vec<&'a str>,
    next: usize,
    text: &'a str,
}

impl<'a> ExpressionParser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).copied()
    }

    fn take_token(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.next += usize::from(found);
        found
    }

    fn parse_or(&mut self, depth: usize) -> Result<LicenceExpression> {
        let mut parts = vec![self.parse_and(depth)?];
        while self.take_token("OR") {
            parts.push(self.parse_and(depth)?);
        }
        Ok(LicenceExpression::Any(parts))
    }

    fn parse_and(&mut self, depth: usize) -> Result<LicenceExpression> {
        let mut parts = vec![self.parse_operand(depth)?];
        while self.take_token("AND") {
            parts.push(self.parse_operand(depth)?);
        }
        Ok(LicenceExpression::All(parts))
    }

    fn parse_operand(&mut self, depth: usize) -> Result<LicenceExpression> {
        if depth > DEPTH_MAX {
            bail!("the licence expression `{}` is nested too deep", self.text);
        }
        if self.take_token("(") {
            let inner = self.parse_or(depth + 1)?;
            if !self.take_token(")") {
                bail!("the licence expression `{}` lacks a closing parenthesis", self.text);
            }
            return Ok(inner);
        }
        let name = self.parse_name()?;
        if self.take_token("WITH") {
            return Ok(LicenceExpression::Licence(format!("{name} WITH {}", self.parse_name()?)));
        }
        Ok(LicenceExpression::Licence(name.to_owned()))
    }

    fn parse_name(&mut self) -> Result<&'a str> {
        let name = self.peek().filter(|token| !["AND", "OR", "WITH", "(", ")"].contains(token));
        let Some(name) = name else { bail!("the licence expression `{}` lacks a licence", self.text) };
        self.next += 1;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: [&str; 3] = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(parse(text).unwrap().is_satisfied_by(&ALLOWED), expected, "{text}");
    }

    #[test]
    fn or_needs_one_and_and_needs_all_licences() {
        check("MIT", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0/MIT", true);
        check("Apache-2.0+", true);
        check("MIT AND GPL-3.0", false);
    }

    #[test]
    fn and_binds_closer_than_or() {
        check("MIT OR MIT AND GPL-3.0", true);
        check("(MIT OR MIT) AND GPL-3.0", false);
        check("(MIT OR GPL-3.0) AND Apache-2.0", true);
        check("GPL-3.0 AND MIT OR GPL-3.0 AND Apache-2.0", false);
    }

    #[test]
    fn licence_exception_is_part_of_the_name() {
        check("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true);
        check("MIT WITH LLVM-exception", false);
    }

    #[test]
    fn parse_error_names_the_position() {
        for (text, expected) in [
            ("", "the licence expression `` lacks a licence"),
            ("MIT OR", "the licence expression `MIT OR` lacks a licence"),
            ("(MIT", "the licence expression `(MIT` lacks a closing parenthesis"),
            ("MIT GPL", "the licence expression `MIT GPL` has `GPL` where it should end"),
            ("MIT WITH (", "the licence expression `MIT WITH (` lacks a licence"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
        assert!(parse(&"(".repeat(10_000)).unwrap_err().to_string().ends_with("is nested too deep"));
    }
}
