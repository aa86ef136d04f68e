//! Files of the packages and their paths.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::{DistRelease, PACK_TIMEOUT, man};
use crate::process::TimedCommand;

/// Shells with the archive name and the Debian path of their completions.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "unskew.bash", "usr/share/bash-completion/completions/unskew"),
    ("fish", "unskew.fish", "usr/share/fish/vendor_completions.d/unskew.fish"),
    ("zsh", "_unskew", "usr/share/zsh/vendor-completions/_unskew"),
];

/// Folders of the checkout with example files.
const EXAMPLES: [&str; 2] = ["docs/deploy", "docs/monitoring"];

/// A file to pack, with its path and mode.
#[derive(Clone)]
pub(super) struct PackedFile {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

impl PackedFile {
    pub(super) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), mode: 0o644 }
    }

    pub(super) fn executable(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::new(path, bytes) }
    }
}

/// Contents of both packages.
pub(super) struct PackageContents {
    program: Vec<u8>,
    manual: String,
    /// Completions in the order of `SHELLS`.
    completions: Vec<String>,
    /// Path below `examples`, and content.
    examples: Vec<(String, Vec<u8>)>,
    licence: String,
    licences: String,
    readme: String,
    changelog: String,
}

/// Collects files from the checkout, and completions and help from the program.
pub(super) fn collect_contents(root: &Path, binary: &Path, release: &DistRelease) -> Result<PackageContents> {
    let text = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("{name} could not be read"));
    let completion = |(shell, ..): &(&str, &str, &str)| {
        let job = TimedCommand::new(binary, PACK_TIMEOUT).args(["completion", shell]);
        job.output_text().with_context(|| format!("`completion {shell}` failed"))
    };
    let date = TimedCommand::new("date", PACK_TIMEOUT)
        .args(["--utc", "--date"])
        .arg(format!("@{}", release.commit_epoch_seconds));
    let date = date.arg("+%Y-%m-%d").output_text()?;
    Ok(PackageContents {
        program: fs::read(binary).with_context(|| format!("{} could not be read", binary.display()))?,
        manual: man::render_manual(&man::read_command_help(binary)?, &release.version, date.trim())?,
        completions: SHELLS.iter().map(completion).collect::<Result<_>>()?,
        examples: read_examples(root)?,
        licence: text("LICENSE")?,
        licences: release.licences.clone(),
        readme: text("README.md")?,
        changelog: text("CHANGELOG.md")?,
    })
}

fn read_examples(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for folder in EXAMPLES {
        let kind = folder.rsplit('/').next().unwrap_or(folder);
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("{folder} could not be read"))? {
            let file = entry?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((format!("{kind}/{name}"), fs::read(&file)?));
        }
    }
    found.sort();
    Ok(found)
}

impl PackageContents {
    /// Files of the tar archive, which works at any location.
    pub(super) fn archive_files(&self) -> Vec<PackedFile> {
        let mut entries = vec![
            PackedFile::executable("bin/unskew", self.program.clone()),
            PackedFile::new("share/man/man1/unskew.1", self.manual.clone()),
            PackedFile::new("LICENSE", self.licence.clone()),
            PackedFile::new("LICENSES-OF-CRATES", self.licences.clone()),
            PackedFile::new("README.md", self.readme.clone()),
            PackedFile::new("CHANGELOG.md", self.changelog.clone()),
        ];
        let completions = SHELLS.iter().zip(&self.completions);
        entries.extend(
            completions.map(|((_, name, _), text)| PackedFile::new(format!("completions/{name}"), text.clone())),
        );
        entries.extend(
            self.examples.iter().map(|(name, bytes)| PackedFile::new(format!("examples/{name}"), bytes.clone())),
        );
        entries
    }

    /// Files of the Debian package with its control file. Manual and changelog are not compressed, which Debian's tools
    /// accept.
    pub(super) fn debian_files(&self, release: &DistRelease) -> Vec<PackedFile> {
        let doc = |name: &str, bytes: &[u8]| PackedFile::new(format!("usr/share/doc/unskew/{name}"), bytes);
        let mut entries = vec![
            PackedFile::executable("usr/bin/unskew", self.program.clone()),
            PackedFile::new("usr/share/man/man1/unskew.1", self.manual.clone()),
            doc("copyright", self.debian_copyright().as_bytes()),
            doc("LICENSES-OF-CRATES", self.licences.as_bytes()),
            doc("README.md", self.readme.as_bytes()),
            doc("CHANGELOG.md", self.changelog.as_bytes()),
        ];
        let completions = SHELLS.iter().zip(&self.completions);
        entries.extend(completions.map(|((.., path), text)| PackedFile::new(*path, text.clone())));
        entries.extend(self.examples.iter().map(|(name, bytes)| doc(&format!("examples/{name}"), bytes)));
        let size = entries.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum();
        entries.push(PackedFile::new("DEBIAN/control", debian_control(release, size)));
        entries
    }

    /// Renders the machine-readable copyright file, with the licence text as one paragraph.
    fn debian_copyright(&self) -> String {
        let text: String = self
            .licence
            .lines()
            .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
            .collect();
        format!(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: unskew\n\n\
             Files: *\nCopyright: the unskew authors\nLicense: Apache-2.0\n\nLicense: Apache-2.0\n{text}"
        )
    }
}

fn debian_control(release: &DistRelease, kilobytes: usize) -> String {
    let DistRelease { version, architecture, depends, .. } = release;
    format!(
        "Package: unskew\nVersion: {version}\nArchitecture: {architecture}\nDepends: {depends}\n\
         Suggests: etcd-server, kubernetes-client\nInstalled-Size: {kilobytes}\nSection: admin\nPriority: optional\n\
         Maintainer: the unskew authors <unskew@localhost>\n\
         Description: Kubernetes API servers at different versions answer as one\n \
         An API server on SQLite or etcd with the Mixed Version Proxy of KEP-4020 and\n \
         the StorageVersion API of KEP-2339, and a lab of several of them.\n"
    )
}

/// Writes the files with fixed modes, independent of the umask.
pub(super) fn write_files(folder: &Path, entries: &[PackedFile]) -> Result<()> {
    for PackedFile { path, bytes, mode } in entries {
        let file = folder.join(path);
        let parent = file.parent().context("a file to pack has no parent folder")?;
        fs::create_dir_all(parent).with_context(|| format!("{} could not be made", parent.display()))?;
        for above in parent.ancestors().take_while(|above| above.starts_with(folder)) {
            fs::set_permissions(above, Permissions::from_mode(0o755))?;
        }
        fs::write(&file, bytes).with_context(|| format!("{} could not be written", file.display()))?;
        fs::set_permissions(&file, Permissions::from_mode(*mode))?;
    }
    Ok(())
}
