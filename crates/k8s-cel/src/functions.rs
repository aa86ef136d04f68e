//! The table of overloads, read once from `functions.txt`.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::function::Function;
use crate::types::Type;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// How many type variables the signature has.
    pub(crate) variables: usize,
    /// Minor of the first compatibility version with this overload.
    pub(crate) since: u8,
    /// Minor of the first server with this overload.
    pub(crate) release: u8,
}

/// A function with its overloads in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: &'static str,
    pub(crate) function: Function,
    pub(crate) overloads: Vec<Overload>,
}

const TABLE: &str = include_str!("functions.txt");

/// All functions that any release knows, by name.
pub(crate) fn declarations() -> &'static HashMap<&'static str, Declaration> {
    static DECLARATIONS: OnceLock<HashMap<&'static str, Declaration>> = OnceLock::new();
    DECLARATIONS.get_or_init(read)
}

fn read() -> HashMap<&'static str, Declaration> {
    let mut all = HashMap::new();
    let mut name = "";
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => name = line,
            Some(overload) => {
                // A line that does not parse is a defect of the table, which the tests find.
                let (Some(overload), Some(function)) = (read_overload(overload), Function::by_name(name)) else {
                    continue;
                };
                let declaration =
                    all.entry(name).or_insert_with(|| Declaration { name, function, overloads: Vec::new() });
                declaration.overloads.push(overload);
            }
        }
    }
    all
}

fn read_overload(line: &'static str) -> Option<Overload> {
    let (head, signature) = line.split_once(" (")?;
    let (params, result) = signature.rsplit_once(") -> ")?;
    let (version, id) = head.split_once(' ').unwrap_or(("0", head));
    let (since, release) = version.split_once('/').unwrap_or((version, version));
    let mut reader = TypeReader { rest: params, variables: Vec::new() };
    let mut list = Vec::new();
    while !reader.rest.is_empty() {
        list.push(reader.read()?);
        reader.rest = reader.rest.strip_prefix(", ").unwrap_or(reader.rest);
    }
    reader.rest = result;
    let result = reader.read()?;
    Some(Overload {
        id: id.strip_prefix('.').unwrap_or(id),
        member: id.starts_with('.'),
        params: list,
        result,
        variables: reader.variables.len(),
        since: since.parse().ok()?,
        release: release.parse().ok()?,
    })
}

struct TypeReader {
    rest: &'static str,
    variables: Vec<&'static str>,
}

impl TypeReader {
    fn read(&mut self) -> Option<Type> {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        self.rest = &self.rest[end..];
        let mut params = Vec::new();
        if let Some(inner) = self.rest.strip_prefix('(') {
            self.rest = inner;
            loop {
                params.push(self.read()?);
                match self.rest.strip_prefix(", ") {
                    Some(rest) => self.rest = rest,
                    None => break,
                }
            }
            self.rest = self.rest.strip_prefix(')')?;
        }
        let mut params = params.into_iter();
        Some(match name {
            "list" => Type::list(params.next()?),
            "map" => Type::map(params.next()?, params.next()?),
            "optional_type" => Type::optional(params.next()?),
            "type" => Type::Type(params.next().map(std::sync::Arc::new)),
            name if name.len() == 1 => self.variable(name),
            name => simple_type(name),
        })
    }

    fn variable(&mut self, name: &'static str) -> Type {
        let at = self.variables.iter().position(|&v| v == name).unwrap_or_else(|| {
            self.variables.push(name);
            self.variables.len() - 1
        });
        Type::Variable(u32::try_from(at).unwrap_or(0))
    }
}

/// The type of a name without parameters; unknown names are types of libraries.
pub(crate) fn simple_type(name: &'static str) -> Type {
    match name {
        "dyn" => Type::Dyn,
        "null" | "null_type" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        _ => Type::Named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE.lines().filter(|line| line.starts_with("  ")).count();
        let read: usize = declarations().values().map(|d| d.overloads.len()).sum();
        assert_eq!(read, lines);
        let names = TABLE.lines().filter(|line| !line.starts_with(' ') && !line.starts_with('#')).count();
        assert_eq!(declarations().len(), names);
    }

    #[test]
    fn signatures_share_type_variables() {
        let index = &declarations()["_[_]"].overloads[1];
        assert_eq!((index.id, index.variables), ("index_map", 2));
        assert_eq!(index.result.to_string(), "_var1");
        let first = &declarations()["first"].overloads[0];
        assert!(first.member && first.since == 0 && first.release == 33);
    }
}
