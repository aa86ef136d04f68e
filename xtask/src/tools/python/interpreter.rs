//! A Python that can run pip: the machine's own, or one from the distribution's packages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, TimedCommand};
use crate::tools::packages::{self, UnpackedTool};
use crate::tools::tool_cache::ToolCache;
use crate::tools::version::ToolVersion;

/// Required by the Kubernetes client.
const VERSION_MIN: ToolVersion = ToolVersion(3, 10, 0);

/// Downloads about 20 MB of wheels.
const PIP_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const LOCAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Folder of the pip wheel in the distribution's packages.
const WHEELS_DIR: &str = "usr/share/python-wheels";

pub(crate) struct Interpreter {
    program: PathBuf,
    /// Folders of its shared libraries; empty for the machine's own Python.
    libraries: Vec<PathBuf>,
    /// The pip wheel, if the interpreter has no pip.
    pip: Option<PathBuf>,
    pub(crate) origin: String,
}

impl Interpreter {
    /// Finds the interpreter on `PATH`, or unpacks the distribution's.
    pub(crate) fn find(tool_cache: &ToolCache) -> Result<Interpreter> {
        if process::find_on_path("python3").is_none() {
            return Interpreter::unpack(tool_cache);
        }
        let show = "import sys; print(sys.version.split()[0]); print(sys.executable)";
        let shown = TimedCommand::new("python3", LOCAL_TIMEOUT).args(["-c", show]).output_text()?;
        let (version, program) = shown.trim().split_once('\n').context("python3 names no version and place")?;
        if ToolVersion::find_in(version).is_none_or(|version| version < VERSION_MIN) {
            bail!("the Kubernetes client needs Python {VERSION_MIN} or newer; python3 on PATH is {version}");
        }
        let origin = format!("Python {version} on PATH");
        let mut python = Interpreter { program: program.into(), libraries: Vec::new(), pip: None, origin };
        if python.command(LOCAL_TIMEOUT).args(["-m", "pip", "--version"]).output_text().is_err() {
            python.pip =
                Some(packages::find_or_unpack(tool_cache, "pip", &["python3-pip-whl"], &find_pip_wheel)?.executable);
        }
        Ok(python)
    }

    fn unpack(tool_cache: &ToolCache) -> Result<Interpreter> {
        let inspect = |root: &Path| {
            find_pip_wheel(root)?;
            Ok(UnpackedTool { executable: "usr/bin/python3".to_owned(), version: "of the distribution".to_owned() })
        };
        let base = packages::find_or_unpack(tool_cache, "python-base", &["python3", "python3-pip-whl"], &inspect)?;
        let libraries = packages::library_folders(&base.folder)?;
        let libraries = libraries.iter().map(|folder| base.folder.join(folder)).collect();
        let pip = Some(base.folder.join(find_pip_wheel(&base.folder)?.executable));
        Ok(Interpreter { program: base.executable, libraries, pip, origin: base.origin })
    }

    pub(crate) fn command(&self, limit: Duration) -> TimedCommand {
        let job = TimedCommand::new(&self.program, limit);
        if self.libraries.is_empty() { job } else { job.env("LD_LIBRARY_PATH", self.library_path()) }
    }

    /// Runs pip with a requirements file, which must list a hash for every file used.
    pub(crate) fn run_pip(&self, command: &[&str], requirements: &Path) -> Result<()> {
        let mut job = self.command(PIP_TIMEOUT).args(["-m", "pip"]).args(command);
        if let Some(pip) = &self.pip {
            job = job.env("PYTHONPATH", pip);
        }
        job = job.args(["--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]);
        job.arg("--requirement").arg(requirements).output_text().map(drop)
    }

    /// Value of `LD_LIBRARY_PATH`; empty for the machine's own Python.
    pub(crate) fn library_path(&self) -> String {
        self.libraries.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
    }
}

fn find_pip_wheel(root: &Path) -> Result<UnpackedTool> {
    let folder = root.join(WHEELS_DIR);
    let files = std::fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let names = files.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = names.into_iter().find(|name| name.starts_with("pip-")).context("the package has no pip in it")?;
    let version = name.split('-').nth(1).unwrap_or_default().to_owned();
    Ok(UnpackedTool { executable: format!("{WHEELS_DIR}/{name}"), version })
}
