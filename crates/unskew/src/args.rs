//! The command line.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kinds::Release;

use crate::{inventory, lab, migrate, preflight};

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the version.
    Version,
    /// Print the differences of two releases.
    ReleasesDiff {
        /// The release to start from.
        from: Release,
        /// The release to compare it with.
        to: Release,
    },
    /// Run an API server; its flags are read as kube-apiserver reads them.
    Serve {
        /// Everything after `serve`.
        args: Vec<String>,
    },
    /// Show what is stored.
    Inventory(inventory::InventoryArgs),
    /// Judge a change of release.
    Preflight(preflight::PreflightArgs),
    /// Rewrite what is stored.
    Migrate(Box<migrate::MigrateArgs>),
    /// A command of the lab.
    Lab(lab::LabCommand),
    /// Replace this process by a command that ends with its parent.
    TiedToParent {
        /// The parent.
        parent: u32,
        /// The command and its arguments.
        command: Vec<OsString>,
    },
    /// Print the script that completes commands in a shell.
    Completion {
        /// The script.
        script: String,
    },
    /// Run a gateway; its flags are read as kube-apiserver reads them.
    Gateway {
        /// Everything after `gateway`.
        args: Vec<String>,
    },
}

/// Parses the command line; requests for help are `Err`, as in clap.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let detached = match args.get(1).and_then(|command| command.to_str()) {
        Some(::lab::parent_death::TIED_TO_PARENT_COMMAND) => return Ok(parse_tied_to_parent(&args[2..])),
        Some(lab::args::DETACHED_COMMAND) => lab::args::DetachedMode::KeepDataDir,
        Some(lab::args::DETACHED_PURGE_COMMAND) => lab::args::DetachedMode::PurgeDataDir,
        Some(_) | None => lab::args::DetachedMode::Foreground,
    };
    if detached != lab::args::DetachedMode::Foreground {
        args[1] = "up".into();
    }
    let cli = Cli::from_arg_matches(&grouped().try_get_matches_from(args)?)?;
    Ok(match cli.command {
        CliCommand::Version => Command::Version,
        CliCommand::Releases { command: ReleasesCommand::Diff { from, to } } => Command::ReleasesDiff { from, to },
        CliCommand::Serve(cli) => Command::Serve { args: cli.into_strings() },
        CliCommand::Up(up) => Command::Lab(lab::LabCommand::Up(lab::args::UpArgs { detached, ..up })),
        CliCommand::Down(down) => Command::Lab(lab::LabCommand::Down(down)),
        CliCommand::Kubeconfig(place) => Command::Lab(lab::LabCommand::Kubeconfig(place)),
        CliCommand::Status(status) => Command::Lab(lab::LabCommand::Status(status)),
        CliCommand::Inventory(args) => Command::Inventory(args),
        CliCommand::Preflight(args) => Command::Preflight(args),
        CliCommand::Migrate(args) => Command::Migrate(args),
        CliCommand::Start(order) => Command::Lab(lab::LabCommand::ServerAction("start", order)),
        CliCommand::Stop(order) => Command::Lab(lab::LabCommand::ServerAction("stop", order)),
        CliCommand::Kill(order) => Command::Lab(lab::LabCommand::ServerAction("kill", order)),
        CliCommand::Pause(order) => Command::Lab(lab::LabCommand::ServerAction("pause", order)),
        CliCommand::Resume(order) => Command::Lab(lab::LabCommand::ServerAction("resume", order)),
        CliCommand::Rollout(rollout) => Command::Lab(lab::LabCommand::Rollout(rollout)),
        CliCommand::Demo => Command::Lab(lab::LabCommand::Demo),
        CliCommand::Completion { shell } => Command::Completion { script: completion_script(shell) },
        CliCommand::Gateway(cli) => Command::Gateway { args: cli.into_strings() },
    })
}

/// The internal command by which the lab starts its processes; help and completion omit it.
fn parse_tied_to_parent(args: &[OsString]) -> Command {
    let parent = args.first().and_then(|parent| parent.to_str()?.parse().ok()).unwrap_or_default();
    Command::TiedToParent { parent, command: args.get(1..).unwrap_or_default().to_vec() }
}

/// The command line with commands grouped by job in its help; clap itself lists them without headings.
fn grouped() -> clap::Command {
    let command = Cli::command();
    let groups: String = GROUPS.iter().map(|(job, names)| group(&command, job, names)).collect();
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\nCommands:\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn group(command: &clap::Command, job: &str, names: &[&str]) -> String {
    let commands = names.iter().filter_map(|name| command.find_subcommand(name));
    let lines = commands.map(|command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:<10}  {about}\n", command.get_name())
    });
    format!("{job}:\n{}\n", lines.collect::<String>())
}

