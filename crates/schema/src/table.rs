//! The parsed table of types; its rows borrow from the text.
//!
//! The first lines of the text describe its format. The text is embedded in the program, so a malformed line is a bug
//! and panics.

mod value_type;

use std::collections::HashMap;
use std::ops::Range;

use crate::types::{ListMapKeys, PatchRule, Topology, Types, ZeroEncoding};

pub(crate) use value_type::{TypeWord, ValueTypeRow};

/// All types of all releases.
#[derive(Debug)]
pub struct TypeTable {
    pub(crate) packages: Vec<TypePackage>,
    /// By package, and by name within one.
    pub(crate) types: Vec<TypeRow>,
    fields: Vec<FieldRow>,
}

#[derive(Debug)]
pub(crate) struct TypePackage {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    /// Empty if no type of the package is a kind.
    pub(crate) version: &'static str,
    types: Range<usize>,
    pub(crate) enums: Vec<ValuesRow>,
    pub(crate) unions: Vec<ValuesRow>,
}

/// The values of a string type, or the fields of a union.
#[derive(Debug)]
pub(crate) struct ValuesRow {
    pub(crate) name: &'static str,
    /// Values are separated by commas; the discriminator of a union stands before its fields.
    pub(crate) values: &'static str,
    pub(crate) releases: ReleaseMask,
}

#[derive(Debug)]
pub(crate) struct TypeRow {
    pub(crate) name: &'static str,
    pub(crate) package: usize,
    pub(crate) is_kind: bool,
    pub(crate) topology: Option<Topology<'static>>,
    pub(crate) releases: ReleaseMask,
    fields: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct FieldRow {
    pub(crate) name: &'static str,
    pub(crate) is_required: bool,
    pub(crate) number: &'static str,
    pub(crate) zero_encoding: ZeroEncoding,
    pub(crate) shape: ValueTypeRow,
    pub(crate) default: Option<&'static str>,
    pub(crate) topology: Option<Topology<'static>>,
    pub(crate) patch: Option<PatchRule<'static>>,
    pub(crate) releases: ReleaseMask,
}

impl ValuesRow {
    /// `enum NAME RELEASES VALUES`, `union TYPE RELEASES DISCRIMINATOR FIELDS`.
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.splitn(4, ' ').skip(1);
        let (name, releases, values) = (words.next()?, ReleaseMask::parse(words.next()?)?, words.next()?);
        Some(Self { name, values, releases })
    }
}

/// A set of releases, one bit for each minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseMask(u64);

impl ReleaseMask {
    const ALL: Self = Self(u64::MAX);

    pub(crate) fn contains(self, minor: u8) -> bool {
        self.0 & (1 << minor) != 0
    }

    /// `31-33,35+`; `None` if the word is something else.
    fn parse(word: &str) -> Option<Self> {
        let minor = |text: &str| text.parse::<u8>().ok().filter(|minor| u32::from(*minor) < u64::BITS);
        let mut bits = 0;
        for span in word.split(',') {
            let (first, last) = match (span.strip_suffix('+'), span.split_once('-')) {
                (Some(first), _) => (minor(first)?, 63),
                (None, Some((first, last))) => (minor(first)?, minor(last)?),
                (None, None) => (minor(span)?, minor(span)?),
            };
            bits |= (first..=last).fold(0, |bits, minor| bits | 1 << minor);
        }
        Some(Self(bits))
    }
}

/// Where the types of packages stand, by the last two parts of the package and the name.
type TypePositions = HashMap<(&'static str, &'static str), usize>;

impl TypeTable {
    /// The types of a release, by its minor version (36 of 1.36); below 64.
    pub fn in_release(&self, minor: u8) -> Types<'_> {
        Types { table: self, release: minor }
    }

    /// The kind of this name.
    pub(crate) fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&TypeRow> {
        let packages = self.packages.iter().filter(|package| package.version == version && package.group == group);
        packages.filter_map(|package| self.find_in_package(package, kind)).find(|found| found.is_kind)
    }

    /// The type of this name in this package.
    pub(crate) fn find_type(&self, package: &str, name: &str) -> Option<&TypeRow> {
        let package = self.packages.iter().find(|known| known.name == package)?;
        self.find_in_package(package, name)
    }

    fn find_in_package(&self, package: &TypePackage, name: &str) -> Option<&TypeRow> {
        let types = &self.types[package.types.clone()];
        types.binary_search_by(|known| known.name.cmp(name)).ok().map(|position| &types[position])
    }

    /// The fields of a type, by name; a field that changed stands once for each of its forms.
    pub(crate) fn fields_of(&self, owner: &TypeRow) -> &[FieldRow] {
        &self.fields[owner.fields.clone()]
    }

    /// Parses the text of a table. Panics on a malformed line.
    pub fn parse(text: &'static str) -> Self {
        let mut table = Self { packages: Vec::new(), types: Vec::new(), fields: Vec::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ' '])) {
            table.parse_header(line);
        }
        let places = table.type_positions();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
        let mut position = 0;
        while let Some(head) = lines.next() {
            if ["package ", "enum ", "union "].iter().any(|word| head.starts_with(word)) {
                continue;
            }
            let start = table.fields.len();
            let owner = FieldOwner { package: table.types[position].package, releases: table.types[position].releases };
            let mut reader = FieldsReader { table: &mut table, positions: &places, owner };
            reader.add_implied_fields(head);
            while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
                reader.parse_field(line);
            }
            table.fields[start..].sort_by_key(|field| field.name);
            table.types[position].fields = start..table.fields.len();
            position += 1;
        }
        table
    }

    fn parse_header(&mut self, line: &'static str) {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        if word == "package" {
            let (group, version) = words.next().map_or(("", ""), |text| text.split_once('/').unwrap_or(("", text)));
            let types = self.types.len()..self.types.len();
            self.packages.push(TypePackage { name, group, version, types, enums: Vec::new(), unions: Vec::new() });
            return;
        }
        let package = self.packages.len().checked_sub(1).expect("a type has a package before it");
        if let "enum" | "union" = word {
            let row = ValuesRow::parse(line).unwrap_or_else(|| panic!("no enumeration or union: {line}"));
            let package = &mut self.packages[package];
            if word == "enum" { &mut package.enums } else { &mut package.unions }.push(row);
            return;
        }
        let rest: Vec<&'static str> = words.filter(|word| *word != "of").collect();
        self.types.push(TypeRow {
            name,
            package,
            is_kind: word != "type",
            topology: rest.iter().find_map(|word| parse_topology(word)),
            releases: rest.iter().find_map(|word| ReleaseMask::parse(word)).unwrap_or(ReleaseMask::ALL),
            fields: 0..0,
        });
        self.packages[package].types.end = self.types.len();
    }

    fn type_positions(&self) -> TypePositions {
        let place =
            |(position, row): (usize, &TypeRow)| ((package_alias(self.packages[row.package].name), row.name), position);
        self.types.iter().enumerate().map(place).collect()
    }
}

