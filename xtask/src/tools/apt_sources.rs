//! Package archives of this machine, read from its apt configuration.
//!
//! Our source names no archive: a mirror, proxy or offline copy that the machine uses is used here, too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The distribution family; suites and keys differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DistributionFamily {
    Debian,
    Ubuntu,
}

impl DistributionFamily {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DistributionFamily::Debian => "Debian",
            DistributionFamily::Ubuntu => "Ubuntu",
        }
    }

    /// Components that contain the packages we need. Ubuntu has etcd in universe.
    fn components(self) -> &'static str {
        match self {
            DistributionFamily::Debian => "main",
            DistributionFamily::Ubuntu => "main universe",
        }
    }
}

/// One archive entry of apt's configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AptSource {
    uris: String,
    suites: Vec<String>,
    components: String,
    /// Fields that define how the archive is trusted, unchanged.
    trust: Vec<(String, String)>,
}

impl AptSource {
    /// Renders the entry in apt's deb822 format.
    pub(crate) fn to_deb822(&self) -> String {
        let suites = self.suites.join(" ");
        let mut text = format!("Types: deb\nURIs: {}\nSuites: {suites}\nComponents: {}\n", self.uris, self.components);
        for (name, value) in &self.trust {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }
}

/// The machine's distribution and its archives.
pub(crate) struct AptSources {
    pub(crate) family: DistributionFamily,
    pub(crate) codename: String,
    entries: Vec<AptSource>,
}

impl AptSources {
    /// Reads `/etc/os-release` and `/etc/apt`.
    pub(crate) fn read_etc() -> Result<AptSources> {
        let release = fs::read_to_string("/etc/os-release").context("/etc/os-release cannot be read")?;
        let (family, codename) = parse_os_release(&release)
            .context("only Debian, Ubuntu and their derivatives have the packages to unpack; put the tool on PATH")?;
        let mut entries = Vec::new();
        for file in source_files(Path::new("/etc/apt")) {
            let text = fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let deb822 = file.extension().is_some_and(|extension| extension == "sources");
            entries.extend(if deb822 { parse_deb822_sources(&text) } else { parse_one_line_sources(&text) });
        }
        Ok(AptSources { family, codename, entries })
    }

    /// The distribution's own archives (release, security and updates), without third-party archives.
    pub(crate) fn distribution_sources(&self) -> Result<Vec<AptSource>> {
        let updates = format!("{}-", self.codename);
        let own = |suite: &String| *suite == self.codename || suite.starts_with(&updates);
        let entries: Vec<AptSource> =
            self.entries.iter().filter(|entry| entry.suites.iter().any(own)).cloned().collect();
        if entries.is_empty() {
            bail!("/etc/apt names no archive of {} {}", self.family.name(), self.codename);
        }
        Ok(entries)
    }

    /// Another release in the machine's own mirror.
    pub(crate) fn source_for_suite(&self, suite: &str) -> Result<AptSource> {
        let release = |entry: &&AptSource| entry.suites.contains(&self.codename);
        let base = self.entries.iter().find(release);
        let base = base.with_context(|| format!("/etc/apt names no archive of {}", self.codename))?;
        let components = self.family.components().to_owned();
        Ok(AptSource { suites: vec![suite.to_owned()], components, ..base.clone() })
    }
}

/// Family and codename from `/etc/os-release`; a derivative names the release it is based on.
fn parse_os_release(release: &str) -> Option<(DistributionFamily, String)> {
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
    };
    if let Some(codename) = field("UBUNTU_CODENAME") {
        return Some((DistributionFamily::Ubuntu, codename));
    }
    let like = format!("{} {}", field("ID")?, field("ID_LIKE").unwrap_or_default());
    let family = like.split(' ').find_map(|name| match name {
        "ubuntu" => Some(DistributionFamily::Ubuntu),
        "debian" => Some(DistributionFamily::Debian),
        _ => None,
    })?;
    Some((family, field("DEBIAN_CODENAME").or_else(|| field("VERSION_CODENAME"))?))
}

/// `sources.list` and the files in `sources.list.d`, in apt's order.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("sources.list.d")).into_iter().flatten().flatten();
    let known =
        |file: &PathBuf| file.extension().is_some_and(|extension| extension == "list" || extension == "sources");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(known).collect();
    files.sort();
    let main = folder.join("sources.list");
    if main.is_file() {
        files.insert(0, main);
    }
    files
}

/// Parses lines such as `deb [signed-by=/a/key.gpg] http://mirror/debian bookworm main`.
fn parse_one_line_sources(text: &str) -> Vec<AptSource> {
    text.lines().filter_map(|line| parse_one_line_source(line.split('#').next()?.trim())).collect()
}

fn parse_one_line_source(line: &str) -> Option<AptSource> {
    let rest = line.strip_prefix("deb")?.strip_prefix(|c: char| c.is_whitespace())?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let trust = options.split_whitespace().filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        Some((trust_field(name)?.to_owned(), value.replace(',', " ")))
    });
    Some(AptSource {
        uris: uri.to_owned(),
        suites: vec![suite.to_owned()],
        components: words.collect::<Vec<_>>().join(" "),
        trust: trust.collect(),
    })
}

/// Parses deb822 stanzas: named fields with indented continuation lines, separated by empty lines.
fn parse_deb822_sources(text: &str) -> Vec<AptSource> {
    let plain: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).map(str::trim_end).collect();
    plain.split(|line| line.is_empty()).filter_map(parse_deb822_source).collect()
}

fn parse_deb822_source(lines: &[&str]) -> Option<AptSource> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            value.push('\n');
            value.push_str(line);
        } else {
            let (name, value) = line.split_once(':')?;
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| Some(fields.iter().find(|(known, _)| known == name)?.1.clone());
    if !field("types")?.split_whitespace().any(|kind| kind == "deb")
        || field("enabled").is_some_and(|value| value == "no")
    {
        return None;
    }
    let trust = fields.iter().filter_map(|(name, value)| Some((trust_field(name)?.to_owned(), value.clone())));
    Some(AptSource {
        uris: field("uris")?,
        suites: field("suites")?.split_whitespace().map(str::to_owned).collect(),
        components: field("components").unwrap_or_default(),
        trust: trust.collect(),
    })
}

/// Options that decide whether apt trusts an archive; other options do not apply to other suites.
fn trust_field(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "signed-by" => Some("Signed-By"),
        "trusted" => Some("Trusted"),
        "check-valid-until" => Some("Check-Valid-Until"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
