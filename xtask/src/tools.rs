//! External tools for the tests: found on `PATH`, or unpacked into `target/tools`.
//!
//! Invariants: no root, nothing installed, no service started; a download is verified by a pinned checksum or, where
//! packages change too often to pin, by the archive's signature, and the origin says which; a tool is present
//! completely or not at all; a second run downloads nothing.

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

/// Tools besides etcd that some test of the workspace needs.
const TOOLS_NEEDED_BY_TESTS: &[OptionalTool] = &[OptionalTool::Kubectl, OptionalTool::Python, OptionalTool::Browser];

/// A tool whose tests can be skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OptionalTool {
    Kubectl,
    Python,
    Browser,
    /// Compared with the gateway in benchmarks; no test needs it.
    Nginx,
}

impl OptionalTool {
    const ALL: [OptionalTool; 4] =
        [OptionalTool::Kubectl, OptionalTool::Python, OptionalTool::Browser, OptionalTool::Nginx];

    /// Name in `--without` and `UNSKEW_WITHOUT`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OptionalTool::Kubectl => "kubectl",
            OptionalTool::Python => "python",
            OptionalTool::Browser => "browser",
            OptionalTool::Nginx => "nginx",
        }
    }

    /// Parses a name given to `--without`.
    pub(crate) fn from_name(name: &str) -> Result<OptionalTool> {
        let names = || OptionalTool::ALL.map(OptionalTool::name).join(", ");
        let found = OptionalTool::ALL.into_iter().find(|tool| tool.name() == name);
        found.with_context(|| format!("no optional tool is called `{name}`; choose from {}", names()))
    }

    fn provide(self, tool_cache: &ToolCache) -> Result<ProvidedTool> {
        match self {
            OptionalTool::Kubectl => kubectl::provide(tool_cache),
            OptionalTool::Python => python::provide(tool_cache),
            OptionalTool::Browser => browser::provide(tool_cache),
            OptionalTool::Nginx => nginx::provide(tool_cache),
        }
    }
}

/// A tool that is ready to use.
pub(crate) struct ProvidedTool {
    pub(crate) name: &'static str,
    /// Environment variable that passes the path to tests.
    pub(crate) variable: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Where the tool comes from and how it was verified.
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
    let tool_cache = ToolCache::open(&Workspace::open()?.tools_dir())?;
    let mut provided = Vec::new();
    if wants("etcd") {
        provided.extend(etcd::provide(&tool_cache)?);
    }
    for tool in OptionalTool::ALL.into_iter().filter(|tool| wants(tool.name())) {
        provided.push(tool.provide(&tool_cache).with_context(|| format!("{} could not be provided", tool.name()))?);
    }
    print!("{}", table::render(&tool_rows(&provided)));
    Ok(())
}

/// Provides etcd, and the tools that tests need except those in `without`.
pub(crate) fn provide_for_tests(folder: &Path, without: &[OptionalTool]) -> Result<Vec<ProvidedTool>> {
    let tool_cache = ToolCache::open(folder)?;
    let mut provided = Vec::from(etcd::provide(&tool_cache)?);
    for tool in TOOLS_NEEDED_BY_TESTS.iter().copied().filter(|tool| !without.contains(tool)) {
        let name = tool.name();
        provided.push(tool.provide(&tool_cache).with_context(|| {
            format!("{name}, which some tests need, could not be provided; `--without {name}` skips those tests")
        })?);
    }
    Ok(provided)
}

/// Provides nginx, for the gateway benchmarks.
pub(crate) fn provide_nginx(folder: &Path) -> Result<ProvidedTool> {
    nginx::provide(&ToolCache::open(folder)?)
}

/// Provides the old and the new etcd.
pub(crate) fn provide_etcd(folder: &Path) -> Result<[ProvidedTool; 2]> {
    etcd::provide(&ToolCache::open(folder)?)
}

/// One table row per tool.
pub(crate) fn tool_rows(provided: &[ProvidedTool]) -> Vec<Vec<String>> {
    let row = |tool: &ProvidedTool| {
        vec![tool.name.to_owned(), tool.version.clone(), tool.path.display().to_string(), tool.origin.clone()]
    };
    provided.iter().map(row).collect()
}

/// Path of a tool that the user set by its variable; fails if it is not a file.
fn given_path(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = environment::path_variable(variable) else { return Ok(None) };
    if !path.is_file() {
        bail!("{variable} names {}, which is not a file", path.display());
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
