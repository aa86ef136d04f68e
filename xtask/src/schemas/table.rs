//! Renders the table, and parses an existing one for declarations made by hand.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::definitions::{GoPackage, TypeDefinition};
use super::row::{FieldDefinition, ReleaseSet};

/// Header that describes the table's format.
const HEAD: &str = "\
# Built-in types of Kubernetes: names and types of fields. Made by `cargo xtask schemas`; see NOTICE for the origin.
#
# package NAME [GROUP/VERSION]
# type NAME [atomic|granular] [RELEASES]    fields follow, one per line
# kind NAME [RELEASES]                      a type with apiVersion and kind, and the package's group and version
# list NAME of KIND [RELEASES]              a kind with metadata 1+ meta.v1.ListMeta and items! 2 [KIND]
# enum NAME RELEASES VALUES                 the values of a string type of Go in releases of which they are known, with commas
# union TYPE RELEASES DISCRIMINATOR FIELDS  fields (JSON=Go) of which one may be set; the discriminator names it, - if none does
#  NAME[!] NUMBER SHAPE [=DEFAULT] [atomic|granular|set|map(KEYS)] [patch(STRATEGY[:KEY])] [RELEASES]
#
# `!` is required. NUMBER is the protobuf field, `2.1` in a message that JSON has inline, `-` if there is none; with `*`
# behind it JSON has an optional field though its value is zero: a pointer in Go. Then `+`: Go encodes the field always, zero if
# unset; `~`: Go encodes it always, null if unset. SHAPE is a word, a type of this package, a type of another (meta.v1.Time),
# [items] or {values}; `:NAME` behind it is Go's name for it, `KEY=` before values that of keys. RELEASES are minor versions
# (31-33,35+) if not those of the type.
";

/// Declarations from an existing table that the definitions lack.
#[derive(Debug, Default)]
pub(crate) struct DeclaredFields {
    /// Keyed by package, type and field.
    fields: HashMap<(String, String, String), FieldDeclaration>,
    /// The lines of enumerations and unions by package.
    values: HashMap<String, Vec<String>>,
}

#[derive(Debug)]
struct FieldDeclaration {
    number: String,
    /// Shape including Go names.
    shape: String,
    default: Option<String>,
}

impl DeclaredFields {
    /// Parses a table; an empty text gives no declarations.
    pub(crate) fn parse(text: &str) -> Result<DeclaredFields> {
        let mut known = DeclaredFields::default();
        let (mut package, mut home) = (String::new(), String::new());
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["package", name, ..] => package = name.to_owned(),
                ["enum" | "union", _, _, _, ..] if !line.starts_with(' ') => {
                    known.values.entry(package.clone()).or_default().push(line.to_owned());
                }
                ["type" | "kind" | "list", name, ..] if !line.starts_with(' ') => home = name.to_owned(),
                [name, number, shape, ref rest @ ..] => {
                    let default = rest.iter().find(|word| word.starts_with('=')).map(|word| (*word).to_owned());
                    let declared = FieldDeclaration { number: number.to_owned(), shape: shape.to_owned(), default };
                    let key = (package.clone(), home.clone(), name.trim_end_matches('!').to_owned());
                    known.fields.insert(key, declared);
                }
                _ => return Err(anyhow::anyhow!("not a line of a schema table: {line}")),
            }
        }
        Ok(known)
    }

    fn declaration_of(&self, package: &str, home: &str, field: &FieldDefinition) -> (String, String, Option<String>) {
        let key = (package.to_owned(), home.to_owned(), field.name.clone());
        match self.fields.get(&key) {
            // A changed shape loses its Go names, as they belonged to another type.
            Some(FieldDeclaration { number, shape, default }) if without_names(shape) == field.shape => {
                (number.clone(), shape.clone(), default.clone())
            }
            Some(FieldDeclaration { number, default, .. }) => (number.clone(), field.shape.clone(), default.clone()),
            None => ("?".to_owned(), field.shape.clone(), None),
        }
    }
}

/// Removes Go names: `{ResourceName=quantity}:ResourceList` becomes `{quantity}`.
fn without_names(shape: &str) -> String {
    let mut bare = String::new();
    let mut in_name = false;
    for letter in shape.chars() {
        match letter {
            ':' => in_name = true,
            ']' | '}' => {
                in_name = false;
                bare.push(letter);
            }
            '=' => bare.truncate(bare.rfind('{').map_or(0, |brace| brace + 1)),
            _ if !in_name => bare.push(letter),
            _ => {}
        }
    }
    bare
}

pub(crate) fn count_types(packages: &BTreeMap<String, GoPackage>) -> usize {
    packages.values().map(|package| package.types.len()).sum()
}

/// Renders the whole table.
pub(crate) fn render_table(packages: &BTreeMap<String, GoPackage>, known: &DeclaredFields) -> Result<String> {
    let mut text = HEAD.to_owned();
    for (name, package) in packages {
        writeln!(text, "\npackage {name} {}", package.group_version).context("writing to a string")?;
        while text.ends_with(" \n") {
            text.replace_range(text.len() - 2.., "\n");
        }
        for line in known.values.get(name).into_iter().flatten() {
            writeln!(text, "{line}").context("writing to a string")?;
        }
        for (home, known_type) in &package.types {
            render_type(&mut text, name, home, known_type, known);
        }
    }
    Ok(text)
}

