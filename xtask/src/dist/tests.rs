//! Tests of both packages with a script in place of the program.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Responds like the program to the commands that packing runs.
const STAND_IN_SCRIPT: &str = "#!/bin/sh
case \"$*\" in
    version) echo unskew 1.2.3 ;;
    --help) printf 'Answers as one\\n\\nCommands:\\n  serve  Serves\\n\\nOptions:\\n  --help\\n' ;;
    'serve --help') echo Serves. ;;
    completion*) echo \"complete for $2\" ;;
    *) exit 64 ;;
esac
";

/// A temporary folder, removed on drop.
pub(super) struct DistTestFolder(pub(super) PathBuf);

impl DistTestFolder {
    pub(super) fn new(name: &str) -> DistTestFolder {
        let folder = std::env::temp_dir().join(format!("xtask-dist-{name}-{}", std::process::id()));
        remove_folder_if_exists(&folder).unwrap();
        fs::create_dir_all(&folder).unwrap();
        DistTestFolder(folder)
    }

    fn write_stand_in(&self, text: &str) -> PathBuf {
        let file = self.0.join("stand-in");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        file
    }

    fn pack(&self, name: &str) -> Result<[PathBuf; 2]> {
        let into = self.0.join(name);
        fs::create_dir_all(&into).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        pack(root, &self.0.join("stand-in"), &test_release(), &into)
    }
}

impl Drop for DistTestFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

pub(super) fn test_release() -> DistRelease {
    DistRelease {
        version: "1.2.3".to_owned(),
        machine: "x86_64".to_owned(),
        architecture: "amd64".to_owned(),
        commit_epoch_seconds: "1700000000".to_owned(),
        depends: "libc6 (>= 2.34)".to_owned(),
        licences: "serde 1.0 MIT\n".to_owned(),
    }
}

/// Paths below a folder, with their modes.
pub(super) fn files_with_modes(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            found.insert(format!("{} {mode:o}", path.strip_prefix(folder).unwrap().display()));
        }
    }
    found
}

#[track_caller]
fn check_listed(folder: &Path, expected: &[&str]) {
    let found = files_with_modes(folder);
    for path in expected {
        assert!(found.contains(*path), "{path} is not in {found:#?}");
    }
}

#[test]
fn archive_and_package_hold_all_files_and_metadata() {
    let scene = DistTestFolder::new("whole");
    scene.write_stand_in(STAND_IN_SCRIPT);
    let [archive, package] = scene.pack("out").unwrap();
    let (from_archive, from_package) = (scene.0.join("a"), scene.0.join("p"));
    archives::extract_tar(&archive, &from_archive).unwrap();
    archives::extract_deb(&package, &from_package).unwrap();
    check_listed(
        &from_archive.join("unskew-1.2.3-x86_64"),
        &[
            "bin/unskew 755",
            "share/man/man1/unskew.1 644",
            "completions/unskew.bash 644",
            "completions/unskew.fish 644",
            "completions/_unskew 644",
            "LICENSE 644",
            "LICENSES-OF-CRATES 644",
            "examples/monitoring/alerts.yaml 644",
            "examples/deploy/unskew.service 644",
        ],
    );
    check_listed(
        &from_package,
        &[
            "usr/bin/unskew 755",
            "usr/share/man/man1/unskew.1 644",
            "usr/share/bash-completion/completions/unskew 644",
            "usr/share/fish/vendor_completions.d/unskew.fish 644",
            "usr/share/zsh/vendor-completions/_unskew 644",
            "usr/share/doc/unskew/copyright 644",
            "usr/share/doc/unskew/examples/deploy/unskew.service 644",
        ],
    );
    let manual = fs::read_to_string(from_package.join("usr/share/man/man1/unskew.1")).unwrap();
    assert!(manual.contains("\"2023-11-14\" \"unskew 1.2.3\"") && manual.contains(".SH \"UNSKEW SERVE\""), "{manual}");
    let fields = TimedCommand::new("dpkg-deb", PACK_TIMEOUT).arg("--field").arg(&package).output_text().unwrap();
    for line in ["Package: unskew\n", "Version: 1.2.3\n", "Architecture: amd64\n", "Depends: libc6 (>= 2.34)\n"] {
        assert!(fields.contains(line), "{line} is not in {fields}");
    }
    assert!(!scene.0.join("out/stage").exists());
}

#[test]
fn archive_bytes_are_reproducible() {
    let scene = DistTestFolder::new("same");
    let program = scene.write_stand_in(STAND_IN_SCRIPT);
    let first = scene.pack("first").unwrap();
    // The archives must not depend on time or mode of the built file.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(3600);
    fs::File::options().append(true).open(&program).unwrap().set_modified(later).unwrap();
    let second = scene.pack("second").unwrap();
    for (first, second) in first.iter().zip(&second) {
        assert!(fs::read(first).unwrap() == fs::read(second).unwrap(), "{} differs", second.display());
    }
}

#[test]
fn program_of_another_version_is_rejected() {
    let scene = DistTestFolder::new("other");
    scene.write_stand_in(&STAND_IN_SCRIPT.replace("unskew 1.2.3", "unskew 1.2.2"));
    let error = scene.pack("out").unwrap_err().to_string();
    assert!(error.contains("prints `unskew 1.2.2`"), "{error}");
}
