//! Which mutating webhooks run a second time.

use std::collections::BTreeSet;

use api::json::JsonObject;

/// What the first round of mutating plugins leaves for the second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reinvocation {
    is_second_round: bool,
    is_requested: bool,
    /// Reinvocable webhooks that ran since the last change.
    run_before: BTreeSet<String>,
    /// Webhooks to run again.
    rerun: BTreeSet<String>,
    /// The object after the webhooks of the last round.
    last_output: Option<JsonObject>,
}

impl Reinvocation {
    /// True if the first round asks for a second one.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    pub(crate) fn begin_second_round(&mut self) {
        self.is_second_round = true;
    }

    pub(crate) fn round(&self) -> usize {
        usize::from(self.is_second_round)
    }

    /// Called before the webhooks of a round: if other plugins changed the object since, all earlier ones run again.
    pub(crate) fn begin(&mut self, is_changed: impl Fn(Option<&JsonObject>) -> bool) {
        if self.is_second_round && is_changed(self.last_output.as_ref()) {
            self.require_rerun();
        }
    }

    pub(crate) fn end(&mut self, object: Option<&JsonObject>) {
        // The second round is the last one.
        self.last_output = object.filter(|_| !self.is_second_round).cloned();
    }

    /// True if a webhook runs in this round. One that the first round skipped never starts in the second.
    pub(crate) fn includes(&self, webhook: &str) -> bool {
        !self.is_second_round || self.rerun.contains(webhook)
    }

    /// A webhook ran: `is_changed` if it changed the object, `is_reinvoked` if its policy lets it run again.
    pub(crate) fn record(&mut self, webhook: &str, is_changed: bool, is_reinvoked: bool) {
        if is_changed {
            self.request();
        }
        if is_reinvoked {
            self.run_before.insert(webhook.to_owned());
        }
    }

    /// Asks for a second round in which all reinvocable ones so far run again.
    pub(crate) fn request(&mut self) {
        self.require_rerun();
        self.is_requested = true;
    }

    fn require_rerun(&mut self) {
        self.rerun.append(&mut self.run_before);
    }
}
