//! The manual page, rendered from `--help`. Pure except for running the program.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::PACK_TIMEOUT;
use crate::process::TimedCommand;
use crate::tidy::subcommands;

/// Deepest nesting of subcommands.
const DEPTH_MAX: usize = 2;

/// One command, such as `unskew serve`, with its help text.
pub(super) struct CommandHelp {
    pub(super) command: String,
    pub(super) text: String,
}

/// Runs `--help` for the program and each of its commands, in the order listed.
pub(super) fn read_command_help(binary: &Path) -> Result<Vec<CommandHelp>> {
    let mut helps = Vec::new();
    read_help_of_subcommands(binary, &[], &mut helps)?;
    Ok(helps)
}

fn read_help_of_subcommands(binary: &Path, words: &[&str], helps: &mut Vec<CommandHelp>) -> Result<()> {
    let text = TimedCommand::new(binary, PACK_TIMEOUT).args(words).arg("--help").output_text()?;
    let command = ["unskew"].iter().chain(words).copied().collect::<Vec<_>>().join(" ");
    helps.push(CommandHelp { command, text: text.clone() });
    for name in subcommands(&text) {
        if words.len() >= DEPTH_MAX {
            bail!("`unskew {} {name}` is deeper than {DEPTH_MAX} commands", words.join(" "));
        }
        read_help_of_subcommands(binary, &[words, &[name]].concat(), helps)?;
    }
    Ok(())
}

/// Renders the manual page. `date` is that of the release.
pub(super) fn render_manual(helps: &[CommandHelp], version: &str, date: &str) -> Result<String> {
    let (whole, commands) = helps.split_first().context("the program has no help")?;
    let about = whole.text.lines().next().unwrap_or_default().trim_end_matches('.');
    let mut page = format!(
        ".TH UNSKEW 1 \"{date}\" \"unskew {version}\" \"User Commands\"\n\
         .SH NAME\nunskew \\- {}\n\
         .SH SYNOPSIS\n.B unskew\n.I command\n.RI [ flags ]\n\
         .SH DESCRIPTION\n{}",
        roff_escape(about),
        roff_verbatim(&whole.text)
    );
    for CommandHelp { command, text } in commands {
        page += &format!(".SH \"{}\"\n{}", command.to_uppercase(), roff_verbatim(text));
    }
    page += ".SH FILES\n.I unskew\\-data\nwhere \\fBunskew serve\\fR keeps data, keys and a kubeconfig unless told otherwise\n";
    page += ".SH \"SEE ALSO\"\n.BR kubectl (1),\n.I /usr/share/doc/unskew\n";
    Ok(page)
}

/// Renders text verbatim, line by line.
fn roff_verbatim(text: &str) -> String {
    let lines: String = text.trim_end().lines().map(|line| format!("{}\n", roff_escape(line))).collect();
    format!(".nf\n{lines}.fi\n")
}

/// Escapes dashes and backslashes, and lines that roff would take for requests.
fn roff_escape(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn manual_page_is_rendered_from_help() {
        let help = |command: &str, text: &str| CommandHelp { command: command.to_owned(), text: text.to_owned() };
        let helps = [
            help("unskew", "Answers as one.\n\nCommands:\n  serve  Serves\n"),
            help("unskew serve", ".a --b\n'c\\d\n"),
        ];
        let page = render_manual(&helps, "1.2.3", "2026-11-15").unwrap();
        expect![[r#"
            .TH UNSKEW 1 "2026-11-15" "unskew 1.2.3" "User Commands"
            .SH NAME
            unskew \- Answers as one
            .SH SYNOPSIS
            .B unskew
            .I command
            .RI [ flags ]
            .SH DESCRIPTION
            .nf
            Answers as one.

            Commands:
              serve  Serves
            .fi
            .SH "UNSKEW SERVE"
            .nf
            \&.a \-\-b
            \&'c\ed
            .fi
            .SH FILES
            .I unskew\-data
            where \fBunskew serve\fR keeps data, keys and a kubeconfig unless told otherwise
            .SH "SEE ALSO"
            .BR kubectl (1),
            .I /usr/share/doc/unskew
        "#]]
        .assert_eq(&page);
    }
}