/// The last two parts of a package, by which other packages name it.
fn package_alias(package: &'static str) -> &'static str {
    package.rmatch_indices('.').nth(1).map_or(package, |(dot, _)| &package[dot + 1..])
}

#[derive(Clone, Copy)]
struct FieldOwner {
    package: usize,
    releases: ReleaseMask,
}

/// Parses the fields of one type.
struct FieldsReader<'a> {
    table: &'a mut TypeTable,
    positions: &'a TypePositions,
    owner: FieldOwner,
}

impl FieldsReader<'_> {
    /// The fields that the first word of a type stands for.
    fn add_implied_fields(&mut self, head: &'static str) {
        let mut words = head.split(' ');
        let word = words.next();
        if word == Some("type") {
            return;
        }
        self.parse_field("apiVersion - string");
        self.parse_field("kind - string");
        if word == Some("list") {
            self.parse_field("metadata 1+ meta.v1.ListMeta");
            let listed = words.nth(2).expect("a list has an item type");
            let items = self.resolve(listed);
            let shape = ValueTypeRow::unnamed(TypeWord::List(Box::new(ValueTypeRow::unnamed(items))));
            self.push_field("items!", "2", shape, &[]);
        }
    }

    fn parse_field(&mut self, line: &'static str) {
        let words: Vec<&'static str> = line.split_ascii_whitespace().collect();
        let [name, number, shape, rest @ ..] = &words[..] else { panic!("no field of a type: {line}") };
        let shape = ValueTypeRow::parse(shape, &|name| self.resolve(name));
        self.push_field(name, number, shape, rest);
    }

    fn push_field(&mut self, name: &'static str, number: &'static str, shape: ValueTypeRow, rest: &[&'static str]) {
        self.table.fields.push(FieldRow {
            name: name.trim_end_matches('!'),
            is_required: name.ends_with('!'),
            number: number.trim_end_matches(['+', '~']),
            zero_encoding: parse_zero_encoding(number),
            shape,
            default: rest.iter().find_map(|word| word.strip_prefix('=')),
            topology: rest.iter().find_map(|word| parse_topology(word)),
            patch: rest.iter().find_map(|word| parse_patch_rule(word)),
            releases: rest.iter().find_map(|word| ReleaseMask::parse(word)).unwrap_or(self.owner.releases),
        });
    }

    /// A type of the own package, or of another by its alias.
    fn resolve(&self, reference: &'static str) -> TypeWord {
        let own = package_alias(self.table.packages[self.owner.package].name);
        let place = reference.rsplit_once('.').unwrap_or((own, reference));
        let index = self.positions.get(&place);
        TypeWord::Struct(*index.unwrap_or_else(|| panic!("{reference} is named in {own} and is no type")))
    }
}

fn parse_zero_encoding(number: &str) -> ZeroEncoding {
    match number.as_bytes().last() {
        Some(b'+') => ZeroEncoding::Zero,
        Some(b'~') => ZeroEncoding::Null,
        _ => ZeroEncoding::Omitted,
    }
}

fn parse_topology(word: &'static str) -> Option<Topology<'static>> {
    match word {
        "atomic" => Some(Topology::Atomic),
        "granular" => Some(Topology::Granular),
        "set" => Some(Topology::Set),
        _ => word.strip_prefix("map(")?.strip_suffix(')').map(|keys| Topology::Map(ListMapKeys(keys))),
    }
}

fn parse_patch_rule(word: &'static str) -> Option<PatchRule<'static>> {
    let rule = word.strip_prefix("patch(")?.strip_suffix(')')?;
    let (strategy, key) = rule.split_once(':').map_or((rule, None), |(strategy, key)| (strategy, Some(key)));
    let has = |wanted: &str| strategy.split(',').any(|word| word == wanted);
    Some(PatchRule {
        merges_lists: has("merge"),
        replaces_objects: has("replace"),
        retains_keys: has("retainKeys"),
        merge_key: key,
        strategy,
    })
}
