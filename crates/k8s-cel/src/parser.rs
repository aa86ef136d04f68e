//! Recursive descent over tokens into the syntax tree. Messages follow the texts of cel-go's generated parser.

mod literals;
mod syntax;

use std::borrow::Cow;

use crate::ast::{Ast, Call, ExprId, ExprKind, Literal, MapEntry, Select, StructField};
use crate::lexer::{Token, TokenKind, tokenize};
use crate::macros::{self, MacroSet};
use crate::operators as op;
use crate::source::{Issue, Position, add_issue};
use syntax::Closer;

/// Nesting at which cel-go gives up; also the bound of this parser's own recursion.
const MAX_DEPTH: usize = 250;
/// Expressions longer than this many code points are refused.
const MAX_CODE_POINTS: usize = 100_000;

/// What a release's parser knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    pub(crate) optionals: bool,
    /// `` a.`b-c` ``.
    pub(crate) quoted_fields: bool,
    pub(crate) macros: MacroSet,
}

/// Marks that an error was reported and nothing useful can follow.
struct Bail;

type Parsed<T = ExprId> = Result<T, Bail>;

pub(crate) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    pub(crate) ast: Ast<'s>,
    pub(crate) issues: Vec<Issue>,
    syntax: Syntax,
    depth: usize,
    closers: Vec<Closer>,
}

/// Parses `source`; the tree is usable only if there are no issues.
pub(crate) fn parse(source: &str, syntax: Syntax) -> (Ast<'_>, Vec<Issue>) {
    if source.len() > MAX_CODE_POINTS {
        let size = source.chars().count();
        if size > MAX_CODE_POINTS {
            let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}");
            return (Ast::default(), vec![Issue { position: Position::NONE, message }]);
        }
    }
    let (tokens, errors) = tokenize(source);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        ast: Ast::default(),
        issues: Vec::new(),
        syntax,
        depth: 0,
        closers: Vec::new(),
    };
    parser.ast.exprs.reserve(16);
    for error in errors {
        let text = &source[error.start..error.end];
        parser.report(error.start, format!("Syntax error: token recognition error at: '{text}'"));
    }
    if let Ok(root) = parser.expr()
        && parser.expect(TokenKind::Eof).is_ok()
    {
        parser.ast.root = root;
    }
    (parser.ast, parser.issues)
}

impl<'s> Parser<'s> {
    pub(crate) fn report(&mut self, offset: usize, message: impl Into<String>) {
        add_issue(&mut self.issues, self.source, offset, message.into());
    }

    fn kind(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    fn ahead(&self, n: usize) -> TokenKind {
        self.tokens.get(self.at + n).map_or(TokenKind::Eof, |token| token.kind)
    }

    fn bump(&mut self) -> Token {
        let token = self.tokens[self.at];
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, kind: TokenKind) -> Option<Token> {
        (self.kind() == kind).then(|| self.bump())
    }

    fn text(&self, token: Token) -> &'s str {
        &self.source[token.start..token.end]
    }

