//! The table of built-in types in `crates/kinds`, made from the type definitions of every release.
//!
//! Only names, types, keys and strategies are taken, no descriptions. Facts that the definitions lack and Go's
//! declarations have (protobuf field numbers, Go names of string types, declared defaults) are kept from the existing
//! table, where they are added by hand. The table's header describes its format.

mod definitions;
mod row;
mod table;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::tools::definitions::{definitions_file, provide};
use crate::workspace::Workspace;
use definitions::GoPackage;
use table::DeclaredFields;

pub(crate) const HELP: &str = "\
cargo xtask schemas [--check]

Makes crates/kinds/src/types/schemas.txt from the type definitions of every release. With --check nothing is
written: it is an error if the table would change.
";

/// The releases of the table, as minor versions; the position is the bit in a [`row::ReleaseSet`].
const MINOR_VERSIONS: [u8; 7] = [31, 32, 33, 34, 35, 36, 37];

const TABLE_PATH: &str = "crates/kinds/src/types/schemas.txt";

pub(crate) fn main(words: &[String]) -> Result<()> {
    let check_only = match words {
        [] => false,
        [word] if word == "--check" => true,
        [word, ..] => bail!("`cargo xtask schemas` takes no `{word}`; see `cargo xtask schemas --help`"),
    };
    let workspace = Workspace::open()?;
    let folder = provide(&workspace.tools_dir(), &MINOR_VERSIONS)?;
    let mut packages: BTreeMap<String, GoPackage> = BTreeMap::new();
    for (position, minor) in MINOR_VERSIONS.into_iter().enumerate() {
        let file = definitions_file(&folder, minor);
        let bytes = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        let parsed = serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", file.display()))?;
        definitions::add_release(&mut packages, &parsed, position)
            .with_context(|| format!("the definitions of 1.{minor}"))?;
    }
    let place = workspace.root.join(TABLE_PATH);
    let old = fs::read_to_string(&place).unwrap_or_default();
    let known = DeclaredFields::parse(&old)?;
    let new = table::render_table(&packages, &known)?;
    let unknown = new.lines().filter(|line| line.contains(" ? ")).count();
    println!(
        "{} types, {} bytes, {unknown} fields without a protobuf number",
        table::count_types(&packages),
        new.len()
    );
    if new == old {
        println!("{TABLE_PATH} is up to date");
    } else if check_only {
        bail!("{TABLE_PATH} would change; `cargo xtask schemas` writes it");
    } else {
        fs::write(&place, new).with_context(|| format!("{} cannot be written", place.display()))?;
        println!("{TABLE_PATH} is updated; review the difference");
    }
    Ok(())
}
