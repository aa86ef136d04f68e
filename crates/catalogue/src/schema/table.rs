//! `schemas.txt` in memory: read once, at the first lookup, into rows that point into the text.
//!
//! The first lines of the text describe its form. It is part of the program and made by `cargo xtask schemas`, so a line
//! that cannot be read is a fault of the program; a test reads all of it.

mod shape;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use super::{Keys, PatchRule, Topology};
use crate::release::Release;

pub(super) use shape::{Shape, Word};

const TEXT: &str = include_str!("schemas.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(TEXT));

/// All types of all releases.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) packages: Vec<Package>,
    /// By package, and by name within one.
    pub(super) types: Vec<Type>,
    fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    /// Empty if no type of the package is a kind.
    pub(super) version: &'static str,
    types: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Type {
    pub(super) name: &'static str,
    pub(super) package: usize,
    pub(super) is_kind: bool,
    pub(super) topology: Option<Topology>,
    pub(super) releases: Releases,
    fields: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) is_required: bool,
    pub(super) number: &'static str,
    pub(super) shape: Shape,
    pub(super) default: Option<&'static str>,
    pub(super) topology: Option<Topology>,
    pub(super) patch: Option<PatchRule>,
    pub(super) releases: Releases,
}

/// A set of releases, one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Releases(u8);

impl Releases {
    const ALL: Self = Self(0x7f);

    pub(super) fn contains(self, release: Release) -> bool {
        self.0 & (1 << release.column()) != 0
    }

    /// `31-33,35+`; `None` if the word is something else.
    fn read(word: &str) -> Option<Self> {
        let minor = |text: &str| text.parse::<u8>().ok();
        let mut bits = 0;
        for span in word.split(',') {
            let (first, last) = match (span.strip_suffix('+'), span.split_once('-')) {
                (Some(first), _) => (minor(first)?, Release::NEWEST.minor()),
                (None, Some((first, last))) => (minor(first)?, minor(last)?),
                (None, None) => (minor(span)?, minor(span)?),
            };
            let known = Release::ALL.into_iter().filter(|release| (first..=last).contains(&release.minor()));
            bits |= known.fold(0, |bits, release| bits | 1 << release.column());
        }
        Some(Self(bits))
    }
}

/// Where the types of packages stand, by the last two parts of the package and the name.
type Places = HashMap<(&'static str, &'static str), usize>;

impl Table {
    pub(super) fn get() -> &'static Self {
        &TABLE
    }

    /// The kind of this name.
    pub(super) fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Type> {
        let packages = self.packages.iter().filter(|package| package.version == version && package.group == group);
        packages.filter_map(|package| self.within(package, kind)).find(|found| found.is_kind)
    }

    /// The type of this name in this package.
    pub(super) fn named(&self, package: &str, name: &str) -> Option<&Type> {
        let package = self.packages.iter().find(|known| known.name == package)?;
        self.within(package, name)
    }

    fn within(&self, package: &Package, name: &str) -> Option<&Type> {
        let types = &self.types[package.types.clone()];
        types.binary_search_by(|known| known.name.cmp(name)).ok().map(|position| &types[position])
    }

    /// The fields of a type, by name; a field that changed stands once for each of its forms.
    pub(super) fn fields_of(&self, owner: &Type) -> &[Field] {
        &self.fields[owner.fields.clone()]
    }

    /// The fields of all types.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Where a type of this table stands.
    pub(super) fn position(&self, row: &Type) -> usize {
        let types = &self.types[self.packages[row.package].types.clone()];
        let within = types.partition_point(|known| known.name < row.name);
        self.packages[row.package].types.start + within
    }

    /// Where a field of a type of this table stands.
    pub(super) fn field_position(&self, row: &Field, owner: &Type) -> Option<usize> {
        let within = self.fields_of(owner).iter().position(|known| std::ptr::eq(known, row))?;
        Some(owner.fields.start + within)
    }

    fn read(text: &'static str) -> Self {
        let mut table = Self { packages: Vec::new(), types: Vec::new(), fields: Vec::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ' '])) {
            table.read_head(line);
        }
        let places = table.places();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
        let mut position = 0;
        while let Some(head) = lines.next() {
            if head.starts_with("package ") {
                continue;
            }
            let start = table.fields.len();
            let owner = Owner { package: table.types[position].package, releases: table.types[position].releases };
            let mut reader = Reader { table: &mut table, places: &places, owner };
            reader.read_implied(head);
            while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
                reader.read_field(line);
            }
            table.fields[start..].sort_by_key(|field| field.name);
            table.types[position].fields = start..table.fields.len();
            position += 1;
        }
        table
    }

    fn read_head(&mut self, line: &'static str) {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        if word == "package" {
            let (group, version) = words.next().map_or(("", ""), |text| text.split_once('/').unwrap_or(("", text)));
            let types = self.types.len()..self.types.len();
            self.packages.push(Package { name, group, version, types });
            return;
        }
        let package = self.packages.len().checked_sub(1).expect("a type has a package before it");
        let rest: Vec<&'static str> = words.filter(|word| *word != "of").collect();
        self.types.push(Type {
            name,
            package,
            is_kind: word != "type",
            topology: rest.iter().find_map(|word| topology(word)),
            releases: rest.iter().find_map(|word| Releases::read(word)).unwrap_or(Releases::ALL),
            fields: 0..0,
        });
        self.packages[package].types.end = self.types.len();
    }

    fn places(&self) -> Places {
        let place = |(position, row): (usize, &Type)| ((alias(self.packages[row.package].name), row.name), position);
        self.types.iter().enumerate().map(place).collect()
    }
}

