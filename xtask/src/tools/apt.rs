//! Packages from the machine's archives without root: a private apt downloads them, and `dpkg-deb` unpacks them.
//!
//! Invariants: the machine's package lists, cache and locks are neither written nor needed; only network settings of
//! its configuration are used, because its hooks would run programs; an invalid signature is an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use super::apt_sources::AptSource;
use crate::process::TimedCommand;

/// Package lists are about 10 MB per suite, a browser 100 MB.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Limit for commands that read only local files.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Settings that define how this machine reaches archives.
const NETWORK_SETTINGS: [&str; 5] =
    ["Acquire::http::", "Acquire::https::", "Acquire::ForceIPv", "Acquire::Check-Valid-Until", "Acquire::proxy"];

/// An apt with its own archives, lists and cache.
pub(crate) struct PrivateApt {
    config_file: PathBuf,
}

impl PrivateApt {
    /// Writes the configuration into `folder` and downloads the package lists.
    pub(crate) fn with_archives(folder: &Path, archives: &[AptSource]) -> Result<PrivateApt> {
        if crate::process::find_on_path("apt-get").is_none() || crate::process::find_on_path("dpkg-deb").is_none() {
            bail!("`apt-get` and `dpkg-deb` are not on PATH, so no package can be unpacked");
        }
        for name in ["sources", "nothing", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let stanzas: Vec<String> = archives.iter().map(AptSource::to_deb822).collect();
        fs::write(folder.join("sources/private.sources"), stanzas.join("\n"))?;
        let settings = TimedCommand::new("apt-config", LOCAL_TIMEOUT).arg("dump").output_text()?;
        let configuration = folder.join("apt.conf");
        fs::write(&configuration, render_config(folder, &settings))?;
        let apt = PrivateApt { config_file: configuration };
        apt.apt_get(DOWNLOAD_TIMEOUT).args(["--quiet", "update"]).output_text()?;
        Ok(apt)
    }

    /// Newest version of a package in the archives, regardless of what is installed.
    pub(crate) fn newest_version(&self, package: &str) -> Result<Option<String>> {
        let table = self.command("apt-cache", LOCAL_TIMEOUT).args(["madison", package]).output_text()?;
        Ok(table.lines().next().and_then(|line| Some(line.split('|').nth(1)?.trim().to_owned())))
    }

    /// Downloads packages, given as `name` or `name=version`.
    pub(crate) fn download(&self, packages: &[String], scratch: &Path) -> Result<Vec<PathBuf>> {
        let folder = scratch.join("packages");
        fs::create_dir_all(&folder)?;
        self.apt_get(DOWNLOAD_TIMEOUT)
            .args(["--quiet", "download"])
            .args(packages)
            .current_dir(&folder)
            .output_text()?;
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        Ok(files)
    }

    /// Returns these packages and their dependencies that are not installed, as `name` or `name=version`.
    pub(crate) fn with_missing_dependencies(&self, packages: &[&str]) -> Result<Vec<String>> {
        let job = self.apt_get(LOCAL_TIMEOUT).args(["--simulate", "--no-install-recommends", "install"]).args(packages);
        let mut missing = parse_simulation(&job.output_text()?);
        for package in packages {
            // An installed package is not listed, although its program was not found: download it as well.
            if !missing.iter().any(|known| known.split('=').next() == Some(package)) {
                missing.push((*package).to_owned());
            }
        }
        Ok(missing)
    }

    fn apt_get(&self, limit: Duration) -> TimedCommand {
        self.command("apt-get", limit)
    }

    fn command(&self, program: &str, limit: Duration) -> TimedCommand {
        TimedCommand::new(program, limit).env("APT_CONFIG", &self.config_file).env("LC_ALL", "C.UTF-8")
    }
}

/// Renders the configuration, which is read before the machine's and disables that.
fn render_config(folder: &Path, machine_settings: &str) -> String {
    let network = |line: &&str| NETWORK_SETTINGS.iter().any(|prefix| line.starts_with(prefix));
    let network: Vec<&str> = machine_settings.lines().filter(network).collect();
    let folder = folder.display();
    format!(
        "{}\n\
         Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"{folder}/nothing\";\n\
         Dir::Etc::sourcelist \"/dev/null\";\n\
         Dir::Etc::sourceparts \"{folder}/sources\";\n\
         Dir::State \"{folder}/state\";\n\
         Dir::State::status \"/var/lib/dpkg/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         APT::Update::Error-Mode \"any\";\n\
         APT::Sandbox::User \"root\";\n\
         Debug::NoLocking \"true\";\n",
        network.join("\n")
    )
}

/// Parses lines such as `Inst libfoo [1.0] (1.2-3 Debian:12.14/stable [amd64])`.
fn parse_simulation(text: &str) -> Vec<String> {
    let installed = |line: &str| {
        let rest = line.strip_prefix("Inst ")?;
        let name = rest.split(' ').next()?;
        let version = rest.split_once('(')?.1.split(' ').next()?;
        Some(format!("{name}={version}"))
    };
    text.lines().filter_map(installed).collect()
}

/// Unpacks packages into one folder without running their scripts.
pub(crate) fn extract_packages(files: &[PathBuf], into: &Path) -> Result<()> {
    for file in files {
        TimedCommand::new("dpkg-deb", LOCAL_TIMEOUT).arg("--extract").arg(file).arg(into).output_text()?;
    }
    Ok(())
}

/// Debian name of the machine's architecture.
pub(crate) fn architecture() -> Result<String> {
    let output = TimedCommand::new("dpkg", LOCAL_TIMEOUT).arg("--print-architecture").output_text()?;
    Ok(output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn apt_config_keeps_only_network_settings() {
        let settings = "APT::Update::Post-Invoke \"\";\nAPT::Update::Post-Invoke:: \"rm -rf /\";\n\
                        Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::Languages:: \"en\";\n";
        let configuration = render_config(Path::new("/f"), settings);
        assert!(configuration.starts_with("Acquire::http::Proxy \"http://proxy.example:3128\";\nDir::Etc::main"));
        assert!(!configuration.contains("Post-Invoke"));
    }

    #[test]
    fn simulation_lists_missing_packages() {
        let text = "NOTE: This is only a simulation!\nInst libogg0 (1.3.5-3 Debian:12.14/stable [amd64])\n\
                    Inst libnss3 [2:3.87] (2:3.87.1-1 Debian:12.14/stable [amd64])\nConf libogg0 (1.3.5-3 x [amd64])\n";
        expect!["libogg0=1.3.5-3 libnss3=2:3.87.1-1"].assert_eq(&parse_simulation(text).join(" "));
    }
}
