//! The query parameters of list and watch requests.

use std::borrow::Cow;

use super::{ResourceTarget, Verb};
use crate::query;
use crate::selector::{FieldSelector, LabelSelector};
use crate::validation;

/// Refines the verb from the method: without a name, get becomes list or watch, and delete becomes deletecollection.
pub(super) fn apply_list_query<'a>(query: &'a str, target: &mut ResourceTarget<'a>) {
    let is_nameless = target.name.is_empty();
    if !is_nameless || !matches!(target.verb, Verb::Get | Verb::Delete) {
        return;
    }
    let options = ListQuery::parse(query);
    if target.verb == Verb::Delete {
        target.verb = Verb::DeleteCollection;
    } else {
        let is_watch = options.watch.as_deref().is_some_and(query::is_true_parameter);
        target.verb = if is_watch { Verb::Watch } else { Verb::List };
        if let Some(name) = options.required_name() {
            target.name = Cow::Owned(name);
        }
    }
    target.field_selector = options.field_selector.unwrap_or_default();
    target.label_selector = options.label_selector.unwrap_or_default();
}

/// The first value of each relevant parameter.
#[derive(Default)]
struct ListQuery<'a> {
    watch: Option<Cow<'a, str>>,
    field_selector: Option<Cow<'a, str>>,
    label_selector: Option<Cow<'a, str>>,
    limit: Option<Cow<'a, str>>,
    timeout_seconds: Option<Cow<'a, str>>,
}

impl<'a> ListQuery<'a> {
    fn parse(query: &'a str) -> Self {
        let mut options = Self::default();
        for (key, value) in query::raw_pairs(query) {
            let slot = match &*key {
                "watch" => &mut options.watch,
                "fieldSelector" => &mut options.field_selector,
                "labelSelector" => &mut options.label_selector,
                "limit" => &mut options.limit,
                "timeoutSeconds" => &mut options.timeout_seconds,
                _ => continue,
            };
            if slot.is_none() {
                *slot = query::decode(value);
            }
        }
        options
    }

    /// Returns the name that the field selector requires. `None` if any option is malformed, because Kubernetes then
    /// ignores all options but `watch`, or if the name is not a valid path segment.
    fn required_name(&self) -> Option<String> {
        let name = name_required_by(self.field_selector.as_deref()?)?;
        let is_integer = |value: &Option<Cow<'_, str>>| value.as_ref().is_none_or(|value| value.parse::<i64>().is_ok());
        let is_valid = is_integer(&self.limit)
            && is_integer(&self.timeout_seconds)
            && self.label_selector.as_ref().is_none_or(|selector| LabelSelector::parse(selector).is_ok())
            && validation::validate_path_segment_name(&name).is_empty();
        is_valid.then_some(name)
    }
}

/// Returns the value that the selector requires of `metadata.name`.
fn name_required_by(selector: &str) -> Option<String> {
    if !selector.contains("metadata.name") {
        return None;
    }
    // Fast path for informers of a single object: one term, no escapes.
    if let Some(name) = selector.strip_prefix("metadata.name=")
        && !name.contains([',', '=', '\\'])
    {
        return Some(name.to_owned());
    }
    let selector = FieldSelector::parse(selector).ok()?;
    selector.requires_exact_match("metadata.name").map(str::to_owned)
}