fn completion_script(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "unskew", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Several Kubernetes API servers at different versions answer as one.
#[derive(Debug, Parser)]
#[command(name = "unskew", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

/// Every command once, by job, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["serve", "gateway"]),
    ("Lab", &["up", "down", "start", "stop", "kill", "pause", "resume", "rollout", "demo", "kubeconfig"]),
    ("Look", &["status", "inventory", "preflight", "releases"]),
    ("Change", &["migrate"]),
    ("Other", &["version", "completion"]),
];

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 not well (rollout, demo, preflight, migrate), 64 wrong usage, 69 unavailable.";

const UP_EXAMPLES: &str = "Examples:
  unskew up                            three servers in the middle of an upgrade, on one SQLite file
  unskew up --servers 1.33,1.36,1.36   any number and mix
  unskew up --etcd --detach            on an etcd of its own, in the background; `unskew down` stops it
  unskew up --ephemeral                leaves nothing behind";

const STATUS_EXAMPLES: &str = "Examples:
  unskew status --watch                 live in the terminal
  unskew status --if-stopped c          what becomes unavailable if c is stopped now
  unskew status --kubeconfig ~/.kube/config   any cluster, stock kube-apiservers included; read-only";

const ROLLOUT_EXAMPLES: &str = "Examples:
  unskew rollout --to 1.37              every server, one after another
  unskew rollout --to 1.33,1.34,1.36    each to its own release
  unskew rollout --back                 where the last one began

Exits with 1 if clients noticed a wrong 404, a lost event or a shrunk discovery document.";

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Print the version
    Version,
    /// What Kubernetes releases serve and store
    Releases {
        #[command(subcommand)]
        command: ReleasesCommand,
    },
    /// Run a Kubernetes API server on SQLite or etcd
    Serve(PassthroughArgs),
    /// Run a mixed-version control plane on this machine
    #[command(after_help = UP_EXAMPLES)]
    Up(lab::args::UpArgs),
    /// Stop the lab that `unskew up` runs
    Down(lab::args::DownArgs),
    /// Print the path of the lab's kubeconfig
    Kubeconfig(lab::args::KubeconfigArgs),
    /// Show a lab, or any cluster
    #[command(after_help = STATUS_EXAMPLES)]
    Status(lab::args::StatusArgs),
    /// Show what is stored: versions, encodings, encryption keys
    #[command(after_help = inventory::EXAMPLES)]
    Inventory(inventory::InventoryArgs),
    /// Check whether servers of another release can take over what is stored
    #[command(after_help = preflight::EXAMPLES)]
    Preflight(preflight::PreflightArgs),
    /// Rewrite stored objects in the version and with the key that all servers write
    #[command(after_help = migrate::EXAMPLES)]
    Migrate(Box<migrate::MigrateArgs>),
    /// Start a server of the lab
    Start(lab::args::ServerActionArgs),
    /// Stop a server of the lab in order
    Stop(lab::args::ServerActionArgs),
    /// Kill a server of the lab without a warning
    Kill(lab::args::ServerActionArgs),
    /// Pause a server of the lab: its process stays and answers nothing
    Pause(lab::args::ServerActionArgs),
    /// Resume a paused server of the lab
    Resume(lab::args::ServerActionArgs),
    /// Move the servers of the lab to other releases, and count what clients notice
    #[command(after_help = ROLLOUT_EXAMPLES)]
    Rollout(lab::args::RolloutArgs),
    /// Show and check the mixed version proxy in a minute, on a throw-away lab
    Demo,
    /// Print the script that completes commands in a shell
    ///
    /// For example: unskew completion bash > /etc/bash_completion.d/unskew
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Run the mixed-version proxy in front of stock kube-apiservers
    Gateway(PassthroughArgs),
}

#[derive(Debug, Subcommand)]
enum ReleasesCommand {
    /// What appears, disappears and changes storage between two releases
    ///
    /// For example: unskew releases diff 1.33 1.34
    Diff {
        /// The release to start from, such as 1.33
        from: Release,
        /// The release to compare it with, such as 1.34
        to: Release,
    },
}

/// Flags of servers, which are parsed by pflag's rules and not by clap.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
struct PassthroughArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    args: Vec<OsString>,
}

