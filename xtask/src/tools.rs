//! The tools that tests need and the checkout does not have: found on `PATH`, or unpacked into `target/tools`.
//!
//! Invariants: no root, nothing installed, no service started; what is downloaded is checked by a pinned checksum or, where
//! the archive moves too fast to pin, by the archive's own signature, and the origin says which; a tool is there whole or
//! not at all; a second run downloads nothing.

mod apt;
mod browser;
pub(crate) mod definitions;
mod etcd;
mod kubectl;
mod nginx;
mod packages;
mod python;
mod script;
mod shelf;
mod sources;
mod version;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::environment;
use crate::table;
use crate::workspace::Workspace;
pub(crate) use shelf::sha256;
use shelf::{Shelf, Shelved};

pub(crate) const HELP: &str = "\
cargo xtask tools [etcd|kubectl|python|browser|nginx|all]…

Provides the tools named, or all, and prints where they are and which version. `cargo xtask test` does the same for
whatever its tests need. To have one unpacked afresh, delete its folder in target/tools.
";

/// The tools, beside etcd, that some test of the workspace needs. It grows with the tests.
const NEEDED: &[Optional] = &[Optional::Kubectl, Optional::Python, Optional::Browser];

/// A tool whose tests can be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Optional {
    Kubectl,
    Python,
    Browser,
    /// Beside which the gateway is measured; no test needs it.
    Nginx,
}

impl Optional {
    const ALL: [Optional; 4] = [Optional::Kubectl, Optional::Python, Optional::Browser, Optional::Nginx];

    /// As `--without` and `UNSKEW_WITHOUT` spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Optional::Kubectl => "kubectl",
            Optional::Python => "python",
            Optional::Browser => "browser",
            Optional::Nginx => "nginx",
        }
    }

    /// The tool that `--without` names.
    pub(crate) fn named(name: &str) -> Result<Optional> {
        let names = || Optional::ALL.map(Optional::name).join(", ");
        let found = Optional::ALL.into_iter().find(|tool| tool.name() == name);
        found.with_context(|| format!("nothing called `{name}` can be left out; choose from {}", names()))
    }

    fn provide(self, shelf: &Shelf) -> Result<Provided> {
        match self {
            Optional::Kubectl => kubectl::provide(shelf),
            Optional::Python => python::provide(shelf),
            Optional::Browser => browser::provide(shelf),
            Optional::Nginx => nginx::provide(shelf),
        }
    }
}

/// A tool, ready to be used.
pub(crate) struct Provided {
    pub(crate) name: &'static str,
    /// The environment variable by which tests find it.
    pub(crate) variable: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Where it comes from and what vouches for it.
    pub(crate) origin: String,
}

impl Provided {
    fn shelved(name: &'static str, variable: &'static str, shelved: Shelved) -> Provided {
        Provided { name, variable, path: shelved.executable, version: shelved.version, origin: shelved.origin }
    }
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    let everything = words.is_empty() || words.iter().any(|word| word == "all");
    let wants = |name: &str| everything || words.iter().any(|word| word == name);
    for word in words.iter().filter(|word| !matches!(word.as_str(), "all" | "etcd")) {
        if Optional::named(word).is_err() {
            bail!("no tool is called `{word}`; choose from etcd, kubectl, python, browser, nginx, all");
        }
    }
    let shelf = Shelf::open(&Workspace::open()?.tools())?;
    let mut provided = Vec::new();
    if wants("etcd") {
        provided.extend(etcd::provide(&shelf)?);
    }
    for tool in Optional::ALL.into_iter().filter(|tool| wants(tool.name())) {
        provided.push(tool.provide(&shelf).with_context(|| format!("{} could not be provided", tool.name()))?);
    }
    print!("{}", table::render(&rows(&provided)));
    Ok(())
}

/// etcd, and what else the tests need and `without` does not name.
pub(crate) fn provide_for_tests(folder: &Path, without: &[Optional]) -> Result<Vec<Provided>> {
    let shelf = Shelf::open(folder)?;
    let mut provided = Vec::from(etcd::provide(&shelf)?);
    for tool in NEEDED.iter().copied().filter(|tool| !without.contains(tool)) {
        let name = tool.name();
        provided.push(tool.provide(&shelf).with_context(|| {
            format!("{name}, which some tests need, could not be provided; `--without {name}` leaves those tests out")
        })?);
    }
    Ok(provided)
}

/// What the gateway is measured beside.
pub(crate) fn provide_nginx(folder: &Path) -> Result<Provided> {
    nginx::provide(&Shelf::open(folder)?)
}

/// etcd alone, the old one and the new one.
pub(crate) fn provide_etcd(folder: &Path) -> Result<[Provided; 2]> {
    etcd::provide(&Shelf::open(folder)?)
}

/// One row per tool, for a table.
pub(crate) fn rows(provided: &[Provided]) -> Vec<Vec<String>> {
    let row = |tool: &Provided| {
        vec![tool.name.to_owned(), tool.version.clone(), tool.path.display().to_string(), tool.origin.clone()]
    };
    provided.iter().map(row).collect()
}

/// A tool that the user names by its variable; it must be there, whatever else could be found.
fn given(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = environment::path(variable) else { return Ok(None) };
    if !path.is_file() {
        bail!("{variable} names {}, which is no file", path.display());
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_optional_tool_is_found_by_its_name() {
        for tool in Optional::ALL {
            assert_eq!(Optional::named(tool.name()).unwrap(), tool);
        }
    }
}