    /// Adds `levels` to the recursion depth or reports that the limit is exceeded.
    fn enter(&mut self, levels: usize) -> Parsed<()> {
        self.depth += levels;
        if self.depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            self.issues.push(Issue { position: Position::NONE, message });
            return Err(Bail);
        }
        Ok(())
    }

    fn nested(&mut self, closer: Closer) -> Parsed {
        self.closers.push(closer);
        let result = self.expr();
        self.closers.pop();
        result
    }

    fn expr(&mut self) -> Parsed {
        self.enter(1)?;
        let condition = self.logic(true)?;
        let result = if let Some(question) = self.eat(TokenKind::Question) {
            self.closers.push(Closer::Conditional);
            let then = self.logic(true)?;
            self.closers.pop();
            self.expect(TokenKind::Colon)?;
            let otherwise = self.expr()?;
            self.call(question.start, op::CONDITIONAL, vec![condition, then, otherwise])
        } else {
            condition
        };
        self.depth -= 1;
        Ok(result)
    }

    /// `||` chains of `&&` chains; terms of one chain become a balanced tree.
    fn logic(&mut self, or: bool) -> Parsed {
        let (operator, function) = if or { (TokenKind::Or, op::OR) } else { (TokenKind::And, op::AND) };
        let first = if or { self.logic(false)? } else { self.relation()? };
        if self.kind() != operator {
            return Ok(first);
        }
        let mut terms = vec![first];
        let mut offsets = Vec::new();
        while let Some(token) = self.eat(operator) {
            offsets.push(token.start);
            let term = if or { self.logic(false)? } else { self.relation()? };
            terms.push(term);
        }
        Ok(self.balance(function, &terms, &offsets))
    }

    fn balance(&mut self, function: &'static str, terms: &[ExprId], offsets: &[usize]) -> ExprId {
        let mid = offsets.len() / 2;
        let left = if mid == 0 { terms[0] } else { self.balance(function, &terms[..=mid], &offsets[..mid]) };
        let right = if mid + 1 == offsets.len() {
            terms[mid + 1]
        } else {
            self.balance(function, &terms[mid + 1..], &offsets[mid + 1..])
        };
        self.call(offsets[mid], function, vec![left, right])
    }

    fn relation(&mut self) -> Parsed {
        let depth = self.depth;
        let mut left = self.calc(0)?;
        while let Some(function) = op::relation(self.kind()) {
            self.enter(1)?;
            let token = self.bump();
            let right = self.calc(0)?;
            left = self.call(token.start, function, vec![left, right]);
        }
        self.depth = depth;
        Ok(left)
    }

    /// Sums (`level` 0) of products (`level` 1).
    fn calc(&mut self, level: u8) -> Parsed {
        let depth = self.depth;
        let operand = |parser: &mut Self| if level == 0 { parser.calc(1) } else { parser.unary() };
        let mut left = operand(self)?;
        while let Some(function) = op::calc(self.kind(), level) {
            self.enter(1)?;
            let token = self.bump();
            let right = operand(self)?;
            left = self.call(token.start, function, vec![left, right]);
        }
        self.depth = depth;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let kind = self.kind();
        let number_follows = matches!(self.ahead(1), TokenKind::Int | TokenKind::Float);
        if kind == TokenKind::Exclam || (kind == TokenKind::Minus && !number_follows) {
            let first = self.bump();
            let mut count = 1;
            while self.eat(kind).is_some() {
                count += 1;
            }
            self.require_member(kind)?;
            let operand = self.member()?;
            let function = if kind == TokenKind::Exclam { op::NOT } else { op::NEGATE };
            return Ok(if count % 2 == 0 { operand } else { self.call(first.start, function, vec![operand]) });
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let depth = self.depth;
        let mut operand = self.primary()?;
        loop {
            operand = match self.kind() {
                TokenKind::Dot => {
                    self.enter(1)?;
                    self.selection(operand)?
                }
                TokenKind::LeftBracket => {
                    self.enter(1)?;
                    self.index(operand)?
                }
                _ => break,
            };
        }
        self.depth = depth;
        Ok(operand)
    }

    fn selection(&mut self, operand: ExprId) -> Parsed {
        let dot = self.bump();
        let optional = self.eat(TokenKind::Question);
        let quoted = self.kind() == TokenKind::EscapedIdent;
        if quoted && !self.syntax.quoted_fields {
            let token = self.bump();
            self.report(token.start, "unsupported syntax: '`'");
            return Ok(self.ast.add(token.start, ExprKind::Invalid));
        }
        if !quoted && self.kind() != TokenKind::Ident {
            return self.no_field(dot);
        }
        let token = self.bump();
        let name = self.text(token).trim_matches('`');
        if optional.is_none()
            && !quoted
            && let Some(open) = self.eat(TokenKind::LeftParen)
        {
            let args = self.arguments()?;
            return Ok(self.member_call(open.start, name, operand, args));
        }
        if optional.is_some() {
            if !self.syntax.optionals {
                self.report(dot.start, "unsupported syntax '.?'");
                return Ok(self.ast.add(dot.start, ExprKind::Invalid));
            }
            let field = self.ast.add(token.start, ExprKind::Literal(Literal::String(Cow::Borrowed(name))));
            return Ok(self.call(dot.start, op::OPT_SELECT, vec![operand, field]));
        }
        let select = Select { operand, field: Cow::Borrowed(name), test_only: false };
        Ok(self.ast.add(dot.start, ExprKind::Select(select)))
    }

    fn index(&mut self, operand: ExprId) -> Parsed {
        let open = self.bump();
        let optional = self.eat(TokenKind::Question).is_some();
        if !optional {
            self.require_operand(&[TokenKind::Question])?;
        }
        let index = self.nested(Closer::Index)?;
        self.expect(TokenKind::RightBracket)?;
        if optional && !self.syntax.optionals {
            self.report(open.start, "unsupported syntax '[?'");
            return Ok(self.ast.add(open.start, ExprKind::Invalid));
        }
        let function = if optional { op::OPT_INDEX } else { op::INDEX };
        Ok(self.call(open.start, function, vec![operand, index]))
    }

    /// Arguments after `(`, including `)`.
    fn arguments(&mut self) -> Parsed<Vec<ExprId>> {
        let mut args = Vec::new();
        if self.eat(TokenKind::RightParen).is_some() {
            return Ok(args);
        }
        self.require_operand(&[TokenKind::RightParen])?;
        if self.eat(TokenKind::RightParen).is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.nested(Closer::Arguments)?);
            if self.eat(TokenKind::Comma).is_none() {
                break;
            }
        }
        self.expect(TokenKind::RightParen)?;
        Ok(args)
    }

    fn primary(&mut self) -> Parsed {
        self.require_operand(&[])?;
        let token = self.tokens[self.at];
        match token.kind {
            TokenKind::LeftParen => {
                self.bump();
                let inner = self.nested(Closer::Paren)?;
                self.expect(TokenKind::RightParen)?;
                Ok(inner)
            }
            TokenKind::LeftBracket => self.list(),
            TokenKind::LeftBrace => self.map(),
            TokenKind::Dot | TokenKind::Ident => self.name(),
            _ => Ok(self.literal()),
        }
    }

    fn name(&mut self) -> Parsed {
        let start = self.tokens[self.at];
        let dot = self.eat(TokenKind::Dot).is_some();
        if self.kind() != TokenKind::Ident {
            return self.no_field(start).and(Err(Bail));
        }
        if let Some(name) = self.struct_name(dot) {
            return self.struct_literal(name);
        }
        let token = self.bump();
        let text = self.text(token);
        let name: Cow<'s, str> = if dot { Cow::Owned(format!(".{text}")) } else { Cow::Borrowed(text) };
        if is_reserved(text) {
            if let Some(_open) = self.eat(TokenKind::LeftParen) {
                self.arguments()?;
            }
            self.report(start.start, format!("reserved identifier: {text}"));
            return Ok(self.ast.add(start.start, ExprKind::Invalid));
        }
        if let Some(open) = self.eat(TokenKind::LeftParen) {
            let args = self.arguments()?;
            return Ok(self.global_call(open.start, name, args));
        }
        Ok(self.ast.add(token.start, ExprKind::Ident(name)))
    }

    /// The type name if identifiers joined by dots and `{` follow; consumes them up to `{`.
    fn struct_name(&mut self, leading_dot: bool) -> Option<String> {
        let mut n = 0;
        while self.ahead(n) == TokenKind::Ident {
            match self.ahead(n + 1) {
                TokenKind::Dot => n += 2,
                TokenKind::LeftBrace => {
                    let mut name = String::new();
                    for i in 0..=n {
                        let token = self.bump();
                        if i == 0 && leading_dot {
                            name.push('.');
                        }
                        name.push_str(self.text(token));
                    }
                    return Some(name);
                }
                _ => return None,
            }
        }
        None
    }

    fn struct_literal(&mut self, name: String) -> Parsed {
        let open = self.bump();
        let mut fields = Vec::new();
        while !matches!(self.kind(), TokenKind::RightBrace) {
            if fields.is_empty() && self.kind() == TokenKind::Comma && self.ahead(1) == TokenKind::RightBrace {
                self.bump();
                break;
            }
            let optional = self.eat(TokenKind::Question);
            let token = self.expect(TokenKind::Ident)?;
            let colon = self.expect(TokenKind::Colon)?;
            let value = self.nested(Closer::Braces)?;
            if optional.is_some() && !self.syntax.optionals {
                self.report(token.start, "unsupported syntax '?'");
            }
            let name = Cow::Borrowed(self.text(token));
            fields.push(StructField { name, value, optional: optional.is_some(), offset: colon.start });
            if !self.separator(TokenKind::RightBrace)? {
                break;
            }
        }
        self.expect(TokenKind::RightBrace)?;
        Ok(self.ast.add(open.start, ExprKind::Struct { name: Cow::Owned(name), fields }))
    }

    fn list(&mut self) -> Parsed {
        let open = self.bump();
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        while self.kind() != TokenKind::RightBracket {
            if elements.is_empty() && self.kind() == TokenKind::Comma && self.ahead(1) == TokenKind::RightBracket {
                self.bump();
                break;
            }
            if self.after_comma_mismatch(&elements, TokenKind::RightBracket) {
                return Err(Bail);
            }
            optional.push(self.optional_mark());
            elements.push(self.nested(Closer::List)?);
            if !self.separator(TokenKind::RightBracket)? {
                break;
            }
        }
        self.expect(TokenKind::RightBracket)?;
        Ok(self.ast.add(open.start, ExprKind::List { elements, optional }))
    }

    fn map(&mut self) -> Parsed {
        let open = self.bump();
        let mut entries: Vec<MapEntry> = Vec::new();
        while self.kind() != TokenKind::RightBrace {
            if entries.is_empty() && self.kind() == TokenKind::Comma && self.ahead(1) == TokenKind::RightBrace {
                self.bump();
                break;
            }
            let optional = self.optional_mark();
            let key = self.nested(Closer::Key)?;
            if self.expect(TokenKind::Colon).is_err() {
                // The rest is reported as what follows the entries.
                self.eat(TokenKind::Comma).ok_or(Bail)?;
                break;
            }
            let value = self.nested(Closer::Braces)?;
            entries.push(MapEntry { key, value, optional });
            if !self.separator(TokenKind::RightBrace)? {
                break;
            }
        }
        self.expect(TokenKind::RightBrace)?;
        Ok(self.ast.add(open.start, ExprKind::Map(entries)))
    }

    fn optional_mark(&mut self) -> bool {
        let Some(token) = self.eat(TokenKind::Question) else { return false };
        if !self.syntax.optionals {
            self.report(token.start, "unsupported syntax '?'");
        }
        true
    }

    fn call(&mut self, offset: usize, function: &'static str, args: Vec<ExprId>) -> ExprId {
        let call = Call { function: Cow::Borrowed(function), target: None, args };
        self.ast.add(offset, ExprKind::Call(call))
    }

    fn global_call(&mut self, offset: usize, name: Cow<'s, str>, args: Vec<ExprId>) -> ExprId {
        if let Some(expanded) = macros::expand_global(self, offset, &name, &args) {
            return expanded;
        }
        self.ast.add(offset, ExprKind::Call(Call { function: name, target: None, args }))
    }

    fn member_call(&mut self, offset: usize, name: &'s str, target: ExprId, args: Vec<ExprId>) -> ExprId {
        if let Some(expanded) = macros::expand_member(self, self.syntax.macros, offset, name, target, &args) {
            return expanded;
        }
        self.ast.add(offset, ExprKind::Call(Call { function: Cow::Borrowed(name), target: Some(target), args }))
    }
}

/// Words that are no variable names; most may be field names.
pub(crate) fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "false"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "null"
            | "return"
            | "true"
            | "var"
            | "void"
            | "while"
    )
}