/// The last two parts of a package, by which other packages name it.
fn alias(package: &'static str) -> &'static str {
    package.rmatch_indices('.').nth(1).map_or(package, |(dot, _)| &package[dot + 1..])
}

#[derive(Clone, Copy)]
struct Owner {
    package: usize,
    releases: Releases,
}

/// Reads the fields of one type.
struct Reader<'a> {
    table: &'a mut Table,
    places: &'a Places,
    owner: Owner,
}

impl Reader<'_> {
    /// The fields that the first word of a type stands for.
    fn read_implied(&mut self, head: &'static str) {
        let mut words = head.split(' ');
        let word = words.next();
        if word == Some("type") {
            return;
        }
        self.read_field("apiVersion - string");
        self.read_field("kind - string");
        if word == Some("list") {
            self.read_field("metadata 1 meta.v1.ListMeta");
            let listed = words.nth(2).expect("a list says of what");
            let items = self.resolve(listed);
            let shape = Shape::plain(Word::List(Box::new(Shape::plain(items))));
            self.push("items!", "2", shape, &[]);
        }
    }

    fn read_field(&mut self, line: &'static str) {
        let words: Vec<&'static str> = line.split_ascii_whitespace().collect();
        let [name, number, shape, rest @ ..] = &words[..] else { panic!("no field of a type: {line}") };
        let shape = Shape::read(shape, &|name| self.resolve(name));
        self.push(name, number, shape, rest);
    }

    fn push(&mut self, name: &'static str, number: &'static str, shape: Shape, rest: &[&'static str]) {
        self.table.fields.push(Field {
            name: name.trim_end_matches('!'),
            is_required: name.ends_with('!'),
            number,
            shape,
            default: rest.iter().find_map(|word| word.strip_prefix('=')),
            topology: rest.iter().find_map(|word| topology(word)),
            patch: rest.iter().find_map(|word| patch(word)),
            releases: rest.iter().find_map(|word| Releases::read(word)).unwrap_or(self.owner.releases),
        });
    }

    /// A type of the own package, or of another by its alias.
    fn resolve(&self, reference: &'static str) -> Word {
        let own = alias(self.table.packages[self.owner.package].name);
        let place = reference.rsplit_once('.').unwrap_or((own, reference));
        let index = self.places.get(&place);
        Word::Struct(*index.unwrap_or_else(|| panic!("{reference} is named in {own} and is no type")))
    }
}

fn topology(word: &'static str) -> Option<Topology> {
    match word {
        "atomic" => Some(Topology::Atomic),
        "granular" => Some(Topology::Granular),
        "set" => Some(Topology::Set),
        _ => word.strip_prefix("map(")?.strip_suffix(')').map(|keys| Topology::Map(Keys(keys))),
    }
}

fn patch(word: &'static str) -> Option<PatchRule> {
    let rule = word.strip_prefix("patch(")?.strip_suffix(')')?;
    let (strategy, key) = rule.split_once(':').map_or((rule, None), |(strategy, key)| (strategy, Some(key)));
    let has = |wanted: &str| strategy.split(',').any(|word| word == wanted);
    Some(PatchRule {
        is_merged: has("merge"),
        is_replaced: has("replace"),
        retains_keys: has("retainKeys"),
        key,
        strategy,
    })
}
