//! Characters to what the parsers ask for. Grammar lives in the parsers.

use crate::bounds::MAX_DEPTH;
use crate::dim::{Dim, SymId};
use crate::kernel::DType;

/// Text that is no graph.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected.
    pub what: String,
}

/// A position in text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer { text, at: 0, depth: 0 }
    }

    /// Begins something that may hold others of its kind: clients parse what was stored, on a stack that ends.
    pub fn down(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { self.error("nested too deep") } else { Ok(()) }
    }

    /// Ends it.
    pub fn up(&mut self) {
        self.depth -= 1;
    }

    pub fn error<T>(&self, what: impl Into<String>) -> Parsed<T> {
        let line = 1 + self.text[..self.at].matches('\n').count();
        Err(ParseError { line, what: what.into() })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    pub fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    pub fn peek(&mut self, token: &str) -> bool {
        self.skip_space();
        self.rest().starts_with(token)
    }

    pub fn eat(&mut self, token: &str) -> bool {
        let found = self.peek(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { self.error(format!("expected `{token}`")) }
    }

    /// Characters as long as they belong to a name.
    pub fn word(&mut self) -> Parsed<&'a str> {
        self.take_word().map_or_else(|| self.error("expected a name"), Ok)
    }

    /// A word, if one stands here. Unlike an error, nothing costs nothing: an error counts lines.
    fn take_word(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    /// A word if it is exactly this one.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let before = self.at;
        if self.take_word().is_some_and(|w| w == word) {
            return true;
        }
        self.at = before;
        false
    }

    /// `name=` of a keyword argument, if that is what stands here.
    pub fn keyword(&mut self) -> Option<&'a str> {
        let before = self.at;
        if let Some(word) = self.take_word()
            && self.eat("=")
        {
            return Some(word);
        }
        self.at = before;
        None
    }

    pub fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        self.take_number().map_or_else(|| self.error("expected a number"), Ok)
    }

    /// A number, if one of this type stands here.
    pub fn take_number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.skip_space();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let end = rest[sign..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |e| e + sign);
        let value = rest[..end].parse().ok()?;
        self.at += end;
        Some(value)
    }

    /// A number with a fraction or exponent, or `inf`, `-inf`, `nan`; `None` if an integer (or nothing) stands here.
    pub fn float(&mut self) -> Option<f64> {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        let word = &rest[..end];
        let float =
            word.ends_with("inf") || word == "nan" || word.contains('.') || word.contains("e-") || word.contains('e');
        let starts = word.starts_with(|c: char| c.is_ascii_digit() || c == '-') || word == "inf" || word == "nan";
        if !float || !starts {
            return None;
        }
        let value = word.parse().ok()?;
        self.at += end;
        Some(value)
    }

    /// A double-quoted string with Rust's escapes.
    pub fn quoted(&mut self) -> Parsed<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some('u') => {
                        let hex: String =
                            chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').filter(|c| *c != '{').collect();
                        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                        let Some(code) = code else { return self.error("bad escape") };
                        out.push(code);
                    }
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        self.error("unclosed string")
    }

    /// Items up to `close`, separated by commas.
    pub fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(item(self)?);
            if !self.eat(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    pub fn dim(&mut self) -> Parsed<Dim> {
        let mut sum = self.term()?;
        while self.eat("+") {
            sum = sum.add(&self.term()?);
        }
        Ok(sum)
    }

    fn term(&mut self) -> Parsed<Dim> {
        let mut product = self.atom()?;
        while self.eat("*") {
            product = product.mul(&self.atom()?);
        }
        Ok(product)
    }

    fn atom(&mut self) -> Parsed<Dim> {
        self.skip_space();
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return self.number().map(Dim::Const);
        }
        let word = self.word()?;
        if let Some(id) = word.strip_prefix('s').and_then(|n| n.parse().ok()) {
            return Ok(Dim::sym(SymId(id)));
        }
        self.expect("(")?;
        self.down()?;
        let a = self.dim()?;
        self.expect(",")?;
        let b = self.dim()?;
        self.up();
        self.expect(")")?;
        match word {
            "floordiv" => Ok(a.floor_div(&b)),
            "mod" => Ok(a.modulo(&b)),
            "max" => Ok(Dim::max(&a, &b)),
            "min" => Ok(Dim::min(&a, &b)),
            _ => self.error(format!("no function {word} of sizes")),
        }
    }

    pub fn dtype(&mut self) -> Parsed<DType> {
        let word = self.word()?;
        match DType::ALL.into_iter().find(|d| d.short() == word) {
            Some(dtype) => Ok(dtype),
            None => self.error(format!("no element type {word}")),
        }
    }
}
