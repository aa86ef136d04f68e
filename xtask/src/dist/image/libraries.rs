//! Dynamically linked libraries of a program and their paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::PACK_TIMEOUT;
use crate::process::TimedCommand;

/// Returns every file that the program needs to start, including the loader.
pub(super) fn linked_libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = TimedCommand::new("ldd", PACK_TIMEOUT).arg(program).output_text();
    let mut found: BTreeSet<PathBuf> = parse_ldd_output(&text.context("ldd failed")?).collect();
    found.insert(loader_of(program)?);
    Ok(found)
}

/// Returns the program interpreter (loader).
pub(super) fn loader_of(program: &Path) -> Result<PathBuf> {
    let text =
        TimedCommand::new("readelf", PACK_TIMEOUT).args(["--wide", "--program-headers"]).arg(program).output_text();
    parse_interpreter(&text.context("readelf is part of binutils")?).with_context(|| {
        format!("{} has no program interpreter: a static program needs no libraries in its image", program.display())
    })
}

/// Parses `[Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]`.
fn parse_interpreter(headers: &str) -> Option<PathBuf> {
    let (_, rest) = headers.split_once("program interpreter: ")?;
    rest.split(']').next().map(PathBuf::from)
}

/// Parses lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, and the loader, which has no arrow. The
/// kernel's vdso has no path.
pub(super) fn parse_ldd_output(text: &str) -> impl Iterator<Item = PathBuf> {
    let path = |line: &str| {
        let place = line.split_once("=> ").map_or(line, |(_, place)| place).trim();
        place.starts_with('/').then(|| PathBuf::from(place.split(" (").next().unwrap_or(place)))
    };
    text.lines().filter_map(path).collect::<Vec<_>>().into_iter()
}

/// Returns all folders below `root` that contain a library, joined by colons.
pub(super) fn library_search_path(root: &Path) -> Result<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if name.contains(".so.") {
                found.insert(folder.display().to_string());
            }
        }
    }
    Ok(found.into_iter().collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_interpreter_are_parsed() {
        let text = "\tlinux-vdso.so.1 (0x00007f4026b12000)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f4023b20000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f4026b14000)\n";
        let found: Vec<_> = parse_ldd_output(text).collect();
        assert_eq!(found, [Path::new("/lib/x86_64-linux-gnu/libm.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
        let headers = "      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]\n";
        assert_eq!(parse_interpreter(headers), Some(PathBuf::from("/lib64/ld-linux-x86-64.so.2")));
        assert_eq!(parse_interpreter("  LOAD"), None);
    }
}
