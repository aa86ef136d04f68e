//! Debian packages that the program needs, derived from its linked libraries.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::PACK_TIMEOUT;
use crate::process::TimedCommand;

/// Libraries that the program may link dynamically, and their packages. Everything else is linked statically.
const LIBRARY_PACKAGES: [(&str, &str); 6] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libdl.so.2", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("ld-linux", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// Returns the `Depends` field for this program.
pub(super) fn depends_of_binary(binary: &Path) -> Result<String> {
    let text = TimedCommand::new("readelf", PACK_TIMEOUT)
        .args(["--wide", "--dynamic", "--version-info"])
        .arg(binary)
        .output_text();
    depends_from_readelf(&text.context("readelf is part of binutils")?)
}

/// Returns the package of a library.
pub(super) fn package_of(library: &str) -> Option<&'static str> {
    LIBRARY_PACKAGES.iter().find(|(name, _)| library.starts_with(name)).map(|(_, package)| *package)
}

fn depends_from_readelf(elf: &str) -> Result<String> {
    let mut packages = Vec::new();
    let needed = elf.lines().filter(|line| line.contains("(NEEDED)"));
    for library in needed.filter_map(|line| line.split_once('[')?.1.split(']').next()) {
        let Some(package) = package_of(library) else {
            bail!(
                "the program is linked with {library}: add its package to LIBRARY_PACKAGES in xtask/src/dist/debian_depends.rs"
            );
        };
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages.sort_unstable();
    let glibc = newest_glibc(elf);
    let show = |package| match (package, glibc) {
        ("libc6", Some((major, minor))) => format!("libc6 (>= {major}.{minor})"),
        (package, _) => package.to_owned(),
    };
    Ok(packages.into_iter().map(show).collect::<Vec<_>>().join(", "))
}

/// Highest glibc symbol version that the program needs.
fn newest_glibc(elf: &str) -> Option<(u32, u32)> {
    let versions = elf.split("GLIBC_").skip(1).filter_map(|rest| {
        let mut parts = rest.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_lists_packages_and_the_newest_glibc() {
        let elf = " 0x01 (NEEDED)  Shared library: [libgcc_s.so.1]\n 0x01 (NEEDED)  Shared library: [libm.so.6]\n \
                   0x01 (NEEDED)  Shared library: [libc.so.6]\n 0x1: Name: GLIBC_2.9 Flags: none\n Name: GLIBC_2.34 Flags";
        assert_eq!(depends_from_readelf(elf).unwrap(), "libc6 (>= 2.34), libgcc-s1");
    }

    #[test]
    fn depends_rejects_unknown_libraries_by_name() {
        let error = depends_from_readelf("(NEEDED) Shared library: [libssl.so.3]").unwrap_err().to_string();
        assert!(error.contains("libssl.so.3"), "{error}");
    }
}
