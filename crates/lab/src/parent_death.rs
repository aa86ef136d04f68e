//! Child processes that are killed when the lab dies, even by SIGKILL.
//!
//! Linux sends a child its parent-death signal only if the child itself requested it with `prctl`. The lab therefore
//! starts every child as this binary, which requests the signal and then executes the real program; the setting
//! survives `execve`.
//!
//! The signal is tied to the parent *thread*, so the lab starts all children on its main thread.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// Hidden subcommand of `unskew` that calls [`exit_with_parent`] and then executes the program.
pub const TIED_TO_PARENT_COMMAND: &str = "leashed";

/// This binary, even if its file was replaced by a newer build.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Returns a command that runs this binary with `args` tied to this process, with its output in `log`.
pub(crate) fn command_tied_to_parent(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    log: &Path,
) -> std::io::Result<Command> {
    // Keep the log of the previous run: it may show why the process exited.
    let _ = std::fs::rename(log, log.with_extension("previous.log"));
    let output = std::fs::File::create(log)?;
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("unskew").arg(TIED_TO_PARENT_COMMAND).arg(std::process::id().to_string());
    command.args(args.into_iter().map(Into::into));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    // Ctrl-C in a terminal signals the whole foreground group; the lab itself stops its servers.
    command.process_group(0);
    Ok(command)
}

/// Requests SIGKILL when the parent thread ends. Fails if `parent` is gone already.
pub fn exit_with_parent(parent: u32) -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let expected = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != expected {
        return Err(std::io::Error::other(format!("the lab of process {parent} has ended")));
    }
    Ok(())
}
