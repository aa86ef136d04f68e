//! The parser of label selectors, one function per grammar rule.

use super::super::requirement::{LabelOperator, LabelRequirement};
use super::lexer::{Lexer, Token};
use super::{ExpectedToken, LabelSelectorError};
use crate::field_error::FieldError;
use crate::validation;

/// Parses all requirements, in text order.
pub(super) fn parse_requirements(text: &str) -> Result<Vec<LabelRequirement>, LabelSelectorError> {
    let mut lexer = Lexer::new(text);
    let mut requirements = Vec::new();
    if lexer.peek() == Token::End {
        return Ok(requirements);
    }
    if !starts_requirement(lexer.peek()) {
        return Err(unexpected_token(lexer.peek(), ExpectedToken::RequirementOrEnd));
    }
    loop {
        requirements.push(parse_requirement(&mut lexer)?);
        if !has_next_requirement(&mut lexer)? {
            return Ok(requirements);
        }
    }
}

fn starts_requirement(token: Token<'_>) -> bool {
    token == Token::Not || token.as_identifier().is_some()
}

fn has_next_requirement(lexer: &mut Lexer<'_>) -> Result<bool, LabelSelectorError> {
    let token = lexer.next();
    if token == Token::End {
        return Ok(false);
    }
    if token != Token::Comma {
        return Err(unexpected_token(token, ExpectedToken::CommaOrEnd));
    }
    if !starts_requirement(lexer.peek()) {
        return Err(unexpected_token(lexer.peek(), ExpectedToken::RequirementAfterComma));
    }
    Ok(true)
}

fn parse_requirement(lexer: &mut Lexer<'_>) -> Result<LabelRequirement, LabelSelectorError> {
    let is_negated = lexer.peek() == Token::Not;
    if is_negated {
        lexer.next();
    }
    let key = parse_key(lexer)?;
    if is_negated {
        return Ok(LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new())?);
    }
    if ends_requirement(lexer.peek()) {
        return Ok(LabelRequirement::new(key, LabelOperator::Exists, Vec::new())?);
    }
    let token = lexer.next();
    let operator =
        token.as_operator().ok_or_else(|| unexpected_token_in_requirement(token, ExpectedToken::Operator))?;
    let values = if matches!(operator, LabelOperator::In | LabelOperator::NotIn) {
        parse_value_list(lexer)?
    } else {
        vec![parse_single_value(lexer)?]
    };
    Ok(LabelRequirement::new(key, operator, values)?)
}

fn ends_requirement(token: Token<'_>) -> bool {
    matches!(token, Token::End | Token::Comma)
}

fn parse_key(lexer: &mut Lexer<'_>) -> Result<String, LabelSelectorError> {
    let token = lexer.next();
    let key = token.as_identifier().ok_or_else(|| unexpected_token_in_requirement(token, ExpectedToken::Identifier))?;
    let errors = validation::validate_label_key(key);
    if errors.is_empty() {
        return Ok(key.to_owned());
    }
    // Kubernetes prints `<nil>` instead of a field path here.
    Err(LabelSelectorError::Key(FieldError::invalid("<nil>", key, errors.join("; "))))
}

/// Parses the value after `=`, `==` or `!=`; nothing means the empty value.
fn parse_single_value(lexer: &mut Lexer<'_>) -> Result<String, LabelSelectorError> {
    if ends_requirement(lexer.peek()) {
        return Ok(String::new());
    }
    let token = lexer.next();
    let value =
        token.as_identifier().ok_or_else(|| unexpected_token_in_requirement(token, ExpectedToken::Identifier))?;
    Ok(value.to_owned())
}

/// Parses values in parentheses, separated by commas; an omitted value is the empty one.
fn parse_value_list(lexer: &mut Lexer<'_>) -> Result<Vec<String>, LabelSelectorError> {
    let token = lexer.next();
    if token != Token::OpeningParenthesis {
        return Err(unexpected_token_in_requirement(token, ExpectedToken::OpeningParenthesis));
    }
    let first = lexer.peek();
    if first == Token::ClosingParenthesis {
        lexer.next();
        return Ok(vec![String::new()]);
    }
    if first != Token::Comma && first.as_identifier().is_none() {
        return Err(unexpected_token_in_requirement(first, ExpectedToken::ValueOrClosingParenthesis));
    }
    let mut values = Vec::new();
    loop {
        let token = lexer.next();
        let ahead = lexer.peek();
        let is_value_end = matches!(ahead, Token::Comma | Token::ClosingParenthesis);
        if token == Token::Comma {
            if values.is_empty() || is_value_end {
                values.push(String::new());
            }
        } else {
            let value = token
                .as_identifier()
                .ok_or_else(|| unexpected_token_in_requirement(token, ExpectedToken::CommaOrValue))?;
            values.push(value.to_owned());
            if !is_value_end {
                return Err(unexpected_token_in_requirement(ahead, ExpectedToken::CommaOrClosingParenthesis));
            }
        }
        if ahead == Token::ClosingParenthesis {
            lexer.next();
            return Ok(values);
        }
    }
}

fn unexpected_token(found: Token<'_>, expected: ExpectedToken) -> LabelSelectorError {
    LabelSelectorError::Unexpected { found: found.text().into(), expected }
}

fn unexpected_token_in_requirement(found: Token<'_>, expected: ExpectedToken) -> LabelSelectorError {
    LabelSelectorError::UnexpectedInRequirement { found: found.text().into(), expected }
}
