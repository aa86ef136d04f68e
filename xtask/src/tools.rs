//! The tools that tests need and the checkout does not have: found on `PATH`, or unpacked into `target/tools`.
//!
//! Invariants: no root, nothing installed, no service started; what is downloaded is checked by a pinned checksum or, where
//! the archive moves too fast to pin, by the archive's own signature, and the origin says which; a tool is there whole or
//! not at all; a second run downloads nothing.

mod apt;
mod apt_sources;
mod browser;
pub(crate) mod definitions;
mod etcd;
mod kubectl;
mod nginx;
mod packages;
mod python;
mod script;
mod tool_cache;
mod version;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::environment;
use crate::table;
use crate::workspace::Workspace;
pub(crate) use tool_cache::sha256;
use tool_cache::{CachedTool, ToolCache};

pub(crate) const HELP: &str = "\
cargo xtask tools [etcd|kubectl|python|browser|nginx|all]…

Provides the tools named, or all, and prints where they are and which version. `cargo xtask test` does the same for
whatever its tests need. To have one unpacked afresh, delete its folder in target/tools.
";

/// The tools, beside etcd, that some test of the workspace needs. It grows with the tests.
const TOOLS_NEEDED_BY_TESTS: &[OptionalTool] = &[OptionalTool::Kubectl, OptionalTool::Python, OptionalTool::Browser];

/// A tool whose tests can be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OptionalTool {
    Kubectl,
    Python,
    Browser,
    /// Beside which the gateway is measured; no test needs it.
    Nginx,
}

impl OptionalTool {
    const ALL: [OptionalTool; 4] =
        [OptionalTool::Kubectl, OptionalTool::Python, OptionalTool::Browser, OptionalTool::Nginx];

    /// As `--without` and `UNSKEW_WITHOUT` spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OptionalTool::Kubectl => "kubectl",
            OptionalTool::Python => "python",
            OptionalTool::Browser => "browser",
            OptionalTool::Nginx => "nginx",
        }
    }

    /// The tool that `--without` names.
    pub(crate) fn from_name(name: &str) -> Result<OptionalTool> {
        let names = || OptionalTool::ALL.map(OptionalTool::name).join(", ");
        let found = OptionalTool::ALL.into_iter().find(|tool| tool.name() == name);
        found.with_context(|| format!("nothing called `{name}` can be left out; choose from {}", names()))
    }

    fn provide(self, shelf: &ToolCache) -> Result<ProvidedTool> {
        match self {
            OptionalTool::Kubectl => kubectl::provide(shelf),
            OptionalTool::Python => python::provide(shelf),
            OptionalTool::Browser => browser::provide(shelf),
            OptionalTool::Nginx => nginx::provide(shelf),
        }
    }
}

/// A tool, ready to be used.
pub(crate) struct ProvidedTool {
    pub(crate) name: &'static str,
    /// The environment variable by which tests find it.
    pub(crate) variable: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Where it comes from and what vouches for it.
    pub(crate) origin: String,
}

impl ProvidedTool {
    fn from_cached(name: &'static str, variable: &'static str, shelved: CachedTool) -> ProvidedTool {
        ProvidedTool { name, variable, path: shelved.executable, version: shelved.version, origin: shelved.origin }
    }
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    let everything = words.is_empty() || words.iter().any(|word| word == "all");
    let wants = |name: &str| everything || words.iter().any(|word| word == name);
    for word in words.iter().filter(|word| !matches!(word.as_str(), "all" | "etcd")) {
        if OptionalTool::from_name(word).is_err() {
            bail!("no tool is called `{word}`; choose from etcd, kubectl, python, browser, nginx, all");
        }
    }
    let shelf = ToolCache::open(&Workspace::open()?.tools_dir())?;
    let mut provided = Vec::new();
    if wants("etcd") {
        provided.extend(etcd::provide(&shelf)?);
    }
    for tool in OptionalTool::ALL.into_iter().filter(|tool| wants(tool.name())) {
        provided.push(tool.provide(&shelf).with_context(|| format!("{} could not be provided", tool.name()))?);
    }
    print!("{}", table::render(&tool_rows(&provided)));
    Ok(())
}

/// etcd, and what else the tests need and `without` does not name.
pub(crate) fn provide_for_tests(folder: &Path, without: &[OptionalTool]) -> Result<Vec<ProvidedTool>> {
    let shelf = ToolCache::open(folder)?;
    let mut provided = Vec::from(etcd::provide(&shelf)?);
    for tool in TOOLS_NEEDED_BY_TESTS.iter().copied().filter(|tool| !without.contains(tool)) {
        let name = tool.name();
        provided.push(tool.provide(&shelf).with_context(|| {
            format!("{name}, which some tests need, could not be provided; `--without {name}` leaves those tests out")
        })?);
    }
    Ok(provided)
}

/// What the gateway is measured beside.
pub(crate) fn provide_nginx(folder: &Path) -> Result<ProvidedTool> {
    nginx::provide(&ToolCache::open(folder)?)
}

/// etcd alone, the old one and the new one.
pub(crate) fn provide_etcd(folder: &Path) -> Result<[ProvidedTool; 2]> {
    etcd::provide(&ToolCache::open(folder)?)
}

/// One row per tool, for a table.
pub(crate) fn tool_rows(provided: &[ProvidedTool]) -> Vec<Vec<String>> {
    let row = |tool: &ProvidedTool| {
        vec![tool.name.to_owned(), tool.version.clone(), tool.path.display().to_string(), tool.origin.clone()]
    };
    provided.iter().map(row).collect()
}

/// A tool that the user names by its variable; it must be there, whatever else could be found.
fn given_path(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = environment::path_variable(variable) else { return Ok(None) };
    if !path.is_file() {
        bail!("{variable} names {}, which is no file", path.display());
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_name_finds_every_optional_tool() {
        for tool in OptionalTool::ALL {
            assert_eq!(OptionalTool::from_name(tool.name()).unwrap(), tool);
        }
    }
}