impl PassthroughArgs {
    fn into_strings(self) -> Vec<String> {
        self.args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &Expect) {
        let args = line.split_whitespace().map(OsString::from);
        let shown = match parse(args) {
            Ok(command) => format!("{command:?}"),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn version_command_is_parsed() {
        check("unskew version", &expect!["Version"]);
    }

    #[test]
    fn help_groups_every_command_by_job() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Cli::command();
        let mut commands: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
        let Err(help) = parse(["unskew", "--help"].map(OsString::from)) else { panic!("help is an error to clap") };
        expect![[r#"
            Several Kubernetes API servers at different versions answer as one

            Usage: unskew <COMMAND>

            Commands:

            Run:
              serve       Run a Kubernetes API server on SQLite or etcd
              gateway     Run the mixed-version proxy in front of stock kube-apiservers

            Lab:
              up          Run a mixed-version control plane on this machine
              down        Stop the lab that `unskew up` runs
              start       Start a server of the lab
              stop        Stop a server of the lab in order
              kill        Kill a server of the lab without a warning
              pause       Pause a server of the lab: its process stays and answers nothing
              resume      Resume a paused server of the lab
              rollout     Move the servers of the lab to other releases, and count what clients notice
              demo        Show and check the mixed version proxy in a minute, on a throw-away lab
              kubeconfig  Print the path of the lab's kubeconfig

            Look:
              status      Show a lab, or any cluster
              inventory   Show what is stored: versions, encodings, encryption keys
              preflight   Check whether servers of another release can take over what is stored
              releases    What Kubernetes releases serve and store

            Change:
              migrate     Rewrite stored objects in the version and with the key that all servers write

            Other:
              version     Print the version
              completion  Print the script that completes commands in a shell

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit codes: 0 done, 1 not well (rollout, demo, preflight, migrate), 64 wrong usage, 69 unavailable.
        "#]]
        .assert_eq(&help.to_string());
    }

    #[test]
    fn server_flags_are_passed_through() {
        check("unskew serve --secure-port=0 --help", &expect![[r#"Serve { args: ["--secure-port=0", "--help"] }"#]]);
    }

    #[test]
    fn lab_commands_are_parsed_with_their_flags() {
        check(
            "unskew stop b",
            &expect![[
                r#"Lab(ServerAction("stop", ServerActionArgs { server: "b", lab: DataDirArgs { data_dir: None } }))"#
            ]],
        );
        check(
            "unskew rollout --to 1.37 --data-dir /x",
            &expect![[
                r#"Lab(Rollout(RolloutArgs { to: [R37], back: false, lab: DataDirArgs { data_dir: Some("/x") } }))"#
            ]],
        );
        check("unskew rollout", &expect!["error: the following required arguments were not provided:"]);
        check(
            "unskew up --servers 1.33,2.0",
            &expect![[
                r#"error: invalid value '2.0' for '--servers <RELEASES>': "2.0" is not a Kubernetes release this server knows: give one of 1.31 to 1.37"#
            ]],
        );
        check(
            "unskew up --etcd --etcd-servers http://x",
            &expect!["error: the argument '--etcd' cannot be used with '--etcd-servers <URLS>'"],
        );
    }

    #[test]
    fn hidden_lab_commands_are_parsed() {
        check("unskew leashed 7 serve --v=1", &expect![[r#"TiedToParent { parent: 7, command: ["serve", "--v=1"] }"#]]);
        let args = ["unskew", "stay-and-purge", "--data-dir=/x"].map(OsString::from);
        let Ok(Command::Lab(lab::LabCommand::Up(up))) = parse(args) else { panic!("it is `up`") };
        assert_eq!(up.detached, lab::args::DetachedMode::PurgeDataDir);
    }

    #[test]
    fn completion_script_lists_public_commands_only() {
        let Ok(Command::Completion { script }) = parse(["unskew", "completion", "bash"].map(OsString::from)) else {
            panic!("it is a command");
        };
        assert!(script.contains("rollout") && script.contains("--if-stopped"));
        for hidden in ["leashed", "stay"] {
            assert!(!script.contains(hidden), "{hidden} is an internal command");
        }
    }

    #[test]
    fn releases_diff_parses_known_releases_and_rejects_others() {
        check("unskew releases diff 1.33 1.34", &expect!["ReleasesDiff { from: R33, to: R34 }"]);
        check(
            "unskew releases diff 1.33 1.12",
            &expect![[
                r#"error: invalid value '1.12' for '<TO>': "1.12" is not a Kubernetes release this server knows: give one of 1.31 to 1.37"#
            ]],
        );
    }

    #[test]
    fn unknown_command_or_flag_is_rejected_by_name() {
        check("unskew upp", &expect!["error: unrecognized subcommand 'upp'"]);
        check("unskew --frob", &expect!["error: unexpected argument '--frob' found"]);
    }
}
