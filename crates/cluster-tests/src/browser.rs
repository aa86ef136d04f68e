//! A real headless Chromium, driven over pipes by the DevTools protocol.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::tools;

/// The first start reads 200 MB, perhaps during a build.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(120);
/// Limit for errors kept per test.
const LOGGED_ERRORS_MAX: usize = 100;

/// Held while a browser runs: a starting browser uses a whole core.
static BROWSER_LOCK: Mutex<()> = Mutex::new(());

/// A browser with one page. Killed on drop.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: mpsc::Receiver<Value>,
    session: String,
    next_id: u64,
    /// Events that arrived while waiting for a response.
    events: VecDeque<Value>,
    logged_errors: Vec<String>,
    _profile: tempfile::TempDir,
    _lock: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts the browser with an empty page of this size.
    #[track_caller]
    pub fn start(width: u32, height: u32) -> Self {
        let turn = BROWSER_LOCK.lock();
        let profile = tempfile::tempdir().expect("a temporary folder can be made");
        let mut process = launch_browser(profile.path(), width, height);
        let commands = process.stdin.take().expect("stdin is piped");
        let messages = read_messages(process.stdout.take().expect("stdout is piped"));
        let mut browser = Self {
            process,
            commands,
            messages,
            session: String::new(),
            next_id: 0,
            events: VecDeque::new(),
            logged_errors: Vec::new(),
            _profile: profile,
            _lock: turn,
        };
        let target = browser.send_command("Target.createTarget", &json!({"url": "about:blank"}));
        let attached =
            browser.send_command("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session has an id").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.send_command(domain, &json!({}));
        }
        browser
    }

    /// Navigates to an address and waits for the load event.
    #[track_caller]
    pub fn open(&mut self, address: &str) {
        self.events.clear();
        let gone = self.send_command("Page.navigate", &json!({"url": address}));
        assert_eq!(gone["errorText"], Value::Null, "{address}");
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive_message(deadline);
            self.record_event(event);
        }
    }

    /// Evaluates a JavaScript expression in the page; fails on an exception.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.send_command("Runtime.evaluate", &asked);
        assert_eq!(answer["exceptionDetails"], Value::Null, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, checked at every DOM change, and returns that time.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) -> Instant {
        let waiting = format!(
            "new Promise((resolve) => {{
                const watching = new MutationObserver(() => check());
                const check = () => {{ if ({expression}) {{ watching.disconnect(); resolve(''); }} }};
                watching.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
                setTimeout(() => resolve(document.body.innerText), {});
                check();
            }})",
            BROWSER_TIMEOUT.as_millis() / 2
        );
        let shown = self.evaluate(&waiting);
        assert_eq!(shown, "", "the page never fulfils {expression}");
        Instant::now()
    }

    /// Sends a key without a character, such as `Tab`, to the focused element.
    #[track_caller]
    pub fn press_key(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.send_command("Input.dispatchKeyEvent", &event);
        }
    }

    /// Emulates a media feature, such as (`prefers-color-scheme`, `dark`).
    #[track_caller]
    pub fn emulate_media_feature(&mut self, feature: &str, value: &str) {
        self.send_command("Emulation.setEmulatedMedia", &json!({"features": [{"name": feature, "value": value}]}));
    }

    /// Returns role and name of every accessibility node that is not ignored.
    #[track_caller]
    pub fn accessibility_tree(&mut self) -> Vec<(String, String)> {
        let tree = self.send_command("Accessibility.getFullAXTree", &json!({}));
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        let told = nodes.iter().filter(|node| node["ignored"] != true);
        told.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    /// Saves a screenshot of the whole page.
    #[track_caller]
    pub fn save_screenshot(&mut self, file: &Path) {
        let picture = self.send_command("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
        let bytes = base64::prelude::BASE64_STANDARD.decode(picture["data"].as_str().expect("a picture is text"));
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).expect("the folder of pictures can be made");
        }
        std::fs::write(file, bytes.expect("a picture is base64")).expect("the picture can be written");
    }

    /// Exceptions and errors that the browser or the page logged so far.
    pub fn logged_errors(&self) -> &[String] {
        &self.logged_errors
    }

    #[track_caller]
    fn send_command(&mut self, method: &str, parameters: &Value) -> Value {
        self.next_id += 1;
        let mut command = json!({"id": self.next_id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let written = write!(self.commands, "{command}\0").and_then(|()| self.commands.flush());
        written.unwrap_or_else(|error| panic!("the browser exited before {method}: {error}"));
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        loop {
            let message = self.receive_message(deadline);
            if message["id"] != self.next_id {
                self.record_event(message);
                continue;
            }
            assert_eq!(message["error"], Value::Null, "{method}");
            return message["result"].clone();
        }
    }

    #[track_caller]
    fn receive_message(&self, deadline: Instant) -> Value {
        let left = deadline.saturating_duration_since(Instant::now());
        self.messages.recv_timeout(left).unwrap_or_else(|error| panic!("no message from the browser: {error}"))
    }

    fn record_event(&mut self, event: Value) {
        let is_complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            _ => false,
        };
        if is_complaint && self.logged_errors.len() < LOGGED_ERRORS_MAX {
            self.logged_errors.push(event["params"].to_string());
        }
        self.events.push_back(event);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// DevTools commands use descriptors 3 and 4, which the shell redirects from stdin and stdout.
fn launch_browser(profile: &Path, width: u32, height: u32) -> Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
        .arg(tools::required_path("UNSKEW_CHROMIUM"));
    // Root cannot use the sandbox, and the page is our own.
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        "--force-color-profile=srgb",
    ]);
    command.arg(format!("--window-size={width},{height}")).arg(format!("--user-data-dir={}", profile.display()));
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    started.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Reads DevTools messages, which end with a zero byte, in a thread.
fn read_messages(output: impl std::io::Read + Send + 'static) -> mpsc::Receiver<Value> {
    let (sender, messages) = mpsc::channel();
    std::thread::spawn(move || {
        for message in BufReader::new(output).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&message) else { return };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    messages
}
