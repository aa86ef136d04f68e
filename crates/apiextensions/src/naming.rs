//! Which names a definition gets, and whether it is established.
//!
//! Names are unique within a group: plural, singular and short names share one set, kind and list kind another. Names of
//! built-in resources do not count. A definition that was established once stays so with the names that it has.

use std::collections::HashSet;

use crate::definition::{Definition, DefinitionCondition, ResourceNames};

/// The decision about the names of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamingDecision {
    /// The names that are served from now on: the requested ones, except those in conflict.
    pub accepted_names: ResourceNames,
    /// `NamesAccepted`, then `Established`.
    pub conditions: [DefinitionCondition; 2],
}

/// Decides about the names of a definition; `None` if everything is as decided before. `others` are the other definitions
/// of its group.
pub fn decide_names<'a>(
    definition: &Definition,
    others: impl Iterator<Item = &'a Definition>,
) -> Option<NamingDecision> {
    let (requested, accepted) = (&definition.spec.names, &definition.status.accepted_names);
    if requested == accepted && definition.is_established() {
        return None;
    }
    let mut used = UsedNames::default();
    others.for_each(|other| used.add(&other.status.accepted_names));
    used.add(accepted);
    let mut conflict = None;
    let mut names = accepted.clone();
    let mut choose = |reason: &'static str, requested: &str, accepted: &mut String, used: &HashSet<&str>| {
        if requested == accepted.as_str() || !used.contains(requested) {
            requested.clone_into(accepted);
        } else {
            // As in kube-apiserver the last conflict is shown.
            conflict = Some((reason, already_in_use(requested)));
        }
    };
    choose("PluralConflict", &requested.plural, &mut names.plural, &used.resources);
    choose("SingularConflict", &requested.singular, &mut names.singular, &used.resources);
    match short_name_conflict(&requested.short_names, &accepted.short_names, &used.resources) {
        Some(message) => conflict = Some(("ShortNamesConflict", message)),
        None => names.short_names.clone_from(&requested.short_names),
    }
    let mut choose = |reason: &'static str, requested: &str, accepted: &mut String| {
        if requested == accepted.as_str() || !used.kinds.contains(requested) {
            requested.clone_into(accepted);
        } else {
            conflict = Some((reason, already_in_use(requested)));
        }
    };
    choose("KindConflict", &requested.kind, &mut names.kind);
    choose("ListKindConflict", &requested.list_kind, &mut names.list_kind);
    names.categories.clone_from(&requested.categories);
    let names_accepted = match conflict {
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", "False", reason, &message),
    };
    let conditions = [names_accepted.clone(), established_condition(definition, &names_accepted)];
    let is_known = |condition: &DefinitionCondition| definition.status.conditions.contains(condition);
    let is_unchanged = names == *accepted && conditions.iter().all(is_known);
    (!is_unchanged).then_some(NamingDecision { accepted_names: names, conditions })
}

/// `Established` follows accepted names at once: every server sees both in the same revision.
fn established_condition(definition: &Definition, names_accepted: &DefinitionCondition) -> DefinitionCondition {
    let known = definition.status.conditions.iter().find(|known| known.condition_type == "Established");
    match known {
        Some(established) if established.status == "True" => established.clone(),
        _ if names_accepted.status == "True" => {
            condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
        }
        Some(not_established) => not_established.clone(),
        None => condition("Established", "False", "NotAccepted", "not all names are accepted"),
    }
}

fn short_name_conflict(requested: &[String], accepted: &[String], used: &HashSet<&str>) -> Option<String> {
    let is_taken = |name: &&String| !accepted.contains(name) && used.contains(name.as_str());
    let mut conflicts: Vec<String> = requested.iter().filter(is_taken).map(|name| already_in_use(name)).collect();
    conflicts.dedup();
    match conflicts.len() {
        0 => None,
        1 => conflicts.pop(),
        _ => Some(format!("[{}]", conflicts.join(", "))),
    }
}

fn already_in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

/// A condition without its time, which the writer sets.
pub fn condition(condition_type: &str, status: &str, reason: &str, message: &str) -> DefinitionCondition {
    DefinitionCondition {
        condition_type: condition_type.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// The accepted names of a group.
#[derive(Default)]
struct UsedNames<'a> {
    resources: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

impl<'a> UsedNames<'a> {
    fn add(&mut self, names: &'a ResourceNames) {
        self.resources.extend([names.plural.as_str(), &names.singular]);
        self.resources.extend(names.short_names.iter().map(String::as_str));
        self.kinds.extend([names.kind.as_str(), &names.list_kind]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(names: &str, accepted: &str, conditions: &[(&str, &str)]) -> Definition {
        let names_of = |notation: &str| {
            let mut words = notation.split(' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (plural, singular, kind, list_kind) = (word(), word(), word(), word());
            let short_names: Vec<String> = words.map(str::to_owned).collect();
            json!({"plural": plural, "singular": singular, "kind": kind, "listKind": list_kind, "shortNames": short_names})
        };
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(condition_type, status)| json!({"type": condition_type, "status": status}))
            .collect();
        let object = json!({
            "metadata": {"name": "x"},
            "spec": {"group": "ex.io", "scope": "Cluster", "names": names_of(names)},
            "status": {"acceptedNames": names_of(accepted), "conditions": conditions},
        });
        Definition::from_object(object.as_object().unwrap()).unwrap()
    }

    #[track_caller]
    fn check(definition: &Definition, others: &[Definition], expected: &str) {
        let decided = decide_names(definition, others.iter());
        let shown = decided.map_or("nothing".to_owned(), |NamingDecision { accepted_names: names, conditions }| {
            let conditions =
                conditions.map(|found| format!("{}={} {}", found.condition_type, found.status, found.reason));
            let ResourceNames { plural, singular, kind, list_kind, short_names, .. } = names;
            format!("{plural},{singular},{kind},{list_kind},{} {}", short_names.join("+"), conditions.join(" "))
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn names_are_accepted_and_established_together() {
        let new = definition("foos foo Foo FooList fo", "", &[]);
        let accepted = "foos,foo,Foo,FooList,fo NamesAccepted=True NoConflicts Established=True InitialNamesAccepted";
        check(&new, &[], accepted);
        check(&new, &[definition("bars bar Bar BarList", "bars bar Bar BarList", &[])], accepted);
    }

    #[test]
    fn conflicting_names_are_not_accepted_and_the_last_is_shown() {
        let other = definition("x", "bars foo Foo BarList fo", &[]);
        check(
            &definition("foos foo Foo FooList fo", "", &[]),
            &[other],
            "foos,,,FooList, NamesAccepted=False KindConflict Established=False NotAccepted",
        );
    }

    #[test]
    fn established_definition_stays_so_with_conflicting_new_names() {
        let known = definition("foos foo Foo FooList new", "foos foo Foo FooList old", &[("Established", "True")]);
        let other = definition("x", "bars bar Bar BarList new", &[]);
        check(&known, &[other], "foos,foo,Foo,FooList,old NamesAccepted=False ShortNamesConflict Established=True ");
        let done = definition("foos foo Foo FooList", "foos foo Foo FooList", &[("Established", "True")]);
        check(&done, &[], "nothing");
    }
}
