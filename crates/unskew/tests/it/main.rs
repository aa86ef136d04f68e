//! The binary as a user meets it: a real process, its output and its exit code.

use std::process::Command;

use expect_test::{Expect, expect};

#[track_caller]
fn check(args: &[&str], expected: &Expect) {
    let output = Command::new(env!("CARGO_BIN_EXE_unskew")).args(args).output().expect("the binary was built");
    let code = output.status.code().expect("it exits by itself");
    let first_line = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned();
    expected.assert_eq(&format!(
        "{code}\nout: {:?}\nerr: {:?}",
        first_line(&output.stdout),
        first_line(&output.stderr)
    ));
}

#[test]
fn version_command_prints_the_version() {
    check(
        &["version"],
        &expect![[r#"
        0
        out: "unskew 0.1.0"
        err: """#]],
    );
}

#[test]
fn wrong_usage_exits_64() {
    check(
        &["--frob"],
        &expect![[r#"
        64
        out: ""
        err: "error: unexpected argument '--frob' found""#]],
    );
}

#[test]
fn help_is_printed_to_standard_output() {
    check(
        &["--help"],
        &expect![[r#"
        0
        out: "Several Kubernetes API servers at different versions answer as one"
        err: """#]],
    );
}
