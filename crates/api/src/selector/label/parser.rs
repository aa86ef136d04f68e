//! The grammar of label selectors, one function per rule.

use super::super::requirement::{Operator, Requirement};
use super::lexer::{Lexer, Token};
use super::{Expected, LabelSelectorError};
use crate::field_error::FieldError;
use crate::validation;

/// All requirements of a selector, in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, LabelSelectorError> {
    let mut lexer = Lexer::new(text);
    let mut requirements = Vec::new();
    if lexer.peek() == Token::End {
        return Ok(requirements);
    }
    if !starts_requirement(lexer.peek()) {
        return Err(unexpected(lexer.peek(), Expected::RequirementOrEnd));
    }
    loop {
        requirements.push(requirement(&mut lexer)?);
        if !another_follows(&mut lexer)? {
            return Ok(requirements);
        }
    }
}

fn starts_requirement(token: Token<'_>) -> bool {
    token == Token::Not || token.as_identifier().is_some()
}

fn another_follows(lexer: &mut Lexer<'_>) -> Result<bool, LabelSelectorError> {
    let token = lexer.next();
    if token == Token::End {
        return Ok(false);
    }
    if token != Token::Comma {
        return Err(unexpected(token, Expected::CommaOrEnd));
    }
    if !starts_requirement(lexer.peek()) {
        return Err(unexpected(lexer.peek(), Expected::RequirementAfterComma));
    }
    Ok(true)
}

fn requirement(lexer: &mut Lexer<'_>) -> Result<Requirement, LabelSelectorError> {
    let is_negated = lexer.peek() == Token::Not;
    if is_negated {
        lexer.next();
    }
    let key = key(lexer)?;
    if is_negated {
        return Ok(Requirement::new(key, Operator::DoesNotExist, Vec::new())?);
    }
    if ends_requirement(lexer.peek()) {
        return Ok(Requirement::new(key, Operator::Exists, Vec::new())?);
    }
    let token = lexer.next();
    let operator = token.as_operator().ok_or_else(|| unexpected_inside(token, Expected::Operator))?;
    let values = if matches!(operator, Operator::In | Operator::NotIn) {
        value_list(lexer)?
    } else {
        vec![single_value(lexer)?]
    };
    Ok(Requirement::new(key, operator, values)?)
}

fn ends_requirement(token: Token<'_>) -> bool {
    matches!(token, Token::End | Token::Comma)
}

fn key(lexer: &mut Lexer<'_>) -> Result<String, LabelSelectorError> {
    let token = lexer.next();
    let key = token.as_identifier().ok_or_else(|| unexpected_inside(token, Expected::Identifier))?;
    let faults = validation::label_key(key);
    if faults.is_empty() {
        return Ok(key.to_owned());
    }
    // Kubernetes has no path to name here, and prints that.
    Err(LabelSelectorError::Key(FieldError::invalid("<nil>", key, faults.join("; "))))
}

/// A value behind `=` and the like; nothing at all is the empty value.
fn single_value(lexer: &mut Lexer<'_>) -> Result<String, LabelSelectorError> {
    if ends_requirement(lexer.peek()) {
        return Ok(String::new());
    }
    let token = lexer.next();
    let value = token.as_identifier().ok_or_else(|| unexpected_inside(token, Expected::Identifier))?;
    Ok(value.to_owned())
}

/// Values in parentheses, separated by commas; nothing before or behind a comma is the empty value.
fn value_list(lexer: &mut Lexer<'_>) -> Result<Vec<String>, LabelSelectorError> {
    let token = lexer.next();
    if token != Token::OpeningParenthesis {
        return Err(unexpected_inside(token, Expected::OpeningParenthesis));
    }
    let first = lexer.peek();
    if first == Token::ClosingParenthesis {
        lexer.next();
        return Ok(vec![String::new()]);
    }
    if first != Token::Comma && first.as_identifier().is_none() {
        return Err(unexpected_inside(first, Expected::ValueOrClosingParenthesis));
    }
    let mut values = Vec::new();
    loop {
        let token = lexer.next();
        let ahead = lexer.peek();
        let value_is_over = matches!(ahead, Token::Comma | Token::ClosingParenthesis);
        if token == Token::Comma {
            if values.is_empty() || value_is_over {
                values.push(String::new());
            }
        } else {
            let value = token.as_identifier().ok_or_else(|| unexpected_inside(token, Expected::CommaOrValue))?;
            values.push(value.to_owned());
            if !value_is_over {
                return Err(unexpected_inside(ahead, Expected::CommaOrClosingParenthesis));
            }
        }
        if ahead == Token::ClosingParenthesis {
            lexer.next();
            return Ok(values);
        }
    }
}

fn unexpected(found: Token<'_>, expected: Expected) -> LabelSelectorError {
    LabelSelectorError::Unexpected { found: found.text().into(), expected }
}

fn unexpected_inside(found: Token<'_>, expected: Expected) -> LabelSelectorError {
    LabelSelectorError::UnexpectedInRequirement { found: found.text().into(), expected }
}