fn render_type(text: &mut String, package: &str, home: &str, known_type: &TypeDefinition, known: &DeclaredFields) {
    let mut all = ReleaseSet::default();
    (0..super::MINOR_VERSIONS.len()).for_each(|position| all.insert(position));
    let span = if known_type.releases == all { String::new() } else { format!(" {}", known_type.releases) };
    if let Some(kind) = listed_kind(home, known_type) {
        text.push_str(&format!("list {home} of {kind}{span}\n"));
        return;
    }
    let word = if known_type.is_kind { "kind" } else { "type" };
    let map_type = known_type.map_type.as_ref().map(|map_type| format!(" {map_type}")).unwrap_or_default();
    text.push_str(&format!("{word} {home}{map_type}{span}\n"));
    for (field, releases) in &known_type.fields {
        if known_type.is_kind && is_type_meta(field) {
            continue;
        }
        let (number, shape, default) = known.declaration_of(package, home, field);
        let mut words = vec![format!("{}{}", field.name, if field.is_required { "!" } else { "" }), number, shape];
        words.extend(default);
        words.extend(field.merge_rules.iter().cloned());
        words.extend((*releases != known_type.releases).then(|| releases.to_string()));
        text.push_str(&format!(" {}\n", words.join(" ")));
    }
}

/// True for `apiVersion` and `kind`, which every kind has.
fn is_type_meta(field: &FieldDefinition) -> bool {
    matches!(field.name.as_str(), "apiVersion" | "kind") && field.shape == "string" && !field.is_required
}

/// The item kind of a list, if it has the standard form in every release.
fn listed_kind<'a>(home: &'a str, known_type: &TypeDefinition) -> Option<&'a str> {
    let kind = home.strip_suffix("List")?;
    let usual = |field: &FieldDefinition| match field.name.as_str() {
        "items" => field.is_required && field.shape == format!("[{kind}]") && field.merge_rules.is_empty(),
        "metadata" => {
            !field.is_required
                && matches!(field.shape.as_str(), "meta.v1.ListMeta" | "ListMeta")
                && field.merge_rules.is_empty()
        }
        _ => is_type_meta(field),
    };
    let fields = &known_type.fields;
    let is_usual = known_type.is_kind
        && fields.len() == 4
        && fields.iter().all(|(field, releases)| usual(field) && *releases == known_type.releases);
    is_usual.then_some(kind)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::definitions;
    use super::*;

    fn packages() -> BTreeMap<String, GoPackage> {
        let document = serde_json::json!({"$defs": {
            "io.k8s.api.apps.v1.Thing": {
                "properties": {
                    "apiVersion": {"type": ["string", "null"], "enum": ["apps/v1"]},
                    "kind": {"type": ["string", "null"], "enum": ["Thing"]},
                    "policy": {"type": "string"},
                    "count": {"type": ["integer", "null"], "format": "int32"},
                },
                "required": ["policy"],
                "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Thing"}],
            },
            "io.k8s.api.apps.v1.ThingList": {
                "properties": {
                    "apiVersion": {"type": ["string", "null"]},
                    "kind": {"type": ["string", "null"]},
                    "items": {"type": "array", "items": {"$ref": "#/$defs/io.k8s.api.apps.v1.Thing"}},
                    "metadata": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"},
                },
                "required": ["items"],
                "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "ThingList"}],
            },
        }});
        let mut packages = BTreeMap::new();
        for position in 3..7 {
            definitions::add_release(&mut packages, &document, position).unwrap();
        }
        packages
    }

    fn body(text: &str) -> &str {
        text.strip_prefix(HEAD).unwrap()
    }

    #[test]
    fn new_field_is_rendered_without_number() {
        let text = render_table(&packages(), &DeclaredFields::default()).unwrap();
        expect![[r#"

            package io.k8s.api.apps.v1 apps/v1
            kind Thing 34+
             count ? int32
             policy! ? string
            list ThingList of Thing 34+
        "#]]
        .assert_eq(body(&text));
    }

    #[test]
    fn declared_values_numbers_names_and_defaults_are_kept() {
        let old = "package io.k8s.api.apps.v1 apps/v1\nenum Policy 35+ Always,If needed\nunion Thing 35+ - count=Count\nkind Thing\n \
            policy 3 string:Policy =\"Always\"\n count 4 int64:Count\n";
        let text = render_table(&packages(), &DeclaredFields::parse(old).unwrap()).unwrap();
        expect![[r#"

            package io.k8s.api.apps.v1 apps/v1
            enum Policy 35+ Always,If needed
            union Thing 35+ - count=Count
            kind Thing 34+
             count 4 int32
             policy! 3 string:Policy ="Always"
            list ThingList of Thing 34+
        "#]]
        .assert_eq(body(&text));
        let again = render_table(&packages(), &DeclaredFields::parse(&text).unwrap()).unwrap();
        assert_eq!(again, text);
    }

    #[test]
    fn without_names_strips_go_names_from_shapes() {
        for (named, bare) in [
            ("string:types.UID", "string"),
            ("[string:Verb]", "[string]"),
            ("{ResourceName=quantity}:ResourceList", "{quantity}"),
            ("{[string]:ExtraValue}", "{[string]}"),
            ("[meta.v1.Condition]", "[meta.v1.Condition]"),
        ] {
            assert_eq!(without_names(named), bare);
        }
    }
}
